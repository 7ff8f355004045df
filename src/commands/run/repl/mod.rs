//! `q36 run` without a prompt: a conversation at the terminal (cli.md 4.3).
//!
//! ```text
//! term::input ── what was typed ──► command ──► dialogue ── a message ──► exchange ── prefill, reply ──► transcript
//!                                                  └── a command ──► act, files
//! ```
//!
//! The transcript and the reply are pure: they know tokens and the engine's interface, no terminal, and no file. The rest
//! is thin.

mod act;
mod command;
mod dialogue;
mod exchange;
mod files;
mod reply;
mod start;
mod stats;
mod transcript;

pub use reply::Reply;
pub(super) use start::{prepare, run};
pub use transcript::{Parsed, Transcript, Turn};
