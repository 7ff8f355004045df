//! Walks through constraints, and what is allowed on the way.

use std::time::{Duration, Instant};

use q36::server::grammar::Grammar;
use q36::tokenizer::{TokenId, TokenMask};
use q36::util::rng::Rng;
use serde_json::Value;

use super::walk::{Closing, byte, ids, one_of, wander};
use super::{any_object, by_schema, validator};
use crate::tokenizer::published;

/// Schemas that a grammar can hold a text to, each with something of its own, one a line.
const CORPUS: &str = include_str!("schemas.jsonl");

/// One of them, by its line.
fn schema(line: usize) -> &'static str {
    CORPUS.lines().nth(line).unwrap()
}

#[test]
fn every_text_that_masks_lead_to_obeys_its_schema() {
    let mut rng = Rng::new(36);
    let (mut walks, mut ended) = (0, 0);
    for schema in CORPUS.lines() {
        let parsed: Value = serde_json::from_str(schema).unwrap();
        let validator = validator(&parsed);
        for wild in [0, 1, 2, 5, 20, 60] {
            walks += 1;
            let constraint = by_schema(schema).unwrap_or_else(|e| panic!("{schema}: {e}"));
            let Some(text) = wander(constraint, &mut rng, wild, Closing::Json) else { continue };
            ended += 1;
            let value: Value = match serde_json::from_str(&text) {
                Ok(value) => value,
                // JSON knows no largest number; this reader does.
                Err(error) if error.to_string().contains("number out of range") => continue,
                Err(error) => panic!("{error}: {schema} led to {text}"),
            };
            let complaint = validator.validate(&value).err().map(|error| error.to_string());
            assert_eq!(complaint, None, "{schema} led to {text}");
        }
    }
    assert!(ended * 100 >= walks * 98, "only {ended} of {walks} came to an end");
}

#[test]
fn every_object_is_an_object() {
    let mut rng = Rng::new(7);
    for wild in (0..40).map(|n| n * 4) {
        let text = wander(any_object(), &mut rng, wild, Closing::Json).expect("an end");
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert!(value.is_object(), "{text}");
    }
}

/// The mask says of each token what the grammar says of its bytes, one after the other.
#[test]
fn masks_allow_exactly_the_tokens_whose_bytes_the_grammar_takes() {
    let mut rng = Rng::new(2);
    let prefixes = [
        (schema(0), ""),
        (schema(0), "{"),
        (schema(0), r#"{"name": "#),
        (schema(0), r#"{"name": "Zo\u00e"#),
        (schema(0), r#"{"name": "Zo\"#),
        (schema(0), r#"{"name":"J","age":1"#),
        (schema(1), r#"{"b":null,"extra":[1,{"x":""#),
        (schema(2), "\"gr"),
        (schema(3), "[-3,1"),
        (schema(6), "\"ab-"),
        (schema(7), "{\n  \"key\":\""),
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
    let mut constraint = by_schema(schema(0)).unwrap();
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
