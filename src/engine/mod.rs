//! What every front end sees: open a model, sync a session to a prompt, decode, sample.

pub mod lock;
pub mod sample;
