//! The control block: what changes from step to step, one record of 256 bytes for each row of a batch.
//!
//! Commands are recorded once, so positions, slots and tokens are data. A decode step has a record for
//! each of its sessions; a prefill chunk has one. Every kernel sees the block at binding 0; only the
//! kernel that starts a step writes it, from the host's mailbox. `shaders/include/control.glsl` has the
//! same fields.

use bytemuck::{Pod, Zeroable};

/// One record. Fields are words, so that no padding can differ between compilers.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct Row {
    /// Position of the first token of the step.
    pub pos: u32,
    /// Tokens of the step: 1 in decode, the length of the chunk in prefill.
    pub tokens: u32,
    /// Id of the token of a decode step.
    pub token: u32,
    /// [`Row::IDLE`] and, set by the device, [`Row::FAILED`].
    pub flags: u32,
    /// State slot that is read.
    pub source: u32,
    /// State slot that is written; may be the source.
    pub target: u32,
    /// First page of the session's K/V rows in the buffers of every layer.
    pub page: u32,
    /// Decode attention: keys of a split, a multiple of 64.
    pub span: u32,
    /// Prefill attention: first token of the chunk that this slice computes.
    pub query_first: u32,
    /// Prefill attention: tokens of this slice.
    pub query_tokens: u32,
    /// Sampling: where the row's bit mask over the vocabulary starts, in words.
    pub mask: u32,
    /// Sampling: first (id, addend) pair of the row.
    pub bias: u32,
    /// Sampling: number of pairs.
    pub bias_len: u32,
    /// Sampling: candidates are sought at or above the best logit minus this.
    pub margin: f32,
    /// Sampling: the reciprocal of the temperature, for the sum over the vocabulary.
    pub inverse_temperature: f32,
    /// Sampling: at most so many candidates are wanted; 0 is all above the margin.
    pub top_k: u32,
    /// Row of the buffer of logits that belongs to the sequence.
    pub logits: u32,
    /// Nothing yet.
    pub reserved: [u32; 32],
    /// Nothing yet.
    pub reserved_end: [u32; 15],
}

const _: () = assert!(size_of::<Row>() == 256);

impl Default for Row {
    fn default() -> Self {
        Self::zeroed()
    }
}

impl Row {
    /// The row takes no part: it writes nothing.
    pub const IDLE: u32 = 1;
    /// A logit was not finite.
    pub const FAILED: u32 = 2;
}

/// Most rows of a step.
pub const MAX_ROWS: usize = 8;
/// Positions of a K/V page.
pub const PAGE_TOKENS: usize = 64;
/// The same, as kernels count.
pub(super) const PAGE_ROWS: u32 = 64;
