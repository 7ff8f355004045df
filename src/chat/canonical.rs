//! Canonical spellings: JSON as the template's `tojson` prints it, and tool calls as tags.
//!
//! The template runs under Python's Jinja, so "canonical" is what Python's `json` module reads and prints: separators
//! `", "` and `": "`, keys as received (a repeated key keeps its first place and its last value), integers of any size
//! as they are, floats in the shortest form that reads back the same.

use std::{collections::HashMap, fmt::Write as _};

use super::{Arguments, Json, json::unescape};

/// `value` in canonical spelling.
pub fn json(value: &Json) -> String {
    let mut out = String::with_capacity(value.text().len() + 16);
    Writer { rest: value.text(), style: &SPACED }.value(&mut out);
    out
}

/// `value` without any white space between its parts, otherwise canonical: what goes to API clients.
pub fn minified(value: &Json) -> String {
    let mut out = String::with_capacity(value.text().len());
    Writer { rest: value.text(), style: &TIGHT }.value(&mut out);
    out
}

/// The text of an argument inside its parameter tag: strings as they are, everything else as JSON.
pub fn argument(value: &Json) -> String {
    value.as_str().unwrap_or_else(|| json(value))
}

/// One call as text, from `<tool_call>` to `</tool_call>`. Prompts are rendered in segments instead; this is for logs,
/// histories and tests.
pub fn call(name: &str, arguments: &Arguments) -> String {
    let mut out = format!("<tool_call>\n<function={name}>\n");
    for (key, value) in arguments.iter() {
        let value = argument(value);
        write!(out, "<parameter={key}>\n{value}\n</parameter>\n").expect("a string takes any text");
    }
    out.push_str("</function>\n</tool_call>");
    out
}

/// A JSON string literal in canonical escapes.
pub(crate) fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => {
                write!(out, "\\u{:04x}", u32::from(c)).expect("a string takes any text");
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// A number as Python prints what it reads: integers digit for digit, floats shortest, with an exponent below 1e-4 and
/// from 1e16. A float too large for 64 bits keeps its spelling, since no JSON number could replace it.
pub(crate) fn number(text: &str) -> String {
    if !text.contains(['.', 'e', 'E']) {
        return if text == "-0" { "0".to_owned() } else { text.to_owned() };
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => float(value),
        _ => text.to_owned(),
    }
}

fn float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("`{:e}` prints an exponent");
    let exponent: i32 = exponent.parse().expect("`{:e}` prints a decimal exponent");
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs());
    }
    let plain = value.to_string();
    if plain.contains('.') { plain } else { plain + ".0" }
}

struct Style {
    comma: &'static str,
    colon: &'static str,
}

const SPACED: Style = Style { comma: ", ", colon: ": " };
const TIGHT: Style = Style { comma: ",", colon: ":" };

/// Walks the text of a checked value, so it recurses at most `MAX_DEPTH` levels and never meets a syntax error.
struct Writer<'a> {
    rest: &'a str,
    style: &'static Style,
}

impl<'a> Writer<'a> {
    fn value(&mut self, out: &mut String) {
        match self.peek() {
            b'{' => self.object(out),
            b'[' => self.array(out),
            b'"' => quote(&unescape(self.string()), out),
            b't' | b'f' | b'n' => out.push_str(self.word()),
            _ => out.push_str(&number(self.word())),
        }
    }

    fn array(&mut self, out: &mut String) {
        self.skip();
        out.push('[');
        while self.peek() != b']' {
            if self.peek() == b',' {
                self.skip();
                out.push_str(self.style.comma);
            }
            self.value(out);
        }
        self.skip();
        out.push(']');
    }

