//! Block formats on the CPU: exact decoding, quantizers, integer dot products (model.md 5).

mod format;

pub use format::TensorType;
