//! Command-line types: flags, defaults, help. No behaviour, no I/O.
//!
//! The clap definitions here are the one source of flag text: help, manual pages and completions
//! come from them. Only this module names clap; everybody else sees the Args structs and the plain
//! value types. What clap cannot express (`-sys`, `--help TOPIC`, a command left out) is rewritten
//! by `argv` before clap looks, and what it says is put into q36's words by `error`.

mod argv;
mod definition;
mod error;
mod topics;

pub mod bench;
pub mod completions;
pub mod debug;
pub mod devices;
pub mod dialogue;
pub mod doctor;
pub mod engine;
pub mod environment;
pub mod help;
pub mod inspect;
pub mod kv;
pub mod kv_disk;
pub mod man;
pub mod plot;
pub mod run;
pub mod sampling;
pub mod serve;
pub mod server_environment;
pub mod steering;
pub mod streaming;
pub mod values;

#[cfg(test)]
mod tests;

pub use definition::{Cli, Command, Global, Stop, command, heading, parse};
pub use error::UsageError;
pub use help::HelpRequest;
