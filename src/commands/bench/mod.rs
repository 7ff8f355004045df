//! `q36 bench`: prefill and decode speed at growing context.

mod beside;
mod output;
mod sensors;
mod start;

pub(super) use start::run;
