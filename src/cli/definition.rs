//! The program's command line as a whole, and the way from arguments to types.

use std::ffi::OsString;

use clap::{CommandFactory as _, FromArgMatches as _};

use super::argv;
use super::bench::BenchArgs;
use super::completions::CompletionsArgs;
use super::devices::DevicesArgs;
use super::doctor::DoctorArgs;
use super::error::{self, UsageError};
use super::help::HelpRequest;
use super::inspect::InspectArgs;
use super::kv::KvArgs;
use super::man::ManArgs;
use super::plot::PlotArgs;
use super::run::RunArgs;
use super::serve::ServeArgs;
use super::values::ColorChoice;

/// Headings of flag groups: what help topics select by.
pub mod heading {
    /// Prompt source and output of `run`.
    pub const PROMPT: &str = "Prompt and output";
    /// Model, backend, threads.
    pub const MODEL: &str = "Model and backend";
    /// Context length and KV types.
    pub const CONTEXT: &str = "Context and KV types";
    /// Experts on disk.
    pub const STREAMING: &str = "SSD streaming";
    /// Draft tokens.
    pub const SPECULATION: &str = "Speculative decoding";
    /// Sampling and thinking.
    pub const SAMPLING: &str = "Sampling and thinking";
    /// Direction files.
    pub const STEERING: &str = "Steering";
    /// What `run` does instead of answering.
    pub const DIAGNOSTICS: &str = "Diagnostics";
    /// Flags of `bench`.
    pub const BENCHMARK: &str = "Benchmark";
    /// Flags of `plot`.
    pub const PLOT: &str = "Plot";
    /// Flags of `inspect`.
    pub const INSPECT: &str = "Inspect";
    /// Sockets, keys and logs of `serve`.
    pub const SERVER: &str = "Server";
    /// Limits of requests to `serve`.
    pub const REQUESTS: &str = "Requests";
    /// When `serve` saves sessions.
    pub const KV_CACHE: &str = "When sessions are saved";
    /// Budgets of thoughts.
    pub const THINKING: &str = "Thinking";
    /// Flags of `kv`.
    pub const KV: &str = "Saved sessions";
    /// Flags of `devices`.
    pub const DEVICES: &str = "Devices";
    /// Flags of `doctor`.
    pub const DOCTOR: &str = "Doctor";
    /// Flags of every command.
    pub const GENERAL: &str = "General";
}

/// Native inference for Qwen3.6-35B-A3B on Vulkan GPUs and CPUs.
#[derive(Debug, Clone, clap::Parser)]
#[command(
    name = "q36",
    disable_version_flag = true,
    disable_help_flag = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// Flags of every command.
    #[command(flatten)]
    pub global: Global,

    /// Print version, commit, build date, kernel hash and payload format.
    #[arg(short = 'V', long, help_heading = heading::GENERAL)]
    pub version: bool,

    /// With --version: print one JSON object.
    #[arg(long, requires = "version", help_heading = heading::GENERAL)]
    pub json: bool,

    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Flags of every command.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = heading::GENERAL)]
pub struct Global {
    /// Say more about what is being done; twice for details.
    #[arg(short = 'v', long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// Print no progress and no remarks, only results, warnings and errors.
    #[arg(short = 'q', long, global = true)]
    pub quiet: bool,

    /// Colour the output: auto, always or never.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value = "auto",
        hide_possible_values = true
    )]
    pub color: ColorChoice,

    /// Print help on a command, or on one of its topics.
    #[arg(short = 'h', long, global = true, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// The commands.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Answer one prompt.
    ///
    /// The prompt comes from -p, --prompt-file or stdin; the answer goes to stdout.
    Run(Box<RunArgs>),
    /// Serve the APIs that coding agents and chat programs speak.
    ///
    /// Chat completions, completions, responses, messages; a page to chat on at /.
    Serve(Box<ServeArgs>),
    /// Measure prefill and decode speed at growing context.
    ///
    /// Rates are those at each length, not averages: only its new tokens are processed.
    Bench(Box<BenchArgs>),
    /// Draw tables of bench as a chart; say what changed from one to the other.
    ///
    /// Ratios stand with their spread where the tables have repetitions.
    Plot(PlotArgs),
    /// Show what a model file holds and needs.
    Inspect(InspectArgs),
    /// List, show, verify or delete saved sessions.
    ///
    /// Needs no model. Files of other models and other programs are shown, too.
    Kv(KvArgs),
    /// List the Vulkan devices and what they can do.
    Devices(DevicesArgs),
    /// Check this machine and the model; say what to do.
    Doctor(DoctorArgs),
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
    /// Print a manual page.
    Man(ManArgs),
    /// Print help on a command or a topic.
    Help {
        /// A command or a topic.
        #[arg(value_name = "COMMAND")]
        command: Option<String>,
        /// A topic of the command.
        #[arg(value_name = "TOPIC")]
        topic: Option<String>,
    },
}

/// Why parsing ended without something to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// Help was asked for.
    Help(HelpRequest),
    /// The command line is wrong.
    Usage(UsageError),
}

/// The clap definition, with the rules that hold for every flag: a later occurrence replaces an
/// earlier one, and a flag that needs a value takes the next argument whatever it looks like.
pub fn command() -> clap::Command {
    fn adjust(command: clap::Command) -> clap::Command {
        command.args_override_self(true).mut_args(|arg| {
            let is_option = !arg.is_positional() && arg.get_action().takes_values();
            if is_option { arg.allow_hyphen_values(true) } else { arg }
        })
    }
    adjust(Cli::command()).mut_subcommands(adjust)
}

/// Parses a whole command line, the program's name first.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, Stop> {
    let mut command = command();
    command.build();
    let rewritten = argv::rewrite(&command, args).map_err(Stop::Usage)?;
    let parsed = command
        .try_get_matches_from_mut(&rewritten.args)
        .and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches));
    match parsed {
        Ok(Cli { command: Some(Command::Help { command, topic }), .. }) => {
            Err(Stop::Help(HelpRequest { command, topic }))
        }
        Ok(cli) => Ok(cli),
        Err(err) if err.kind() == clap::error::ErrorKind::DisplayHelp => {
            Err(Stop::Help(HelpRequest { command: rewritten.command, topic: rewritten.topic }))
        }
        Err(err) => {
            Err(Stop::Usage(error::translate(&err, rewritten.command.as_deref(), &command)))
        }
    }
}
