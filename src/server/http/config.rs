//! What the shell is told: keys, limits, times.

use std::time::Duration;

use crate::server::{Effort, Request};

/// Settings of connections and routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Keys of which a request must have one; empty lets everybody in.
    pub keys: Vec<String>,
    /// Whether web pages of any origin may read answers.
    pub cors: bool,
    /// Whether there is a `/metrics`.
    pub metrics: bool,
    /// Whether images and files in requests are errors.
    pub strict_media: bool,
    /// Largest body of a request.
    pub body_bytes: usize,
    /// Responses that can be named later.
    pub responses: usize,
    /// How long things may take.
    pub times: Times,
    /// What requests get that do not say.
    pub defaults: Defaults,
}

/// What a request gets that says nothing of it. Defaults that only the engine needs are not here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Defaults {
    /// The seed; `None` draws one for each request.
    pub seed: Option<u64>,
    /// Most tokens of a thought.
    pub think_budget: Option<usize>,
    /// The effort.
    pub effort: Option<Effort>,
}

impl Defaults {
    /// Fills in what a request leaves open. One that turns thinking off or names an effort or a budget has said all
    /// there is to say about thinking.
    pub(super) fn fill(&self, request: &mut Request) {
        request.sampling.seed = request.sampling.seed.or(self.seed);
        let thinking = &mut request.thinking;
        if thinking.on != Some(false) && thinking.effort.is_none() && thinking.budget.is_none() {
            thinking.budget = self.think_budget;
            thinking.effort = self.effort.filter(|_| self.think_budget.is_none());
        }
    }
}

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Longest silence of a stream; then something is sent that means nothing.
    pub keepalive: Duration,
    /// For the header of a request, and for each piece of its body.
    pub read: Duration,
    /// For a client to take anything at all of what waits for it.
    pub stall: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            keepalive: Duration::from_secs(5),
            read: Duration::from_secs(10),
            stall: Duration::from_secs(30),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            cors: false,
            metrics: false,
            strict_media: false,
            body_bytes: 64 << 20,
            responses: 256,
            times: Times::default(),
            defaults: Defaults::default(),
        }
    }
}
