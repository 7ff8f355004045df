//! The tags inside a block: `<function=NAME>`, `<parameter=NAME>` and their closers.

use super::window::{Match, Window};

/// Longest name in a tag.
const MAX_NAME_BYTES: usize = 256;

/// An opening tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::chat) struct Open {
    /// The name; empty where the tag has none.
    pub(in crate::chat) name: String,
    /// Length of the whole tag in bytes.
    pub(in crate::chat) len: usize,
    /// Written `<function name="X">`, or with spaces or quotes around the name.
    pub(in crate::chat) odd: bool,
}

/// `<word=NAME>` at `at`, or one of the forms models mistake it for.
pub(in crate::chat) fn open(window: &Window, at: usize, word: &str) -> Match<Open> {
    let word = window.text(at, "<").and(|n| window.text(at + n, word).map(|m| at + n + m));
    word.and(|start| open_behind(window, at, start))
}

/// The rest of an opening tag whose word ends at `start`.
fn open_behind(window: &Window, at: usize, start: usize) -> Match<Open> {
    let inside = &window.rest()[start..];
    let limit = inside.len().min(MAX_NAME_BYTES);
    let stop = inside[..limit].iter().position(|byte| matches!(byte, b'>' | b'\n'));
    let begins = inside.first().is_none_or(|byte| matches!(byte, b'=' | b' ' | b'\t' | b'>'));
    match stop {
        Some(end) if inside[end] == b'>' && begins => {
            let Some((name, odd)) = name(&inside[..end]) else { return Match::No };
            Match::Yes(Open { name, len: start + end + 1 - at, odd })
        }
        None if begins && limit < MAX_NAME_BYTES => window.undecided(),
        _ => Match::No,
    }
}

/// The name in what stands between the word and `>`, and whether it is written oddly.
fn name(inside: &[u8]) -> Option<(String, bool)> {
    let text = std::str::from_utf8(inside).ok()?;
    if text.trim().is_empty() {
        return Some((String::new(), false));
    }
    let plain = text.strip_prefix('=');
    let value = if let Some(value) = plain {
        value
    } else {
        let text = text.trim_start();
        text.strip_prefix("name").unwrap_or(text).trim_start().strip_prefix('=')?
    };
    let trimmed = value.trim();
    let quoted = |q: char| trimmed.strip_prefix(q).and_then(|t| t.strip_suffix(q));
    let name = quoted('"').or_else(|| quoted('\'')).unwrap_or(trimmed);
    Some((name.to_owned(), plain != Some(name)))
}

/// `</word>` at `at`; white space before `>` is allowed.
pub(in crate::chat) fn close(window: &Window, at: usize, word: &str) -> Match {
    let word = window.text(at, "</").and(|n| window.text(at + n, word).map(|m| at + n + m));
    word.and(|start| window.gap(start)).and(|end| window.text(end, ">").map(|n| end + n - at))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `text` is checked at every length: a beginning may only be `Maybe` or what the whole is.
    fn check(text: &str, word: &str, expected: Option<(&str, bool)>) {
        let decide = |bytes: &[u8], ended| {
            let mut window = Window::new(false);
            window.push(bytes);
            if ended {
                window.end();
            }
            open(&window, 0, word)
        };
        let whole = decide(text.as_bytes(), true);
        let found = match &whole {
            Match::Yes(tag) => Some((tag.name.as_str(), tag.odd)),
            Match::No => None,
            Match::Maybe => panic!("undecided at the end"),
        };
        assert_eq!(found, expected, "{text}");
        for cut in 0..text.len() {
            let part = decide(&text.as_bytes()[..cut], false);
            assert!(part == Match::Maybe || part == whole, "{} -> {part:?}", &text[..cut]);
        }
    }

    #[test]
    fn opening_tags() {
        check("<function=get_weather>", "function", Some(("get_weather", false)));
        check("<parameter=é x>", "parameter", Some(("é x", false)));
        check("<function = f >", "function", Some(("f", true)));
        check("<function name=\"f\">", "function", Some(("f", true)));
        check("<function name='f' >", "function", Some(("f", true)));
        check("<function=\"f\">", "function", Some(("f", true)));
        check("<function=>", "function", Some(("", false)));
        check("<function>", "function", Some(("", false)));
        check("<function=f\n>", "function", None);
        check("<functional=f>", "function", None);
        check("<function f>", "function", None);
        check("<parameter=f>", "function", None);
        check(&format!("<function={}>", "x".repeat(300)), "function", None);
    }

    #[test]
    fn closing_tags() {
        let decide = |text: &str| {
            let mut window = Window::new(false);
            window.push(text.as_bytes());
            close(&window, 0, "parameter")
        };
        assert_eq!(decide("</parameter>x"), Match::Yes(12));
        assert_eq!(decide("</parameter \n>"), Match::Yes(14));
        assert_eq!(decide("</param"), Match::Maybe);
        assert_eq!(decide("</parameter "), Match::Maybe);
        assert_eq!(decide("</parameters>"), Match::No);
        assert_eq!(decide("</function>"), Match::No);
    }
}
