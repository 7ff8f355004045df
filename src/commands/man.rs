//! `q36 man`.

use anyhow::Result;

use super::Exit;
use crate::cli::man::{self, ManArgs};
use crate::term::Printer;

/// Prints a manual page in roff.
pub(super) fn run(args: &ManArgs, printer: &Printer) -> Result<Exit> {
    printer.data(&man::page(args.command.as_deref())?)?;
    Ok(Exit::Success)
}
