//! Whether a value obeys a schema: the keywords that tests use, by their definitions.

use fancy_regex::Regex;
use serde_json::Value;

/// Whether `value` obeys `schema`, a part of `root`.
pub(crate) fn obeys(root: &Value, schema: &Value, value: &Value) -> bool {
    let Some(keywords) = schema.as_object() else { return schema == &Value::Bool(true) };
    keywords.iter().all(|(keyword, rule)| holds(root, schema, (keyword, rule), value))
}

fn holds(root: &Value, schema: &Value, (keyword, rule): (&str, &Value), value: &Value) -> bool {
    let below = |rule: &Value, value: &Value| obeys(root, rule, value);
    let number = |v: &Value| v.as_f64().unwrap();
    let count = |n: usize| n as f64;
    match (keyword, value) {
        ("type", _) => match rule.as_array() {
            Some(names) => names.iter().any(|name| is(name, value)),
            None => is(rule, value),
        },
        ("enum", _) => rule.as_array().unwrap().contains(value),
        ("const", _) => rule == value,
        ("$ref", _) => {
            let place = rule.as_str().unwrap().strip_prefix('#').unwrap();
            below(root.pointer(place).unwrap(), value)
        }
        ("anyOf", _) => rule.as_array().unwrap().iter().any(|rule| below(rule, value)),
        ("required", Value::Object(object)) => {
            rule.as_array().unwrap().iter().all(|name| object.contains_key(name.as_str().unwrap()))
        }
        ("properties", Value::Object(object)) => rule
            .as_object()
            .unwrap()
            .iter()
            .all(|(name, rule)| object.get(name).is_none_or(|value| below(rule, value))),
        ("additionalProperties", Value::Object(object)) => {
            let named =
                |name: &str| schema.get("properties").is_some_and(|p| p.get(name).is_some());
            object.iter().all(|(name, value)| named(name) || below(rule, value))
        }
        ("minProperties", Value::Object(object)) => count(object.len()) >= number(rule),
        ("maxProperties", Value::Object(object)) => count(object.len()) <= number(rule),
        ("prefixItems", Value::Array(items)) => {
            rule.as_array().unwrap().iter().zip(items).all(|(rule, item)| below(rule, item))
        }
        ("items", Value::Array(items)) => {
            let first = schema.get("prefixItems").map_or(0, |p| p.as_array().unwrap().len());
            items.iter().skip(first).all(|item| below(rule, item))
        }
        ("minItems", Value::Array(items)) => count(items.len()) >= number(rule),
        ("maxItems", Value::Array(items)) => count(items.len()) <= number(rule),
        ("minLength", Value::String(text)) => count(text.chars().count()) >= number(rule),
        ("maxLength", Value::String(text)) => count(text.chars().count()) <= number(rule),
        ("pattern", Value::String(text)) => {
            Regex::new(rule.as_str().unwrap()).unwrap().is_match(text).unwrap()
        }
        ("minimum", Value::Number(_)) => number(value) >= number(rule),
        ("maximum", Value::Number(_)) => number(value) <= number(rule),
        ("exclusiveMinimum", Value::Number(_)) => number(value) > number(rule),
        ("multipleOf", Value::Number(_)) => (number(value) / number(rule)).fract().abs() < 1e-9,
        ("$defs" | "title" | "description", _) => true,
        (known, _) => {
            let others = [
                "required",
                "properties",
                "additionalProperties",
                "minProperties",
                "maxProperties",
                "prefixItems",
                "items",
                "minItems",
                "maxItems",
                "minLength",
                "maxLength",
                "pattern",
                "minimum",
                "maximum",
                "exclusiveMinimum",
                "multipleOf",
            ];
            assert!(others.contains(&known), "`{known}` is not known here");
            true
        }
    }
}

fn is(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|n| n.fract() == 0.0),
        other => panic!("no such type: {other}"),
    }
}
