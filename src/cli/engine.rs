//! Flags of every subcommand that loads a model.

use std::path::PathBuf;

use super::heading;
use super::streaming::StreamingArgs;
use super::values::{self, Backend, CacheType};

/// Most helper threads; more is clamped.
pub const MAX_THREADS: u32 = 32;

/// Model, backend and everything that is decided before the first token.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = heading::MODEL)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch that a user turns")]
#[expect(clippy::doc_markdown, reason = "these comments are the help text")]
pub struct EngineArgs {
    /// Model file. Default: Q36_MODEL, then the usual places.
    #[arg(short = 'm', long, value_name = "FILE")]
    pub model: Option<PathBuf>,

    /// Run on a Vulkan device.
    #[arg(long, overrides_with_all = ["cpu", "backend"])]
    vulkan: bool,

    /// Run on the processor.
    #[arg(long, overrides_with_all = ["vulkan", "backend"])]
    cpu: bool,

    /// What computes: auto takes Vulkan when a real GPU can run it, else the CPU.
    #[arg(long, value_name = "NAME", value_enum, overrides_with_all = ["vulkan", "cpu"],
          hide_possible_values = true)]
    backend: Option<Backend>,

    /// Helper threads, at most 32. Default: Q36_THREADS, then the online CPUs.
    #[arg(short = 't', long, value_name = "N", value_parser = values::positive)]
    pub threads: Option<u32>,

    /// Vulkan device: an index, a UUID or part of a name, see `q36 devices`. Default: best score.
    #[arg(long, value_name = "X")]
    pub device: Option<String>,

    /// Prompt tokens in a chunk. Default: what was measured best for the device.
    #[arg(long, value_name = "N", value_parser = values::positive)]
    pub prefill_chunk: Option<u32>,

    /// Exact kernels instead of faster approximate ones.
    #[arg(long)]
    pub quality: bool,

    /// Touch all weights before the first token.
    #[arg(long)]
    pub warm_weights: bool,

    /// Print a table of kernels at the end, or write it to FILE as JSON.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub profile: Option<Option<PathBuf>>,

    /// Keep the GPU busy about N % of the time, 1 to 100.
    #[arg(long, value_name = "N", default_value = "100", value_parser = values::percent)]
    pub power: u8,

    /// Do not take the lock that keeps a second model off this machine.
    #[arg(long)]
    pub no_lock: bool,

    /// Context and KV types.
    #[command(flatten)]
    pub context: ContextArgs,

    /// Experts on disk.
    #[command(flatten)]
    pub streaming: StreamingArgs,

    /// Speculative decoding.
    #[command(flatten)]
    pub mtp: MtpArgs,
}

impl EngineArgs {
    /// The backend named last. Anything but [`Backend::Auto`] was asked for explicitly.
    pub fn backend(&self) -> Backend {
        match self.backend {
            Some(named) => named,
            None if self.vulkan => Backend::Vulkan,
            None if self.cpu => Backend::Cpu,
            None => Backend::Auto,
        }
    }
}

/// How long a session may become, and how its K and V rows are stored.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = heading::CONTEXT)]
#[expect(clippy::doc_markdown, reason = "these comments are the help text")]
pub struct ContextArgs {
    /// Context of a session in tokens. Default: 32768, or the model's own if that is less.
    #[arg(short = 'c', long, value_name = "N", value_parser = values::positive)]
    pub ctx: Option<u32>,

    /// Accept a --ctx above the model's own context length.
    #[arg(long)]
    pub ctx_force: bool,

    /// Type of K rows (also -ctk): f16, q8_0 or q4_0. Default: q8_0 on Vulkan, f16 on the CPU or
    /// with SSD streaming.
    #[arg(long, value_name = "T", value_enum, hide_possible_values = true)]
    pub cache_type_k: Option<CacheType>,

    /// Type of V rows (also -ctv): f16, q8_0 or q4_0. Default: q4_0 on Vulkan, f16 on the CPU or
    /// with SSD streaming.
    #[arg(long, value_name = "T", value_enum, hide_possible_values = true)]
    pub cache_type_v: Option<CacheType>,
}

/// Speculation with the model's own draft block.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = heading::SPECULATION)]
pub struct MtpArgs {
    /// Draft model file; turns on speculation where it pays. Vulkan only.
    #[arg(long, value_name = "FILE")]
    pub mtp: Option<PathBuf>,

    /// Draft tokens of a step, at most 16; 0 loads the file and does not speculate. Default: 1 to 4,
    /// chosen while running.
    #[arg(long, value_name = "N", value_parser = values::non_negative)]
    pub mtp_draft: Option<u32>,

    /// Confidence a draft needs, 0 to 1000. Default: 3.
    #[arg(long, value_name = "F", value_parser = values::float_in(0.0, 1000.0))]
    pub mtp_margin: Option<f32>,
}
