//! Walks through constraints.

use std::time::{Duration, Instant};

use q36::server::grammar::{Constraint, Grammar};
use q36::tokenizer::{TokenId, TokenMask};
use q36::util::rng::Rng;
use serde_json::Value;

use super::{any_object, by_schema};
use crate::support::schema::obeys;
use crate::tokenizer::published;

/// Schemas that a grammar can hold a text to, each with something of its own.
const SCHEMAS: [&str; 12] = [
    r#"{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name","age"],"additionalProperties":false}"#,
    r#"{"type":"object","properties":{"a":{"type":"number"},"b":{"type":["boolean","null"]}},"required":["b"]}"#,
    r#"{"enum":["red","grün","a\nb","\"quoted\"",3,null,{"deep":[1]}]}"#,
    r#"{"type":"array","items":{"type":"integer","minimum":-3,"maximum":12},"minItems":2,"maxItems":4}"#,
    r##"{"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}},"$ref":"#/$defs/node"}"##,
    r#"{"type":"string","minLength":3,"maxLength":5}"#,
    r#"{"type":"string","pattern":"^[a-f]{2}-[0-9]+$"}"#,
    r#"{"type":"object","additionalProperties":{"type":"string","enum":["x","y"]},"minProperties":1,"maxProperties":3}"#,
    r#"{"type":"array","prefixItems":[{"const":1},{"type":"string"}],"items":false,"minItems":2}"#,
    r#"{"anyOf":[{"type":"object","properties":{"kind":{"const":"a"},"n":{"type":"integer"}},"required":["kind","n"],"additionalProperties":false},{"type":"object","properties":{"kind":{"const":"b"}},"required":["kind"],"additionalProperties":false}]}"#,
    r#"{"type":"integer","exclusiveMinimum":0,"multipleOf":5}"#,
    r#"{"type":"object","properties":{"é\"k":{"type":"boolean"}},"required":["é\"k"],"additionalProperties":false,"title":"t","description":"d"}"#,
];

/// Single bytes in the order in which they bring most texts to their end.
const CLOSING: &[u8] = b"\"}]:,0";

fn byte(byte: u8) -> TokenId {
    let ids = published().encode_text(&[byte]);
    assert_eq!(ids.len(), 1);
    ids[0]
}

fn ids(mask: &TokenMask) -> Vec<TokenId> {
    (0..mask.len())
        .map(|row| TokenId(u32::try_from(row).unwrap()))
        .filter(|id| mask.contains(*id))
        .collect()
}

fn one_of<'a, T>(some: &'a [T], rng: &mut Rng) -> &'a T {
    &some[usize::try_from(rng.next_u64() % some.len() as u64).unwrap()]
}

/// A text of random tokens among those that were allowed; after `wild` of them those that end it are preferred.
fn wander(mut constraint: Constraint, rng: &mut Rng, wild: usize) -> Vec<u8> {
    let end = published().special().im_end;
    let mut text = Vec::new();
    for step in 0..4000 {
        let mask = constraint.mask().unwrap();
        assert_eq!(
            mask.contains(end),
            constraint.may_end(),
            "{:?}",
            String::from_utf8_lossy(&text)
        );
        if mask.contains(end) && (mask.count() == 1 || step >= wild) {
            return text;
        }
        let closing = CLOSING.iter().map(|&b| byte(b)).find(|&id| mask.contains(id));
        let id = closing.filter(|_| step >= wild).unwrap_or_else(|| {
            let mut allowed = ids(&mask);
            allowed.retain(|&id| id != end);
            *one_of(&allowed, rng)
        });
        assert!(!published().kind(id).is_added(), "a marker has no bytes");
        text.extend(published().bytes(id));
        constraint.accept(id).unwrap();
    }
    panic!("no end: {:?}", String::from_utf8_lossy(&text));
}

#[test]
fn every_text_that_masks_lead_to_obeys_its_schema() {
    let mut rng = Rng::new(36);
    for schema in SCHEMAS {
        let parsed: Value = serde_json::from_str(schema).unwrap();
        for wild in [0, 2, 5, 20, 60] {
            let text = wander(by_schema(schema).unwrap(), &mut rng, wild);
            let text = String::from_utf8(text).expect("UTF-8");
            let value: Value = serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("{error}: {schema} led to {text}"));
            assert!(obeys(&parsed, &parsed, &value), "{schema} led to {text}");
        }
    }
}

#[test]
fn every_object_is_an_object() {
    let mut rng = Rng::new(7);
    for wild in (0..40).map(|n| n * 4) {
        let text = String::from_utf8(wander(any_object(), &mut rng, wild)).expect("UTF-8");
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert!(value.is_object(), "{text}");
    }
}

