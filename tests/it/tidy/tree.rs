//! The text files of the repository, and what a violation looks like.

use std::fmt;
use std::fs;
use std::path::Path;

use crate::support::repo;

/// What a file is written in; decides which rules apply to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Rust,
    Glsl,
    Shell,
    Python,
    Markdown,
    /// Cargo manifests, workflow files.
    Config,
}

/// One text file, its path relative to the root and with `/` between parts.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: String,
    pub(super) kind: Kind,
    pub(super) text: String,
}

/// A broken rule and where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) path: String,
    /// From 1; 0 for the file as a whole.
    pub(super) line: usize,
    pub(super) what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

impl Source {
    /// `None` for files that no rule is about.
    pub(super) fn new(path: &str, text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        let name = path.rsplit('/').next().unwrap_or(path);
        let kind = match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("rs") => Kind::Rust,
            Some("comp" | "glsl") => Kind::Glsl,
            Some("sh") => Kind::Shell,
            Some("py") => Kind::Python,
            Some("md") => Kind::Markdown,
            Some("toml" | "yml" | "yaml") => Kind::Config,
            None if text.starts_with("#!/bin/sh") => Kind::Shell,
            _ => return None,
        };
        Some(Self { path: path.to_string(), kind, text })
    }

    /// The last part of the path.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    pub(super) fn violation(&self, line: usize, what: impl Into<String>) -> Violation {
        Violation { path: self.path.clone(), line, what: what.into() }
    }
}

/// The line of a byte offset, from 1.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// Every text file of the repository, in the order of their paths. Build output and downloads are
/// left out by name rather than by asking git, so that an unpacked archive can be tested too.
pub(super) fn read_tree() -> Vec<Source> {
    const LEFT_OUT: [&str; 6] = ["target", "gguf", "corpus", "artifacts", "node_modules", "tmp"];
    let mut files = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(repo(&folder)).expect("the folder was just listed") {
            let entry = entry.expect("the folder can be read");
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            let kind = entry.file_type().expect("the entry was just listed");
            let hidden = name.starts_with('.') && name != ".ci";
            if kind.is_dir() && !hidden && (path == "src/gguf" || !LEFT_OUT.contains(&&*name)) {
                folders.push(path);
            } else if kind.is_file() && !hidden {
                files.extend(read_source(&path));
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(files.iter().any(|f| f.path == "src/lib.rs"), "the walk finds the sources");
    files
}

fn read_source(path: &str) -> Option<Source> {
    let full = repo(path);
    // Models have gigabytes; no text file with rules comes near this.
    let small = full.metadata().is_ok_and(|m| m.len() < 4 << 20);
    let text = if small { fs::read(&full).ok()? } else { return None };
    Source::new(path, String::from_utf8(text).ok()?)
}

/// Whether a path of the repository exists.
pub(super) fn exists(path: &str) -> bool {
    Path::new(&repo(path)).exists()
}

#[test]
fn kinds_follow_from_names_and_first_lines() {
    let kind = |path: &str, text: &str| Source::new(path, text).map(|s| s.kind);
    assert_eq!(kind("src/a.rs", ""), Some(Kind::Rust));
    assert_eq!(kind("shaders/a.comp", ""), Some(Kind::Glsl));
    assert_eq!(kind(".ci/run", "#!/bin/sh\n"), Some(Kind::Shell));
    assert_eq!(kind("LICENSE", "MIT"), None);
    assert_eq!(kind("models/a.gguf", ""), None);
}

#[test]
fn the_walk_sees_the_parser_of_the_format_but_not_downloads() {
    let files = read_tree();
    assert!(files.iter().any(|f| f.path == "src/gguf/mod.rs"));
    assert!(!files.iter().any(|f| f.path.starts_with("target/")));
}

#[test]
fn lines_count_from_one() {
    assert_eq!((line_of("a\nb", 0), line_of("a\nb", 2)), (1, 2));
}
