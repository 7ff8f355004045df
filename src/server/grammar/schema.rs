//! Schemas before they become grammars: what cannot be enforced is found here, by name and place.

use std::cell::Cell;
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{formats, pattern};
use crate::chat::Json;

/// Longest schema in bytes.
const MAX_BYTES: usize = 256 * 1024;

/// Largest number of items, properties or characters that a schema may name: beyond it a grammar only costs time.
const MAX_COUNT: u64 = 100_000;

/// Largest bound of a number that the grammar compiler reckons with. One that lies further out is held to this one, which
/// is stricter.
const MAX_BOUND: i64 = 1_000_000_000_000_000_000;

/// Largest divisor, and largest common multiple of several, in units of the smallest.
const MAX_MULTIPLE: u64 = 50_000;

/// Most digits of a divisor behind the point.
const MULTIPLE_DIGITS: usize = 6;

/// The least divisor that can be said with them is one such part of 1.
const MULTIPLE_SCALE: u64 = 1_000_000;

/// Most properties of all objects of a schema together.
const MAX_PROPERTIES: usize = 5000;

/// Deepest nesting of a schema, those that it refers to one inside the other.
const MAX_DEPTH: usize = 2000;

/// Most looks at parts of the schema of one parameter.
const MAX_LOOKS: usize = 20_000;

/// Keywords that restrict a value in ways that no grammar here can follow.
const UNSUPPORTED: [&str; 18] = [
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "contentSchema",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
    "x-guidance",
];

/// Keywords that restrict a value in ways that are enforced.
const ENFORCED: [&str; 27] = [
    "$ref",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "required",
    "type",
];

/// Keywords that say nothing about a value, but that the grammar compiler would trip over.
const IGNORED: [&str; 2] = ["$dynamicAnchor", "$recursiveAnchor"];

/// A schema that can be tried.
#[derive(Debug)]
pub(super) struct Checked {
    /// An object.
    pub(super) schema: Value,
    /// Where its first `oneOf` stands.
    pub(super) one_of: Option<String>,
}

/// Reads a schema.
///
/// # Errors
/// What is not supported, in words.
pub(super) fn read(schema: &Json) -> Result<Checked, String> {
    check_size(schema.text().len())?;
    let root: Value = serde_json::from_str(schema.text())
        .map_err(|error| format!("the schema cannot be read: {error}"))?;
    match root {
        Value::Bool(true) => checked(Map::new(), "", "#"),
        Value::Bool(false) => Err("nothing satisfies the schema `false`".to_owned()),
        Value::Object(keywords) => checked(keywords, "", "#"),
        other @ (Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            Err(no_schema(&other, "#"))
        }
    }
}

/// Reads what one parameter of a function may be, by one of the properties of the function's schema: a value of these
/// types that obeys the property.
///
/// # Errors
/// As [`read`].
pub(super) fn property(root: &Value, name: &str, types: &[&str]) -> Result<Checked, String> {
    let property = root.get("properties").and_then(|properties| properties.get(name));
    let property = property.cloned().unwrap_or(Value::Bool(true));
    // The property may refer to what stands beside it.
    let mut keywords = Map::new();
    for definitions in ["$defs", "definitions"] {
        keywords.extend(root.get(definitions).map(|all| (definitions.to_owned(), all.clone())));
    }
    check_size(property.to_string().len())?;
    if property == Value::Bool(false) {
        return Err("nothing satisfies the schema `false`".to_owned());
    }
    keywords.insert("allOf".to_owned(), Value::Array(vec![property]));
    if !types.is_empty() {
        keywords.insert("type".to_owned(), types.into());
    }
    checked(keywords, "/allOf/0", &join("#/properties", name))
}

fn check_size(bytes: usize) -> Result<(), String> {
    if bytes > MAX_BYTES {
        return Err(format!("a schema of {bytes} bytes is too large: at most {MAX_BYTES}"));
    }
    Ok(())
}

/// Checks what stands at `start` of a schema; `path` is where that is for whoever sent it.
fn checked(keywords: Map<String, Value>, start: &str, path: &str) -> Result<Checked, String> {
    let mut root = Value::Object(keywords);
    let mut walk = Walk::new(&root);
    walk.pending.push((path, root.pointer(start).unwrap_or(&root)));
    walk.all_schemas()?;
    let one_of = walk.one_of;
    if let Value::Object(keywords) = &mut root {
        strip(keywords);
    }
    Ok(Checked { schema: root, one_of })
}

