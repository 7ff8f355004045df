//! What a schema says of a text that stands raw between tags, as an expression of the grammar language.
//!
//! A text has no quotes and no escapes, so the rules for strings of JSON do not fit it. Here each keyword becomes an
//! expression that matches whole texts; several hold by intersection. Two things hold for every text besides: it has no
//! tags of calls, by which a reader would take it for more than a text, and it is read as no other type that its
//! parameter may have (server.md 11.4).

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::formats;
use super::pattern::{ANY, joined, quoted, search};
use super::schema::Root;
use crate::chat::ParamType;

/// How many references and combinations of schemas are followed one inside the other.
const MAX_DEPTH: usize = 32;

/// Most alternatives of which exactly one must hold: each is compared with all others.
const MAX_EXCLUSIVE: usize = 16;

/// Longest expression in bytes. Alternatives of which one must hold grow as their square.
const MAX_BYTES: usize = 512 * 1024;

/// No text.
const NOTHING: &str = "(/a/ & /b/)";

/// Names of tags by which a text would be taken for more than a text.
const TAGS: [&str; 3] = ["parameter", "function", "tool_call"];

/// Texts without a tag of a call, whether it opens or closes something. Said with what they have instead of by what they
/// lack: the lexer asks after each byte whether anything can still follow, and a complement answers that slowly.
static UNTAGGED: LazyLock<String> = LazyLock::new(|| {
    let begun: Vec<&str> =
        TAGS.iter().flat_map(|name| (1..name.len()).map(|end| &name[..end])).collect();
    let first: String = TAGS.iter().map(|name| &name[..1]).collect();
    // What a tag that was begun goes on with when it is none; another may begin there.
    let broken = TAGS.iter().flat_map(|name| {
        (1..name.len()).map(|end| format!("{}[^<{}]", &name[..end], &name[end..=end]))
    });
    let broken = broken.collect::<Vec<_>>().join("|");
    let unfinished = format!(r"(?:<\/?(?:{})?)*", begun.join("|"));
    let other = format!(r"(?:[^<\/{first}]|\/[^<{first}]|\/?(?:{broken}))");
    format!("/(?:[^<]|{unfinished}<{other})*{unfinished}/")
});

/// Texts that `types` without strings would be read from, so that none of them can be a string.
const READ_AS: [(ParamType, &str); 6] = [
    (ParamType::NULL, r"/\s*null\s*/"),
    (ParamType::BOOLEAN, r"/\s*(?i:true|false)\s*/"),
    (ParamType::INTEGER, NUMBERS),
    (ParamType::NUMBER, NUMBERS),
    (ParamType::ARRAY, r"/\s*\[(?s:.*)/"),
    (ParamType::OBJECT, r"/\s*\{(?s:.*)/"),
];

const NUMBERS: &str = r"/\s*-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\s*/";

