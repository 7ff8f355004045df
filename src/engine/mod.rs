//! What every front end sees: open a model, sync a session to a prompt, decode, sample.
//!
//! [`Engine`] is the interface, [`ModelEngine`] the one on this machine. A session is a sequence of
//! tokens with its state; how much of it survives when a prompt changes is decided in `sync`, and
//! what makes that cheap is that recurrent states live in slots which are pinned, never copied.
//!
//! Deliberately absent: chat text, cache files, clients, terminals.

mod anchors;
mod api;
mod backend;
mod error;
pub mod generate;
#[cfg(feature = "vulkan")]
mod gpu;
#[cfg(not(feature = "vulkan"))]
#[path = "no_gpu.rs"]
mod gpu;
mod local;
pub mod lock;
mod open;
mod options;
mod power;
mod prefill;
mod recover;
mod report;
pub mod sample;
mod session;
mod slots;
mod state;
mod steering;
mod steps;
mod sync;
mod text;
mod turns;

pub use api::{
    BackendKind, Draws, Engine, Info, KernelTime, LoadReport, Phase, Profile, SessionId,
    SnapshotId, SyncControl, Unattended,
};
pub use error::{Error, SteeringProblem};
pub use gpu::DeviceError;
pub use local::ModelEngine;
pub use open::{Prepared, default_threads, tokenizer_of};
pub use options::{
    Anchors, BackendChoice, Context, DEFAULT_CTX_TOKENS, Drill, LoadWay, Locking, Options,
    SteeringChoice,
};
pub use report::{
    Advance, Border, BorderKind, Foresight, Miss, Reuse, Slice, Stage, SyncReport, Target,
};
pub use state::{PART_BYTES, PartReading, Position, RawPart, StateIo, StateSource};
pub use turns::turn_borders;
