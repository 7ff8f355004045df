//! Arguments to configuration to call: one entry function for each subcommand, and the exit codes.

mod bench;
mod completions;
mod config;
mod devices;
mod doctor;
mod failure;
#[cfg(feature = "vulkan")]
mod gpu;
#[cfg(not(feature = "vulkan"))]
#[path = "no_gpu.rs"]
mod gpu;
mod help;
mod inspect;
mod kv;
mod machine;
mod man;
pub mod paths;
mod plot;
mod profile;
mod progress;
pub mod run;
mod serve;
mod switches;
mod table;
mod unsupported;
mod values;
mod version;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use crate::cli::environment::{Environment, TerminalEnvironment};
use crate::cli::values::ColorChoice;
use crate::cli::{self, Cli, Command, Global, HelpRequest, Stop, UsageError};
use crate::term::printer::Options;
use crate::term::{Printer, color};

/// How a command ended when it did not fail. What failed is an error; `failure` has its codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Everything went well.
    Success,
    /// The command did its work, and the answer is no.
    Failure,
    /// Stopped by Ctrl+C.
    Interrupted,
}

impl Exit {
    /// The process status.
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Interrupted => 130,
        }
    }
}

/// What every command gets beside its arguments.
#[derive(Debug, Clone)]
pub struct Context {
    /// Where output goes.
    pub printer: Printer,
    /// What the environment says.
    pub environment: Environment,
    /// What the environment says about the terminal.
    pub terminal: TerminalEnvironment,
}

/// Parses, runs, prints the error, chooses the exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let terminal = TerminalEnvironment::read(|name| env::var_os(name));
    let plain = Printer::new(printer_options(None, terminal));
    let code = match cli::parse(args) {
        Ok(cli) => {
            let printer = Printer::new(printer_options(Some(&cli.global), terminal));
            failure::finish(&printer, run_command(cli, &printer, terminal))
        }
        Err(Stop::Help(request)) => failure::finish(&plain, help::run(&request, &plain, terminal)),
        Err(Stop::Usage(err)) => failure::finish(&plain, Err(err.into())),
    };
    ExitCode::from(code)
}

fn printer_options(global: Option<&Global>, terminal: TerminalEnvironment) -> Options {
    let color = match global.map_or(ColorChoice::Auto, |global| global.color) {
        ColorChoice::Auto => color::Choice::Auto,
        ColorChoice::Always => color::Choice::Always,
        ColorChoice::Never => color::Choice::Never,
    };
    let environment = color::Environment {
        no_color: terminal.no_color,
        force: terminal.force_color,
        dumb: terminal.is_dumb,
    };
    let quiet = global.is_some_and(|global| global.quiet);
    Options { color, environment, quiet, verbose: global.map_or(0, |global| global.verbose) }
}

fn run_command(cli: Cli, printer: &Printer, terminal: TerminalEnvironment) -> Result<Exit> {
    if cli.version {
        return version::run(cli.json, printer);
    }
    let Some(command) = cli.command else {
        if printer.stdout_is_terminal() {
            return help::run(&HelpRequest::default(), printer, terminal);
        }
        return Err(UsageError::program("no command given").hint("see q36 --help").into());
    };
    let environment = Environment::read(|name| env::var_os(name))?;
    switches::apply(&environment.debug)?;
    let context = Context { printer: printer.clone(), environment, terminal };
    match command {
        Command::Run(args) => {
            unsupported::check(&args.engine, printer)?;
            run::run(&args, &context)
        }
        Command::Serve(args) => {
            unsupported::check(&args.engine, printer)?;
            serve::run(&args, &context)
        }
        Command::Bench(args) => {
            unsupported::check(&args.engine, printer)?;
            bench::run(&args, &context)
        }
        Command::Plot(args) => plot::run(&args, &context),
        Command::Inspect(args) => inspect::run(&args, &context),
        Command::Kv(args) => kv::run(&args, &context),
        Command::Devices(args) => devices::run(&args, &context),
        Command::Doctor(args) => doctor::run(&args, &context),
        Command::Completions(args) => completions::run(&args, printer),
        Command::Man(args) => man::run(&args, printer),
        Command::Help { command, topic } => {
            help::run(&HelpRequest { command, topic }, printer, terminal)
        }
    }
}
