//! Arguments to configuration to call: one entry function for each subcommand, and the exit codes.

mod run;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{self, Cli, Command, Stop, UsageError};
use crate::term::color::Choice;
use crate::term::printer::Options;
use crate::term::{Class, OutputError, Printer};

/// How a command ended when it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Everything went well.
    Success,
    /// The command did its work and the answer is no.
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
}

/// Parses, runs, prints the error, chooses the exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let printer = Printer::new(Options::default());
    match cli::parse(args) {
        Ok(cli) => {
            let context = Context { printer: Printer::new(printer_options(&cli)) };
            ExitCode::from(finish(&context.printer, dispatch(cli, &context)))
        }
        Err(Stop::Help(_)) => ExitCode::SUCCESS,
        Err(Stop::Usage(err)) => ExitCode::from(finish(&printer, Err(err.into()))),
    }
}

fn printer_options(cli: &Cli) -> Options {
    let color = match cli.global.color {
        cli::values::ColorChoice::Auto => Choice::Auto,
        cli::values::ColorChoice::Always => Choice::Always,
        cli::values::ColorChoice::Never => Choice::Never,
    };
    Options { color, quiet: cli.global.quiet, verbose: cli.global.verbose, ..Options::default() }
}

fn dispatch(cli: Cli, context: &Context) -> Result<Exit> {
    match cli.command {
        Some(Command::Run(args)) => run::run(&args, context),
        _ => Ok(Exit::Success),
    }
}

/// Prints an error and its causes; returns the exit code.
fn finish(printer: &Printer, result: Result<Exit>) -> u8 {
    let err = match result {
        Ok(exit) => return exit.code(),
        Err(err) => err,
    };
    if matches!(err.downcast_ref::<OutputError>(), Some(OutputError::Closed)) {
        return 0;
    }
    if let Some(usage) = err.downcast_ref::<UsageError>() {
        printer.message(Class::Error, &usage.to_string());
        return 2;
    }
    printer.message(Class::Error, &format!("q36: {err:#}"));
    1
}
