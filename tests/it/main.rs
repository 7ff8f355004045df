//! The integration tests: one binary, a module for each topic.

mod support;
mod tokenizer;
