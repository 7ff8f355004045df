//! Values of calls of strict functions: raw text between tags.

use std::collections::BTreeSet;

use q36::chat::Tool;
use q36::server::grammar::ValueForms;
use q36::server::{Failure, FailureKind};

use super::grammar;
use crate::tokenizer::published;

const PARAMETERS: &str = r##"{"type":"object","$defs":{"unit":{"enum":["°C","°F","a\nb"]}},"properties":{
    "city":{"type":"string"},"days":{"type":"integer","minimum":1,"maximum":7},"unit":{"$ref":"#/$defs/unit"},
    "exact":{"type":"boolean"},"at":{"type":"array","items":{"type":"number"},"maxItems":2},
    "where":{"type":"object","properties":{"u":{"$ref":"#/$defs/unit"}},"required":["u"],"additionalProperties":false},
    "maybe":{"anyOf":[{"type":"string","enum":["x"]},{"type":"null"}]},"free":{},"text":{"type":["string","null"]}},
    "required":["city"]}"##;

fn forms(parameters: &str, strict: bool) -> Result<ValueForms, Failure> {
    let tool =
        format!(r#"{{"type":"function","function":{{"name":"f","parameters":{parameters}}}}}"#);
    let strict: BTreeSet<String> = strict.then(|| "f".to_owned()).into_iter().collect();
    grammar().values(&[Tool::parse(&tool).unwrap()], &strict)
}

#[test]
fn values_are_what_their_schema_says_and_end_with_their_tag() {
    let forms = forms(PARAMETERS, true).unwrap();
    let takes = |param: &str, value: &str| {
        let mut form = forms.held[&("f".to_owned(), param.to_owned())].clone();
        let text = format!("\n{value}\n</parameter>");
        let takes = form.accept_all(&published().encode_text(text.as_bytes()));
        takes && form.is_over()
    };
    for (param, value) in [
        ("days", "7"),
        ("unit", "°C"),
        ("unit", "a\nb"),
        ("exact", "true"),
        ("at", "[1.5, -2e3]"),
        ("at", "[\n  1\n]"),
        ("where", r#"{"u": "°F"}"#),
        ("maybe", "x"),
        ("maybe", "null"),
    ] {
        assert!(takes(param, value), "{param}: {value}");
    }
    for (param, value) in [
        ("days", "8"),
        ("days", "\"7\""),
        ("days", ""),
        ("unit", "K"),
        ("unit", "\"°C\""),
        ("unit", "a"),
        ("exact", "yes"),
        ("at", "[1,2,3]"),
        ("where", "{}"),
        ("maybe", "y"),
    ] {
        assert!(!takes(param, value), "{param}: {value}");
    }
    let held: Vec<&str> = forms.held.keys().map(|(_, param)| param.as_str()).collect();
    assert_eq!(held, ["at", "days", "exact", "maybe", "unit", "where"], "others are any text");
}

#[test]
fn only_strict_functions_are_held_to_their_schema() {
    assert!(forms(PARAMETERS, false).unwrap().held.is_empty());
    let odd = r#"{"properties":{"n":{"type":"array","uniqueItems":true}}}"#;
    assert!(forms(odd, false).unwrap().held.is_empty());
    let long = r#"{"properties":{"s":{"type":"string","maxLength":3}}}"#;
    assert!(forms(long, true).unwrap().is_partial && !forms(PARAMETERS, true).unwrap().is_partial);
    let failure = forms(odd, true).unwrap_err();
    assert_eq!((failure.kind, failure.param.as_deref()), (FailureKind::Invalid, Some("tools")));
    let expected = "parameter `n` of the strict function `f`: `uniqueItems` at `#/allOf/0` of the schema is not supported";
    assert_eq!(failure.message, expected);
}