fn no_schema(value: &Value, path: &str) -> String {
    let text = Json::parse(&value.to_string()).map_or("a value", |json| json.kind());
    format!("a schema must be an object or a boolean, found {text} at `{path}`")
}

/// What references of a schema lead into. A schema that refers to the same places over and over would be read for ever:
/// every look at a part of it is counted.
pub(super) struct Root<'a> {
    value: &'a Value,
    looks: Cell<usize>,
}

impl<'a> Root<'a> {
    pub(super) fn new(value: &'a Value) -> Self {
        Self { value, looks: Cell::new(MAX_LOOKS) }
    }

    /// Counts a look; whether it may be taken.
    pub(super) fn look(&self) -> bool {
        let left = self.looks.get().checked_sub(1);
        self.looks.set(left.unwrap_or(0));
        left.is_some()
    }

    /// The place that a reference names.
    pub(super) fn target(&self, reference: &Value) -> Option<&'a Value> {
        self.value.pointer(reference.as_str()?.strip_prefix('#')?)
    }
}

/// Whether a keyword restricts values.
pub(super) fn is_rule(keyword: &str) -> bool {
    ENFORCED.contains(&keyword) || UNSUPPORTED.contains(&keyword)
}

/// What the compiler of grammars says, in our words where we know more.
pub(super) fn explain(error: &str, one_of: Option<&str>) -> String {
    let line = error.lines().next().unwrap_or_default();
    match one_of {
        Some(path) if error.contains("oneOf") => format!(
            "`oneOf` at `{path}` of the schema is not supported where alternatives may overlap; use `anyOf`"
        ),
        _ => format!("the schema cannot be enforced: {line}"),
    }
}

/// A walk over everything that a value may be held to.
struct Walk<'a> {
    root: &'a Value,
    /// References that were found.
    seen: BTreeSet<&'a str>,
    /// Those of them whose schemas are still to be walked over.
    pending: Vec<(&'a str, &'a Value)>,
    one_of: Option<String>,
    properties: usize,
    /// Schemas that are open, and most of them since a reference was followed.
    depth: (usize, usize),
    /// No path through all references is longer.
    longest: usize,
    /// The common multiple of all divisors, and their common divisor, in parts of [`MULTIPLE_SCALE`].
    multiple: u64,
    unit: u64,
}

impl<'a> Walk<'a> {
    fn new(root: &'a Value) -> Self {
        let (seen, pending) = (BTreeSet::new(), Vec::new());
        let (depth, multiple, unit) = ((0, 0), 1, 0);
        Self { root, seen, pending, one_of: None, properties: 0, depth, longest: 0, multiple, unit }
    }

    fn all_schemas(&mut self) -> Result<(), String> {
        while let Some((path, schema)) = self.pending.pop() {
            self.depth = (0, 0);
            self.schema(schema, path)?;
            // The compiler follows references one inside the other, in an order of its own.
            self.longest += self.depth.1;
        }
        if self.properties > MAX_PROPERTIES {
            Err(format!(
                "a schema with {} properties is too large: at most {MAX_PROPERTIES}",
                self.properties
            ))
        } else if self.longest > MAX_DEPTH {
            Err(format!(
                "the schema is too deep through its references: at most {MAX_DEPTH} levels"
            ))
        } else {
            Ok(())
        }
    }

    fn schema(&mut self, schema: &'a Value, path: &str) -> Result<(), String> {
        self.depth.0 += 1;
        self.depth.1 = self.depth.1.max(self.depth.0);
        let checked = self.keywords(schema, path);
        self.depth.0 -= 1;
        checked
    }

