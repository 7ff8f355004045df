//! `q36 kv list`.

use std::cmp::Reverse;
use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use super::age;
use super::places::Found;
use super::summary::Summary;
use crate::cli::kv::KvArgs;
use crate::commands::{Context, Exit};
use crate::kv::Described;
use crate::term::Class;
use crate::term::width::{terminal_columns, truncate};
use crate::util::clock::unix_seconds;
use crate::util::units::{Bytes, grouped};

/// As much of a text as a wide terminal shows.
const TEXT_BYTES: usize = 400;
/// Columns before the text.
const BEFORE_TEXT: usize = 61;
const LEAST_TEXT: usize = 20;

/// One JSON object.
#[derive(Serialize)]
struct Report {
    dir: Option<String>,
    bytes: u64,
    files: Vec<Summary>,
}

/// Prints the files, the one used last first.
pub(super) fn run(args: &KvArgs, found: &Found, context: &Context) -> Result<Exit> {
    let mut files = summaries(found, TEXT_BYTES);
    files.sort_by_key(|file| (Reverse(file.last_used), file.id.clone()));
    let bytes = files.iter().map(|file| file.bytes).sum();
    let dir = found.directory.as_ref().map(|d| d.path().display().to_string());
    let printer = &context.printer;
    if args.json {
        printer.line(&serde_json::to_string_pretty(&Report { dir, bytes, files })?)?;
        return Ok(Exit::Success);
    }
    if files.is_empty() {
        let place = dir.unwrap_or_else(|| "the agent's directory".to_owned());
        printer.note(Class::Plain, &format!("no saved sessions in {place}"));
        return Ok(Exit::Success);
    }
    let heading = format!(
        "{:8}  {:13}  {:>8}  {:>9}  {:>4}  {:>7}  text",
        "id", "reason", "tokens", "size", "hits", "used"
    );
    printer.painted(Class::Heading, &heading)?;
    let columns = terminal_columns(context.terminal.columns);
    let now = unix_seconds();
    let lines: String = files.iter().map(|file| line(file, now, columns) + "\n").collect();
    printer.data(lines.as_bytes())?;
    let count = grouped(files.len() as u64);
    printer.note(Class::Plain, &format!("{count} files, {}", Bytes(bytes)));
    Ok(Exit::Success)
}

/// What can be said of each file. One that has gone meanwhile is left out.
pub(super) fn summaries(found: &Found, text_bytes: usize) -> Vec<Summary> {
    let read = |path: &PathBuf| Described::read(path, text_bytes).ok();
    found.files.iter().filter_map(read).map(|file| Summary::of(&file)).collect()
}

fn line(file: &Summary, now: u64, columns: usize) -> String {
    let used = file.last_used.map(|then| age::ago(now, then)).unwrap_or_default();
    let count = |n: Option<u32>| n.map(|n| grouped(n.into())).unwrap_or_default();
    let reason = if file.status == "ok" { file.reason.unwrap_or_default() } else { file.status };
    let text = match (&file.problem, &file.title) {
        (Some(problem), _) => problem,
        (None, Some(title)) => title,
        (None, None) => &file.text,
    };
    let text = super::summary::one_line(text);
    let text = truncate(&text, columns.saturating_sub(BEFORE_TEXT).max(LEAST_TEXT));
    let id = truncate(&file.id, 8);
    let (tokens, hits, size) =
        (count(file.tokens), count(file.hits), Bytes(file.bytes).to_string());
    format!("{id:8}  {reason:13}  {tokens:>8}  {size:>9}  {hits:>4}  {used:>7}  {text}")
}
