//! `q36 run`: one prompt, one answer; or a diagnostic instead.

mod config;
pub(super) mod dump;
mod oneshot;
pub(super) mod plan;
mod prefill;
pub(super) mod prompt;
mod saved;
mod score;
mod show;
mod start;

pub(super) use start::run;
