//! `q36 run`: one prompt and one answer, a conversation, or a diagnostic instead.

mod config;
pub(super) mod dump;
mod oneshot;
pub(super) mod plan;
mod prefill;
pub(super) mod prompt;
pub mod repl;
mod saved;
mod score;
mod show;
mod start;
mod timing;

pub(super) use start::run;
