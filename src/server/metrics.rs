//! Counters for Prometheus (server.md 16.3). Recording takes no lock that anybody waits for long.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// All metrics of a server.
pub struct Metrics {
    registry: Registry,
    responses: Family<Response, Counter>,
    tokens: Family<Named, Counter>,
    cache_hits: Family<Named, Counter>,
    finishes: Family<Named, Counter>,
    calls: Family<Named, Counter>,
    thoughts_closed: Family<Named, Counter>,
    queue: Gauge,
    active: Gauge,
    prefill_rate: Gauge<f64, AtomicU64>,
    decode_rate: Gauge<f64, AtomicU64>,
    first_token: Histogram,
    between_tokens: Histogram,
    batch: Histogram,
    rules: Histogram,
    disk_bytes: Gauge,
    disk_files: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Response {
    path: String,
    status: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Named {
    kind: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            responses: Family::default(),
            tokens: Family::default(),
            cache_hits: Family::default(),
            finishes: Family::default(),
            calls: Family::default(),
            thoughts_closed: Family::default(),
            queue: Gauge::default(),
            active: Gauge::default(),
            prefill_rate: Gauge::default(),
            decode_rate: Gauge::default(),
            // A hundredth of a second to ten minutes.
            first_token: Histogram::new(exponential_buckets(0.01, 2.0, 17)),
            // A millisecond to two seconds.
            between_tokens: Histogram::new(exponential_buckets(0.001, 2.0, 12)),
            batch: Histogram::new([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 16.0]),
            // A hundredth of a millisecond to a third of a second.
            rules: Histogram::new(exponential_buckets(0.00001, 2.0, 16)),
            disk_bytes: Gauge::default(),
            disk_files: Gauge::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let r = self.registry.sub_registry_with_prefix("q36");
        r.register("responses", "HTTP responses by path and status", self.responses.clone());
        r.register("tokens", "Tokens: prompt, cached, evaluated, generated", self.tokens.clone());
        r.register("prefix", "Prompts by where their beginning came from", self.cache_hits.clone());
        r.register("finishes", "Requests by how they ended", self.finishes.clone());
        r.register("tool_calls", "Replies with calls, by how well they read", self.calls.clone());
        let closed = self.thoughts_closed.clone();
        r.register("thoughts_closed", "Thoughts that the server closed", closed);
        r.register("queue_length", "Requests that wait for a session", self.queue.clone());
        r.register("active_slots", "Sessions that serve a request", self.active.clone());
        let rate = self.prefill_rate.clone();
        r.register("prefill_tokens_per_second", "Of the last prompt", rate);
        let rate = self.decode_rate.clone();
        r.register("decode_tokens_per_second", "Of the last reply", rate);
        let first = self.first_token.clone();
        r.register("first_token_seconds", "From arrival to the first token", first);
        let between = self.between_tokens.clone();
        r.register("between_tokens_seconds", "Between two tokens of a reply", between);
        r.register("batch_rows", "Sessions of a decode step", self.batch.clone());
        let rules = self.rules.clone();
        r.register("rules_seconds", "Masks and penalties of a token, made before its step", rules);
        r.register("disk_bytes", "Bytes of saved sessions", self.disk_bytes.clone());
        r.register("disk_files", "Files of saved sessions", self.disk_files.clone());
    }

    /// Everything as Prometheus reads it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes any text");
        text
    }

    /// An HTTP response. `path` must be one of few: the route, not what the client sent.
    pub fn count_response(&self, path: &str, status: u16) {
        let label = Response { path: path.to_owned(), status: u32::from(status) };
        self.responses.get_or_create(&label).inc();
    }

    /// A prompt was begun: its tokens, those reused, and from where.
    pub fn count_prompt(&self, prompt: usize, cached: usize, source: &'static str) {
        self.count_tokens("prompt", prompt);
        self.count_tokens("cached", cached);
        self.cache_hits.get_or_create(&Named { kind: source }).inc();
    }

    /// A prompt was evaluated.
    pub fn count_prefill(&self, tokens: usize, took: Duration) {
        self.count_tokens("evaluated", tokens);
        if tokens > 0 && !took.is_zero() {
            self.prefill_rate.set(tokens as f64 / took.as_secs_f64());
        }
    }

    /// A request ended: how, its tokens, and how long they took.
    pub fn count_finish(&self, finish: &'static str, tokens: usize, took: Duration) {
        self.finishes.get_or_create(&Named { kind: finish }).inc();
        self.count_tokens("generated", tokens);
        if tokens > 1 && !took.is_zero() {
            self.decode_rate.set(tokens as f64 / took.as_secs_f64());
        }
    }

    /// A reply had calls, or what was meant to be one: `whole`, `repaired`, `invalid` or `cut`.
    pub fn count_calls(&self, outcome: &'static str) {
        self.calls.get_or_create(&Named { kind: outcome }).inc();
    }

    /// A thought was closed by the server.
    pub fn count_thought_closed(&self, how: &'static str) {
        self.thoughts_closed.get_or_create(&Named { kind: how }).inc();
    }

    /// The first token of a reply was drawn so long after the request came.
    pub fn first_token(&self, after: Duration) {
        self.first_token.observe(after.as_secs_f64());
    }

    /// A further token was drawn so long after the one before it.
    pub fn next_token(&self, after: Duration) {
        self.between_tokens.observe(after.as_secs_f64());
    }

    /// A decode step had so many rows.
    pub fn count_batch(&self, rows: usize) {
        self.batch.observe(rows as f64);
    }

    /// What the next token of a reply may be took so long to work out.
    pub fn count_rules(&self, took: Duration) {
        self.rules.observe(took.as_secs_f64());
    }

    /// How many wait, and how many are served.
    pub fn set_load(&self, queued: usize, active: usize) {
        self.queue.set(i64::try_from(queued).unwrap_or(i64::MAX));
        self.active.set(i64::try_from(active).unwrap_or(i64::MAX));
    }

    /// What is saved.
    pub fn set_disk(&self, files: usize, bytes: u64) {
        self.disk_files.set(i64::try_from(files).unwrap_or(i64::MAX));
        self.disk_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    fn count_tokens(&self, kind: &'static str, tokens: usize) {
        self.tokens.get_or_create(&Named { kind }).inc_by(tokens as u64);
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_in_the_text() {
        let metrics = Metrics::default();
        metrics.count_response("/v1/messages", 200);
        metrics.count_response("/v1/messages", 200);
        metrics.count_prompt(100, 60, "memory-text");
        metrics.count_prefill(40, Duration::from_secs(2));
        metrics.count_finish("stop", 5, Duration::from_secs(1));
        metrics.count_batch(3);
        metrics.set_load(2, 1);
        let text = metrics.text();
        for line in [
            "q36_responses_total{path=\"/v1/messages\",status=\"200\"} 2",
            "q36_tokens_total{kind=\"cached\"} 60",
            "q36_prefix_total{kind=\"memory-text\"} 1",
            "q36_prefill_tokens_per_second 20.0",
            "q36_finishes_total{kind=\"stop\"} 1",
            "q36_batch_rows_bucket{le=\"3.0\"} 1",
            "q36_queue_length 2",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
        }
    }
}
