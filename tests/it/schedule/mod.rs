//! Requests from the desk to their last update: on a scripted engine where the order of things counts, and on the demo
//! model where states do.

mod cancel;
mod disk;
mod edges;
mod formats;
mod harness;
mod scripted;
mod slots;
mod tools;
mod trace;
mod turns;
