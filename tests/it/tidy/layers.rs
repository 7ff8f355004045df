//! Which module may use which: the table of `src/ARCHITECTURE.md` against the paths in the code.
//!
//! The table is the only copy of the rule. Its third column is read as "everything below",
//! "N and below", or names, with exceptions in parentheses (`` `chat` also `tokenizer` ``);
//! modules named in the fourth column stay out of reach although they are below.

use super::mask::{closing, find_word, is_word, mask};
use super::tree::{Kind, Source, Violation, line_of};

/// The parsed table.
#[derive(Debug, Default)]
pub(super) struct Layers {
    rows: Vec<Row>,
    /// (module, what it may use beyond its row's rule).
    exceptions: Vec<(String, String)>,
}

#[derive(Debug)]
struct Row {
    level: u8,
    modules: Vec<String>,
    reach: Reach,
    out_of_reach: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Reach {
    Everything,
    UpTo(u8),
    Named(Vec<String>),
}

impl Layers {
    /// Reads the rows of the table whose first cell starts with a number.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut layers = Self::default();
        for line in text.lines() {
            let cells: Vec<&str> =
                line.trim().trim_matches('|').split('|').map(str::trim).collect();
            let Some(level) = cells[0].split(' ').next().and_then(|n| n.parse().ok()) else {
                continue;
            };
            let [_, modules, reach, barred] = cells[..] else {
                return Err(format!("expected 4 cells: {line}"));
            };
            layers.add_row(level, modules, reach, barred)?;
        }
        if layers.rows.is_empty() { Err("no rows".to_string()) } else { Ok(layers) }
    }

    fn add_row(
        &mut self,
        level: u8,
        modules: &str,
        reach: &str,
        barred: &str,
    ) -> Result<(), String> {
        let (rule, exceptions) = reach.split_once('(').unwrap_or((reach, ""));
        for exception in exceptions.split(',') {
            let names = quoted(exception);
            let Some((module, extra)) = names.split_first() else { continue };
            self.exceptions.extend(extra.iter().map(|e| (module.clone(), e.clone())));
        }
        let reach = if rule.starts_with("everything") {
            Reach::Everything
        } else if let Some(n) = rule.split_once(" and below") {
            Reach::UpTo(n.0.trim().parse().map_err(|_| format!("not a layer: {rule}"))?)
        } else {
            Reach::Named(quoted(rule))
        };
        let (modules, out_of_reach) = (quoted(modules), quoted(barred));
        self.rows.push(Row { level, modules, reach, out_of_reach });
        Ok(())
    }

    fn row(&self, module: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.modules.iter().any(|m| m == module))
    }

    /// Why `from` may not use `to`; `None` when it may.
    fn objection(&self, from: &str, to: &str) -> Option<String> {
        let (Some(user), Some(used)) = (self.row(from), self.row(to)) else {
            return Some(format!("`{from}` or `{to}` is not in the table of src/ARCHITECTURE.md"));
        };
        let allowed = match &user.reach {
            Reach::Everything => true,
            Reach::UpTo(level) => used.level <= *level,
            Reach::Named(names) => names.iter().any(|n| n == to),
        };
        let excepted = self.exceptions.iter().any(|(m, e)| m == from && e == to);
        if from == to || excepted {
            None
        } else if user.out_of_reach.iter().any(|n| n == to) {
            Some(format!("`{from}` must not know `{to}`"))
        } else if allowed {
            None
        } else {
            let (up, down) = (user.level, used.level);
            Some(format!("`{from}` (layer {up}) may not use `{to}` (layer {down})"))
        }
    }

    /// Paths of one file under `src/` that reach where its module may not.
    pub(super) fn check(&self, file: &Source) -> Vec<Violation> {
        let Some(module) = module_of(file) else { return Vec::new() };
        let masked = mask(&file.text);
        let mut found = Vec::new();
        for (offset, to) in crate_paths(&masked) {
            if let Some(objection) = self.objection(&module, &to) {
                found.push(file.violation(line_of(&masked, offset), objection));
            }
        }
        for offset in escapes(&masked, &file.path) {
            let what = "this path leaves the module through `super`; write `crate::`";
            found.push(file.violation(line_of(&masked, offset), what));
        }
        found
    }

    /// `lib.rs` and the table name the same modules.
    pub(super) fn check_module_list(&self, lib: &str) -> Vec<Violation> {
        let masked = mask(lib);
        let declared: Vec<String> =
            find_word(&masked, "mod").iter().map(|at| word(&masked[at + 4..])).collect();
        let listed = self.rows.iter().flat_map(|row| &row.modules).filter(|m| *m != "main");
        let undeclared = listed.clone().filter(|m| !declared.contains(m));
        let unlisted = declared.iter().filter(|d| !listed.clone().any(|m| m == *d));
        let violation =
            |path: &str, what: String| Violation { path: path.to_string(), line: 0, what };
        undeclared
            .map(|m| violation("src/ARCHITECTURE.md", format!("no module `{m}` in src/lib.rs")))
            .chain(unlisted.map(|m| violation("src/lib.rs", format!("`{m}` has no layer"))))
            .collect()
    }
}

