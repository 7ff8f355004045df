//! Texts of a call to JSON values by declared type, and JSON values to what a program wants.
//!
//! A text that does not fit its type becomes a string: the tool answers with its own error, and the model can read it.

use super::{Json, ParamType, canonical};

/// The JSON value of a parameter's text (server.md 11.4).
pub fn value(text: &str, ty: ParamType) -> Json {
    if ty == ParamType::ANY {
        return Json::parse(text).map_or_else(|_| Json::string(text), |json| minified(&json));
    }
    typed(text, ty).unwrap_or_else(|| Json::string(text))
}

/// The first of the declared types that the text can be, the most structured first; `None` for a string.
fn typed(text: &str, ty: ParamType) -> Option<Json> {
    let word = text.trim();
    let has_string = ty.allows(ParamType::STRING);
    if ty.allows(ParamType::NULL) && (word == "null" || word.is_empty() && !has_string) {
        return Json::parse("null").ok();
    }
    if ty.allows(ParamType::OBJECT.or(ParamType::ARRAY)) {
        let fits = |json: &Json| {
            json.is_object() && ty.allows(ParamType::OBJECT)
                || json.is_array() && ty.allows(ParamType::ARRAY)
        };
        let parsed = Json::parse(word).or_else(|_| Json::parse(&strict(word)));
        if let Some(json) = parsed.ok().filter(fits) {
            return Some(minified(&json));
        }
    }
    if ty.allows(ParamType::BOOLEAN)
        && let Some(truth) = ["true", "false"].iter().find(|t| t.eq_ignore_ascii_case(word))
    {
        return Json::parse(truth).ok();
    }
    if ty.allows(ParamType::INTEGER)
        && let Some(digits) = whole_number(word)
    {
        return Json::parse(&digits).ok();
    }
    if ty.allows(ParamType::NUMBER) {
        return Json::parse(word).ok().filter(|json| json.kind() == "a number");
    }
    None
}

fn minified(json: &Json) -> Json {
    Json::parse(&canonical::minified(json)).expect("a canonical spelling is valid JSON")
}

/// The digits of a JSON number that has no fraction: `5` and `5.0` both give `5`.
fn whole_number(text: &str) -> Option<String> {
    let json = Json::parse(text).ok().filter(|json| json.kind() == "a number")?;
    let spelled = canonical::json(&json);
    if let Some(digits) = spelled.strip_suffix(".0") {
        return Some(digits.to_owned());
    }
    spelled.bytes().all(|b| b.is_ascii_digit() || b == b'-').then_some(spelled)
}

/// Repairs two habits of models: single quotes around strings, and commas before a closing bracket.
pub(crate) fn strict(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text.chars();
    let mut quote = None;
    while let Some(c) = rest.next() {
        match (quote, c) {
            (Some(_), '\\') => match rest.next() {
                Some('\'') => out.push('\''),
                Some(escaped) => out.extend(['\\', escaped]),
                None => out.push('\\'),
            },
            (Some(open), _) if c == open => {
                quote = None;
                out.push('"');
            }
            (Some('\''), '"') => out.push_str("\\\""),
            (None, '\'' | '"') => {
                quote = Some(c);
                out.push('"');
            }
            (None, ',') if rest.as_str().trim_start().starts_with([']', '}']) => {}
            _ => out.push(c),
        }
    }
    out
}

/// The text of a value as a program's argument: strings without quotes.
fn text_of(value: &Json) -> String {
    value.as_str().unwrap_or_else(|| value.text().to_owned())
}

/// A whole number in `range` for a program that asked for one (agent.md 8.4). White space around it and quotes inside
/// the text are forgiven; anything else is `default`.
pub fn integer(value: Option<&Json>, default: i64, range: std::ops::RangeInclusive<i64>) -> i64 {
    let parse = |text: String| {
        let text = text.trim();
        let inner = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text);
        whole_number(inner.trim()).and_then(|digits| digits.parse().ok())
    };
    let found = value.map(text_of).and_then(parse).unwrap_or(default);
    found.clamp(*range.start(), *range.end())
}

/// A switch: true, yes, 1, false, no, 0 in any case; anything else is `default`.
pub fn boolean(value: Option<&Json>, default: bool) -> bool {
    match value.map(text_of).map(|text| text.trim().to_ascii_lowercase()).as_deref() {
        Some("true" | "yes" | "1") => true,
        Some("false" | "no" | "0") => false,
        _ => default,
    }
}

