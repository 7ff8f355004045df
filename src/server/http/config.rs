//! What the shell is told: keys, limits, times.

use std::time::Duration;

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
        }
    }
}
