//! Values of calls of strict functions: raw text between tags.

use std::collections::BTreeSet;

use q36::chat::{End, Reader, ReaderOptions, Source, Tool, Toolset};
use q36::server::grammar::ValueForms;
use q36::server::{Failure, FailureKind};
use q36::util::rng::Rng;
use serde_json::Value;

use super::walk::{Closing, VALUE_END, wander};
use super::{grammar, validator};
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
    let failure = forms(odd, true).unwrap_err();
    assert_eq!((failure.kind, failure.param.as_deref()), (FailureKind::Invalid, Some("tools")));
    let expected = "parameter `n` of the strict function `f`: `uniqueItems` at `#/properties/n` of the schema is not supported";
    assert_eq!(failure.message, expected);
}

/// Schemas of one parameter, most of them of texts.
const PARAMETER: [&str; 43] = [
    r#"{"type":"string"}"#,
    r#"{"type":"string","minLength":1}"#,
    r#"{"type":"string","maxLength":4}"#,
    r#"{"type":"string","minLength":2,"maxLength":3}"#,
    r#"{"type":"string","minLength":30,"maxLength":40}"#,
    r#"{"type":"string","maxLength":0}"#,
    r#"{"type":"string","pattern":"^[a-z]+$"}"#,
    r#"{"type":"string","pattern":"^[A-Z]{2}[0-9]{4}$"}"#,
    r#"{"type":"string","pattern":"^https?://","maxLength":30}"#,
    r#"{"type":"string","pattern":"\\.rs$","minLength":5,"maxLength":12}"#,
    r#"{"type":"string","pattern":"^(a|b)$|^c+$"}"#,
    r#"{"type":"string","pattern":"^[^<>\\n]*$"}"#,
    r#"{"type":"string","pattern":"^#[0-9a-f]{6}$"}"#,
    r#"{"type":"string","pattern":"^\\d+(\\.\\d+)?$"}"#,
    r#"{"type":"string","format":"date"}"#,
    r#"{"type":"string","format":"date-time"}"#,
    r#"{"type":"string","format":"email"}"#,
    r#"{"type":"string","format":"uuid"}"#,
    r#"{"type":"string","format":"ipv6"}"#,
    r#"{"type":"string","format":"uri","maxLength":40}"#,
    r#"{"type":"string","enum":["a","b b","c\nd",""]}"#,
    r#"{"type":"string","enum":["ab","abc","x"],"minLength":2}"#,
    r#"{"type":"string","const":"5"}"#,
    r#"{"allOf":[{"type":"string","minLength":2},{"pattern":"^[ab]*$"}]}"#,
    r#"{"anyOf":[{"type":"string","maxLength":2},{"type":"string","pattern":"^long"}]}"#,
    r#"{"oneOf":[{"type":"string","pattern":"^a"},{"type":"string","maxLength":3}]}"#,
    r##"{"$ref":"#/$defs/id"}"##,
    r#"{"type":["string","null"],"maxLength":5}"#,
    r#"{"type":["string","null"],"enum":["x","null me",null]}"#,
    r#"{"anyOf":[{"type":"string","pattern":"^[a-z]+$"},{"type":"null"}]}"#,
    r#"{"type":["string","boolean"],"minLength":3,"maxLength":6}"#,
    r#"{"type":["string","integer"],"maxLength":3}"#,
    r#"{"type":["string","array"],"maxLength":6,"items":{"type":"integer"},"maxItems":3}"#,
    r#"{"anyOf":[{"type":"string","maxLength":8},{"type":"object","properties":{"k":{"type":"boolean"}},"required":["k"],"additionalProperties":false}]}"#,
    r#"{"type":["string","object","null"],"minLength":1,"properties":{"k":{"const":1}},"additionalProperties":false}"#,
    r#"{"type":"integer","minimum":5,"maximum":20}"#,
    r#"{"type":"number","minimum":0,"maximum":1}"#,
    r#"{"type":"array","items":{"type":"string","pattern":"^[a-z]{1,3}$"},"maxItems":3}"#,
    r#"{"type":"object","properties":{"d":{"type":"string","format":"date"}},"required":["d"],"additionalProperties":false}"#,
    r#"{"minLength":3,"maxLength":9}"#,
    r#"{"enum":["a",1,null,true,[1,"x"]]}"#,
    "{}",
    r#"{"type":["integer","null"],"minimum":1,"maximum":3}"#,
];

/// The function's schema with one parameter.
fn parameters(property: &str) -> String {
    format!(
        r#"{{"type":"object","properties":{{"p":{property}}},"required":["p"],"additionalProperties":false,
            "$defs":{{"id":{{"type":"string","pattern":"^id-[0-9]+$","maxLength":9}}}}}}"#
    )
}

