//! From a checked [`Request`](super::Request) to its [`Update`](super::Update)s: prompts, sessions, replies.
//!
//! ```text
//!  Desk::submit ── prepare ──► Job ── queue ── slots ── admit ──► prefill ──► decode ──► reply ──► Update … Update::End
//!   (caller's thread)          │                (engine's thread, worker.rs)                             │
//!                              └───────────── replay (tool memory) ◄── bindings (what it may go on as) ◄─┘
//! ```
//!
//! One thread owns the engine and never waits for a client: it runs a decode step for every session that has a token
//! ready, then a slice of one prompt, then looks at the queue again. What is decided is decided by plain functions and
//! state machines without an engine (`queue`, `slots`, `bindings`, `replay`, `reply`), which is how they are tested.
//!
//! A session outlives its request. What lets the next request of a conversation continue it is in `bindings`: the text
//! that a client sees stands for tokens that hold more, such as thoughts that are not sent back.

mod bindings;
mod config;
mod error;
mod queue;
mod replay;
mod slots;

mod call_json;
mod format;
mod prepare;
mod remember;
mod reply;
mod stop_text;
mod syntax;

mod admit;
mod decode;
mod floor;
mod frontier;
mod prefill;
mod saved;
mod slot;
mod status;
mod trace;
mod worker;

pub use config::{Config, EffortBudgets, Sharing, TraceConfig};
pub use error::Error;
pub use prepare::{Office, Prepared};
pub use replay::ReplayLimits;
pub use worker::{Opened, Worker};