/// The names between backticks.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_string).collect()
}

fn word(text: &str) -> String {
    text.bytes().take_while(|&b| is_word(b)).map(char::from).collect()
}

/// The top module that a file belongs to; `None` outside `src/` and for the crate root.
fn module_of(file: &Source) -> Option<String> {
    let inner = file.path.strip_prefix("src/").filter(|_| file.kind == Kind::Rust)?;
    let top = inner.split('/').next()?;
    let module = top.strip_suffix(".rs").unwrap_or(top);
    (module != "lib").then(|| module.to_string())
}

/// (offset, top module) of every path from the crate root, groups taken apart.
fn crate_paths(masked: &str) -> Vec<(usize, String)> {
    let mut paths = Vec::new();
    for root in ["crate", "q36"] {
        for at in find_word(masked, root) {
            let Some(rest) = masked[at + root.len()..].strip_prefix("::") else { continue };
            let start = masked.len() - rest.trim_start().len();
            if masked.as_bytes().get(start) == Some(&b'{') {
                paths.extend(group(masked, start).into_iter().map(|name| (at, name)));
            } else {
                paths.push((at, word(&masked[start..])));
            }
        }
    }
    // A name of the crate root itself, such as a macro, belongs to no layer.
    paths.retain(|(_, name)| name.starts_with(|c: char| c.is_ascii_lowercase()));
    paths
}

/// First names of the entries of `{a::b, c::{d, e}}`.
fn group(masked: &str, open: usize) -> Vec<String> {
    let Some(close) = closing(masked, open) else { return Vec::new() };
    let mut depth = 0_usize;
    let entries = masked[open + 1..close].split(|c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    });
    entries.map(|entry| word(entry.trim())).filter(|name| !name.is_empty()).collect()
}

/// Offsets of `super::super::…` chains that climb out of the top module to the crate root.
fn escapes(masked: &str, path: &str) -> Vec<usize> {
    let inner = path.trim_start_matches("src/").trim_end_matches(".rs");
    let depth_of_file = inner.split('/').filter(|part| *part != "mod").count();
    let mut found = Vec::new();
    for at in find_word(masked, "super") {
        let continues_a_chain = masked[..at].ends_with("super::");
        let length = masked[at..].split("::").take_while(|part| *part == "super").count();
        if !continues_a_chain && length >= depth_of_file + inline_modules(masked, at) {
            found.push(at);
        }
    }
    found
}

