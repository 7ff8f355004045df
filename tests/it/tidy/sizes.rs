//! How long files may be, and names that say nothing.

use super::tree::{Kind, Source, Violation};

/// Blank lines and tests included. Comfortable is 100 to 400; look for a seam at 600.
const FILE_LINES: usize = 1000;
/// A `mod.rs` holds docs, `mod` lines and a few re-exports.
const MOD_LINES: usize = 150;
const EMPTY_NAMES: [&str; 5] = ["utils.rs", "helpers.rs", "common.rs", "types.rs", "misc.rs"];

pub(super) fn check(file: &Source) -> Vec<Violation> {
    let mut found = Vec::new();
    let lines = file.text.lines().count();
    let counted = matches!(file.kind, Kind::Rust | Kind::Glsl | Kind::Shell | Kind::Python);
    if counted && lines > FILE_LINES {
        found.push(file.violation(0, format!("{lines} lines, at most {FILE_LINES}")));
    }
    if file.name() == "mod.rs" && lines > MOD_LINES {
        found.push(file.violation(0, format!("{lines} lines in a mod.rs, at most {MOD_LINES}")));
    }
    if EMPTY_NAMES.contains(&file.name()) {
        found.push(file.violation(0, "a file name that says nothing about the contents"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, lines: usize) -> usize {
        check(&Source::new(path, "x\n".repeat(lines)).unwrap()).len()
    }

    #[test]
    fn long_files_are_found() {
        for path in ["src/a.rs", "shaders/a.comp", "shaders/a.glsl", "a.sh"] {
            assert_eq!((count(path, 1000), count(path, 1001)), (0, 1), "{path}");
        }
        assert_eq!(count("README.md", 1001), 0);
        assert_eq!((count("src/a/mod.rs", 150), count("src/a/mod.rs", 151)), (0, 1));
    }

    #[test]
    fn empty_names_are_found() {
        assert_eq!(count("src/chat/utils.rs", 1), 1);
        assert_eq!(count("src/chat/stream.rs", 1), 0);
    }
}
