//! Flags of `q36 bench`: what is measured, how often, and where the numbers go.

use std::path::{Path, PathBuf};

use super::engine::EngineArgs;
use super::error::UsageError;
use super::heading;
use super::values;

const EXAMPLES: &str = "\
Examples:
  q36 bench --synthetic --layers 8 --ctx-max 8192
  q36 bench --prompt-file story.txt --csv new.csv
  q36 bench --prompt-file story.txt --compare old.csv --min-ratio 0.95";

/// Arguments of `q36 bench`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// What the model reads.
    #[command(flatten)]
    pub prompt: BenchPromptArgs,

    /// Where and how often it is measured.
    #[command(flatten)]
    pub sweep: SweepArgs,

    /// Where the numbers go and what they are held against.
    #[command(flatten)]
    pub results: ResultArgs,

    /// Model and backend.
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// Where the tokens come from.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = heading::BENCHMARK)]
pub struct BenchPromptArgs {
    /// Text to process, as it stands.
    #[arg(long, value_name = "FILE")]
    prompt_file: Option<PathBuf>,

    /// Text to process, as a message of the user in the chat template, without thinking.
    #[arg(long, value_name = "FILE")]
    chat_prompt_file: Option<PathBuf>,

    /// With --chat-prompt-file: system text (also -sys). Default: none.
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,

    /// Random weights of the published shape and random tokens; needs no model file.
    #[arg(long)]
    synthetic: bool,

    /// With --synthetic: so many layers, 1 to 40. Default: 40.
    #[arg(long, value_name = "N", value_parser = values::layers)]
    layers: Option<u32>,
}

/// Frontiers, generated tokens, repetitions.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = heading::BENCHMARK)]
pub struct SweepArgs {
    /// The first context length to measure at, in tokens.
    #[arg(long, value_name = "N", default_value = "2048", value_parser = values::positive)]
    pub ctx_start: u32,

    /// The last one; the prompt must be at least so long.
    #[arg(long, value_name = "N", default_value = "32768", value_parser = values::positive)]
    pub ctx_max: u32,

    /// Context to allocate (also -c). Default: --ctx-max, the generated tokens, and one more.
    #[arg(long, value_name = "N", value_parser = values::positive)]
    ctx_alloc: Option<u32>,

    /// Tokens from one frontier to the next.
    #[arg(long, value_name = "N", default_value = "2048", value_parser = values::positive)]
    pub step_incr: u32,

    /// Factor from one frontier to the next, at least 1; above 1 it replaces --step-incr.
    #[arg(long, value_name = "F", default_value = "1", value_parser = values::factor)]
    pub step_mul: f64,

    /// Tokens to generate at each frontier (also --tokens); 0 measures prefill alone.
    #[arg(short = 'n', long, alias = "tokens", value_name = "N", default_value = "128",
          value_parser = values::non_negative)]
    pub gen_tokens: u32,

    /// Sessions that generate together; rates are those of all.
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::positive)]
    pub concurrency: u32,

    /// Instead of the sweep: a prompt of --ctx-max tokens beside N sessions that decode at --ctx-start. Tells how long
    /// their steps wait for it.
    #[arg(long, value_name = "N", value_parser = values::positive)]
    pub beside: Option<u32>,

    /// Fail where with --beside a step in a hundred takes longer than so many milliseconds.
    #[arg(long, value_name = "MS", value_parser = values::float_in(0.0, 1_000_000.0))]
    pub gate_step: Option<f32>,

    /// Repeat the whole sweep so many times: medians, with minimum and maximum in further columns.
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::positive)]
    pub repeat: u32,

    /// Measure the first frontier once before it counts.
    #[arg(long)]
    pub warmup: bool,
}

/// Output, comparison, gates.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = heading::BENCHMARK)]
pub struct ResultArgs {
    /// Write the table to FILE instead of stdout.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Print one JSON object at the end; the table is then written only with --csv.
    #[arg(long)]
    pub json: bool,

    /// Say in # lines what was measured on what, and add columns for memory, power and heat.
    #[arg(long)]
    pub meta: bool,

    /// Write the logits at each frontier into this folder.
    #[arg(long, value_name = "DIR")]
    pub dump_frontier_logits_dir: Option<PathBuf>,

    /// Print the change against an older table, frontier by frontier.
    #[arg(long, value_name = "OLD.csv")]
    pub compare: Option<PathBuf>,

    /// Draw the table into FILE as a chart; with --compare the older one is dashed behind it.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// With --compare: fail where a rate is below so many times the old one.
    #[arg(long, value_name = "R", value_parser = values::float_in(0.0, 1000.0))]
    pub min_ratio: Option<f32>,