/// How many `mod name { … }` blocks an offset is inside of.
fn inline_modules(masked: &str, offset: usize) -> usize {
    let starts = find_word(masked, "mod").into_iter().take_while(|at| *at < offset);
    starts
        .filter_map(|at| {
            let name_end = at + 4 + word(&masked[at + 4..]).len();
            let open = name_end + masked[name_end..].find(|c: char| !c.is_whitespace())?;
            let close = closing(masked, open).filter(|_| masked[open..].starts_with('{'))?;
            (close > offset).then_some(())
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
| layer | modules | may use | must not know |
|---|---|---|---|
| 8 shell | `main`, `commands` | everything below | JSON |
| 7 front ends | `tools` | 6 and below | `kernels` |
| 3 operations | `kernels` | 2 and below | order |
| 2 device | `vulkan`, `ops` (not each other) | 1 and below | prompts |
| 1 formats | `gguf`, `chat`, `tokenizer` | `util` (`chat` also `tokenizer`, `gguf` also `quant` for x) | GPU |
| 1 formats | `quant` | `util` | GPU |
| 0 base | `util` | std and crates | q36 |
";

    fn check(path: &str, text: &str) -> Vec<(usize, String)> {
        let layers = Layers::parse(TABLE).unwrap();
        let found = layers.check(&Source::new(path, text).unwrap());
        found.into_iter().map(|v| (v.line, v.what)).collect()
    }

    fn allowed(from: &str, to: &str) -> bool {
        check(&format!("src/{from}/a.rs"), &format!("use crate::{to}::X;")).is_empty()
    }

    #[test]
    fn the_table_decides() {
        for (from, to) in [
            ("commands", "kernels"),
            ("tools", "ops"),
            ("kernels", "vulkan"),
            ("chat", "tokenizer"),
            ("gguf", "quant"),
            ("ops", "gguf"),
            ("util", "util"),
        ] {
            assert!(allowed(from, to), "{from} -> {to}");
        }
        for (from, to) in [
            ("tools", "kernels"),
            ("tools", "commands"),
            ("vulkan", "ops"),
            ("tokenizer", "chat"),
            ("quant", "gguf"),
            ("util", "gguf"),
            ("chat", "quant"),
            ("chat", "nowhere"),
        ] {
            assert!(!allowed(from, to), "{from} -> {to}");
        }
    }

    #[test]
    fn every_spelling_of_a_path_is_seen() {
        let bad = [
            "use crate::chat;",
            "use crate::{util::hex, chat::Message};",
            "fn f() { crate::chat::render(); }",
            "pub(in crate::chat) fn f() {}",
            "macro_rules! m { () => { $crate::chat::x() } }",
            "use crate::{\n  chat::{A, B},\n};",
            "use super::super::chat;",
            "mod tests { use super::super::super::chat; }",
        ];
        for text in bad {
            assert_eq!(check("src/util/hex.rs", text).len(), 1, "{text}");
        }
        let good = [
            "pub(crate) fn f() {}",
            "// crate::chat",
            "\"crate::chat\";",
            "use crate::{util::{a, b}, util::c};",
            "use super::bytes;",
            "mod tests { use super::super::bytes; }",
        ];
        for text in good {
            assert_eq!(check("src/util/hex.rs", text), [], "{text}");
        }
    }

    #[test]
    fn places_and_reasons_are_told() {
        let found = check("src/util/hex.rs", "\nuse crate::chat;");
        let reason = "`util` (layer 0) may not use `chat` (layer 1)".to_string();
        assert_eq!(found, [(2, reason)]);
        assert_eq!(check("tests/it/a.rs", "use crate::chat;"), []);
    }

    #[test]
    fn table_and_crate_root_name_the_same_modules() {
        let layers =
            Layers::parse("| 1 a | `chat` | `util` | |\n| 0 b | `util` | std | |").unwrap();
        assert_eq!(layers.check_module_list("pub mod util;\npub mod chat;"), []);
        assert_eq!(layers.check_module_list("mod util;").len(), 1);
        assert_eq!(layers.check_module_list("mod util; mod chat; mod new;").len(), 1);
    }

    #[test]
    fn a_broken_table_is_an_error() {
        assert!(Layers::parse("no table").is_err());
        assert!(Layers::parse("| 1 a | `chat` |").is_err());
    }
}