    fn keywords(&mut self, schema: &'a Value, path: &str) -> Result<(), String> {
        let keywords = match schema {
            Value::Bool(_) => return Ok(()),
            Value::Object(keywords) => keywords,
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(no_schema(schema, path));
            }
        };
        for (keyword, value) in keywords {
            self.keyword(keywords, (keyword, value), path)?;
        }
        Ok(())
    }

    fn keyword(
        &mut self,
        keywords: &'a Map<String, Value>,
        (keyword, value): (&'a str, &'a Value),
        path: &str,
    ) -> Result<(), String> {
        let here = || join(path, keyword);
        match keyword {
            // That items may repeat is what everybody expects.
            "uniqueItems" if value == &Value::Bool(false) => Ok(()),
            _ if UNSUPPORTED.contains(&keyword) => {
                Err(format!("`{keyword}` at `{path}` of the schema is not supported"))
            }
            "properties" | "patternProperties" => {
                let Value::Object(schemas) = value else { return Err(wrong(keyword, path)) };
                self.properties += schemas.len();
                for (name, schema) in schemas {
                    if keyword == "patternProperties" {
                        check_pattern(name, &here())?;
                    }
                    self.schema(schema, &join(&here(), name))?;
                }
                Ok(())
            }
            "required" => {
                self.properties += value.as_array().map_or(0, Vec::len);
                Ok(())
            }
            "anyOf" | "allOf" | "oneOf" | "prefixItems" => {
                let Value::Array(schemas) = value else { return Err(wrong(keyword, path)) };
                if keyword == "oneOf" {
                    self.one_of.get_or_insert_with(|| path.to_owned());
                }
                self.all(schemas, &here())
            }
            "items" => match value.as_array() {
                Some(schemas) => self.all(schemas, &here()),
                None => self.schema(value, &here()),
            },
            "additionalProperties" | "additionalItems" => self.schema(value, &here()),
            "$ref" => self.reference(value, path),
            "pattern" if may_be(keywords, "string") => match value.as_str() {
                Some(text) => check_pattern(text, path),
                None => Err(wrong(keyword, path)),
            },
            "format" if may_be(keywords, "string") => match value.as_str() {
                Some(format) if formats::patterns(format).is_some() => Ok(()),
                Some(format) => Err(format!(
                    "`format` `{format}` at `{path}` of the schema is not supported: it can be {}",
                    formats::names()
                )),
                None => Err(wrong(keyword, path)),
            },
            "minItems" | "maxItems" | "minProperties" | "maxProperties" | "minLength"
            | "maxLength" => match value.as_u64() {
                Some(count) if count > MAX_COUNT => Err(too_large(keyword, path, MAX_COUNT)),
                _ => Ok(()),
            },
            "minimum" | "exclusiveMinimum" if far(value) == Some(MAX_BOUND) => {
                Err(too_large(keyword, path, MAX_BOUND))
            }
            "maximum" | "exclusiveMaximum" if far(value) == Some(-MAX_BOUND) => Err(format!(
                "`{keyword}` at `{path}` of the schema is too small: at least -{MAX_BOUND}"
            )),
            "multipleOf" => self.multiple(value, path),
            _ => Ok(()),
        }
    }

    /// A divisor is counted with as many states as it is large, and with others that may apply to the same number with
    /// as many as their common multiple.
    fn multiple(&mut self, value: &Value, path: &str) -> Result<(), String> {
        if value.as_f64().is_none_or(|divisor| divisor <= 0.0) {
            return Err(wrong("multipleOf", path));
        }
        let steps = steps(value).filter(|steps| *steps <= MULTIPLE_SCALE * MAX_MULTIPLE);
        let Some(steps) = steps else {
            return Err(format!(
                "`multipleOf` `{value}` at `{path}` of the schema is not supported: at most {MAX_MULTIPLE}, and at most \
                 {MULTIPLE_DIGITS} digits behind the point"
            ));
        };
        // In the smallest unit that any of them needs.
        let common = lcm(self.multiple, steps);
        (self.multiple, self.unit) = (common, gcd(gcd(self.unit, steps), MULTIPLE_SCALE));
        if common / self.unit > MAX_MULTIPLE {
            return Err(format!(
                "`multipleOf` at `{path}` of the schema is not supported beside the others: their common multiple is too \
                 large"
            ));
        }
        Ok(())
    }

    fn all(&mut self, schemas: &'a [Value], path: &str) -> Result<(), String> {
        for (index, schema) in schemas.iter().enumerate() {
            self.schema(schema, &join(path, &index.to_string()))?;
        }
        Ok(())
    }

    /// A reference is followed once, and later.
    fn reference(&mut self, value: &'a Value, path: &str) -> Result<(), String> {
        let Value::String(reference) = value else { return Err(wrong("$ref", path)) };
        let pointer = reference.strip_prefix('#').filter(|rest| !rest.contains(['~', '%']));
        let pointer = pointer.map(|pointer| if pointer == "/" { "" } else { pointer });
        let target = pointer.and_then(|pointer| self.root.pointer(pointer));
        let Some(target) = target else {
            return Err(format!(
                "`$ref` `{reference}` at `{path}` of the schema is not supported: it can only name a place in the \
                 schema, such as `#/$defs/name`"
            ));
        };
        self.pending.extend(self.seen.insert(reference).then_some((reference.as_str(), target)));
        Ok(())
    }
}