    /// Fail where prefill is below so many tokens a second.
    #[arg(long, value_name = "TPS", value_parser = values::float_in(0.0, 1_000_000.0))]
    pub gate_prefill: Option<f32>,

    /// Fail where decoding is below so many tokens a second.
    #[arg(long, value_name = "TPS", value_parser = values::float_in(0.0, 1_000_000.0))]
    pub gate_decode: Option<f32>,
}

/// What is processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchSource<'a> {
    /// A text as it stands.
    Text(&'a Path),
    /// A text as one message of the user.
    Chat {
        /// The text.
        file: &'a Path,
        /// System text; empty means none.
        system: &'a str,
    },
    /// Random tokens through random weights.
    Synthetic {
        /// Layers of the published shape.
        layers: usize,
    },
}

/// Room for steps beside a prompt: one a layer and chunk of a long one.
const STEPS_BESIDE: u64 = 4096;

/// The layers of the published model.
const PUBLISHED_LAYERS: u32 = 40;

impl BenchArgs {
    /// Checks the flags against each other; says what is processed.
    ///
    /// # Errors
    /// A usage error that names the flags.
    pub fn check(&self) -> Result<BenchSource<'_>, UsageError> {
        let source = self.source()?;
        let (sweep, results) = (&self.sweep, &self.results);
        let (start, max) = (sweep.ctx_start, sweep.ctx_max);
        if start > max {
            return usage(format!("--ctx-start {start} is above --ctx-max {max}"));
        }
        let (alloc, needed) = (self.ctx_alloc(), u64::from(max) + u64::from(sweep.gen_tokens));
        if alloc <= needed {
            return usage(format!(
                "--ctx-alloc {alloc} must exceed --ctx-max and --gen-tokens together, {needed}"
            ));
        }
        self.check_beside()?;
        if results.min_ratio.is_some() && results.compare.is_none() {
            return usage("--min-ratio needs --compare OLD.csv");
        }
        if results.gate_decode.is_some() && sweep.gen_tokens == 0 {
            return usage("--gate-decode needs --gen-tokens above 0");
        }
        Ok(source)
    }

    fn check_beside(&self) -> Result<(), UsageError> {
        let (sweep, results) = (&self.sweep, &self.results);
        if sweep.beside.is_none() {
            return if sweep.gate_step.is_some() {
                usage("--gate-step needs --beside")
            } else {
                Ok(())
            };
        }
        let others = [
            ("--csv", results.csv.is_some()),
            ("--compare", results.compare.is_some()),
            ("--svg", results.svg.is_some()),
            ("--dump-frontier-logits-dir", results.dump_frontier_logits_dir.is_some()),
            ("--gate-prefill", results.gate_prefill.is_some()),
            ("--gate-decode", results.gate_decode.is_some()),
            ("--concurrency", sweep.concurrency > 1),
        ];
        match others.iter().find(|(_, given)| *given) {
            Some((flag, _)) => usage(format!("{flag} belongs to the sweep, not to --beside")),
            None => Ok(()),
        }
    }

    /// The context of each session, in tokens.
    pub fn ctx_alloc(&self) -> u64 {
        let sweep = &self.sweep;
        let given = sweep.ctx_alloc.or(self.engine.context.ctx).map(u64::from);
        // Beside a prompt sessions decode until it is through, however many steps that takes.
        let beside = sweep.beside.map_or(0, |_| u64::from(sweep.ctx_start) + STEPS_BESIDE);
        let longest = u64::from(sweep.ctx_max).max(beside);
        given.unwrap_or(longest + u64::from(sweep.gen_tokens) + 1)
    }

    fn source(&self) -> Result<BenchSource<'_>, UsageError> {
        let prompt = &self.prompt;
        if prompt.layers.is_some() && !prompt.synthetic {
            return usage("--layers needs --synthetic");
        }
        if prompt.system.is_some() && prompt.chat_prompt_file.is_none() {
            return usage("--system needs --chat-prompt-file");
        }
        match (&prompt.prompt_file, &prompt.chat_prompt_file, prompt.synthetic) {
            (Some(file), None, false) => Ok(BenchSource::Text(file)),
            (None, Some(file), false) => {
                let system = prompt.system.as_deref().unwrap_or_default();
                Ok(BenchSource::Chat { file, system })
            }
            (None, None, true) if self.engine.model.is_some() => {
                usage("--synthetic takes no --model: its weights are random")
            }
            (None, None, true) => {
                let layers = prompt.layers.unwrap_or(PUBLISHED_LAYERS) as usize;
                Ok(BenchSource::Synthetic { layers })
            }
            _ => usage("give exactly one of --prompt-file, --chat-prompt-file and --synthetic"),
        }
    }
}

fn usage<T>(message: impl Into<String>) -> Result<T, UsageError> {
    Err(UsageError::new("bench", message))
}
