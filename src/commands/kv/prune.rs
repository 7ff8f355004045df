//! `q36 kv prune`.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::places::Found;
use crate::cli::UsageError;
use crate::cli::kv::KvArgs;
use crate::commands::{Context, Exit};
use crate::kv::{Candidate, Class as Kind, Described, Directory, victims};
use crate::term::Class;
use crate::util::clock::unix_seconds;
use crate::util::units::{Bytes, grouped};

/// One JSON object.
#[derive(Serialize)]
struct Report {
    dry_run: bool,
    bytes: u64,
    deleted: Vec<String>,
}

/// Deletes the files that were named, and those that a flag is about.
pub(super) fn run(args: &KvArgs, found: &Found, context: &Context) -> Result<Exit> {
    let by_rule = args.older_than.is_some() || args.max_mb.is_some() || args.damaged;
    if !found.is_selection && !by_rule {
        let error = UsageError::new("kv", "prune needs a rule or a file");
        let hint = "--older-than AGE, --max-mb MB, --damaged, or the beginning of a file's name";
        return Err(error.hint(hint).into());
    }
    let files: Vec<Described> =
        found.files.iter().filter_map(|path| Described::read(path, 0).ok()).collect();
    let now = unix_seconds();
    let mut going: Vec<&Described> = if by_rule { Vec::new() } else { files.iter().collect() };
    going.extend(files.iter().filter(|file| is_old(file, args.older_than, now)));
    if args.damaged {
        going.extend(files.iter().filter(|file| is_damaged(file)));
    }
    if let Some(mb) = args.max_mb {
        going.extend(beyond(&files, u64::from(mb) << 20, now));
    }
    going.sort_by(|a, b| a.path.cmp(&b.path));
    going.dedup_by(|a, b| a.path == b.path);
    if !args.dry_run {
        delete(&going, found)?;
    }
    report(args, &going, context)
}

fn is_old(file: &Described, age: Option<u64>, now: u64) -> bool {
    let (Some(age), Some(header)) = (age, &file.header) else { return false };
    now.saturating_sub(header.last_used) > age
}

/// Broken, as far as reading all of it shows. A file of another program is not.
fn is_damaged(file: &Described) -> bool {
    file.verify().is_err_and(|why| why.class() == Kind::Damaged)
}

/// The least valuable files, without which the others fit the budget.
fn beyond(files: &[Described], budget: u64, now: u64) -> Vec<&Described> {
    let candidate = |(name, file): (usize, &Described)| {
        let header = file.header.as_ref()?;
        Some(Candidate {
            name,
            bytes: file.bytes,
            tokens: header.tokens,
            hits: header.hits,
            last_used: header.last_used,
            reason: header.reason,
            is_prefix: false,
            is_protected: false,
            is_newest: false,
        })
    };
    let mut candidates: Vec<_> = files.iter().enumerate().filter_map(candidate).collect();
    // Sessions that were saved by hand stay, whatever they take: the budget is for the others.
    candidates.retain(|c| c.reason != crate::kv::Reason::AgentSession);
    let names = victims(&candidates, 0, budget, now).unwrap_or_default();
    names.into_iter().map(|at| &files[at]).collect()
}

fn delete(going: &[&Described], found: &Found) -> Result<()> {
    let paths: Vec<PathBuf> = going.iter().map(|file| file.path.clone()).collect();
    let Some(first) = paths.first() else { return Ok(()) };
    let directory = if let Some(directory) = &found.directory {
        directory.clone()
    } else {
        let parent = first.parent().filter(|p| !p.as_os_str().is_empty());
        Directory::open(parent.unwrap_or(std::path::Path::new(".")))?
    };
    let place = directory.path().display().to_string();
    directory.delete(&paths).with_context(|| format!("cannot delete files in {place}"))
}

fn report(args: &KvArgs, going: &[&Described], context: &Context) -> Result<Exit> {
    let printer = &context.printer;
    let bytes = going.iter().map(|file| file.bytes).sum();
    let deleted: Vec<String> = going.iter().map(|file| file.path.display().to_string()).collect();
    if args.json {
        let report = Report { dry_run: args.dry_run, bytes, deleted };
        printer.line(&serde_json::to_string_pretty(&report)?)?;
        return Ok(Exit::Success);
    }
    for path in &deleted {
        printer.line(path)?;
    }
    let (count, what) =
        (grouped(deleted.len() as u64), if args.dry_run { "would go" } else { "deleted" });
    printer.note(Class::Plain, &format!("{count} files {what}, {}", Bytes(bytes)));
    Ok(Exit::Success)
}
