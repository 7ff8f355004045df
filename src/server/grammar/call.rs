//! What holds the values of a call to the schema of its function.
//!
//! A call is tags with raw text between them, so each value has a grammar of its own: the line that opens it, the value
//! as its type is written, and the line that closes it. A text that may be several things is read by the order of
//! server.md 11.4: what holds it is made so that it is read as what its schema let through.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::pattern::quoted;
use super::schema::{self, Root};
use super::{Constraint, Grammar, text};
use crate::chat::{ParamType, Tool, Toolset, convert};
use crate::server::Failure;

/// How many references and alternatives are followed, one inside the other, to find what a parameter is.
const MAX_DEPTH: usize = 8;

/// Keywords of a function's schema that are kept by which parameters a call may have, and which it must.
const KEPT: [&str; 4] = ["additionalProperties", "properties", "required", "type"];

/// Longest name that can stand in a tag, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// What types are called in schemas.
const TYPES: [(ParamType, &str); 7] = [
    (ParamType::STRING, "string"),
    (ParamType::INTEGER, "integer"),
    (ParamType::NUMBER, "number"),
    (ParamType::BOOLEAN, "boolean"),
    (ParamType::ARRAY, "array"),
    (ParamType::OBJECT, "object"),
    (ParamType::NULL, "null"),
];

/// What holds the values of calls to their schemas.
#[derive(Debug, Clone, Default)]
pub struct ValueForms {
    /// Constraints by function and parameter. A value without one may be any text.
    pub held: BTreeMap<(String, String), Constraint>,
}

impl Grammar {
    /// What holds values of the functions named in `strict` to their schemas. Takes as long as the schemas are large:
    /// not for the engine's thread.
    ///
    /// # Errors
    /// [`FailureKind::Invalid`](crate::server::FailureKind::Invalid) that names the function, the parameter and what of
    /// its schema cannot be enforced.
    pub fn values(&self, tools: &[Tool], strict: &BTreeSet<String>) -> Result<ValueForms, Failure> {
        let types = Toolset::new(tools);
        let mut forms = ValueForms::default();
        let mut seen = BTreeSet::new();
        for (function, schema) in tools.iter().filter_map(Tool::declaration) {
            // Of two functions with the same name the first counts.
            if !strict.contains(&function) || !seen.insert(function.clone()) {
                continue;
            }
            let refused = |text: String| Failure::invalid("tools", text);
            check_function(&schema)
                .map_err(|text| refused(format!("the strict function `{function}`: {text}")))?;
            let Some(Value::Object(params)) = schema.get("properties") else { continue };
            for param in params.keys() {
                let ty = types.param_type(&function, param);
                let form = self.parameter(&schema, param, ty).map_err(|text| {
                    refused(format!(
                        "parameter `{param}` of the strict function `{function}`: {text}"
                    ))
                })?;
                let name = (function.clone(), param.clone());
                forms.held.extend(form.map(|form| (name, form)));
            }
        }
        Ok(forms)
    }

    /// What holds the value of one parameter; `None` for any text.
    fn parameter(
        &self,
        root: &Value,
        name: &str,
        ty: ParamType,
    ) -> Result<Option<Constraint>, String> {
        check_name(name)?;
        let property = &root["properties"][name];
        let json = schema::property(root, name, &names(ty))?;
        let reader = Root::new(root);
        if let Some(values) = listed(&reader, property, MAX_DEPTH) {
            return self.value(None, Some(&literals(&values, ty)?)).map(Some);
        }
        let has_text = ty == ParamType::ANY || ty.allows(ParamType::STRING);
        if has_text && is_free(&reader, property, MAX_DEPTH) {
            return Ok(None);
        }
        // Of what is not known, only JSON is surely read as what it is.
        if !ty.allows(ParamType::STRING) {
            return self.value(Some(json), None).map(Some);
        }
        let text = text::expression(&reader, property, ty)?;
        let nested: Vec<&str> =
            names(ty).into_iter().filter(|name| ["array", "object"].contains(name)).collect();
        let nested = (!nested.is_empty()).then(|| schema::property(root, name, &nested));
        self.value(nested.transpose()?, Some(&text)).map(Some)
    }
}

/// The names of types; none where nothing is known.
fn names(ty: ParamType) -> Vec<&'static str> {
    TYPES.iter().filter(|(one, _)| ty.allows(*one)).map(|(_, name)| *name).collect()
}

