//! What holds the values of a call to the schema of its function.
//!
//! A call is tags with raw text between them, so each value has a grammar of its own: the line that opens it, the value
//! as its type is written, and the line that closes it. Values of type string are whatever their schema lists, or any
//! text; a text that may be several things is read by the order of server.md 11.4, which no grammar can tell apart.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Constraint, Grammar};
use crate::chat::{Json, ParamType, Tool, Toolset};
use crate::server::Failure;

/// How many references are followed to find what a parameter is.
const MAX_REFERENCES: usize = 8;

/// What the schema of a text says that no constraint here holds a value to.
const UNHELD: [&str; 4] = ["format", "maxLength", "minLength", "pattern"];

/// What holds the values of calls to their schemas.
#[derive(Debug, Clone, Default)]
pub struct ValueForms {
    /// Constraints by function and parameter. A value without one may be any text.
    pub held: BTreeMap<(String, String), Constraint>,
    /// Some schema says more of a text than that it is one.
    pub is_partial: bool,
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
        for (function, schema) in tools.iter().filter_map(Tool::declaration) {
            if !strict.contains(&function) {
                continue;
            }
            let Some(Value::Object(params)) = schema.get("properties") else { continue };
            for (param, property) in params {
                let ty = types.param_type(&function, param);
                let about = |text: String| {
                    let text =
                        format!("parameter `{param}` of the strict function `{function}`: {text}");
                    Failure::invalid("tools", text)
                };
                match self.value(&schema, property, ty).map_err(about)? {
                    Some(form) => {
                        forms.held.entry((function.clone(), param.clone())).or_insert(form);
                    }
                    None => {
                        forms.is_partial |= UNHELD.iter().any(|key| property.get(key).is_some());
                    }
                }
            }
        }
        Ok(forms)
    }

    /// What holds the value of one parameter; `None` for any text.
    fn value(
        &self,
        root: &Value,
        property: &Value,
        ty: ParamType,
    ) -> Result<Option<Constraint>, String> {
        if let Some(texts) = listed(root, property, MAX_REFERENCES) {
            return self.texts(&texts).map(Some);
        }
        if ty == ParamType::ANY || ty.allows(ParamType::STRING) {
            return Ok(None);
        }
        // The property may refer to what stands beside it.
        let mut schema = Map::new();
        for definitions in ["$defs", "definitions"] {
            schema
                .extend(root.get(definitions).map(|value| (definitions.to_owned(), value.clone())));
        }
        schema.insert("allOf".to_owned(), Value::Array(vec![property.clone()]));
        let schema = Json::parse(&Value::Object(schema).to_string()).map_err(|e| e.to_string())?;
        self.json_value(&schema).map(Some)
    }
}

/// The texts of a value that can only be one of a few; `None` for any other.
fn listed(root: &Value, schema: &Value, references: usize) -> Option<Vec<String>> {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let target = root.pointer(reference.strip_prefix('#')?)?;
        return listed(root, target, references.checked_sub(1)?);
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return Some(values.iter().map(text_of).collect());
    }
    if let Some(value) = schema.get("const") {
        return Some(vec![text_of(value)]);
    }
    if let Some(choices) = schema.get("anyOf").and_then(Value::as_array) {
        let choices = choices.iter().map(|choice| listed(root, choice, references.checked_sub(1)?));
        return Some(choices.collect::<Option<Vec<_>>>()?.concat());
    }
    (schema.get("type").and_then(Value::as_str) == Some("null")).then(|| vec!["null".to_owned()])
}

/// A value as it is written between tags: strings as they are, everything else as JSON.
fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
