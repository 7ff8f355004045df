//! The terminal: colours, width, status line, the one place that prints.
//!
//! Everything that decides (whether to colour, what a progress line says, when it is due) is a pure
//! function of its arguments; only `printer` writes.

pub mod color;
pub mod printer;
pub mod status;
pub mod width;

pub use color::Class;
pub use printer::{OutputError, Printer};
