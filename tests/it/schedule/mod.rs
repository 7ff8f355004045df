//! Requests from the desk to their last update: on a scripted engine where the order of things counts, and on the demo
//! model where states do.

mod cancel;
mod disk;
mod edges;
mod field;
mod formats;
mod frontiers;
mod harness;
mod idle;
mod scripted;
mod slots;
mod spoiled;
mod tools;
mod trace;
mod turns;