/// A finite decimal number; anything else is `default`.
pub fn number(value: Option<&Json>, default: f64) -> f64 {
    let parse = |text: String| text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
    value.map(text_of).and_then(parse).unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ty: ParamType, pairs: &[(&str, &str)]) {
        for (text, expected) in pairs {
            assert_eq!(value(text, ty).text(), *expected, "{text:?} as {ty:?}");
        }
    }

    #[test]
    fn strings_stay_strings() {
        check(
            ParamType::STRING,
            &[
                ("02134", r#""02134""#),
                ("true", r#""true""#),
                ("{\"a\":1}", r#""{\"a\":1}""#),
                ("", r#""""#),
                (" x\n", r#"" x\n""#),
            ],
        );
    }

    #[test]
    fn numbers() {
        check(
            ParamType::INTEGER,
            &[
                ("5", "5"),
                (" -5\n", "-5"),
                ("5.0", "5"),
                ("5.5", r#""5.5""#),
                ("05", r#""05""#),
                ("five", r#""five""#),
                ("123456789012345678901234567890", "123456789012345678901234567890"),
                ("true", r#""true""#),
                ("", r#""""#),
            ],
        );
        check(
            ParamType::NUMBER,
            &[("5", "5"), ("1.50", "1.50"), ("1e3", "1e3"), ("NaN", r#""NaN""#), (".5", r#"".5""#)],
        );
    }

    #[test]
    fn booleans_in_any_case() {
        check(
            ParamType::BOOLEAN,
            &[
                ("true", "true"),
                ("False", "false"),
                (" TRUE ", "true"),
                ("1", r#""1""#),
                ("yes", r#""yes""#),
            ],
        );
    }

    #[test]
    fn arrays_and_objects_leniently() {
        check(
            ParamType::ARRAY,
            &[
                ("[1, 2]", "[1,2]"),
                ("['a', \"b'\", 'c\"d', 'e\\'f',]", r#"["a","b'","c\"d","e'f"]"#),
                ("{}", r#""{}""#),
                ("[1", r#""[1""#),
            ],
        );
        check(
            ParamType::OBJECT,
            &[
                ("{\"a\": {\"b\": [1,],},}", r#"{"a":{"b":[1]}}"#),
                ("{'k': 'v, ]'}", r#"{"k":"v, ]"}"#),
                ("[1]", r#""[1]""#),
                ("'\\", r#""'\\""#),
            ],
        );
    }

    #[test]
    fn null_where_it_is_allowed() {
        let null = ParamType::NULL;
        check(
            null.or(ParamType::INTEGER),
            &[("null", "null"), ("", "null"), ("5", "5"), ("x", r#""x""#)],
        );
        check(null.or(ParamType::STRING), &[("null", "null"), ("", r#""""#), ("nul", r#""nul""#)]);
    }

    #[test]
    fn alternatives_take_the_most_structured() {
        let ty =
            ParamType::STRING.or(ParamType::INTEGER).or(ParamType::ARRAY).or(ParamType::BOOLEAN);
        check(
            ty,
            &[("5", "5"), ("[1]", "[1]"), ("TRUE", "true"), ("5.5", r#""5.5""#), ("{}", r#""{}""#)],
        );
    }

    #[test]
    fn unknown_parameters_take_whatever_is_json() {
        check(
            ParamType::ANY,
            &[
                ("5.0", "5.0"),
                ("{ \"a\" : [ 1 ] }", r#"{"a":[1]}"#),
                ("True", r#""True""#),
                ("\"q\"", r#""q""#),
                ("", r#""""#),
            ],
        );
    }

    #[test]
    fn programs_get_numbers_and_switches() {
        let json = |text: &str| Json::parse(text).unwrap();
        let whole = |text: &str| integer(Some(&json(text)), 7, 0..=500);
        assert_eq!([whole("120"), whole("\" 120\\n\""), whole(r#""\"120\"""#)], [120, 120, 120]);
        assert_eq!([whole("9999"), whole("-3"), whole("\"x\""), whole("1.5")], [500, 0, 7, 7]);
        assert_eq!(integer(None, 9000, 0..=500), 500);
        let switch = |text: &str| boolean(Some(&json(text)), false);
        assert!(switch("true") && switch("\"YES\"") && switch("1") && !switch("\"no\""));
        assert!(boolean(None, true) && !switch("\"maybe\""));
        assert!((number(Some(&json("\"2.5\"")), 0.0) - 2.5).abs() < 1e-9);
        assert!((number(Some(&json("\"inf\"")), 1.0) - 1.0).abs() < 1e-9);
    }
}
