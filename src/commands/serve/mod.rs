//! `q36 serve`: the server from its flags to its last saved session.

mod client;
mod config;
mod engine;
mod start;

pub(super) use start::run;
