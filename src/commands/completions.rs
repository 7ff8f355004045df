//! `q36 completions`.

use anyhow::Result;

use super::Exit;
use crate::cli::completions::{self, CompletionsArgs};
use crate::term::Printer;

/// Prints the script of a shell.
pub(super) fn run(args: &CompletionsArgs, printer: &Printer) -> Result<Exit> {
    printer.data(&completions::script(args.shell))?;
    Ok(Exit::Success)
}
