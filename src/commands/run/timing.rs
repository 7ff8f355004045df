//! What was measured of a reply.

use std::time::Duration;

use serde::Serialize;

/// Seconds and tokens a second.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Timings {
    pub(super) prefill_s: f64,
    pub(super) prefill_tps: f64,
    pub(super) decode_s: f64,
    pub(super) decode_tps: f64,
    pub(super) first_token_s: f64,
}

impl Timings {
    /// The line behind a reply (cli.md 4.2).
    pub(super) fn line(&self) -> String {
        format!("prefill: {:.2} t/s, generation: {:.2} t/s", self.prefill_tps, self.decode_tps)
    }
}

/// Tokens, and the time they took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Clock {
    pub(super) prefill: Duration,
    pub(super) decode: Duration,
    pub(super) first_token: Duration,
    pub(super) evaluated: usize,
    pub(super) generated: usize,
}

impl Clock {
    pub(super) fn timings(&self) -> Timings {
        let rate = |n: usize, time: Duration| match time.as_secs_f64() {
            0.0 => 0.0,
            seconds => n as f64 / seconds,
        };
        Timings {
            prefill_s: self.prefill.as_secs_f64(),
            prefill_tps: rate(self.evaluated, self.prefill),
            decode_s: self.decode.as_secs_f64(),
            decode_tps: rate(self.generated, self.decode),
            first_token_s: self.first_token.as_secs_f64(),
        }
    }
}
