//! What the server has to say while it works (server.md 16.1). Facts only: how a line looks is decided where it is
//! printed. Never the text of a prompt or a reply.

use std::time::Duration;

/// Hears events. Called on the engine's thread: it must not wait.
pub trait Log: Send + Sync {
    /// An event.
    fn log(&self, event: &LogEvent);
}

impl<F: Fn(&LogEvent) + Send + Sync> Log for F {
    fn log(&self, event: &LogEvent) {
        self(event);
    }
}

/// An event, and whom it is about.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEvent {
    /// The request's id, as the client sees it.
    pub request: Option<String>,
    /// The session, from 0.
    pub slot: Option<usize>,
    /// What happened.
    pub what: What,
}

/// What kind of request it is, as lines show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// The name of its API.
    pub api: &'static str,
    /// It has tools.
    pub tools: bool,
    /// It thinks.
    pub thinking: bool,
    /// Its answer is streamed.
    pub stream: bool,
}

/// Where a prompt's beginning came from, and why the session did not simply go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Continuation {
    /// The source, by its name in server.md 13.1.
    pub source: &'static str,
    /// Why the live state was not extended, where it was not.
    pub miss: Option<&'static str>,
    /// Tokens the session held.
    pub live: usize,
    /// Those of them that the prompt begins with.
    pub common: usize,
    /// Tokens that are reused.
    pub cached: usize,
    /// Tokens of the prompt.
    pub prompt: usize,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A request has a session, and its prompt is being evaluated.
    PromptStart {
        /// What kind of request.
        flags: Flags,
        /// What is reused.
        continuation: Continuation,
    },
    /// A part of the prompt was evaluated.
    PrefillChunk {
        /// Tokens evaluated so far.
        done: usize,
        /// Tokens to evaluate.
        total: usize,
        /// Tokens a second of this part.
        chunk_tps: f64,
        /// Tokens a second so far.
        average_tps: f64,
    },
    /// The prompt is evaluated.
    PromptDone {
        /// Tokens evaluated.
        tokens: usize,
        /// How long it took.
        took: Duration,
    },
    /// Every 50 tokens of a reply.
    Decoding {
        /// Tokens of it.
        tokens: usize,
        /// Whether they are still a thought.
        thinking: bool,
        /// Whether a call is open.
        in_call: bool,
        /// Tokens a second since the last such event.
        chunk_tps: f64,
        /// Tokens a second of the reply.
        average_tps: f64,
    },
    /// A step of replies.
    Batch {
        /// How many shared it.
        rows: usize,
        /// How long it took.
        took: Duration,
    },
    /// A thought was closed by the server.
    ThoughtClosed {
        /// How: `soft_forced`, `hard_forced`, `eos_forced` or `call_forced`.
        how: &'static str,
        /// Tokens of the reply by then.
        tokens: usize,
    },
    /// A reply has calls.
    Calls {
        /// Names and ids, in order.
        calls: Vec<(String, String)>,
        /// Whether the model's own text of them is kept.
        raw_known: bool,
    },
    /// A request is done.
    Finish {
        /// Why: `stop`, `length`, `tool_calls`, `error` or `cancelled`.
        finish: &'static str,
        /// Tokens of the reply.
        tokens: usize,
        /// The error, if it ended in one.
        error: Option<String>,
        /// From its arrival to its end.
        took: Duration,
    },
    /// Something about saved sessions.
    Cache(String),
    /// Something is not as it should be, but goes on.
    Warning(String),
    /// The server's own state: loading, ready, idle, stopping.
    State(&'static str),
}
