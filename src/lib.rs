#![doc = include_str!("ARCHITECTURE.md")]

// Layer 0: base. Layer 1: formats and text. Layer 2: device, model, mathematics. Layer 4: execution.
// Layer 5: engine. Layer 6: sessions on disk. Layer 7: front ends. Layer 8: shell. `tests/it/tidy.rs` checks every use.
pub mod util;

pub mod cli;
pub mod gguf;
pub mod quant;
pub mod term;
pub mod tokenizer;

pub mod chat;

pub mod model;
pub mod ops;
#[cfg(feature = "vulkan")]
pub mod vulkan;

#[cfg(feature = "vulkan")]
pub mod kernels;

pub mod cpu;
#[cfg(feature = "vulkan")]
pub mod graph;

pub mod engine;

pub mod kv;

pub mod bench;
pub mod server;
pub mod tools;

pub mod commands;
