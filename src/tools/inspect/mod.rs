//! What is in a model file: header, tokenizer, tensors, groups, traffic, memory. Also two checks
//! that read all of it: whether every number in it is finite, and how it differs from another file.
//!
//! `report` collects, `text` prints for people, JSON is the report itself. Any GGUF file can be
//! looked at; one that is no runnable model gets a line saying why.

mod command;
mod diff;
mod report;
mod text;
mod verify;

#[cfg(test)]
mod tests;

pub use command::{Error, Finding, InspectOptions, inspect};
pub use diff::{Diff, KeyChange, TensorChange};
pub use report::Report;
pub use verify::{Verified, verify};
