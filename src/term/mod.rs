//! The terminal: colours, width, status line, the one place that prints, the one that reads what is typed.
//!
//! Everything that decides (whether to colour, what a progress line says, when it is due) is a pure
//! function of its arguments; only `printer` writes, and the line editor while it reads.

pub mod color;
pub mod complete;
pub mod input;
pub mod modes;
pub mod printer;
pub mod status;
pub mod width;

pub use color::Class;
pub use printer::{OutputError, Printer};
