//! What every front end sees: open a model, sync a session to a prompt, decode, sample.
//!
//! [`Engine`] is the interface, [`ModelEngine`] the one on this machine. A session is a sequence of
//! tokens with its state; how much of it survives when a prompt changes is decided in `sync`, and
//! what makes that cheap is that recurrent states live in slots which are pinned, never copied.
//!
//! Deliberately absent: chat text, cache files, clients, terminals.

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
mod recover;
pub mod sample;
mod session;
mod slots;
mod state;
mod steering;
mod sync;

pub use api::{
    BackendKind, Engine, Info, KernelTime, LoadReport, Miss, Phase, Profile, Reuse, SessionId,
    SnapshotId, SyncControl, SyncReport, Unattended,
};
pub use error::{Error, SteeringProblem};
pub use gpu::DeviceError;
pub use local::ModelEngine;
pub use open::{Prepared, default_threads, tokenizer_of};
pub use options::{
    BackendChoice, Context, DEFAULT_CTX_TOKENS, Drill, LoadWay, Locking, Options, SteeringChoice,
};
pub use state::{PART_BYTES, PartReading, Position, RawPart, StateIo, StateSource};