/// A call has parameters, each by its own schema: nothing else can be said of it.
fn check_function(schema: &Value) -> Result<(), String> {
    let Value::Object(keywords) = schema else { return Ok(()) };
    let unknown = |key: &&String| schema::is_rule(key) && !KEPT.contains(&key.as_str());
    if let Some(keyword) = keywords.keys().find(unknown) {
        return Err(format!("`{keyword}` at `#` of its schema is not supported"));
    }
    if keywords.get("type").is_some_and(|ty| ty != "object") {
        return Err("`type` at `#` of its schema must be `object`".to_owned());
    }
    let properties = keywords.get("properties").unwrap_or(&Value::Null);
    if !properties.is_object() && !properties.is_null() {
        return Err("`properties` at `#` of its schema has a value of the wrong kind".to_owned());
    }
    let required = keywords.get("required").and_then(Value::as_array);
    let mut required = required.into_iter().flatten().filter_map(Value::as_str);
    match required.find(|name| properties.get(name).is_none()) {
        Some(name) => Err(format!("it requires `{name}`, which is not among its properties")),
        None => Ok(()),
    }
}

/// Whether a name is read from its tag as it was written there.
fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| !c.is_control() && !matches!(c, '<' | '>');
    let fits = !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.chars().all(is_plain);
    if fits && name.trim() == name && !name.starts_with(['"', '\'']) {
        return Ok(());
    }
    Err(format!(
        "its name cannot stand in the tag of a call: at most {MAX_NAME_BYTES} bytes without angle brackets, control \
         characters, and quotes or white space around them"
    ))
}

/// Whether any text that is written for a schema obeys it: it says no more than which types there are.
fn is_free(root: &Root<'_>, schema: &Value, depth: usize) -> bool {
    let Value::Object(keywords) = schema else { return schema == &Value::Bool(true) };
    let Some(depth) = depth.checked_sub(1).filter(|_| root.look()) else { return false };
    keywords.iter().filter(|(keyword, _)| schema::is_rule(keyword)).all(|(keyword, rule)| {
        match (keyword.as_str(), rule) {
            ("type", _) => true,
            ("anyOf", Value::Array(all)) => all.iter().all(|one| is_free(root, one, depth)),
            ("$ref", _) => root.target(rule).is_some_and(|one| is_free(root, one, depth)),
            _ => false,
        }
    })
}

/// What a value can be, where its schema does nothing but list that; `None` for any other.
fn listed(root: &Root<'_>, schema: &Value, depth: usize) -> Option<Vec<Value>> {
    let depth = depth.checked_sub(1).filter(|_| root.look())?;
    let keywords = schema.as_object()?;
    let rules = keywords.iter().filter(|(keyword, _)| schema::is_rule(keyword));
    let mut rules: BTreeMap<&str, &Value> = rules.map(|(key, rule)| (key.as_str(), rule)).collect();
    let ty = rules.remove("type");
    let values = match (rules.pop_first(), ty) {
        (Some(("$ref", place)), None) => listed(root, root.target(place)?, depth)?,
        (Some(("enum", Value::Array(values))), _) => values.clone(),
        (Some(("const", value)), _) => vec![value.clone()],
        (Some(("anyOf", Value::Array(choices))), None) => {
            let all = choices.iter().map(|choice| listed(root, choice, depth));
            all.collect::<Option<Vec<_>>>()?.concat()
        }
        (None, Some(ty)) if ty == "null" => vec![Value::Null],
        _ => return None,
    };
    let fits = |value: &Value| ty.is_none_or(|ty| text::is_of_type(ty, value));
    rules.is_empty().then(|| values.into_iter().filter(fits).collect())
}

/// These values as they are written: strings as they are, everything else as JSON.
fn literals(values: &[Value], ty: ParamType) -> Result<String, String> {
    let mut all = Vec::new();
    for value in values {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let read: Value =
            serde_json::from_str(convert::value(&text, ty).text()).unwrap_or_default();
        let same = read == *value || value.is_number() && read.as_f64() == value.as_f64();
        if !same || text::is_tagged(&text) {
            return Err(format!(
                "its value {value} is not supported: between tags it reads as something else"
            ));
        }
        all.push(quoted(&text));
    }
    match all[..] {
        [] => Err("nothing is among its values".to_owned()),
        _ => Ok(all.join(" | ")),
    }
}
