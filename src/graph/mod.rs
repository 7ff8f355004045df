//! The model on a Vulkan device: its weights and caches, and the order in which kernels run.
//!
//! Graphs are recorded when the backend is made and replayed for every step. What changes between steps is data:
//! the records of the control block. State: a session's K and V rows are a range of pages ([`Kv`]), its recurrent
//! state a slot; a step names the slot it reads and the one it writes, and as long as they differ, a step that fails or
//! is cancelled has changed nothing that was valid.
//!
//! Deliberately absent: which tokens to draw, what a session holds, when a slot may be written again.

mod error;
mod step;

mod bound;
mod bytes;
mod device;
mod fill;
mod import;
mod load;
mod memory;
mod pattern;
mod weights;

mod caches;
mod kernels;
mod sampling;
mod scratch;

mod decode;
mod prefill;
mod profile;
mod programs;

mod backend;
mod chunk;
mod state;

pub use crate::vulkan::{Drill, Request};
pub use backend::{Backend, Options, Source, scratch_bytes};
pub use chunk::Sliced;
pub use device::{Gpu, Setup};
pub use error::Error;
pub use load::{Loaded, Way};
pub use profile::{KernelSpent, Spent};
pub use state::{PART_BYTES, RawPart, Reading};
pub use step::{Chunk, Found, Kv, Row, Rules, Sieve};

#[cfg(test)]
mod isa;
