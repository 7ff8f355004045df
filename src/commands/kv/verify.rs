//! `q36 kv verify`.

use anyhow::Result;
use serde::Serialize;

use super::places::Found;
use crate::cli::kv::KvArgs;
use crate::commands::{Context, Exit};
use crate::kv::{Class as Kind, Described};
use crate::term::Class;
use crate::util::units::grouped;

/// What was found of a file. Additive: scripts read these names.
#[derive(Serialize)]
struct Checked {
    id: String,
    file: String,
    /// `ok`, `foreign`, `damaged`, `alien` or `unreadable`.
    status: &'static str,
    problem: Option<String>,
    /// Sections that are broken; the state is not.
    dropped: Vec<String>,
}

/// Reads files whole. A damaged one is a failure; a foreign one is not.
pub(super) fn run(args: &KvArgs, found: &Found, context: &Context) -> Result<Exit> {
    let printer = &context.printer;
    let mut all = Vec::new();
    let mut damaged = 0;
    for path in &found.files {
        let Ok(file) = Described::read(path, 0) else { continue };
        let result = file.verify();
        let is_damaged = result.as_ref().is_err_and(|e| e.class() == Kind::Damaged);
        damaged += usize::from(is_damaged);
        let checked = match result {
            Ok(dropped) => checked(&file, "ok", None, dropped),
            Err(why) => checked(&file, why.kind(), Some(why.to_string()), Vec::new()),
        };
        if args.json {
            all.push(checked);
            continue;
        }
        let class = if is_damaged { Class::Error } else { Class::Plain };
        let reason = checked.problem.iter().chain(&checked.dropped).map(String::as_str);
        let reason: Vec<&str> = reason.collect();
        let line = format!("{}  {:10}  {}", checked.id, checked.status, reason.join("; "));
        printer.painted(class, line.trim_end())?;
    }
    if args.json {
        printer.line(&serde_json::to_string_pretty(&all)?)?;
    } else {
        let (files, damaged) = (grouped(found.files.len() as u64), grouped(damaged as u64));
        printer.note(Class::Plain, &format!("{files} files, {damaged} damaged"));
    }
    Ok(if damaged == 0 { Exit::Success } else { Exit::Failure })
}

fn checked(
    file: &Described,
    status: &'static str,
    problem: Option<String>,
    dropped: Vec<String>,
) -> Checked {
    Checked { id: file.id(), file: file.path.display().to_string(), status, problem, dropped }
}