fn join(path: &str, name: &str) -> String {
    format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"))
}

fn too_large(keyword: &str, path: &str, most: impl std::fmt::Display) -> String {
    format!("`{keyword}` at `{path}` of the schema is too large: at most {most}")
}

/// The bound that stands for one that lies further out; `None` for any other.
fn far(bound: &Value) -> Option<i64> {
    let bound = bound.as_f64()?;
    let nearest = if bound < 0.0 { -MAX_BOUND } else { MAX_BOUND };
    (bound.abs() > MAX_BOUND as f64).then_some(nearest)
}

/// A divisor in parts of [`MULTIPLE_SCALE`], by its decimal digits: few decimal fractions are exact as binary ones.
fn steps(divisor: &Value) -> Option<u64> {
    let text = divisor.as_f64()?.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let digits = (part.len() <= MULTIPLE_DIGITS).then(|| format!("{whole}{part:0<6}"))?;
    digits.parse().ok()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn lcm(a: u64, b: u64) -> u64 {
    (a / gcd(a, b)).saturating_mul(b)
}

fn wrong(keyword: &str, path: &str) -> String {
    format!("`{keyword}` at `{path}` of the schema has a value of the wrong kind")
}

/// Whether a schema lets values of a type through, as far as its `type` says.
fn may_be(keywords: &Map<String, Value>, name: &str) -> bool {
    match keywords.get("type") {
        Some(Value::String(ty)) => ty == name,
        Some(Value::Array(types)) => types.iter().any(|ty| ty == name),
        _ => true,
    }
}

fn check_pattern(text: &str, path: &str) -> Result<(), String> {
    pattern::check(text).map_err(|why| {
        format!("`pattern` `{text}` at `{path}` of the schema is not supported: {why}")
    })
}

/// Says a format with patterns, as it is said of texts between tags: one meaning everywhere.
fn spell_format(keywords: &mut Map<String, Value>) {
    let format = keywords.get("format").and_then(Value::as_str);
    let Some(patterns) = format.and_then(formats::patterns) else { return };
    keywords.remove("format");
    let all = keywords.entry("allOf").or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(all) = all {
        all.extend(patterns.iter().map(|pattern| json!({ "pattern": pattern })));
    }
}

/// Takes out what says nothing, and says the rest as the grammar compiler reads it. Only keywords of schemas are touched, never names of properties or constants.
fn strip(keywords: &mut Map<String, Value>) {
    for keyword in IGNORED {
        keywords.remove(keyword);
    }
    if keywords.get("uniqueItems") == Some(&Value::Bool(false)) {
        keywords.remove("uniqueItems");
    }
    spell_format(keywords);
    for (keyword, value) in keywords.iter_mut() {
        if ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]
            .contains(&keyword.as_str())
            && let Some(bound) = far(value)
        {
            *value = bound.into();
        }
        let named =
            ["properties", "patternProperties", "$defs", "definitions"].contains(&keyword.as_str());
        let keyword = keyword.as_str();
        let schemas: Vec<&mut Value> =
            if ["const", "default", "enum", "examples", "required"].contains(&keyword) {
                Vec::new()
            } else if named && let Value::Object(schemas) = value {
                schemas.values_mut().collect()
            } else if let Value::Array(schemas) = value {
                schemas.iter_mut().collect()
            } else {
                vec![value]
            };
        for schema in schemas {
            if let Value::Object(keywords) = schema {
                strip(keywords);
            }
        }
    }
}
