//! Speed at growing context: what `q36 bench` measures, and what becomes of the numbers.
//!
//! The parts are driven from outside, one frontier at a time, so that whoever drives them decides when
//! to write a row and when to stop. Everything but [`Bench`] is a pure function of numbers and text.
//!
//! Deliberately absent: files, flags, the terminal, and how tokens come from a prompt.

pub mod beside;
pub mod compare;
pub mod csv;
mod frontiers;
pub mod profile;
mod row;
pub mod svg;
mod sweep;

pub use frontiers::{Frontiers, Growth};
pub use row::{Row, Series, Spread};
pub use sweep::{Bench, Measured, lanes, random_tokens};
