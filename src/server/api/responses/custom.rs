//! The plain text of a custom tool's call, out of the JSON that the model's call became.
//!
//! To the model a custom tool is a function with the one parameter `input`; to the client it takes text. The JSON comes in
//! pieces, and so does the text.

/// Reads `{"input":"…"}` as it arrives and gives the text of the string.
#[derive(Debug, Clone, Default)]
pub(crate) struct InputReader {
    /// Pieces that were not read yet, at most the head and one escape.
    waiting: String,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Before the text.
    #[default]
    Head,
    /// Inside of it.
    Text,
    /// Behind it, or in something else.
    Over,
}

/// What stands before the text; white space may come in front of each.
const HEAD: [&str; 4] = ["{", "\"input\"", ":", "\""];

impl InputReader {
    /// Takes a piece of JSON and gives the text that it adds.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        self.waiting.push_str(piece);
        if self.state == State::Head {
            self.head();
        }
        if self.state == State::Text { self.text() } else { String::new() }
    }

    /// Whether the JSON turned out to be something else than one text.
    fn is_other(&self) -> bool {
        self.state == State::Over && !self.waiting.is_empty()
    }

    fn head(&mut self) {
        let mut rest = self.waiting.as_str();
        for expected in HEAD {
            rest = rest.trim_start();
            match rest.strip_prefix(expected) {
                Some(behind) => rest = behind,
                None if expected.starts_with(rest) => return,
                None => {
                    self.state = State::Over;
                    return;
                }
            }
        }
        self.waiting = rest.to_owned();
        self.state = State::Text;
    }

    fn text(&mut self) -> String {
        let bytes = self.waiting.as_bytes();
        let mut end = 0;
        while let Some(&byte) = bytes.get(end) {
            end += match byte {
                b'"' => break,
                b'\\' => match escape_bytes(&bytes[end..]) {
                    Some(length) => length,
                    None => break,
                },
                _ => 1,
            };
        }
        let literal = format!("\"{}\"", &self.waiting[..end]);
        let closed = bytes.get(end) == Some(&b'"');
        self.waiting.drain(..end);
        if closed {
            self.waiting.clear();
            self.state = State::Over;
        }
        serde_json::from_str(&literal).unwrap_or_default()
    }
}

/// Bytes of the escape at the front, with its second half where it is one of a pair; `None` while it is not all there.
fn escape_bytes(bytes: &[u8]) -> Option<usize> {
    let unit = |at: usize| {
        let digits = std::str::from_utf8(bytes.get(at..at + 4)?).ok()?;
        u16::from_str_radix(digits, 16).ok()
    };
    match bytes.get(1)? {
        b'u' if matches!(unit(2)?, 0xD800..=0xDBFF) => bytes.get(11).map(|_| 12),
        b'u' => Some(6),
        _ => Some(2),
    }
}

/// The whole text of a call's JSON, or of as much of it as there is. JSON that is something else is given as it stands.
pub(crate) fn input(json: &str) -> String {
    let mut reader = InputReader::default();
    let text = reader.push(json);
    if text.is_empty() && reader.is_other() && json != "{}" { json.to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json_of(text: &str) -> String {
        format!("{{\"input\":{}}}", serde_json::Value::from(text))
    }

    #[test]
    fn texts_of_calls() {
        let check = |json: &str, expected: &str| assert_eq!(input(json), expected, "{json}");
        check(&json_of("a \"b\"\n😀\\"), "a \"b\"\n😀\\");
        check(r#" { "input" : "x\u00e9\ud83d\ude00" } "#, "xé😀");
        check(&json_of(""), "");
        check("{}", "");
        check(r#"{"input":"cut o"#, "cut o");
        check(r#"{"input":"cut \u00"#, "cut ");
        check(r#"{"inp"#, "");
        check(r#"{"path":"a","input":"b"}"#, r#"{"path":"a","input":"b"}"#);
        check(r#"{"input":5}"#, r#"{"input":5}"#);
    }

    proptest! {
        #[test]
        fn pieces_join_to_the_whole(text in any::<String>(), cut in 1_usize..9) {
            let json: Vec<char> = json_of(&text).chars().collect();
            let mut reader = InputReader::default();
            let mut joined = String::new();
            for piece in json.chunks(cut) {
                joined += &reader.push(&piece.iter().collect::<String>());
            }
            prop_assert_eq!(joined, text);
        }

        #[test]
        fn nothing_panics(pieces in prop::collection::vec("[{}\"\\\\a-fu0-9: é]{0,6}|\\{\"input\":\"", 0..8)) {
            let mut reader = InputReader::default();
            for piece in &pieces {
                reader.push(piece);
            }
            input(&pieces.concat());
        }
    }
}
