//! `q36 kv show`.

use std::fmt::Write as _;

use anyhow::Result;

use super::age;
use super::places::Found;
use super::summary::{Summary, one_line};
use crate::cli::UsageError;
use crate::cli::kv::KvArgs;
use crate::commands::{Context, Exit};
use crate::kv::Described;
use crate::term::Class;
use crate::util::clock::unix_seconds;
use crate::util::units::{Bytes, grouped};

/// Bytes of text that are shown below the rest.
const TEXT_BYTES: usize = 2000;

/// Prints everything about the files that were named.
pub(super) fn run(args: &KvArgs, found: &Found, context: &Context) -> Result<Exit> {
    if !found.is_selection {
        let error = UsageError::new("kv", "show needs a file, or the beginning of its name");
        return Err(error.hint("q36 kv list shows what is there").into());
    }
    let printer = &context.printer;
    let limit = if args.text { usize::MAX } else { TEXT_BYTES };
    let mut all = Vec::new();
    for path in &found.files {
        let file = Described::read(path, limit).map_err(|why| {
            anyhow::Error::from(why).context(format!("cannot open {}", path.display()))
        })?;
        if args.text {
            printer.data(&file.text)?;
        } else if args.json {
            all.push(Summary::of(&file));
        } else {
            printer.painted(Class::Heading, &path.display().to_string())?;
            printer.data(details(&file).as_bytes())?;
        }
    }
    if args.json {
        printer.line(&serde_json::to_string_pretty(&all)?)?;
    }
    Ok(Exit::Success)
}

fn details(file: &Described) -> String {
    let summary = Summary::of(file);
    let now = unix_seconds();
    let mut out = String::new();
    let mut row = |name: &str, text: &str| {
        let _ = writeln!(out, "   {name:<11} {text}");
    };
    match &summary.problem {
        Some(problem) => row("status", &format!("{}: {problem}", summary.status)),
        None => row("status", &format!("{}; verify reads all of it", summary.status)),
    }
    row("size", &format!("{} ({} bytes)", Bytes(file.bytes), grouped(file.bytes)));
    if let Some(h) = &file.header {
        row("reason", h.reason.name());
        let ctx = grouped(h.ctx.into());
        row("tokens", &format!("{}, written in a context of {ctx}", grouped(h.tokens.into())));
        row("hits", &grouped(h.hits.into()));
        let (created, used) = (age::ago(now, h.created), age::ago(now, h.last_used));
        row(
            "age",
            &format!("written {created} ago, used {used} ago").replace("now ago", "just now"),
        );
        row("text", &format!("{} bytes", grouped(h.text_bytes.into())));
        row("payload", &format!("{} bytes", grouped(h.payload_bytes)));
        row("experts", &format!("{} bits", h.quant_bits));
    }
    if let Some(version) = summary.payload_version {
        let types = summary.kv_k.zip(summary.kv_v).map(|(k, v)| format!(", K/V rows {k}/{v}"));
        row("version", &format!("{version}{}", types.unwrap_or_default()));
    }
    if let Some(model) = &summary.model {
        row("model", model);
    }
    if let Some(title) = &summary.title {
        row("title", &one_line(title));
    }
    if let Some(markers) = summary.markers {
        row("markers", &grouped(markers as u64));
    }
    for tool in &file.sections.tools {
        let id = one_line(&String::from_utf8_lossy(&tool.id));
        row("tool call", &format!("{id}, {} bytes", grouped(tool.block.len() as u64)));
    }
    for line in &file.dropped {
        row("broken", line);
    }
    if !summary.sections.is_empty() {
        row("sections", &summary.sections.join(" "));
    }
    out.push_str(&excerpt(file));
    out
}

/// The beginning of the text, its lines kept.
fn excerpt(file: &Described) -> String {
    let text = String::from_utf8_lossy(&file.text);
    let mut out = String::from("\n");
    for line in text.lines() {
        let line: String = line.chars().filter(|c| !c.is_control()).collect();
        let _ = writeln!(out, "   {line}");
    }
    let left = file.header.map_or(0, |h| h.text_bytes as usize).saturating_sub(file.text.len());
    if left > 0 {
        let left = grouped(left as u64);
        let _ = writeln!(out, "   … {left} more bytes; --text prints all");
    }
    out
}