/// Simple values of types, as they are written.
const WRITTEN: [(ParamType, &str, &str); 4] = [
    (ParamType::NULL, "null", r#""null""#),
    (ParamType::BOOLEAN, "boolean", "/true|false/"),
    (ParamType::INTEGER, "integer", "/-?(?:0|[1-9][0-9]{0,17})/"),
    (ParamType::NUMBER, "number", r"/-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,17})?/"),
];

/// Keywords by which a schema says something of numbers.
const OF_NUMBERS: [&str; 5] =
    ["exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"];

/// What holds the texts of a parameter: those that are strings, and values of simple types that it may have besides.
///
/// # Errors
/// What cannot be enforced, in words.
pub(super) fn expression(root: &Root<'_>, schema: &Value, ty: ParamType) -> Result<String, String> {
    let texts = Texts { root, mixed: ty != ParamType::STRING };
    let mut held = vec![texts.of(schema, MAX_DEPTH)?, UNTAGGED.clone()];
    let others = READ_AS.iter().filter(|(other, _)| ty.allows(*other));
    held.extend(others.map(|(_, read)| format!("~{read}")));
    let held = joined(&held, " & ", ANY);
    let simple = WRITTEN.iter().filter(|(other, name, _)| {
        ty.allows(*other) && texts.lets_through(schema, name, MAX_DEPTH)
    });
    let simple = simple.map(|(_, _, written)| (*written).to_owned());
    Ok(std::iter::once(held).chain(simple).collect::<Vec<_>>().join(" | "))
}

/// Whether a value is of a type, or of one of several, as `type` has them.
pub(super) fn is_of_type(ty: &Value, value: &Value) -> bool {
    match value {
        Value::Null => names(ty, "null"),
        Value::Bool(_) => names(ty, "boolean"),
        Value::Number(n) => {
            let whole = n.as_f64().is_some_and(|n| n.fract() == 0.0);
            names(ty, "number") || whole && names(ty, "integer")
        }
        Value::String(_) => names(ty, "string"),
        Value::Array(_) => names(ty, "array"),
        Value::Object(_) => names(ty, "object"),
    }
}

/// Whether a text between tags would be taken for more than a text.
pub(super) fn is_tagged(text: &str) -> bool {
    let inside = |rest: &str| {
        let rest = rest.strip_prefix('/').unwrap_or(rest);
        TAGS.iter().any(|name| rest.starts_with(name))
    };
    text.split('<').skip(1).any(inside)
}

/// Reads schemas as far as they speak of texts.
struct Texts<'a> {
    root: &'a Root<'a>,
    /// Other types may stand beside the text.
    mixed: bool,
}

impl Texts<'_> {
    /// An expression for the strings that a schema lets through.
    fn of(&self, schema: &Value, depth: usize) -> Result<String, String> {
        let Some(depth) = depth.checked_sub(1).filter(|_| self.root.look()) else {
            return Err("the schema of a text is too deep, or refers to too much".to_owned());
        };
        let keywords = match schema {
            Value::Bool(false) => return Ok(NOTHING.to_owned()),
            Value::Object(keywords) => keywords,
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => return Ok(ANY.to_owned()),
        };
        let mut all = Vec::new();
        if keywords.get("type").is_some_and(|ty| !names(ty, "string")) {
            all.push(NOTHING.to_owned());
        }
        all.extend(lengths(keywords));
        for (keyword, rule) in keywords {
            let rule = self.keyword(keyword, rule, depth)?;
            all.extend(rule.filter(|rule| rule != ANY));
        }
        let whole = joined(&all, " & ", ANY);
        if whole.len() > MAX_BYTES {
            return Err(format!("the schema of a text is too large: at most {MAX_BYTES} bytes"));
        }
        Ok(whole)
    }

    fn keyword(&self, keyword: &str, rule: &Value, depth: usize) -> Result<Option<String>, String> {
        let schemas = || rule.as_array().map_or(&[][..], Vec::as_slice);
        let each = || schemas().iter().map(|schema| self.of(schema, depth));
        let found = match keyword {
            "enum" | "const" if self.mixed => {
                return Err(format!(
                    "`{keyword}` beside other keywords is not supported for a text that may be another type"
                ));
            }
            "enum" => literals(schemas())?,
            "const" => literals(std::slice::from_ref(rule))?,
            "pattern" => search(rule.as_str().unwrap_or_default())?,
            "format" => {
                let patterns = rule.as_str().and_then(formats::patterns).unwrap_or_default();
                let all = patterns.iter().map(|pattern| search(pattern));
                joined(&all.collect::<Result<Vec<_>, _>>()?, " & ", ANY)
            }
            "$ref" => self.of(self.root.target(rule).ok_or("a reference leads nowhere")?, depth)?,
            "allOf" => joined(&each().collect::<Result<Vec<_>, _>>()?, " & ", ANY),
            "anyOf" => joined(&each().collect::<Result<Vec<_>, _>>()?, " | ", NOTHING),
            "oneOf" => exclusive(&each().collect::<Result<Vec<_>, _>>()?)?,
            _ if self.mixed && OF_NUMBERS.contains(&keyword) => {
                return Err(format!(
                    "`{keyword}` is not supported for a number that may be a text"
                ));
            }
            _ => return Ok(None),
        };
        Ok(Some(found))
    }

    /// Whether a schema lets through all values of a simple type.
    fn lets_through(&self, schema: &Value, name: &str, depth: usize) -> bool {
        let Value::Object(keywords) = schema else { return schema == &Value::Bool(true) };
        let Some(depth) = depth.checked_sub(1).filter(|_| self.root.look()) else { return false };
        keywords.iter().all(|(keyword, rule)| {
            let count = |rule: &Value| {
                let all = rule.as_array().into_iter().flatten();
                all.filter(|one| self.lets_through(one, name, depth)).count()
            };
            match keyword.as_str() {
                "type" => names(rule, name) || name == "integer" && names(rule, "number"),
                "$ref" => {
                    self.root.target(rule).is_some_and(|one| self.lets_through(one, name, depth))
                }
                "allOf" => count(rule) == rule.as_array().map_or(0, Vec::len),
                "anyOf" => count(rule) > 0,
                "oneOf" => count(rule) == 1,
                _ => true,
            }
        })
    }
}