/// What a call with this text as its only value is read as.
fn read(parameters: &str, value: &str) -> Value {
    let tool =
        format!(r#"{{"type":"function","function":{{"name":"f","parameters":{parameters}}}}}"#);
    let tools = Some(Toolset::new(&[Tool::parse(&tool).unwrap()]));
    let options = ReaderOptions { source: Source::Text, thinking: false, tools };
    let mut reader = Reader::new(options);
    let call =
        format!("<tool_call>\n<function=f>\n<parameter=p>{value}\n</function>\n</tool_call>");
    reader.bytes(call.as_bytes());
    let (_, reply) = reader.finish(End::Turn);
    assert_eq!((reply.calls.len(), reply.repairs.len()), (1, 0), "{call}");
    serde_json::to_value(&reply.calls[0].arguments).unwrap()
}

#[test]
fn every_value_that_masks_lead_to_is_read_as_what_its_schema_allows() {
    let mut rng = Rng::new(11);
    let (mut walks, mut ended) = (0, 0);
    for property in PARAMETER {
        let parameters = parameters(property);
        let schema: Value = serde_json::from_str(&parameters).unwrap();
        let validator = validator(&schema);
        let forms = forms(&parameters, true).unwrap_or_else(|e| panic!("{property}: {e}"));
        let Some(form) = forms.held.get(&("f".to_owned(), "p".to_owned())) else {
            assert!([r#"{"type":"string"}"#, "{}"].contains(&property), "{property}");
            continue;
        };
        for wild in [0, 1, 2, 3, 5, 20, 60] {
            walks += 1;
            let Some(text) = wander(form.clone(), &mut rng, wild, Closing::Value) else { continue };
            ended += 1;
            let arguments = read(&parameters, &text);
            let complaint = validator.validate(&arguments).err().map(|error| error.to_string());
            assert_eq!(complaint, None, "{property} led to {text}");
        }
    }
    assert!(ended * 100 >= walks * 95, "only {ended} of {walks} came to an end");
}

#[test]
fn texts_are_taken_as_they_are() {
    let takes = |property: &str, value: &str| {
        let forms = forms(&parameters(property), true).unwrap();
        let mut form = forms.held[&("f".to_owned(), "p".to_owned())].clone();
        let text = format!("\n{value}{VALUE_END}");
        form.accept_all(&published().encode_text(text.as_bytes())) && form.is_over()
    };
    let check = |property: &str, good: &[&str], bad: &[&str]| {
        for (values, expected) in [(good, true), (bad, false)] {
            for value in values {
                assert_eq!(takes(property, value), expected, "{property}: {value}");
            }
        }
    };
    check(
        r#"{"type":"string","minLength":2,"maxLength":4}"#,
        &["ab", "日本語🦊", "a\n", "\n\n\n\n", "<b>", "\"a\""],
        &["a", "abcde", ""],
    );
    check(
        r#"{"type":"string","minLength":1}"#,
        &["if a < b { </param> }", "line\n\nline\n", "  x"],
        &["", "a\n</parameter>\nb", "</function>", "<parameter=x>", "see <tool_call>"],
    );
    check(r#"{"type":"string","pattern":"b/c"}"#, &["ab/cd", "b/c", "\nb/c\n"], &["b\\/c", "b"]);
    check(r#"{"type":["string","null"],"maxLength":4}"#, &["null", "nil", ""], &[" null", "nulls"]);
    check(
        r#"{"type":["string","integer"],"maxLength":3}"#,
        &["abc", "5", "12345", "-7"],
        &["abcd", "05", " 5", "5.5"],
    );
    check(
        r#"{"anyOf":[{"type":"string","maxLength":3},{"type":"array","items":{"type":"null"}}]}"#,
        &["abc", "[null, null]", "[]", "{a"],
        &["[1]", "[a", " []", "abcd"],
    );
}

#[test]
fn what_no_text_can_be_held_to_is_refused_by_name() {
    let check = |parameters: &str, expected: &str| {
        let failure = forms(parameters, true).unwrap_err();
        assert_eq!((failure.kind, failure.param.as_deref()), (FailureKind::Invalid, Some("tools")));
        assert!(failure.message.contains(expected), "{parameters}: {}", failure.message);
    };
    let of = |property: &str, expected: &str| check(&parameters(property), expected);
    of(r#"{"type":"string","format":"idn-email"}"#, "`format` `idn-email` at `#/properties/p`");
    of(r#"{"type":"string","pattern":"a(?=b)"}"#, "`pattern` `a(?=b)` at `#/properties/p`");
    of(r#"{"type":"string","pattern":"(^a|b)c"}"#, "`^` and `$` can only stand at the ends");
    of(r#"{"type":"string","enum":["a","</parameter>"]}"#, "reads as something else");
    of(r#"{"enum":["5",5]}"#, "its value \"5\" is not supported");
    of(r#"{"type":"string","enum":[1]}"#, "nothing is among its values");
    of(r#"{"type":"string","minLength":3,"maxLength":2}"#, "nothing satisfies");
    of(r#"{"type":"string","pattern":"^a","enum":["b"]}"#, "nothing satisfies");
    of(r#"{"type":["string","integer"],"minimum":3}"#, "`minimum` is not supported");
    of(r#"{"type":["string","integer"],"enum":["a",1],"minLength":1}"#, "`enum` beside other");
    of("false", "nothing satisfies the schema `false`");
    check(r#"{"properties":{"a b":{}},"anyOf":[{"required":["a b"]}]}"#, "`anyOf` at `#`");
    check(r#"{"properties":{"a":{}},"not":{}}"#, "`not` at `#`");
    check(r#"{"properties":{"a":{}},"minProperties":1}"#, "`minProperties` at `#`");
    check(r#"{"properties":{"a":{}},"required":["b"]}"#, "requires `b`, which is not among");
    check(r#"{"properties":{"a>b":{}}}"#, "its name cannot stand in the tag of a call");
    check(r#"{"properties":[]}"#, "a value of the wrong kind");
    check(r#"{"type":"array"}"#, "must be `object`");
}