/// The mask says of each token what the grammar says of its bytes, one after the other.
#[test]
fn masks_allow_exactly_the_tokens_whose_bytes_the_grammar_takes() {
    let mut rng = Rng::new(2);
    let prefixes = [
        (SCHEMAS[0], ""),
        (SCHEMAS[0], "{"),
        (SCHEMAS[0], r#"{"name": "#),
        (SCHEMAS[0], r#"{"name": "Zo\u00e"#),
        (SCHEMAS[0], r#"{"name": "Zo\"#),
        (SCHEMAS[0], r#"{"name":"J","age":1"#),
        (SCHEMAS[1], r#"{"b":null,"extra":[1,{"x":""#),
        (SCHEMAS[2], "\"gr"),
        (SCHEMAS[3], "[-3,1"),
        (SCHEMAS[6], "\"ab-"),
        (SCHEMAS[7], "{\n  \"key\":\""),
    ];
    for (schema, prefix) in prefixes {
        let mut constraint = by_schema(schema).unwrap();
        let taken: Vec<TokenId> = prefix.bytes().map(byte).collect();
        assert!(constraint.accept_all(&taken), "{prefix}");
        let mask = constraint.mask().unwrap();
        let allowed = ids(&mask);
        let check = |id: TokenId| {
            let bytes = published().bytes(id);
            let singly: Vec<TokenId> = bytes.iter().map(|&b| byte(b)).collect();
            let takes = constraint.clone().accept_all(&singly);
            assert_eq!(
                mask.contains(id),
                takes,
                "{:?} behind {prefix}",
                String::from_utf8_lossy(bytes)
            );
        };
        for _ in 0..150 {
            check(*one_of(&allowed, &mut rng));
            check(TokenId(u32::try_from(rng.next_u64() % 248_044).unwrap()));
        }
    }
}

#[test]
fn strings_go_on_across_tokens_whatever_is_in_them() {
    let schema = r#"{"type":"object","properties":{"s":{"type":"string"}},"required":["s"],"additionalProperties":false}"#;
    let long = "long ".repeat(3000);
    let texts = [
        "",
        "é",
        "日本語 🦊🦊",
        r#"back\\slash \"quote\" \n \u00e9 \ud83e\udd8a"#,
        "</tool_call> <|im_end|>",
        &long,
    ];
    for text in texts {
        let whole = format!("{{\"s\": \"{text}\"}}");
        // As the tokenizer has it, and byte by byte: both must be possible.
        let usual = published().encode_text(whole.as_bytes());
        let bytes: Vec<TokenId> = whole.bytes().map(byte).collect();
        for ids in [usual, bytes] {
            let mut constraint = by_schema(schema).unwrap();
            for (at, &id) in ids.iter().enumerate() {
                if ids.len() < 200 || at % 97 == 0 {
                    assert!(constraint.mask().unwrap().contains(id), "token {at} of {whole:.60}");
                }
                constraint.accept(id).unwrap();
            }
            assert!(constraint.may_end());
            let mask = constraint.mask().unwrap();
            assert_eq!(ids_of_end(&mask), mask.count(), "nothing may follow");
        }
    }
    for broken in ["\u{1}", r"\ud83e ", r"\x", "\n"] {
        let mut constraint = by_schema(schema).unwrap();
        let whole = format!("{{\"s\":\"{broken}\"}}");
        assert!(!constraint.accept_all(&whole.bytes().map(byte).collect::<Vec<_>>()), "{broken:?}");
    }
}

fn ids_of_end(mask: &TokenMask) -> usize {
    usize::from(mask.contains(published().special().im_end))
}

#[test]
fn values_nest_deeply() {
    let mut constraint = any_object();
    let (open, close) = ("{\"a\":[".repeat(200), "]}".repeat(200));
    for id in published().encode_text(format!("{open}{close}").as_bytes()) {
        assert!(constraint.mask().unwrap().contains(id));
        constraint.accept(id).unwrap();
    }
    assert!(constraint.may_end());
}

#[test]
fn white_space_ends() {
    for blank in [" ", "\n", "\t"] {
        let mut constraint = any_object();
        let most = format!("{{{}", blank.repeat(100));
        assert!(!constraint.accept_all(&most.bytes().map(byte).collect::<Vec<_>>()), "{blank:?}");
    }
    let mut constraint = any_object();
    let usual = "{\n  \"a\": 1,\n  \"b\": [\n    true\n  ]\n}";
    assert!(constraint.accept_all(&usual.bytes().map(byte).collect::<Vec<_>>()));
    assert!(constraint.may_end());
}

/// Generous: a debug build on a busy machine. What it takes in a release build is in the message.
#[test]
fn masks_are_quick() {
    let text = r#"{"name": "A longer text, with some words in it, and \"quotes\"", "age": 123456}"#;
    let started = Instant::now();
    Grammar::new(published()).unwrap();
    let read = started.elapsed();
    let started = Instant::now();
    let mut constraint = by_schema(SCHEMAS[0]).unwrap();
    let built = started.elapsed();
    let ids = published().encode_text(text.as_bytes());
    let mut slowest = Duration::ZERO;
    let started = Instant::now();
    for &id in &ids {
        let one = Instant::now();
        let mask = constraint.mask().unwrap();
        slowest = slowest.max(one.elapsed());
        assert!(mask.contains(id));
        constraint.accept(id).unwrap();
    }
    let mean = started.elapsed() / u32::try_from(ids.len()).unwrap();
    let told = format!(
        "vocabulary read in {read:?}, built in {built:?}; a mask takes {mean:?}, at most {slowest:?}"
    );
    println!("{told}");
    assert!(
        mean < Duration::from_millis(20)
            && built < Duration::from_secs(5)
            && read < Duration::from_mins(1),
        "{told}"
    );
}
