//! White space, words that mark unfinished work, and common misspellings.

use super::mask::{find_word, is_word};
use super::tree::{Kind, Source, Violation, line_of};

/// `wrong right` pairs, one a line; kept out of this file, which the check reads too.
const TYPOS: &str = include_str!("typos.txt");

/// Spelled in two parts, since the check reads this file too.
const MARKERS: [&str; 2] = [concat!("FIX", "ME"), concat!("XX", "X")];
const NEEDS_ISSUE: &str = concat!("TO", "DO");

/// Places on one developer's machine. Only the entry of continuous integration may look beside the
/// checkout.
const LOCAL_PLACES: [&str; 2] = [concat!("../", "shared"), concat!(" /", "work/")];
const MAY_LOOK_OUTSIDE: &str = ".ci/run";

pub(super) fn check(file: &Source) -> Vec<Violation> {
    let mut found = check_lines(file);
    found.extend(check_markers(file));
    found.extend(check_places(file));
    found.extend(check_spelling(file, TYPOS));
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        found.push(file.violation(file.text.lines().count(), "no newline at the end of the file"));
    }
    if file.text.ends_with("\n\n") {
        found.push(file.violation(file.text.lines().count(), "blank line at the end of the file"));
    }
    found
}

fn check_lines(file: &Source) -> Vec<Violation> {
    let no_tabs = matches!(file.kind, Kind::Rust | Kind::Glsl);
    let mut found = Vec::new();
    for (index, line) in file.text.split('\n').enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            found.push(file.violation(index + 1, "trailing white space"));
        }
        if no_tabs && line.contains('\t') {
            found.push(file.violation(index + 1, "tab"));
        }
    }
    found
}

/// Work that is left to do belongs to the issue tracker; a marker may only point there.
fn check_markers(file: &Source) -> Vec<Violation> {
    let mut found = Vec::new();
    for word in MARKERS {
        let places = find_word(&file.text, word).into_iter();
        found.extend(places.map(|at| file.violation(line_of(&file.text, at), format!("`{word}`"))));
    }
    for at in find_word(&file.text, NEEDS_ISSUE) {
        let rest = &file.text.as_bytes()[at + NEEDS_ISSUE.len()..];
        let numbered = rest.starts_with(b"(#") && rest.get(2).is_some_and(u8::is_ascii_digit);
        if !numbered {
            let what = format!("`{NEEDS_ISSUE}` without an issue number: write {NEEDS_ISSUE}(#12)");
            found.push(file.violation(line_of(&file.text, at), what));
        }
    }
    found
}

fn check_places(file: &Source) -> Vec<Violation> {
    let mut found = Vec::new();
    for place in LOCAL_PLACES.iter().filter(|_| file.path != MAY_LOOK_OUTSIDE) {
        // Quotes and brackets count as spaces.
        let spaced = file.text.replace(['"', '\'', '`', '(', '='], " ");
        for (at, _) in spaced.match_indices(place) {
            let what = format!("`{}` is not part of the repository", place.trim());
            found.push(file.violation(line_of(&spaced, at), what));
        }
    }
    found
}

fn check_spelling(file: &Source, typos: &str) -> Vec<Violation> {
    let lower = file.text.to_ascii_lowercase();
    let bytes = lower.as_bytes();
    let mut found = Vec::new();
    for (wrong, right) in typos.lines().filter_map(|line| line.split_once(' ')) {
        for (at, _) in lower.match_indices(wrong) {
            // Parts of snake_case names count as words; a longer word does not.
            let letter = |b: Option<&u8>| b.is_some_and(|&b| is_word(b) && b != b'_');
            if !letter(at.checked_sub(1).and_then(|i| bytes.get(i)))
                && !letter(bytes.get(at + wrong.len()))
            {
                found.push(file.violation(line_of(&lower, at), format!("`{wrong}`: {right}")));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        let violations = check(&Source::new(path, text).unwrap());
        violations.into_iter().map(|v| (v.line, v.what)).collect()
    }

    fn count(path: &str, text: &str) -> usize {
        found(path, text).len()
    }

    #[test]
    fn white_space_is_found() {
        assert_eq!(found("a.rs", "a\nb \n"), [(2, "trailing white space".to_string())]);
        assert_eq!(count("a.md", "a\r\n"), 1);
        assert_eq!(found("a.rs", "a\n\tb\n"), [(2, "tab".to_string())]);
        assert_eq!(count("a.sh", "\tb\n"), 0);
        assert_eq!(found("a.md", "a\nb"), [(2, "no newline at the end of the file".to_string())]);
        assert_eq!(count("a.md", "a\n\n"), 1);
        assert_eq!(count("a.md", ""), 0);
    }

    #[test]
    fn markers_are_found() {
        for word in MARKERS {
            assert_eq!(count("a.rs", &format!("// {word}: x\n")), 1, "{word}");
        }
        assert_eq!(count("a.rs", &format!("// {NEEDS_ISSUE}: x\n")), 1);
        assert_eq!(count("a.rs", &format!("// {NEEDS_ISSUE}(#12): x\n")), 0);
        assert_eq!(count("a.sh", "mktemp -d /tmp/a.XXXXXX\n"), 0);
    }

    #[test]
    fn places_outside_the_repository_are_found() {
        for place in LOCAL_PLACES {
            let text = format!("a\n\"{}x\"\n", place.trim());
            assert_eq!(found("a.sh", &text)[0].0, 2, "{place}");
            assert_eq!(count(MAY_LOOK_OUTSIDE, &format!("#!/bin/sh\n{text}")), 0);
        }
        assert_eq!(count("a.md", "a network/work/b\n"), 0);
    }

    #[test]
    fn misspellings_are_found() {
        let spelled = |text: &str| {
            let file = Source::new("a.md", text).unwrap();
            check_spelling(&file, "xyzzy magic\n").len()
        };
        assert_eq!(spelled("a Xyzzy, get_xyzzy_bytes"), 2);
        assert_eq!(spelled("xyzzys"), 0);
    }

    #[test]
    fn the_list_of_misspellings_is_well_formed() {
        for line in TYPOS.lines() {
            let (wrong, right) = line.split_once(' ').expect("two words");
            assert!(wrong != right && !right.is_empty(), "{line}");
            assert_eq!(wrong, wrong.to_lowercase());
        }
    }
}
