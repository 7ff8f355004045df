//! The pre-tokenizer: cuts a run of text into the pieces inside which merging happens.
//!
//! It does by hand, in one pass, what the official expression says (model.md 6.2; a test compares the two):
//!
//! ```text
//! (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}
//!   | ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//! ```
//!
//! Alternatives are tried in that order at every position. Every byte ends up in exactly one piece. Invalid
//! UTF-8 is split as if each stray byte were a punctuation character.

use super::class::{self, Class};

/// The pieces of one run, in order; together they are `text`.
pub fn pieces(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        (!rest.is_empty()).then(|| {
            let (piece, tail) = rest.split_at(first_piece(rest));
            rest = tail;
            piece
        })
    })
}

/// Length of the piece at the start of `text`, which is not empty. Linear in the piece, except that a run of
/// white space is looked at twice.
fn first_piece(text: &[u8]) -> usize {
    if text[0] == b'\''
        && let Some(len) = contraction(&text[1..])
    {
        return 1 + len;
    }
    let (class, len) = class::at(text, 0);
    match class {
        Class::Word => run(text, len, Class::Word),
        Class::Number => len,
        Class::Newline => white_space(text),
        Class::Space | Class::Other => {
            let next = (len < text.len()).then(|| class::at(text, len).0);
            match (class, next) {
                // One character of punctuation or white space belongs to the word behind it.
                (_, Some(Class::Word)) => run(text, len, Class::Word),
                (Class::Other, _) => punctuation(text, len),
                // Only U+0020 joins punctuation.
                (_, Some(Class::Other)) if text[0] == b' ' => punctuation(text, len),
                _ => white_space(text),
            }
        }
    }
}

/// Length of an English contraction's letters after its apostrophe.
fn contraction(text: &[u8]) -> Option<usize> {
    match text.first()?.to_ascii_lowercase() {
        b's' | b't' | b'm' | b'd' => Some(1),
        first @ (b'r' | b'v' | b'l') => {
            let second = text.get(1)?.to_ascii_lowercase();
            matches!((first, second), (b'r' | b'v', b'e') | (b'l', b'l')).then_some(2)
        }
        _ => None,
    }
}

/// End of the run of `class` characters that goes on at `at`.
fn run(text: &[u8], mut at: usize, class: Class) -> usize {
    while at < text.len() {
        if class == Class::Word && class::is_ascii_word(text[at]) {
            at += 1;
            continue;
        }
        match class::at(text, at) {
            (found, len) if found == class => at += len,
            _ => break,
        }
    }
    at
}

/// End of a punctuation run that goes on at `at`, with the line breaks after it.
fn punctuation(text: &[u8], at: usize) -> usize {
    run(text, run(text, at, Class::Other), Class::Newline)
}

/// Length of the piece that the white space at the start of `text` makes.
fn white_space(text: &[u8]) -> usize {
    let (mut end, mut last, mut after_newline) = (0, 0, 0);
    while end < text.len() {
        match class::at(text, end) {
            (Class::Newline, len) => {
                (last, after_newline) = (end, end + len);
                end += len;
            }
            (Class::Space, len) => {
                last = end;
                end += len;
            }
            _ => break,
        }
    }
    match () {
        () if after_newline > 0 => after_newline,
        // The last character is left for what follows, unless it is all there is.
        () if end < text.len() && last > 0 => last,
        () => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let found: Vec<&[u8]> = pieces(text.as_bytes()).collect();
        let expected: Vec<&[u8]> = expected.iter().map(|p| p.as_bytes()).collect();
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn words_take_one_character_before_them() {
        check("Hello, world!", &["Hello", ",", " world", "!"]);
        check("\t\tx", &["\t", "\tx"]);
        check("\u{A0}x\u{3000}y", &["\u{A0}x", "\u{3000}y"]);
        check("foo_bar::baz()", &["foo", "_bar", "::", "baz", "()"]);
        check("a\nb\r\nc", &["a", "\n", "b", "\r\n", "c"]);
        check("e\u{301}\u{301} \u{301}", &["e\u{301}\u{301}", " \u{301}"]);
    }

    #[test]
    fn numbers_stand_alone() {
        check("12 3²", &["1", "2", " ", "3", "²"]);
        check("  7", &[" ", " ", "7"]);
    }

    #[test]
    fn contractions_are_english() {
        check("I'm we'LL don'T", &["I", "'m", " we", "'LL", " don", "'T"]);
        check("'r 'x'l 'rE'", &["'r", " '", "x", "'l", " '", "rE", "'"]);
        check("''s", &["''", "s"]);
        check("it\u{2019}s", &["it", "\u{2019}s"]);
    }

    #[test]
    fn punctuation_takes_line_breaks() {
        check(" ?!\r\n\n x", &[" ?!\r\n\n", " x"]);
        check("  ?", &[" ", " ?"]);
        check("\t?", &["\t", "?"]);
    }

    #[test]
    fn white_space_leaves_one_for_the_next() {
        check(" \n \n x", &[" \n \n", " x"]);
        check("end   ", &["end", "   "]);
        check("a   b", &["a", "  ", " b"]);
        check("a \u{3000} 1", &["a", " \u{3000}", " ", "1"]);
        check("\n", &["\n"]);
        check("", &[]);
    }

    #[test]
    fn stray_bytes_are_punctuation() {
        let found: Vec<&[u8]> = pieces(b"a\xFFb\xE4\xB8 \xC3\xA9\xF0\x9F").collect();
        let expected: [&[u8]; 5] = [b"a", b"\xFFb", b"\xE4\xB8", b" \xC3\xA9", b"\xF0\x9F"];
        assert_eq!(found, expected);
    }
}
