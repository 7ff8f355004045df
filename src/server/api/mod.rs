//! The protocols: bodies to requests, updates to streams and answers. Pure: no socket, no engine, no clock but the one
//! that a [`Stamp`] is given.
//!
//! ```text
//!  body ─► parse ─► Parsed { request, shape, warnings }
//!  updates ─► Encoder (shape, stamp) ─► frames            outcome ─► answer (shape, stamp) ─► JSON
//! ```
//!
//! One folder an API: what it accepts, how it answers, how it streams. What they share is beside the folders, in files
//! named after it. Fields are read at this edge and nowhere else; schemas and arguments stay as they were spelled.

mod answer;
mod encoder;
mod errors;
mod frame;
mod models;
mod shape;
mod stamp;

mod body;
mod content;
mod format;
mod history;
mod logprobs;
mod node;
mod sampling;
mod settings;
mod signature;
mod system;
mod thinking;
mod tools;
mod usage;

mod chat;
mod completions;
mod messages;
mod responses;

#[cfg(test)]
mod tests;

pub use answer::{Context, Parsed, answer, parse};
pub use encoder::Encoder;
pub use errors::failure_body;
pub use frame::Frame;
pub use models::{ALIAS_NO_THINK, ALIAS_THINK, MODEL, model, models};
pub use responses::store::ResponseStore;
pub use shape::Shape;
pub use stamp::Stamp;
