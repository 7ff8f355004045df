//! What the topics share: where files are, tests that cannot run here saying so, and running the
//! program the way a user does.

mod paths;
mod process;
pub(crate) mod schema;
pub(crate) mod scripted;
mod skip;
pub(crate) mod tiny;

pub(crate) use paths::{fixture, repo, temp_dir, tiny_model};
pub(crate) use process::{Child, Cut, Output, q36, q36_at_terminal};
pub(crate) use skip::skip;
