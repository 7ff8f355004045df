//! The GGUF container: reading with strict limits, and writing. Knows no model.
//!
//! [`File::open`] maps a file, parses its header and checks every count, length, offset and size in
//! it before anything is used; after that, a [`Tensor`]'s data is a slice that is known to exist.
//! Strings and arrays are never copied: they are read from the mapping when asked for. What a
//! model needs from its metadata and tensors is not decided here but in `model`.

mod error;
mod map;
mod read;
mod reader;
mod tensor;
mod value;
mod write;

#[cfg(test)]
mod tests;

pub use error::{Error, Problem, printable};
pub use read::{File, MAX_NESTING};
pub use reader::{Buffer, RangeReader};
pub use tensor::Tensor;
pub use value::{Array, Metadata, Strings, Value, ValueType};
pub use write::{Header, TensorPlan, Writer};
