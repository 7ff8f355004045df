//! A chunk of prompt tokens: which kernels run after one another (vulkan.md 2.4).
//!
//! Commands are recorded for each layer and size class, with the true number of tokens in the control block, so that a
//! chunk is submitted in slices of layers, and of ranges of query rows where the attention of a layer is long. A class
//! larger than the chunk costs the difference in idle workgroups alone.

mod build;
mod kernels;
mod pace;
mod run;
mod scratch;

#[cfg(test)]
pub(super) use build::graphs;
use build::{Chunks, record};
pub(super) use kernels::ChunkKernels;
pub(super) use run::{Prefill, Progress, sizes};
pub(super) use scratch::{ChunkScratch, scratch_bytes};
