//! `q36 inspect`, and `q36 run --inspect`.

use anyhow::Result;

use super::Exit;
use crate::term::Printer;
use crate::tools::inspect::{Finding, InspectOptions, inspect};

/// Prints what is in a model file. A check that was asked for and found something is a failure.
pub fn show(options: &InspectOptions, printer: &Printer) -> Result<Exit> {
    let mut report = Vec::new();
    let finding = inspect(options, &mut report)?;
    printer.data(&report)?;
    Ok(match finding {
        Finding::Clean => Exit::Success,
        Finding::Problems => Exit::Failure,
    })
}
