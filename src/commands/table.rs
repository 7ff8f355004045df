//! Tables of `q36 bench` that were written earlier.

use std::fs;
use std::path::Path;

use crate::bench::csv::{self, Recorded};
use crate::cli::UsageError;

/// Reads one for a command.
pub(super) fn read(command: &'static str, file: &Path) -> Result<Vec<Recorded>, UsageError> {
    let wrong = |text: String| UsageError::new(command, text);
    let text = fs::read_to_string(file)
        .map_err(|e| wrong(format!("cannot read {}: {e}", file.display())))?;
    csv::parse(&text).map_err(|e| wrong(format!("{}: {e}", file.display())))
}