    /// Values are written aside first: a repeated key replaces the value at its first place.
    fn object(&mut self, out: &mut String) {
        let mut entries: Vec<(String, String)> = Vec::new();
        let mut places: HashMap<&'a str, usize> = HashMap::new();
        self.skip();
        while self.peek() != b'}' {
            if self.peek() == b',' {
                self.skip();
                self.peek();
            }
            let literal = self.string();
            self.peek();
            self.skip();
            let mut value = String::new();
            self.value(&mut value);
            // Keys are compared as written: one key under two spellings of its escapes is not worth a copy of each.
            let place = *places.entry(literal).or_insert(entries.len());
            match entries.get_mut(place) {
                Some(entry) => entry.1 = value,
                None => entries.push((unescape(literal), value)),
            }
        }
        self.skip();
        out.push('{');
        for (i, (key, value)) in entries.iter().enumerate() {
            out.push_str(if i > 0 { self.style.comma } else { "" });
            quote(key, out);
            out.push_str(self.style.colon);
            out.push_str(value);
        }
        out.push('}');
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> u8 {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
        *self.rest.as_bytes().first().expect("a checked value is complete")
    }

    fn skip(&mut self) {
        self.rest = &self.rest[1..];
    }

    /// Takes a string literal, quotes included.
    fn string(&mut self) -> &'a str {
        let mut escaped = false;
        let end = self.rest.as_bytes()[1..].iter().position(|byte| {
            let end = *byte == b'"' && !escaped;
            escaped = *byte == b'\\' && !escaped;
            end
        });
        let (literal, rest) = self.rest.split_at(end.expect("a checked string is closed") + 2);
        self.rest = rest;
        literal
    }

    /// Takes a number or a word.
    fn word(&mut self) -> &'a str {
        let end = self.rest.find([',', ']', '}', ' ', '\t', '\n', '\r']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(json(&Json::parse(text).unwrap()), expected);
    }

    #[test]
    fn spaces_and_escapes() {
        check("[]", "[]");
        check("{ }", "{}");
        check("[1,[],{}]", "[1, [], {}]");
        check(
            "{\"a\":{\"b\" : [ true,null ,\n\"x\"]},\"c\":\"\"}",
            r#"{"a": {"b": [true, null, "x"]}, "c": ""}"#,
        );
        check(
            r#""\u00e9\u2028\u007f<>&\/\u0001\u001F\b\f\n\r\t\"\\""#,
            "\"é\u{2028}\u{7f}<>&/\\u0001\\u001f\\b\\f\\n\\r\\t\\\"\\\\\"",
        );
        check(r#"{"a": 1, "b": 2, "a": [3]}"#, r#"{"a": [3], "b": 2}"#);
    }

    /// Expected texts are what Python 3.11 prints for `json.dumps(json.loads(text))`.
    #[test]
    fn numbers_as_python_prints_them() {
        for same in [
            "0",
            "-1",
            "123456789012345678901234567890",
            "1.0",
            "-0.0",
            "0.1",
            "1e+16",
            "1e-05",
            "0.0001",
        ] {
            check(same, same);
        }
        check("-0", "0");
        check("1E5", "100000.0");
        check("1e16", "1e+16");
        check("123456789012345680.0", "1.2345678901234568e+17");
        check("9999999999999998.0", "9999999999999998.0");
        check("0.00001", "1e-05");
        check("1.50", "1.5");
        check("5e-324", "5e-324");
        check("1.7976931348623157e308", "1.7976931348623157e+308");
        check("2.5e-7", "2.5e-07");
        check("1e22", "1e+22");
        check("0e5", "0.0");
        check("1e999", "1e999");
    }

    #[test]
    fn minified_has_no_spaces() {
        let value = Json::parse(r#"{ "a" : [ 1 , "b c" ], "d": 1e3 }"#).unwrap();
        assert_eq!(minified(&value), r#"{"a":[1,"b c"],"d":1000.0}"#);
    }

    #[test]
    fn calls_as_tags() {
        let arguments = Arguments::parse(r#"{"s": "a\n<b>", "n": [1,2]}"#).unwrap();
        assert_eq!(
            call("f", &arguments),
            "<tool_call>\n<function=f>\n<parameter=s>\na\n<b>\n</parameter>\n<parameter=n>\n[1, 2]\n</parameter>\n\
             </function>\n</tool_call>"
        );
    }
}
