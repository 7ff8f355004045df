//! Schemas before they become grammars: what cannot be enforced is found here, by name and place.

use std::collections::BTreeSet;

use llguidance::derivre::{RegexAst, RegexBuilder};
use llguidance::regex_to_lark;
use serde_json::{Map, Value};

use crate::chat::Json;

/// Longest schema in bytes.
const MAX_BYTES: usize = 256 * 1024;

/// Largest number of items, properties or characters that a schema may name: beyond it a grammar only costs time.
const MAX_COUNT: u64 = 100_000;

/// Most properties of all objects of a schema together.
const MAX_PROPERTIES: usize = 5000;

/// Deepest nesting of a schema, those that it refers to one inside the other.
const MAX_DEPTH: usize = 2000;

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

/// Keywords that say nothing about a value, but that the grammar compiler would trip over.
const IGNORED: [&str; 2] = ["$dynamicAnchor", "$recursiveAnchor"];

/// Formats of strings that are enforced.
const FORMATS: [&str; 10] =
    ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"];

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
    let bytes = schema.text().len();
    if bytes > MAX_BYTES {
        return Err(format!("a schema of {bytes} bytes is too large: at most {MAX_BYTES}"));
    }
    let mut root: Value = serde_json::from_str(schema.text())
        .map_err(|error| format!("the schema cannot be read: {error}"))?;
    root = match root {
        Value::Bool(true) => Value::Object(Map::new()),
        Value::Bool(false) => return Err("nothing satisfies the schema `false`".to_owned()),
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            root
        }
    };
    let mut walk = Walk::new(&root);
    walk.all_schemas()?;
    let one_of = walk.one_of;
    if let Value::Object(keywords) = &mut root {
        strip(keywords);
    }
    Ok(Checked { schema: root, one_of })
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
}

impl<'a> Walk<'a> {
    fn new(root: &'a Value) -> Self {
        let seen = BTreeSet::new();
        let pending = vec![("#", root)];
        Self { root, seen, pending, one_of: None, properties: 0, depth: (0, 0), longest: 0 }
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
                let other = schema;
                let text = Json::parse(&other.to_string()).map_or("a value", |json| json.kind());
                return Err(format!(
                    "a schema must be an object or a boolean, found {text} at `{path}`"
                ));
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
                        pattern(name, &here())?;
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
                Some(text) => pattern(text, path),
                None => Err(wrong(keyword, path)),
            },
            "format" if may_be(keywords, "string") => match value.as_str() {
                Some(format) if FORMATS.contains(&format) => Ok(()),
                Some(format) => Err(format!(
                    "`format` `{format}` at `{path}` of the schema is not supported: it can be {}",
                    FORMATS.join(", ")
                )),
                None => Err(wrong(keyword, path)),
            },
            "minItems" | "maxItems" | "minProperties" | "maxProperties" | "minLength"
            | "maxLength" => match value.as_u64() {
                Some(count) if count > MAX_COUNT => Err(format!(
                    "`{keyword}` at `{path}` of the schema is too large: at most {MAX_COUNT}"
                )),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
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

fn pattern(text: &str, path: &str) -> Result<(), String> {
    let ast = RegexAst::SearchRegex(regex_to_lark(text, "dw"));
    match RegexBuilder::new().mk(&ast) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!(
            "`pattern` `{text}` at `{path}` of the schema is not supported: {}",
            error.to_string().lines().last().unwrap_or_default()
        )),
    }
}

/// Takes out what says nothing. Only keywords of schemas are touched, never names of properties or constants.
fn strip(keywords: &mut Map<String, Value>) {
    for keyword in IGNORED {
        keywords.remove(keyword);
    }
    if keywords.get("uniqueItems") == Some(&Value::Bool(false)) {
        keywords.remove("uniqueItems");
    }
    for (keyword, value) in keywords.iter_mut() {
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
