//! The integration tests: one binary, a module for each topic.

#![cfg(test)]

mod bench;
mod chat;
mod cli;
#[cfg(feature = "vulkan")]
mod device;
mod engine;
mod generate;
mod gguf;
mod grammar;
#[cfg(feature = "vulkan")]
mod kernels;
mod kv;
mod oracle;
mod repl;
mod run;
mod schedule;
mod serve;
mod support;
mod tidy;
mod tokenizer;