/// What the limits on a text's length say; lengths are in characters.
fn lengths(keywords: &Map<String, Value>) -> Option<String> {
    let length = |keyword| keywords.get(keyword).and_then(Value::as_u64);
    let (least, most) = (length("minLength").unwrap_or(0), length("maxLength"));
    if most.is_some_and(|most| most < least) {
        return Some(NOTHING.to_owned());
    }
    let end = most.map(|most| most.to_string()).unwrap_or_default();
    (least > 0 || most.is_some()).then(|| format!("/(?s:.){{{least},{end}}}/"))
}

/// Whether the value of a `type` names a type.
fn names(ty: &Value, name: &str) -> bool {
    ty == name || ty.as_array().is_some_and(|types| types.iter().any(|ty| ty == name))
}

/// Exactly one of these.
fn exclusive(all: &[String]) -> Result<String, String> {
    let some: Vec<&String> = all.iter().filter(|one| *one != NOTHING).collect();
    if some.len() > MAX_EXCLUSIVE {
        return Err(format!("`oneOf` has too many texts: at most {MAX_EXCLUSIVE}; use `anyOf`"));
    }
    let alone = some.iter().enumerate().map(|(at, one)| {
        let others = some.iter().enumerate().filter(|(other, _)| *other != at);
        let others = others.map(|(_, other)| format!("~({other})"));
        let all: Vec<String> = std::iter::once((*one).clone()).chain(others).collect();
        joined(&all, " & ", NOTHING)
    });
    Ok(joined(&alone.collect::<Vec<_>>(), " | ", NOTHING))
}

/// The strings among some values.
fn literals(values: &[Value]) -> Result<String, String> {
    let texts: Vec<String> = values.iter().filter_map(Value::as_str).map(quoted).collect();
    match values.iter().filter_map(Value::as_str).find(|text| is_tagged(text)) {
        Some(text) => Err(format!("`{text}` cannot be written, for it has a tag of a call")),
        None => Ok(joined(&texts, " | ", NOTHING)),
    }
}

#[cfg(test)]
mod tests {
    use fancy_regex::Regex;

    use super::*;

    #[test]
    fn tags_of_calls_are_no_texts() {
        let whole = format!("^(?:{})$", UNTAGGED.trim_matches('/'));
        let untagged = Regex::new(&whole).unwrap();
        for text in [
            "",
            "a < b",
            "<",
            "<<",
            "</",
            "<p",
            "</param>\n<path>",
            "<f32>",
            "<<to<",
            "a<tool_",
            "parameter>",
            "< parameter",
            "<//function",
            "é</functio",
            "<functionality",
        ] {
            let expected = !text.contains("<function");
            assert_eq!(untagged.is_match(text).unwrap(), expected, "{text}");
            assert_eq!(is_tagged(text), !expected, "{text}");
        }
        for text in
            ["<parameter", "a</parameter>", "<<function=f>", "<p</tool_call", "</pa<tool_call>b"]
        {
            assert!(!untagged.is_match(text).unwrap() && is_tagged(text), "{text}");
        }
    }
}
