//! This one model: dimensions, weights by name, memory arithmetic.
//!
//! [`Shape`] is read from a file's metadata and has every relation between its numbers checked;
//! `layout` says which tensors such a model has; [`Weights`] are typed places of those tensors in
//! the mapped file. A [`Model`] that exists is complete: nobody after this checks a tensor again.
//! Nothing here computes with weights, and nothing knows tokens or prompts.

mod error;
mod file;
mod fingerprint;
pub mod layout;
pub mod memory;
pub mod mtp;
mod published;
mod shape;
mod slot;
mod state;
pub mod summary;
mod validate;
mod weights;

pub use error::{Error, Invalid};
pub use file::{Model, Vocabulary};
pub use fingerprint::extend as extend_fingerprint;
pub use shape::Shape;
pub use slot::SlotId;
pub use state::{PART_ROWS, StateLayout, StatePart};
pub use weights::{Attention, Experts, Layer, Matrix, Mixer, Moe, Recurrent, Vector, Weights};
