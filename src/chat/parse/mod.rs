//! The pieces of the reply reader: a window on bytes not yet understood, and the grammar of calls on top.
//!
//! Everything here decides on the bytes alone, and says "wait" whenever more bytes could change the decision. That is
//! why a reply read byte by byte gives the same as one read whole.

mod block;
mod body;
mod code;
mod opening;
mod tag;
mod tape;
mod value;
mod window;

pub(super) use block::{Block, Context, Progress};
pub(super) use code::CodeSpans;
pub(super) use opening::{Opening, opening};
pub(super) use tape::{Channel, Tape};
pub(super) use window::{Found, Mark, Window};
