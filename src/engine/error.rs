//! What can go wrong between opening a model and its last token.

use std::path::PathBuf;

use super::gpu::DeviceError;
use crate::util::units::grouped;
use crate::{cpu, model, ops, tokenizer};

/// What is wrong with a direction file.
#[derive(Debug, thiserror::Error)]
pub enum SteeringProblem {
    /// It cannot be read.
    #[error(transparent)]
    Unreadable(std::io::Error),
    /// It holds something else.
    #[error(transparent)]
    Content(ops::SteeringError),
}

/// An engine error. Its text says what and where; a next step follows on a `hint:` line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The model file could not be used.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// The vocabulary of the model file could not be used.
    #[error("{}: tokenizer", model.display())]
    Tokenizer {
        /// The model file.
        model: PathBuf,
        /// What is wrong with it.
        source: tokenizer::Error,
    },
    /// The CPU backend failed.
    #[error(transparent)]
    Cpu(#[from] cpu::Error),
    /// The Vulkan backend failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device was lost, and could not take over where it stopped.
    #[error("cannot go on after the device was lost")]
    Recovery(#[source] Box<Error>),
    /// A context above what the model was made for.
    #[error(
        "--ctx {} exceeds the model's context length of {}\nhint: use a smaller --ctx, or --ctx-force to try anyway",
        asked,
        limit
    )]
    ContextTooLarge {
        /// The context asked for, in tokens.
        asked: usize,
        /// The model's own limit, in tokens.
        limit: usize,
    },
    /// A backend that this build or machine does not have.
    #[error("{what}\nhint: {hint}")]
    BackendUnavailable {
        /// What is missing.
        what: String,
        /// The next step.
        hint: &'static str,
    },
    /// The direction file of steering could not be used.
    #[error("cannot steer by {}", path.display())]
    Steering {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        problem: SteeringProblem,
    },
    /// Another process holds the instance lock, or it cannot be taken. Not transparent: the cause
    /// must stay in the chain, where exit codes are decided.
    #[error("cannot load the model")]
    Lock(#[from] super::lock::Error),
    /// An empty prompt has no next token.
    #[error("the prompt has no tokens")]
    EmptyPrompt,
    /// The prompt or the next token does not fit.
    #[error(
        "{} tokens do not fit a context of {}\nhint: raise --ctx or shorten the prompt",
        grouped(*needed as u64), grouped(*ctx as u64)
    )]
    ContextFull {
        /// Tokens the session would hold.
        needed: usize,
        /// Tokens it can hold.
        ctx: usize,
    },
    /// An id outside the vocabulary.
    #[error("token id {id} at position {at} is outside the vocabulary of {vocab} rows")]
    BadToken {
        /// The id.
        id: u32,
        /// Its position in the prompt or session.
        at: usize,
        /// Rows of the vocabulary.
        vocab: usize,
    },
    /// A row of logits without a single number that can be drawn.
    #[error("none of the {rows} logits at position {position} is finite and allowed")]
    NoFiniteLogit {
        /// Rows of the vocabulary.
        rows: usize,
        /// Tokens before the one that was to be drawn.
        position: usize,
    },
    /// A step that needs the logits or state of an earlier one.
    #[error("session {0} has not evaluated a prompt")]
    NoState(u32),
    /// A step of a session whose prompt is not finished.
    #[error("session {0} is in the middle of a prompt")]
    Unfinished(u32),
    /// A slice for a session that is not being brought to a prompt.
    #[error("session {0} has no prompt under way")]
    NoPrompt(u32),
    /// A slice while a chunk of another session is open.
    #[error("session {session} cannot advance in the middle of a chunk of session {open}")]
    ChunkOpen {
        /// The session that was to advance.
        session: u32,
        /// The one whose chunk is open.
        open: u32,
    },
    /// Rules of drawing that leave nothing.
    #[error("session {0} would have no token that can be drawn")]
    NothingAllowed(u32),
    /// An id that was never given out, or whose session is closed.
    #[error("there is no session {0}")]
    NoSession(u32),
    /// A snapshot that was released or cut off.
    #[error("session {session} has no snapshot {snapshot}")]
    NoSnapshot {
        /// The session.
        session: u32,
        /// The snapshot.
        snapshot: u64,
    },
    /// All slots are held.
    #[error(
        "all {slots} recurrent-state slots are held\nhint: release a snapshot, close a session, or open the engine with more slots"
    )]
    NoSlot {
        /// Slots of the arena.
        slots: usize,
    },
}

impl Error {
    /// Whether the device was lost: what it held has to be made anew.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Device(error) if error.is_lost())
    }
}
