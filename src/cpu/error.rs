//! What can go wrong in a step or when the backend is made.

use crate::quant::TensorType;

/// Why the backend could not be made or a step could not be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A K/V type that no cache row can have.
    #[error("the {which} cache cannot hold {found}: expected f16, q8_0 or q4_0")]
    KvType {
        /// `K` or `V`.
        which: &'static str,
        /// The type asked for.
        found: TensorType,
    },
    /// An option outside its range.
    #[error("option {name}: expected {expected}, got {found}")]
    Option {
        /// Which option.
        name: &'static str,
        /// What it may be.
        expected: String,
        /// What it was.
        found: usize,
    },
    /// The system gave no threads.
    #[error("cannot start {threads} worker threads")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// The system's reason.
        source: rayon::ThreadPoolBuildError,
    },
    /// A step of no token, or of more than a chunk.
    #[error("a step has 1 to {chunk} tokens, got {found}")]
    StepLength {
        /// The chunk size of the backend.
        chunk: usize,
        /// Tokens of the step.
        found: usize,
    },
    /// A step past the end of the context.
    #[error("tokens up to position {end} do not fit the context of {ctx}")]
    Context {
        /// One past the last position.
        end: usize,
        /// Positions of the context.
        ctx: usize,
    },
    /// A token id that no embedding row belongs to.
    #[error("token {id} at position {pos} is outside the vocabulary of {vocab}")]
    Token {
        /// The id.
        id: u32,
        /// Where it stands.
        pos: usize,
        /// Rows of the embedding.
        vocab: usize,
    },
    /// A slot that the arena does not have.
    #[error("state slot {slot} does not exist, there are {slots}")]
    Slot {
        /// The number asked for.
        slot: u32,
        /// Slots of the arena.
        slots: usize,
    },
    /// Router logits that leave no choice of experts.
    #[error("layer {layer}, position {pos}")]
    Router {
        /// Layer of the router.
        layer: usize,
        /// Position of the token.
        pos: usize,
        /// How many were finite.
        source: crate::ops::TooFewFinite,
    },
    /// Logits with a NaN or an infinity.
    #[error("non-finite logits at position {pos}")]
    NonFinite {
        /// Position of the row.
        pos: usize,
    },
    /// The step's `cancel` said so. Its target slot and its K/V rows mean nothing now.
    #[error("cancelled before layer {layer}")]
    Cancelled {
        /// The layer that was not computed.
        layer: usize,
    },
}
