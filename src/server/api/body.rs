//! Bytes of a request to one JSON object.
//!
//! The text stays as it was spelled, since numbers and the order of keys in schemas and arguments reach the prompt.

use std::borrow::Cow;

use super::node::Object;
use crate::chat::{Error, Json};
use crate::server::Failure;

/// A request's body: one JSON object, its text checked.
#[derive(Debug)]
pub(super) struct Body(Json);

impl Body {
    /// Reads a body. Unpaired surrogate escapes become U+FFFD: clients that cut a text in two send them, and one of them
    /// must not make a whole history unreadable.
    ///
    /// # Errors
    /// Whatever is not one JSON object in UTF-8, nested at most 128 levels.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Failure> {
        let invalid = |message: String| Failure::new(crate::server::FailureKind::Invalid, message);
        let text = std::str::from_utf8(bytes)
            .map_err(|e| invalid(format!("the body is not UTF-8 at byte {}", e.valid_up_to())))?;
        if text.trim_ascii().is_empty() {
            return Err(invalid("the body is empty: expected a JSON object".to_owned()));
        }
        let json = Json::parse(&paired(text)).map_err(|error| match error {
            Error::InvalidJson(why) => invalid(format!("the body is not valid JSON: {why}")),
            Error::NoMessages
            | Error::UnknownRole(_)
            | Error::SystemNotFirst { .. }
            | Error::NoUserQuery
            | Error::ArgumentsNotObject(_)
            | Error::ToolNotObject(_)
            | Error::JsonTooDeep(_) => invalid(format!("the body is not acceptable: {error}")),
        })?;
        if !json.is_object() {
            return Err(invalid(format!("the body must be a JSON object, found {}", json.kind())));
        }
        Ok(Self(json))
    }

    /// Its fields.
    pub(super) fn object(&self) -> Object<'_> {
        Object::root(self.0.text())
    }
}

/// `text` with every unpaired surrogate escape replaced. Backslashes stand only inside of strings, so no more of JSON
/// has to be understood.
fn paired(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let (mut kept, mut at) = (0, 0);
    while let Some(found) = text.get(at..).and_then(|rest| rest.find('\\')) {
        at += found;
        let lone = match unit(bytes, at) {
            Some(0xD800..=0xDBFF) => !matches!(unit(bytes, at + 6), Some(0xDC00..=0xDFFF)),
            Some(0xDC00..=0xDFFF) => true,
            // Also `\\`, whose second half begins nothing.
            Some(_) | None => {
                at = next_boundary(text, at + 2);
                continue;
            }
        };
        if lone {
            out.push_str(&text[kept..at]);
            out.push_str("\\ufffd");
            at += 6;
            kept = at;
        } else {
            at += 12;
        }
    }
    if kept == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[kept..]);
    Cow::Owned(out)
}

/// The first character boundary at or behind `at`.
fn next_boundary(text: &str, at: usize) -> usize {
    (at..text.len()).find(|&i| text.is_char_boundary(i)).unwrap_or(text.len())
}

/// The code unit of a `\uXXXX` at `at`.
fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let escape = bytes.get(at..at + 6)?;
    let digits = escape.strip_prefix(b"\\u")?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_are_replaced_and_pairs_stay() {
        let check = |text: &str, expected: &str| assert_eq!(paired(text), expected);
        check(r#"{"a":"\ud83d"}"#, r#"{"a":"\ufffd"}"#);
        check(r#"{"a":"\ud83d\ude00"}"#, r#"{"a":"\ud83d\ude00"}"#);
        check(r#"{"a":"\ude00\uD83D\ud83d\ude00x"}"#, r#"{"a":"\ufffd\ufffd\ud83d\ude00x"}"#);
        check(r#"{"a":"\\ud83d"}"#, r#"{"a":"\\ud83d"}"#);
        check(r#"{"a":"\\\ud83d"}"#, r#"{"a":"\\\ufffd"}"#);
        check("\\é\\", "\\é\\");
        check("\\", "\\");
        check(r"\ud8", r"\ud8");
    }

    #[test]
    fn what_is_not_one_object_is_refused_in_words() {
        let check = |body: &[u8], part: &str| {
            let failure = Body::read(body).unwrap_err();
            assert!(failure.message.contains(part), "{}", failure.message);
        };
        check(b"", "is empty");
        check(b" \n", "is empty");
        check(b"[1]", "found an array");
        check(b"\"x\"", "found a string");
        check(b"{\"a\":1} x", "trailing characters");
        check(b"{\"a\":1 \"b\":2}", "not valid JSON");
        check(b"{\"a\":\"\xff\"}", "not UTF-8 at byte 6");
        let bomb = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        check(bomb.as_bytes(), "deeper than 128 levels");
        check("[".repeat(1_000_000).as_bytes(), "not valid JSON");
    }
}
