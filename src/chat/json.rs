//! A JSON value that keeps its spelling.
//!
//! Prompts and replies are bytes, so numbers, key order and repeated keys must survive as they were written; a value is
//! therefore its text, checked once. The nesting limit makes every later walk over that text safe to write recursively.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::value::RawValue;

use super::Error;

/// Deepest nesting of arrays and objects that is accepted.
pub(crate) const MAX_DEPTH: usize = 128;

/// One JSON value as it was written: valid, nested at most 128 levels, without white space around it.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Json(Box<RawValue>);

impl Json {
    /// Checks `text` and keeps it.
    ///
    /// # Errors
    /// [`Error::InvalidJson`] and [`Error::JsonTooDeep`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let raw: Box<RawValue> =
            serde_json::from_str(text).map_err(|e| Error::InvalidJson(e.to_string()))?;
        Self::checked(raw)
    }

    /// A JSON string.
    pub fn string(text: &str) -> Self {
        let spelled = serde_json::Value::from(text).to_string();
        Self(RawValue::from_string(spelled).expect("a serialized string is valid JSON"))
    }

    /// The text of the value.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// What kind of value it is, in words: `an object`, `a number` and so on.
    pub fn kind(&self) -> &'static str {
        kind(self.text())
    }

    /// True for an object.
    pub fn is_object(&self) -> bool {
        self.first_byte() == b'{'
    }

    /// True for an array.
    pub fn is_array(&self) -> bool {
        self.first_byte() == b'['
    }

    /// The characters of a string, or `None` for any other value. A lone surrogate becomes U+FFFD.
    pub fn as_str(&self) -> Option<String> {
        (self.first_byte() == b'"').then(|| unescape(self.text()))
    }

    fn checked(raw: Box<RawValue>) -> Result<Self, Error> {
        if depth(raw.get()) > MAX_DEPTH {
            return Err(Error::JsonTooDeep(MAX_DEPTH));
        }
        Ok(Self(raw))
    }

    fn first_byte(&self) -> u8 {
        self.text().as_bytes()[0]
    }
}

/// What kind of value a checked JSON text is, in words.
pub(crate) fn kind(text: &str) -> &'static str {
    match text.as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') | None => "null",
        Some(_) => "a number",
    }
}

/// Equal when spelled alike by [`canonical::json`](super::canonical::json): spacing and escapes do not count, the order
/// of keys does.
impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text() || super::canonical::json(self) == super::canonical::json(other)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::checked(Box::<RawValue>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// The deepest nesting of brackets outside strings.
fn depth(text: &str) -> usize {
    let (mut deepest, mut open, mut in_string, mut escaped) = (0_usize, 0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                open += 1;
                deepest = deepest.max(open);
            }
            b'}' | b']' if !in_string => open = open.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The characters of a JSON string literal, quotes included in the input. `literal` was validated before.
pub(crate) fn unescape(literal: &str) -> String {
    let inner = &literal[1..literal.len() - 1];
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let (character, used) = escape(&rest[at..]);
        out.push(character);
        rest = &rest[at + used..];
    }
    out.push_str(rest);
    out
}

/// The character of the escape at the front of `text`, and how many bytes it takes.
fn escape(text: &str) -> (char, usize) {
    let simple = |c| (c, 2);
    match text.as_bytes()[1] {
        b'n' => simple('\n'),
        b'r' => simple('\r'),
        b't' => simple('\t'),
        b'b' => simple('\u{8}'),
        b'f' => simple('\u{c}'),
        b'u' => unicode_escape(text),
        other => simple(char::from(other)),
    }
}

fn unicode_escape(text: &str) -> (char, usize) {
    let unit = |at: usize| {
        text.get(at..at + 2)
            .filter(|head| *head == "\\u")
            .and_then(|_| text.get(at + 2..at + 6))
            .and_then(|digits| u16::from_str_radix(digits, 16).ok())
    };
    let first = unit(0).unwrap_or(0xD800);
    let pair = [first, unit(6).unwrap_or(0)];
    match char::decode_utf16(pair).next() {
        Some(Ok(c)) => (c, if c.len_utf16() == 2 { 12 } else { 6 }),
        _ => (char::REPLACEMENT_CHARACTER, 6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_spelling() {
        let check = |text: &str| assert_eq!(Json::parse(text).unwrap().text(), text.trim());
        check("1.0");
        check("12345678901234567890123");
        check(r#" {"b": 1, "a": 1e2, "a": "\u00e9"} "#);
    }

    #[test]
    fn refuses_what_is_not_json_or_too_deep() {
        assert!(matches!(Json::parse("{a: 1}"), Err(Error::InvalidJson(_))));
        assert!(matches!(Json::parse("NaN"), Err(Error::InvalidJson(_))));
        assert!(matches!(Json::parse(""), Err(Error::InvalidJson(_))));
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(Json::parse(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(Json::parse(&nested(MAX_DEPTH + 1)).unwrap_err(), Error::JsonTooDeep(MAX_DEPTH));
        assert!(Json::parse(&nested(200_000)).is_err());
        assert!(Json::parse(&format!("\"{}\"", "[".repeat(1000))).is_ok());
    }

    #[test]
    fn reads_strings() {
        let check = |text: &str, expected: &str| {
            assert_eq!(Json::parse(text).unwrap().as_str().as_deref(), Some(expected));
        };
        check(r#""a\n\t\"\\\/\b\f\r""#, "a\n\t\"\\/\u{8}\u{c}\r");
        check(r#""\u00e9\ud83d\ude00é""#, "é😀é");
        check(r#""\ud83dx""#, "\u{fffd}x");
        check(r#""\ude00\ud83d""#, "\u{fffd}\u{fffd}");
        check(r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀");
        assert_eq!(Json::parse("[\"a\"]").unwrap().as_str(), None);
    }

    #[test]
    fn equality_ignores_spacing_only() {
        let json = |text| Json::parse(text).unwrap();
        assert_eq!(json("{\"a\":[1, 2]}"), json("{ \"a\" : [1,2] }"));
        assert_eq!(json("\"\\u0041\""), json("\"A\""));
        assert_ne!(json("1"), json("1.0"));
    }
}
