//! Flags of `q36 serve`.

use std::path::PathBuf;

use super::engine::EngineArgs;
use super::error::UsageError;
use super::heading;
use super::kv_disk::KvDiskArgs;
use super::sampling::SamplingArgs;
use super::steering::SteeringArgs;
use super::values::{self, Client, EffortBudgets, LogFormat};

const EXAMPLES: &str = "\
Examples:
  q36 serve
  q36 serve --batched-session 2 --kv-disk-dir ~/.q36/server-kv
  q36 serve --host 0.0.0.0 --api-key SECRET
  q36 serve --print-config opencode > ~/.config/opencode/opencode.json";

/// Arguments of `q36 serve`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Sockets, keys and logs.
    #[command(flatten)]
    pub server: ServerArgs,

    /// What requests may ask for and what they get by default.
    #[command(flatten)]
    pub requests: RequestArgs,

    /// Saved beginnings of prompts.
    #[command(flatten)]
    pub kv_disk: KvDiskArgs,

    /// When they are saved.
    #[command(flatten)]
    pub kv_cache: KvCacheArgs,

    /// Model and backend.
    #[command(flatten)]
    pub engine: EngineArgs,

    /// Defaults of sampling and thinking.
    #[command(flatten)]
    pub sampling: SamplingArgs,

    /// More about thinking.
    #[command(flatten)]
    pub thinking: ThinkingArgs,

    /// Direction file.
    #[command(flatten)]
    pub steering: SteeringArgs,
}

/// Where the server listens, whom it lets in, and what it tells.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = heading::SERVER)]
#[expect(clippy::doc_markdown, reason = "these comments are the help text")]
pub struct ServerArgs {
    /// Address to listen on: IPv4, IPv6, a name, or unix:PATH for a socket file.
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub host: String,

    /// Port to listen on; 0 takes a free one and says which.
    #[arg(long, value_name = "N", default_value_t = 8000, value_parser = values::port)]
    pub port: u16,

    /// Key that clients must send; may be given several times. Default: Q36_API_KEY, else none.
    #[arg(long = "api-key", value_name = "KEY", action = clap::ArgAction::Append)]
    pub api_keys: Vec<String>,

    /// Let web pages of any origin use the server.
    #[arg(long)]
    pub cors: bool,

    /// Answer GET /metrics in the text form of Prometheus.
    #[arg(long)]
    pub metrics: bool,

    /// Seconds to finish in after Ctrl+C.
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = values::positive)]
    pub shutdown_timeout: u32,

    /// Put the model away after N minutes without a request; the next one loads it again.
    #[arg(long, value_name = "MIN", value_parser = values::positive)]
    pub idle_unload: Option<u32>,

    /// Log as text or as json, one object a line.
    #[arg(
        long,
        value_name = "FORMAT",
        value_enum,
        default_value = "text",
        hide_possible_values = true
    )]
    pub log_format: LogFormat,

    /// Write prompts, replies and decisions of the cache to FILE. It holds all that is said.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,

    /// End the trace at N MiB. Default: no end.
    #[arg(long, value_name = "N", value_parser = values::positive)]
    pub trace_max_mb: Option<u32>,

    /// Print the configuration of a client for these flags: opencode, pi, codex or claude-code.
    #[arg(long, value_name = "CLIENT", value_enum, hide_possible_values = true)]
    pub print_config: Option<Client>,

    /// Work in DIR; other paths are relative to it.
    #[arg(long, value_name = "DIR")]
    pub chdir: Option<PathBuf>,
}

/// Limits of requests, and how they share the engine.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = heading::REQUESTS)]
pub struct RequestArgs {
    /// Keep N sessions resident and let them generate together. Default: 1.
    #[arg(long, value_name = "N", value_parser = values::positive)]
    pub batched_session: Option<u32>,

    /// Most tokens of a reply whose request names no limit.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 262_144,
          value_parser = values::positive)]
    pub tokens: u32,

    /// Requests that may wait for a session; one more is refused.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = values::positive)]
    pub max_queue: u32,

    /// Largest body of a request in MiB.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = values::positive)]
    pub max_body_mb: u32,

    /// Longest that prompts of others may hold up a reply, in milliseconds.
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = values::positive)]
    pub max_decode_stall_ms: u32,

    /// Positions of a session to keep the state of, where a later prompt may start again.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = values::non_negative)]
    pub state_anchors: u32,

    /// Refuse images and files instead of leaving a line in their place.
    #[arg(long)]
    pub strict_media: bool,

    /// Responses that later requests can go on from by their id.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = values::non_negative)]
    pub response_store_max: u32,

    /// Render tool calls of the history anew, even those the server wrote itself.
    #[arg(long)]
    pub disable_exact_tool_replay: bool,

    /// Tool calls whose exact text is remembered.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = values::positive)]
    pub tool_memory_max_ids: u32,
}

/// When saved beginnings are written.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = heading::KV_CACHE)]
pub struct KvCacheArgs {
    /// Longest prompt that is saved when nothing of it was known; 0 saves none.
    #[arg(long, value_name = "N", default_value_t = 30_000, value_parser = values::non_negative)]
    pub kv_cache_cold_max_tokens: u32,

    /// Save a growing session every N tokens; 0 does not.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = values::non_negative)]
    pub kv_cache_continued_interval_tokens: u32,

    /// Tokens at the end of a prompt that are not saved: text that follows may change them.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = values::non_negative)]
    pub kv_cache_boundary_trim_tokens: u32,

    /// Save at multiples of N tokens; 0 saves anywhere.
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = values::non_negative)]
    pub kv_cache_boundary_align_tokens: u32,

    /// Accepted for old command lines: states of other weights are always refused.
    #[arg(long)]
    pub kv_cache_reject_different_quant: bool,

    /// Wait until a saved file is on the disk before it gets its name.
    #[arg(long)]
    pub kv_fsync: bool,
}

/// How thoughts are bounded and kept.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = heading::THINKING)]
pub struct ThinkingArgs {
    /// Most tokens of reasoning for each effort. Default: minimal=512,low=1024,medium=4096,high=16384.
    #[arg(long, value_name = "LIST", value_parser = values::effort_budgets)]
    pub effort_budgets: Option<EffortBudgets>,

    /// Show the model the reasoning of all earlier turns, where the client sends it back.
    #[arg(long)]
    pub preserve_thinking: bool,
}

impl ServeArgs {
    /// Combinations that cannot work.
    ///
    /// # Errors
    /// Cold saves that would all be too short.
    pub fn check(&self) -> Result<(), UsageError> {
        let cold = self.kv_cache.kv_cache_cold_max_tokens;
        let min = self.kv_disk.kv_cache_min_tokens;
        if cold != 0 && cold < min {
            let text = format!(
                "--kv-cache-cold-max-tokens {cold} is below --kv-cache-min-tokens {min}: nothing would be saved"
            );
            return Err(UsageError::new("serve", text).hint("raise it, or use 0 for none"));
        }
        if self.server.api_keys.iter().any(String::is_empty) {
            return Err(UsageError::new("serve", "--api-key needs a key that is not empty"));
        }
        Ok(())
    }
}
