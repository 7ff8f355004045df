//! Schemas that are refused.

use q36::server::FailureKind;

use super::by_schema;

/// The message for a schema that cannot be enforced.
fn refused(schema: &str) -> String {
    let Err(failure) = by_schema(schema) else { panic!("{schema} is enforced") };
    assert_eq!(failure.kind, FailureKind::Invalid, "{schema}");
    failure.message
}

#[test]
fn what_is_not_supported_is_named_with_its_place() {
    let keywords = [
        ("not", r#"{"type":"null"}"#),
        ("if", "{}"),
        ("then", "{}"),
        ("else", "{}"),
        ("contains", "{}"),
        ("minContains", "1"),
        ("maxContains", "1"),
        ("uniqueItems", "true"),
        ("propertyNames", "{}"),
        ("dependencies", "{}"),
        ("dependentRequired", "{}"),
        ("dependentSchemas", "{}"),
        ("unevaluatedItems", "false"),
        ("unevaluatedProperties", "false"),
        ("contentSchema", "{}"),
        ("$dynamicRef", "\"#x\""),
        ("$recursiveRef", "\"#\""),
        ("x-guidance", "{}"),
    ];
    for (keyword, value) in keywords {
        let inner = format!(r#"{{"{keyword}":{value}}}"#);
        for (schema, place) in [
            (inner.clone(), "#"),
            (format!(r#"{{"properties":{{"a/b":{inner}}}}}"#), "#/properties/a~1b"),
            (format!(r#"{{"items":{{"anyOf":[{{}},{inner}]}}}}"#), "#/items/anyOf/1"),
            (format!(r##"{{"$ref":"#/$defs/d","$defs":{{"d":{inner}}}}}"##), "#/$defs/d"),
        ] {
            let expected = format!("`{keyword}` at `{place}` of the schema is not supported");
            assert_eq!(refused(&schema), expected);
        }
    }
}

#[test]
fn values_that_cannot_be_enforced_are_named_too() {
    let check = |schema: &str, begin: &str| {
        let message = refused(schema);
        assert!(message.starts_with(begin), "{schema}: {message}");
    };
    check(
        r#"{"properties":{"a":{"format":"idn-email"}}}"#,
        "`format` `idn-email` at `#/properties/a` of the schema is not supported: it can be date,",
    );
    check(
        r#"{"oneOf":[{"type":"integer"},{"type":"number"}]}"#,
        "`oneOf` at `#` of the schema is not supported where alternatives may overlap; use `anyOf`",
    );
    check(
        r#"{"$ref":"https://example.com/schema"}"#,
        "`$ref` `https://example.com/schema` at `#` of the schema is not supported",
    );
    check(r##"{"$ref":"#/$defs/none"}"##, "`$ref` `#/$defs/none` at `#`");
    check(
        r#"{"properties":{"p":{"type":"string","pattern":"a(?=b)"}}}"#,
        "`pattern` `a(?=b)` at `#/properties/p` of the schema is not supported: ",
    );
    check(
        r#"{"type":"array","minItems":1000000}"#,
        "`minItems` at `#` of the schema is too large: at most 100000",
    );
    check(
        r#"{"type":"integer","minimum":1e19}"#,
        "`minimum` at `#` of the schema is too large: at most 1000000000000000000",
    );
    check(
        r#"{"multipleOf":1000003}"#,
        "`multipleOf` `1000003` at `#` of the schema is not supported",
    );
    check(r#"{"multipleOf":0}"#, "`multipleOf` at `#` of the schema has a value of the wrong kind");
    check(
        r#"{"properties":[]}"#,
        "`properties` at `#` of the schema has a value of the wrong kind",
    );
    check(r#"{"items":3}"#, "a schema must be an object or a boolean, found a number at `#/items`");
    check(r#"{"type":"text"}"#, "the schema cannot be enforced: ");
    check("false", "nothing satisfies the schema `false`");
    check(
        r#"{"type":"object","properties":{"a":false},"required":["a"]}"#,
        "the schema cannot be enforced: ",
    );
}

#[test]
fn what_restricts_nothing_is_ignored() {
    for schema in [
        "true",
        "{}",
        r#"{"type":"array","uniqueItems":false}"#,
        r#"{"type":"integer","format":"int64"}"#,
        r#"{"title":"t","description":"d","default":1,"examples":[1],"deprecated":true,"nullable":true}"#,
        // Names and constants that look like keywords.
        r#"{"properties":{"not":{"type":"string"},"uniqueItems":{"const":{"not":1}}}}"#,
        // Nothing refers to it.
        r#"{"$defs":{"unused":{"not":{}}}}"#,
    ] {
        if let Err(failure) = by_schema(schema) {
            panic!("{schema}: {failure}");
        }
    }
}

#[test]
fn schemas_are_limited_in_size_and_no_shape_overflows_the_stack() {
    let many = |n: usize| -> String {
        let names: Vec<String> =
            (0..n).map(|i| format!("\"p{i}\":{{\"type\":\"null\"}}")).collect();
        format!("{{\"properties\":{{{}}}}}", names.join(","))
    };
    by_schema(&many(4000)).unwrap();
    assert!(refused(&many(6000)).contains("at most 5000"));
    assert!(refused(&format!("{{\"title\":\"{}\"}}", "x".repeat(300_000))).contains("too large"));
    let chain = |n: usize| -> String {
        let links: Vec<String> = (0..n)
            .map(|i| format!("\"d{i}\":{{\"items\":{{\"$ref\":\"#/$defs/d{}\"}}}}", (i + 1) % n))
            .collect();
        format!("{{\"$defs\":{{{}}},\"$ref\":\"#/$defs/d0\"}}", links.join(","))
    };
    by_schema(&chain(600)).unwrap();
    assert!(refused(&chain(3000)).contains("too deep"));
    let deep = format!("{}{}", "{\"items\":".repeat(120), "{}") + &"}".repeat(120);
    by_schema(&deep).unwrap();
}
