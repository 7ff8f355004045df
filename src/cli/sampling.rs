//! Flags of sampling and thinking.

use super::heading;
use super::values::{self, ThinkMode};

/// How the next token is drawn, and how the model is asked to think.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = heading::SAMPLING)]
pub struct SamplingArgs {
    /// Temperature, 0 to 100; 0 takes the likeliest token.
    #[arg(long = "temp", value_name = "F", default_value = "1",
          value_parser = values::float_in(0.0, 100.0))]
    pub temperature: f32,

    /// Draw from the N likeliest tokens, at most 1024; 0 is off.
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::non_negative)]
    pub top_k: u32,

    /// Draw from the smallest set that holds this much probability, 0 to 1; 0 means 1.
    #[arg(long, value_name = "F", default_value = "1", value_parser = values::float_in(0.0, 1.0))]
    pub top_p: f32,

    /// Drop tokens below this fraction of the best one's probability, 0 to 1.
    #[arg(long, value_name = "F", default_value = "0.05",
          value_parser = values::float_in(0.0, 1.0))]
    pub min_p: f32,

    /// Seed of the draws; the same seed gives the same tokens. Default: the clock.
    #[arg(long, value_name = "N", value_parser = values::seed)]
    pub seed: Option<u64>,

    /// Reason before answering; the default.
    #[arg(long, overrides_with_all = ["think_max", "nothink"])]
    think: bool,

    /// Reason exhaustively; needs --ctx 98304 or more.
    #[arg(long, overrides_with_all = ["think", "nothink"])]
    think_max: bool,

    /// Answer at once.
    #[arg(long, overrides_with_all = ["think", "think_max"])]
    nothink: bool,

    /// Most tokens of reasoning; then the answer is begun.
    #[arg(long, value_name = "N", value_parser = values::positive)]
    pub think_budget: Option<u32>,
}

impl SamplingArgs {
    /// The mode named last.
    pub fn think_mode(&self) -> ThinkMode {
        if self.nothink {
            ThinkMode::Off
        } else if self.think_max {
            ThinkMode::Max
        } else {
            ThinkMode::On
        }
    }

    /// `--top-p`, with 0 read as 1.
    pub fn top_p(&self) -> f32 {
        if self.top_p == 0.0 { 1.0 } else { self.top_p }
    }
}
