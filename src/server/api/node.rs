//! Values of a request with their place in it, so that every refusal can name the field and what was found.
//!
//! A value is its text; levels below are read when they are asked for. `null` for a field means that it is absent, and of
//! a repeated key the last one counts.

use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::chat::{Json, json_kind};
use crate::server::Failure;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node<'a> {
    /// `messages[2].content`.
    path: String,
    text: &'a str,
}

/// An object and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Object<'a> {
    /// Empty for the outermost one.
    path: String,
    entries: Vec<(String, &'a str)>,
}

impl<'a> Node<'a> {
    /// A value that stands at `path`.
    pub(super) fn new(path: &str, json: &'a Json) -> Self {
        Self { path: path.to_owned(), text: json.text() }
    }

    /// Its text as it was spelled.
    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// What kind of value it is, in words.
    pub(super) fn kind(&self) -> &'static str {
        json_kind(self.text)
    }

    pub(super) fn is_null(&self) -> bool {
        self.first_byte() == b'n'
    }

    pub(super) fn is_string(&self) -> bool {
        self.first_byte() == b'"'
    }

    pub(super) fn is_object(&self) -> bool {
        self.first_byte() == b'{'
    }

    pub(super) fn is_array(&self) -> bool {
        self.first_byte() == b'['
    }

    pub(super) fn is_boolean(&self) -> bool {
        matches!(self.first_byte(), b't' | b'f')
    }

    /// A refusal: what it must be, and what kind it is.
    pub(super) fn wrong(&self, expected: &str) -> Failure {
        self.refused(format!("must be {expected}, found {}", self.kind()))
    }

    /// A refusal: `what` follows the field's name.
    pub(super) fn refused(&self, what: impl fmt::Display) -> Failure {
        Failure::invalid(&self.path, format!("`{}` {what}", self.path))
    }

    /// The characters of a string.
    pub(super) fn string(&self) -> Result<String, Failure> {
        self.as_str().ok_or_else(|| self.wrong("a string"))
    }

    /// The characters, if it is a string.
    pub(super) fn as_str(&self) -> Option<String> {
        if self.is_string() { serde_json::from_str(self.text).ok() } else { None }
    }

    pub(super) fn boolean(&self) -> Result<bool, Failure> {
        if self.is_boolean() { Ok(self.text == "true") } else { Err(self.wrong("a boolean")) }
    }

    /// A finite number.
    pub(super) fn number(&self) -> Result<f64, Failure> {
        if self.kind() != "a number" {
            return Err(self.wrong("a number"));
        }
        let number: f64 = self.text.parse().map_err(|_| self.wrong("a number"))?;
        if number.is_finite() {
            return Ok(number);
        }
        Err(self.refused(format!("must be a finite number, found {}", self.text)))
    }

    /// A whole number, exact wherever it is spelled without a fraction.
    pub(super) fn integer(&self) -> Result<i128, Failure> {
        if let Ok(integer) = self.text.parse() {
            return Ok(integer);
        }
        // `1e3` and `5.0` are whole too; beyond 2^53 a fraction cannot be seen.
        let number = self.number().map_err(|_| self.wrong("an integer"))?;
        if number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0 {
            return Ok(format!("{number:.0}").parse().unwrap_or_default());
        }
        Err(self.refused(format!("must be an integer, found {}", self.text)))
    }

    /// The elements of an array.
    pub(super) fn items(&self) -> Result<Vec<Node<'a>>, Failure> {
        if !self.is_array() {
            return Err(self.wrong("an array"));
        }
        let items: Vec<&'a RawValue> =
            serde_json::from_str(self.text).map_err(|e| self.refused(format!("is broken: {e}")))?;
        let node = |(index, raw): (usize, &'a RawValue)| Node {
            path: format!("{}[{index}]", self.path),
            text: raw.get(),
        };
        Ok(items.into_iter().enumerate().map(node).collect())
    }

    /// The fields of an object.
    pub(super) fn object(&self) -> Result<Object<'a>, Failure> {
        if !self.is_object() {
            return Err(self.wrong("an object"));
        }
        Ok(Object { path: self.path.clone(), entries: entries(self.text) })
    }

    /// The value as it was spelled.
    pub(super) fn json(&self) -> Result<Json, Failure> {
        Json::parse(self.text).map_err(|e| self.refused(format!("is not acceptable: {e}")))
    }

    /// The value for an echo, which need not keep its spelling; `None` for numbers that nothing can hold.
    pub(super) fn value(&self) -> Option<Value> {
        serde_json::from_str(self.text).ok()
    }

    fn first_byte(&self) -> u8 {
        self.text.as_bytes().first().copied().unwrap_or(b'n')
    }
}

