//! The integration tests: one binary, a module for each topic.

#![cfg(test)]

mod chat;
mod cli;
mod engine;
mod generate;
mod gguf;
#[cfg(feature = "vulkan")]
mod kernels;
mod oracle;
mod run;
mod support;
mod tidy;
mod tokenizer;
