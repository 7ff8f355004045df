//! The integration tests: one binary, a module for each topic.

mod cli;
mod gguf;
mod support;
mod tokenizer;
