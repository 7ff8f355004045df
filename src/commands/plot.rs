//! `q36 plot`: tables of `q36 bench` as a chart, and what changed from one to the other.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{Context, Exit, table};
use crate::bench::compare;
use crate::bench::csv::Recorded;
use crate::bench::svg;
use crate::cli::UsageError;
use crate::cli::plot::PlotArgs;
use crate::term::Class;
use crate::util::fs::write_atomic;

/// Rows that make a curve.
const ROWS: usize = 2;

/// Runs the subcommand.
pub(super) fn run(args: &PlotArgs, context: &Context) -> Result<Exit> {
    let tables = args.files.iter().map(|file| Ok((file, read(file)?)));
    let tables = tables.collect::<Result<Vec<_>, UsageError>>()?;
    let Some(((file, new), others)) = tables.split_first() else { return Ok(Exit::Success) };
    for (other, old) in others {
        let changes = compare::changes(old, new);
        if changes.is_empty() {
            let text =
                format!("{} and {} have no length in common", file.display(), other.display());
            context.printer.warning(&text);
            continue;
        }
        context.printer.line(&format!("{} against {}:", file.display(), other.display()))?;
        for line in compare::table(&changes) {
            context.printer.line(&line)?;
        }
    }
    let title = args.title.clone().unwrap_or_else(|| stem(file));
    let behind: Vec<&[Recorded]> = others.iter().map(|(_, old)| &old[..]).collect();
    let out = args.out.clone().unwrap_or_else(|| default_out(file));
    write_atomic(&out, svg::chart(&title, new, &behind).as_bytes())
        .with_context(|| format!("cannot write {}", out.display()))?;
    context.printer.note(Class::Plain, &format!("wrote {}", out.display()));
    Ok(Exit::Success)
}

fn read(file: &Path) -> Result<Vec<Recorded>, UsageError> {
    let rows = table::read("plot", file)?;
    if rows.len() < ROWS {
        let text =
            format!("{}: a curve takes at least {ROWS} rows, found {}", file.display(), rows.len());
        return Err(UsageError::new("plot", text));
    }
    Ok(rows)
}

fn stem(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Beside the table.
fn default_out(file: &Path) -> PathBuf {
    file.with_file_name(format!("{}_ts.svg", stem(file)))
}