impl<'a> Object<'a> {
    /// The outermost object; `text` was checked to be one.
    pub(super) fn root(text: &'a str) -> Self {
        Self { path: String::new(), entries: entries(text) }
    }

    /// The place of a field.
    pub(super) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// A field that is there and not `null`.
    pub(super) fn get(&self, name: &str) -> Option<Node<'a>> {
        let (_, text) = self.entries.iter().rfind(|(known, _)| known == name)?;
        let node = Node { path: self.path_of(name), text };
        (!node.is_null()).then_some(node)
    }

    /// The first of several names that is there.
    pub(super) fn first(&self, names: &[&str]) -> Option<Node<'a>> {
        names.iter().find_map(|name| self.get(name))
    }

    /// All fields, `null` ones included, in order; a repeated key comes repeatedly.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, Node<'a>)> {
        let node = |name: &str, text| Node { path: self.path_of(name), text };
        self.entries.iter().map(move |(name, text)| (name.as_str(), node(name, text)))
    }

    /// A refusal about a field that is missing.
    pub(super) fn missing(&self, name: &str) -> Failure {
        let place =
            if self.path.is_empty() { String::new() } else { format!(" in `{}`", self.path) };
        Failure::invalid(self.path_of(name), format!("missing {name}{place}"))
    }

    /// A field that must be there.
    pub(super) fn require(&self, name: &str) -> Result<Node<'a>, Failure> {
        self.get(name).ok_or_else(|| self.missing(name))
    }

    pub(super) fn string(&self, name: &str) -> Result<Option<String>, Failure> {
        self.get(name).map(|node| node.string()).transpose()
    }

    pub(super) fn boolean(&self, name: &str) -> Result<Option<bool>, Failure> {
        self.get(name).map(|node| node.boolean()).transpose()
    }

    pub(super) fn object(&self, name: &str) -> Result<Option<Object<'a>>, Failure> {
        self.get(name).map(|node| node.object()).transpose()
    }

    /// The elements of an array; none where the field is absent.
    pub(super) fn items(&self, name: &str) -> Result<Vec<Node<'a>>, Failure> {
        self.get(name).map(|node| node.items()).transpose().map(Option::unwrap_or_default)
    }
}

/// The entries of an object whose text was checked.
fn entries(text: &str) -> Vec<(String, &str)> {
    struct Entries;
    impl<'a> Visitor<'a> for Entries {
        type Value = Vec<(String, &'a str)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object")
        }

        fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some((name, raw)) = map.next_entry::<String, &'a RawValue>()? {
                entries.push((name, raw.get()));
            }
            Ok(entries)
        }
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    (&mut reader).deserialize_map(Entries).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_name_their_place_and_kind() {
        let text = r#"{"a":[{"b":1.5,"b":"x","n":null}],"t":true}"#;
        let root = Object::root(text);
        let item = &root.items("a").unwrap()[0];
        let object = item.object().unwrap();
        assert_eq!(object.string("b").unwrap().as_deref(), Some("x"));
        assert!(object.get("n").is_none());
        let failure = object.get("b").unwrap().number().unwrap_err();
        assert_eq!(failure.message, "`a[0].b` must be a number, found a string");
        assert_eq!(failure.param.as_deref(), Some("a[0].b"));
        assert_eq!(root.missing("model").message, "missing model");
        assert_eq!(object.missing("role").message, "missing role in `a[0]`");
        assert_eq!(root.string("t").unwrap_err().message, "`t` must be a string, found a boolean");
    }

    #[test]
    fn whole_numbers_are_exact() {
        let check = |text: &str, expected: Option<i128>| {
            let text = format!("{{\"n\":{text}}}");
            assert_eq!(Object::root(&text).get("n").unwrap().integer().ok(), expected, "{text}");
        };
        check("18446744073709551615", Some(18_446_744_073_709_551_615));
        check("-3", Some(-3));
        check("5.0", Some(5));
        check("1e3", Some(1000));
        check("1.5", None);
        check("1e400", None);
        check("1e300", None);
        check("\"5\"", None);
        check("true", None);
    }
}
