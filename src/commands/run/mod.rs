//! `q36 run`: one prompt, one answer; or a diagnostic instead.

mod config;
mod dump;
mod oneshot;
mod plan;
mod prefill;
mod prompt;
mod score;
mod show;
mod start;

pub(super) use start::run;
