//! How requests are served, checked once by whoever reads the flags.

use std::path::PathBuf;
use std::time::Duration;

use super::ReplayLimits;
use crate::engine::sample::SamplerParams;
use crate::kv;
use crate::server::Effort;

/// Everything that serving depends on besides the model.
#[derive(Debug, Clone)]
pub struct Config {
    /// Resident sessions, at least 1. The engine must have been opened for as many.
    pub sessions: usize,
    /// Most tokens of a reply whose request names no limit.
    pub default_limit: usize,
    /// How tokens are drawn where a request says nothing.
    pub sampling: SamplerParams,
    /// Whether to think where a request says nothing.
    pub thinking: bool,
    /// Whether thoughts of older turns are rendered where a request says nothing.
    pub preserve_thinking: bool,
    /// Longest thoughts of named efforts.
    pub efforts: EffortBudgets,
    /// Whether a call that opens inside a thought closes the thought first.
    pub recover_calls: bool,
    /// Requests that may wait for a session.
    pub max_queue: usize,
    /// How long a decode step may be kept waiting by a prompt.
    pub decode_stall: Duration,
    /// How prompts and replies share the engine, besides what time allows.
    pub sharing: Sharing,
    /// How long a client may leave its answers unread before its request is given up.
    pub client_stall: Duration,
    /// How long to wait for a session that has much of a prompt, when another is free.
    pub best_slot_wait: Duration,
    /// Tokens that are worth that wait.
    pub best_slot_tokens: usize,
    /// After how long without requests the model is put away; `None` for never.
    pub idle_unload: Option<Duration>,
    /// How long saving may take when the server stops.
    pub shutdown_timeout: Duration,
    /// Where states are kept on disk; `None` for nowhere.
    pub disk: Option<kv::Config>,
    /// What is remembered of tool calls; `None` renders every call anew.
    pub tool_replay: Option<ReplayLimits>,
    /// Where requests are written down.
    pub trace: Option<TraceConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sessions: 1,
            default_limit: 262_144,
            sampling: SamplerParams::default(),
            thinking: true,
            preserve_thinking: false,
            efforts: EffortBudgets::default(),
            recover_calls: true,
            max_queue: 256,
            decode_stall: Duration::from_millis(150),
            sharing: Sharing::default(),
            client_stall: Duration::from_secs(30),
            best_slot_wait: Duration::from_millis(250),
            best_slot_tokens: 4096,
            idle_unload: None,
            shutdown_timeout: Duration::from_secs(30),
            disk: None,
            tool_replay: Some(ReplayLimits::default()),
            trace: None,
        }
    }
}

/// Steps and slices. The limits of a slice of a prompt are the time that so many of its tokens take; where prompts are cut
/// does not depend on them, for a slice is layers, not tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sharing {
    /// The most tokens while no reply is being written; `None` leaves it to time.
    pub alone: Option<usize>,
    /// The most tokens while replies are.
    pub mixed: Option<usize>,
    /// Whether each step is logged.
    pub log_steps: bool,
}

/// Longest thoughts by effort, in tokens; `None` is as long as the reply has room for (server.md 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffortBudgets {
    /// As short as possible.
    pub minimal: Option<usize>,
    /// Short.
    pub low: Option<usize>,
    /// Usual.
    pub medium: Option<usize>,
    /// Long.
    pub high: Option<usize>,
}

impl Default for EffortBudgets {
    fn default() -> Self {
        Self { minimal: Some(512), low: Some(1024), medium: Some(4096), high: Some(16_384) }
    }
}

impl EffortBudgets {
    /// The budget of an effort.
    pub fn of(&self, effort: Effort) -> Option<usize> {
        match effort {
            Effort::Minimal => self.minimal,
            Effort::Low => self.low,
            Effort::Medium => self.medium,
            Effort::High => self.high,
            Effort::XHigh | Effort::Max => None,
        }
    }
}

/// Where requests are written down, prompts and replies included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceConfig {
    /// The file: emptied at the start, readable by its owner alone.
    pub path: PathBuf,
    /// Most bytes of it; then nothing more is written.
    pub max_bytes: u64,
}
