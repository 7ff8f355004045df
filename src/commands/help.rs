//! Help, asked for: on stdout, with coloured headings on a terminal.

use anyhow::Result;

use super::Exit;
use crate::cli::HelpRequest;
use crate::cli::environment::TerminalEnvironment;
use crate::cli::help::{self, Line};
use crate::term::{Class, Printer, width};

/// Prints the page.
pub(super) fn run(
    request: &HelpRequest,
    printer: &Printer,
    terminal: TerminalEnvironment,
) -> Result<Exit> {
    let page = help::page(request, width::terminal_columns(terminal.columns))?;
    let colored = printer.stdout_is_colored();
    let mut out = String::new();
    for line in &page {
        match line {
            Line::Heading(text) => out.push_str(&Class::Heading.paint(text, colored)),
            Line::Text(text) => out.push_str(text),
        }
        out.push('\n');
    }
    printer.data(out.as_bytes())?;
    Ok(Exit::Success)
}
