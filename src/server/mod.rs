//! The HTTP server: four chat APIs over one engine.
//!
//! ```text
//!  body ── api::*::request ──► Request ── schedule ──► engine thread ── Update … Update::End ──► api::*::stream ──► SSE
//!                                                                                        └──► api::*::response ──► JSON
//! ```
//!
//! `api` is pure: bodies to [`Request`]s, [`Update`]s to events and answers, one folder an API. `schedule` owns the
//! engine, on a thread of its own that never waits for a socket. `grammar` makes the masks that hold a reply to
//! JSON, a schema or a function's arguments. `http` has the sockets and nothing else. What crosses between them is in
//! this folder: [`Request`] one way, [`Update`] the other, [`Failure`] for what went wrong.

pub mod api;
pub mod grammar;
pub mod http;
pub mod schedule;

mod desk;
mod failure;
mod log;
mod log_event;
mod log_line;
mod metrics;
mod outbox;
mod print_config;
mod request;
mod update;

pub use desk::{Desk, Facts, Job, Place, SlotStatus, State, Status};
pub use failure::{Failure, FailureKind};
pub use log::{LogEntry, LogFormat, LogWriter};
pub use log_event::{Continuation, Flags, Log, LogEvent, What};
pub use metrics::Metrics;
pub use outbox::{Inbox, OUTBOX_BYTES, Outbox, outbox};
pub use print_config::{Config, ConfigClient, Served, print_config};
pub use request::{
    Api, Calls, Choice, Effort, Format, Input, LogitBias, Penalty, Request, Sampling, Thinking,
};
pub use update::{Call, Finish, Logprob, Outcome, Ranked, Update, Usage, Waiting};
