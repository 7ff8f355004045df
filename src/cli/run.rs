//! Flags of `q36 run`: a prompt, or one of the diagnostics.

use std::path::PathBuf;

use super::engine::EngineArgs;
use super::error::UsageError;
use super::heading;
use super::kv_disk::KvDiskArgs;
use super::sampling::SamplingArgs;
use super::steering::SteeringArgs;
use super::values::{self, ShowThinking};

/// Most tokens of an answer when `-n` is not given.
pub const DEFAULT_TOKENS: u32 = 50_000;

/// System text when `--system` is not given.
pub const DEFAULT_SYSTEM: &str = "You are a helpful assistant.";

/// Most alternatives `--logprobs-top-k` shows; more is clamped.
pub const MAX_LOGPROBS: u32 = 128;

const EXAMPLES: &str = "\
Examples:
  q36 run
  q36 run -p 'Why is the sky blue?'
  git diff | q36 run -sys 'Review this patch.' --nothink
  q36 run --prompt-file notes.txt --temp 0 -n 500 --json";

/// Arguments of `q36 run`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// What to answer and how to print it.
    #[command(flatten)]
    pub prompt: PromptArgs,

    /// Model and backend.
    #[command(flatten)]
    pub engine: EngineArgs,

    /// Sampling and thinking.
    #[command(flatten)]
    pub sampling: SamplingArgs,

    /// Directional steering.
    #[command(flatten)]
    pub steering: SteeringArgs,

    /// Saved states of prompts.
    #[command(flatten)]
    pub kv_disk: KvDiskArgs,

    /// Diagnostics instead of an answer.
    #[command(flatten)]
    pub diagnostics: DiagnosticArgs,
}

/// Where the prompt comes from and where the answer goes.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = heading::PROMPT)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch that a user turns")]
pub struct PromptArgs {
    // Both sources collect every occurrence: a second one is an error, not an override.
    /// Prompt text; - reads stdin.
    #[arg(short = 'p', long = "prompt", value_name = "TEXT", action = clap::ArgAction::Append)]
    prompts: Vec<String>,

    /// Prompt from a file; - reads stdin.
    #[arg(long = "prompt-file", value_name = "FILE", action = clap::ArgAction::Append)]
    prompt_files: Vec<PathBuf>,

    /// System text (also -sys); an empty one leaves the system block out. Default: a helpful
    /// assistant.
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,

    /// Most tokens to generate; the context's room limits it too.
    #[arg(short = 'n', long, value_name = "N", default_value_t = DEFAULT_TOKENS,
          value_parser = values::positive)]
    pub tokens: u32,

    /// Continue the prompt text as it stands, without the chat template.
    #[arg(long, overrides_with = "rendered")]
    pub raw: bool,

    /// Take the prompt as an already rendered chat.
    #[arg(long, overrides_with = "raw")]
    pub rendered: bool,

    /// Where reasoning goes: auto, stdout, stderr or never. auto is grey text on a terminal and
    /// nothing elsewhere.
    #[arg(
        long,
        value_name = "WHERE",
        value_enum,
        default_value = "auto",
        hide_possible_values = true
    )]
    pub show_thinking: ShowThinking,

    /// Print one JSON object with text, reasoning, usage and timings.
    #[arg(long)]
    pub json: bool,

    /// Print a JSON object on a line of its own for each piece of text.
    #[arg(long)]
    pub stream_json: bool,

    /// Write the output to FILE instead of stdout.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Print the resolved options and the memory plan, load nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// Converse even where standard input is no terminal: a line of it is a message or a command. Without a prompt a
    /// terminal gets a conversation anyway.
    #[arg(long)]
    pub repl: bool,
}

/// Where a one-shot prompt is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptSource<'a> {
    /// The text on the command line.
    Text(&'a str),
    /// A file.
    File(&'a std::path::Path),
    /// Standard input, to its end.
    Stdin,
}

impl PromptArgs {
    /// The prompt source named on the command line, if any; naming two is an error.
    pub fn source(&self) -> Result<Option<PromptSource<'_>>, UsageError> {
        let texts = self.prompts.iter().map(|text| match text.as_str() {
            "-" => PromptSource::Stdin,
            text => PromptSource::Text(text),
        });
        let files = self.prompt_files.iter().map(|file| match file.as_os_str() {
            dash if dash == "-" => PromptSource::Stdin,
            _ => PromptSource::File(file),
        });
        let mut sources = texts.chain(files);
        let first = sources.next();
        if sources.next().is_some() {
            return Err(UsageError::new("run", "specify only one prompt source"));
        }
        Ok(first)
    }

    /// The first flag that goes with a prompt and not with a conversation.
    pub fn needs_a_prompt(&self) -> Option<&'static str> {
        let flags = [
            (self.raw, "--raw"),
            (self.rendered, "--rendered"),
            (self.json && !self.dry_run, "--json"),
            (self.stream_json, "--stream-json"),
            (self.output.is_some(), "--output"),
        ];
        flags.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }

    /// The system text; empty means no system block.
    pub fn system(&self) -> &str {
        self.system.as_deref().unwrap_or(DEFAULT_SYSTEM)
    }
}

/// What `run` does instead of answering.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = heading::DIAGNOSTICS)]
pub struct DiagnosticArgs {
    /// Print a summary of the model file; needs no GPU.
    #[arg(long)]
    pub inspect: bool,

    /// Print the prompt's tokens as they stand, without template or inference.
    #[arg(long)]
    pub dump_tokens: bool,

    /// Write the logits after the prompt to FILE as JSON.
    #[arg(long, value_name = "FILE")]
    pub dump_logits: Option<PathBuf>,

    /// Write a greedy continuation with its alternatives to FILE as JSON.
    #[arg(long, value_name = "FILE")]
    pub dump_logprobs: Option<PathBuf>,

    /// Alternatives of each step of --dump-logprobs, at most 128.
    #[arg(long, value_name = "N", default_value = "20", value_parser = values::positive)]
    logprobs_top_k: u32,

    /// Decode N greedy tokens, then compare the logits with a fresh prefill of the same tokens.
    #[arg(long, value_name = "N", value_parser = values::positive)]
    pub decode_consistency: Option<u32>,

    /// Score a text: the first 32 tokens are context, the rest is predicted.
    #[arg(long, value_name = "FILE")]
    pub perplexity_file: Option<PathBuf>,
}

impl DiagnosticArgs {
    /// Whether something is asked for that evaluates the prompt and replaces the answer.
    pub fn reads_a_prompt(&self) -> bool {
        self.dump_logits.is_some()
            || self.dump_logprobs.is_some()
            || self.decode_consistency.is_some()
    }

    /// `--logprobs-top-k`, clamped.
    pub fn logprobs_top_k(&self) -> usize {
        self.logprobs_top_k.min(MAX_LOGPROBS) as usize
    }
}
