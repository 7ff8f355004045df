//! Source text without its comments and literals: same length, same lines, so that offsets in the
//! masked text are offsets in the file. What is left are the words and brackets of the program.

/// Blanks comments, and the contents of string and character literals, of a Rust file. Good for
/// GLSL as well, which has the same comments and no strings.
pub(super) fn mask(text: &str) -> String {
    let mut out = text.as_bytes().to_vec();
    let mut at = 0;
    while at < out.len() {
        let end = literal_end(text.as_bytes(), at);
        if let Some(end) = end {
            blank(&mut out[at..end]);
        }
        at = end.unwrap_or(at + 1);
    }
    String::from_utf8(out).expect("whole literals were replaced by ASCII")
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

/// The end of the comment or literal that starts at `at`, if one does.
fn literal_end(text: &[u8], at: usize) -> Option<usize> {
    let rest = &text[at..];
    if rest.starts_with(b"//") {
        return Some(at + rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()));
    }
    if rest.starts_with(b"/*") {
        return Some(at + block_comment(rest));
    }
    if let Some(hashes) = raw_string(text, at) {
        return Some(hashes);
    }
    match rest.first()? {
        b'"' => Some(at + quoted(rest, b'"')),
        b'\'' => character(rest).map(|length| at + length),
        _ => None,
    }
}

/// Length of a block comment; they nest.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at + 1 < rest.len() {
        match &rest[at..at + 2] {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// Length of a literal with escapes, both quotes included.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The end of a raw string whose `r` is at `at`: `r"…"`, `r#"…"#`, and with `b` or `c` before.
fn raw_string(text: &[u8], at: usize) -> Option<usize> {
    let before = at.checked_sub(1).map_or(b' ', |i| text[i]);
    let prefixed = matches!(before, b'b' | b'c');
    if text[at] != b'r' || (is_word(before) && !prefixed) {
        return None;
    }
    let hashes = text[at + 1..].iter().take_while(|&&b| b == b'#').count();
    let open = at + 1 + hashes;
    if text.get(open) != Some(&b'"') {
        return None;
    }
    let close = [&b"\""[..], &vec![b'#'; hashes]].concat();
    let inner = &text[open + 1..];
    let length = inner.windows(close.len()).position(|w| w == close)?;
    Some(open + 1 + length + close.len())
}

/// Length of a character literal; `None` for a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        return Some(quoted(rest, b'\''));
    }
    let text = std::str::from_utf8(&rest[1..rest.len().min(6)]).unwrap_or_else(|e| {
        std::str::from_utf8(&rest[1..=e.valid_up_to()]).expect("valid up to there")
    });
    let length = text.chars().next()?.len_utf8();
    (rest.get(1 + length) == Some(&b'\'')).then_some(length + 2)
}

pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Offsets of `word` as a whole word.
pub(super) fn find_word(text: &str, word: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(|&at| {
            let after = bytes.get(at + word.len()).copied().unwrap_or(b' ');
            (at == 0 || !is_word(bytes[at - 1])) && !is_word(after)
        })
        .collect()
}

/// The offset of the bracket that closes the one at `open`, in masked text.
pub(super) fn closing(masked: &str, open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in masked.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        mask(text).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_disappear_and_code_stays() {
        assert_eq!(words("a // b\nc /* d /* e */ f */ g"), "a c g");
        assert_eq!(words(r#"a("b \" c", 'd', '\'', b'"') e"#), "a( , , , b ) e");
        assert_eq!(words("a r#\"b \" c\"# d br\"e\\\" f"), "a d b f");
        assert_eq!(
            words("fn f<'a>(x: &'a str) -> char { 'é' }"),
            words("fn f<'a>(x: &'a str) -> char { }")
        );
        assert_eq!(words("for r in x { r; \"s\" }"), "for r in x { r; }");
    }

    #[test]
    fn offsets_and_lines_are_kept() {
        let text = "a \"two\nlines\" b // ü\n";
        assert_eq!(mask(text).len(), text.len());
        assert_eq!(mask(text).matches('\n').count(), 2);
    }

    #[test]
    fn unfinished_literals_end_with_the_text() {
        for text in ["\"a", "/* a", "r#\"a", "'", "'\\", "a /*", "r"] {
            assert_eq!(mask(text).len(), text.len());
        }
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(find_word("unsafe_code unsafe xunsafe", "unsafe"), [12]);
    }

    #[test]
    fn brackets_close() {
        assert_eq!(closing("f(a[1], {b})c", 1), Some(11));
        assert_eq!(closing("(a", 0), None);
    }
}
