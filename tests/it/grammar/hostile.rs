//! Schemas made to cost as much as they can: each is answered soon and with bounded memory, one way or the other.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use q36::chat::{Json, Tool};
use q36::server::FailureKind;
use q36::server::grammar::Constraint;
use q36::util::rng::Rng;

use super::walk::{ids, one_of};
use super::{by_schema, grammar};
use crate::tokenizer::published;

/// For a schema to become a grammar, or to be refused, in a debug build on a busy machine. A release build takes a
/// tenth of it.
const SLOWEST: Duration = Duration::from_secs(30);

/// For one mask, as above.
const SLOWEST_MASK: Duration = Duration::from_secs(10);

/// Most memory that all of this may take at a time.
const LARGEST_BYTES: u64 = 2 << 30;

/// Tokens that are drawn from each schema that is no error.
const TOKENS: usize = 12;

fn list(n: usize, item: impl Fn(usize) -> String) -> String {
    (0..n).map(item).collect::<Vec<_>>().join(",")
}

/// A chain of definitions, each of which has the next one several times.
fn doubling(levels: usize, keyword: &str, times: usize) -> String {
    let level = |at: usize| {
        let next = format!("{{\"$ref\":\"#/$defs/d{}\"}}", at + 1);
        format!("\"d{at}\":{{\"{keyword}\":[{}]}}", list(times, |_| next.clone()))
    };
    format!(
        "{{\"$ref\":\"#/$defs/d0\",\"$defs\":{{{},\"d{levels}\":{{\"type\":\"string\",\"maxLength\":5}}}}}}",
        list(levels, level)
    )
}

/// Choices that all hold, each between two schemas.
fn product(factors: usize) -> String {
    let choice = |at: usize| {
        let one =
            |name: &str| format!("{{\"properties\":{{\"{name}{at}\":{{\"type\":\"null\"}}}}}}");
        format!("{{\"anyOf\":[{},{}]}}", one("a"), one("b"))
    };
    format!("{{\"type\":\"object\",\"allOf\":[{}]}}", list(factors, choice))
}

fn text(pattern: &str) -> String {
    format!("{{\"type\":\"string\",\"pattern\":{}}}", Json::string(pattern).text())
}

fn schemas() -> Vec<(&'static str, String)> {
    let texts = |n| list(n, |at| format!("\"value number {at}\""));
    let patterns = |n| list(n, |at| text(&format!("{at}.{{20}}")));
    let nested = |keyword: &str, n: usize| {
        let open = format!("{{\"type\":\"array\",\"{keyword}\":100000,\"items\":");
        format!("{}{{\"type\":\"null\"}}{}", open.repeat(n), "}".repeat(n))
    };
    vec![
        ("a long text", format!("{{\"description\":\"{}\"}}", "x".repeat(1 << 20))),
        ("many properties", format!("{{\"properties\":{{{}}}}}", list(30_000, |n| format!("\"property{n}\":{{}}")))),
        ("many values", format!("{{\"enum\":[{}]}}", texts(50_000))),
        ("some values", format!("{{\"enum\":[{}]}}", texts(8000))),
        ("many choices", format!("{{\"anyOf\":[{}]}}", list(4000, |n| format!("{{\"const\":{n}}}")))),
        ("many objects", format!("{{\"anyOf\":[{}]}}", list(2000, |n| format!("{{\"type\":\"object\",\"properties\":{{\"p{n}\":{{}}}},\"required\":[\"p{n}\"]}}")))),
        ("doubled allOf", doubling(30, "allOf", 2)),
        ("doubled anyOf", doubling(30, "anyOf", 2)),
        ("doubled oneOf", doubling(30, "oneOf", 2)),
        ("wide anyOf", doubling(8, "anyOf", 300)),
        ("a product", product(24)),
        ("repeats of repeats", text("((a{1000}){1000}){1000}")),
        ("a backtracker's end", text("^(a|aa)+$")),
        ("ambiguous parts", text("^(.*a){60}$")),
        ("a long way back", text("a.{2000}$")),
        ("long gaps", text("a.{0,50000}b.{0,50000}c.{0,50000}")),
        ("all of many patterns", format!("{{\"allOf\":[{}]}}", patterns(20))),
        ("one of many patterns", format!("{{\"anyOf\":[{}]}}", patterns(60))),
        ("a large class", text(r"^[\p{L}\p{N}\p{P}]{1,1000}$")),
        ("a long pattern", text(&"(a|b)*c?".repeat(2000))),
        ("nested groups", text(&format!("{}a{}", "(".repeat(5000), ")*".repeat(5000)))),
        ("itself", r##"{"$ref":"#"}"##.to_owned()),
        ("itself by turns", r##"{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}"##.to_owned()),
        ("itself and more", r##"{"allOf":[{"$ref":"#"},{"type":"string"}]}"##.to_owned()),
        ("itself or itself", r##"{"anyOf":[{"$ref":"#"},{"$ref":"#"}]}"##.to_owned()),
        ("without end", r##"{"type":"object","properties":{"s":{"$ref":"#"}},"required":["s"]}"##.to_owned()),
        ("a list without end", r##"{"type":"array","items":{"$ref":"#"},"minItems":1}"##.to_owned()),
        ("long lists of long lists", nested("minItems", 5)),
        ("at most long lists", nested("maxItems", 5)),
        ("many of any name", r#"{"type":"object","minProperties":100000}"#.to_owned()),
        ("a long text at least", r#"{"type":"string","minLength":100000}"#.to_owned()),
        ("large numbers", r#"{"type":"number","minimum":1e300,"maximum":1e308}"#.to_owned()),
        ("larger whole numbers", r#"{"type":"integer","minimum":-1e30,"maximum":99999999999999999999999}"#.to_owned()),
        ("many digits", r#"{"type":"number","multipleOf":0.000000001,"minimum":0.123456789,"maximum":987654321.123}"#.to_owned()),
        ("multiples of nothing", r#"{"type":"number","multipleOf":0}"#.to_owned()),
        (
            "multiples of all",
            r#"{"type":"integer","allOf":[{"multipleOf":9973},{"multipleOf":9967},{"multipleOf":8}]}"#.to_owned(),
        ),
        ("decimal multiples", r#"{"type":"number","multipleOf":0.07}"#.to_owned()),
        ("fine multiples", r#"{"type":"number","multipleOf":0.000001}"#.to_owned()),
        ("common multiples", r#"{"type":"number","multipleOf":50000}"#.to_owned()),
        ("many digits of bounds", r#"{"type":"number","minimum":0.123456789123,"maximum":987654321.123456789}"#.to_owned()),
        ("rare multiples", r#"{"type":"integer","multipleOf":1000003}"#.to_owned()),
    ]
}

/// The most memory that this process has had so far; 0 where nobody tells.
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Draws a few tokens; how long the slowest mask took, and how it went.
fn draw(mut constraint: Constraint, rng: &mut Rng) -> (Duration, String) {
    let end = published().special().im_end;
    let mut slowest = Duration::ZERO;
    for _ in 0..TOKENS {
        let started = Instant::now();
        let mask = constraint.mask();
        slowest = slowest.max(started.elapsed());
        let mut allowed = match mask {
            Ok(mask) => ids(&mask),
            Err(failure) => return (slowest, failure.message),
        };
        allowed.retain(|id| *id != end);
        if allowed.is_empty() {
            break;
        }
        if let Err(failure) = constraint.accept(*one_of(&allowed, rng)) {
            return (slowest, failure.message);
        }
    }
    (slowest, "drawn from".to_owned())
}

#[test]
fn no_schema_takes_long_or_much_memory() {
    let mut rng = Rng::new(3);
    grammar();
    let before = peak_bytes();
    for (name, schema) in schemas() {
        for strict in [false, true] {
            let started = Instant::now();
            let made = if strict { as_parameter(&schema) } else { by_schema(&schema).map(Some) };
            let took = started.elapsed();
            let (slowest, told) = match made {
                Ok(Some(constraint)) => draw(constraint, &mut rng),
                Ok(None) => (Duration::ZERO, "any text".to_owned()),
                Err(failure) => {
                    assert_eq!(failure.kind, FailureKind::Invalid, "{name}");
                    (Duration::ZERO, failure.message)
                }
            };
            let grown = (peak_bytes() - before) >> 20;
            println!("{name} ({strict}): {took:.1?}, mask {slowest:.1?}, {grown} MiB: {told:.150}");
            assert!(took < SLOWEST && slowest < SLOWEST_MASK, "{name}: {took:?}, {slowest:?}");
        }
    }
    assert!(peak_bytes() - before < LARGEST_BYTES);
}

/// What holds the parameter of a strict function with this schema.
fn as_parameter(schema: &str) -> Result<Option<Constraint>, q36::server::Failure> {
    let tool = format!(
        r#"{{"name":"f","parameters":{{"properties":{{"p":{}}},"$defs":{}}}}}"#,
        schema.replace("{\"$ref\":\"#\"}", "{\"$ref\":\"#/$defs/own\"}"),
        definitions(schema),
    );
    let strict = BTreeSet::from(["f".to_owned()]);
    let forms = grammar().values(&[Tool::parse(&tool).unwrap()], &strict)?;
    Ok(forms.held.into_values().next())
}

/// The definitions of a schema, with the schema itself among them.
fn definitions(schema: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(schema).unwrap();
    let mut own = value.clone();
    let mut all = own.as_object_mut().and_then(|own| own.remove("$defs"));
    let all = all.get_or_insert_with(|| serde_json::json!({}));
    let own = own.to_string().replace("{\"$ref\":\"#\"}", "{\"$ref\":\"#/$defs/own\"}");
    all["own"] = serde_json::from_str(&own).unwrap();
    all.to_string()
}

#[test]
fn deep_nesting_is_no_json_here() {
    for open in ["[", "{\"items\":", "{\"anyOf\":[", "{\"not\":"] {
        let close = if open.ends_with('[') { "]" } else { "}" };
        let close = if open.len() > 8 { "]}" } else { close };
        let deep = format!("{}{{}}{}", open.repeat(10_000), close.repeat(10_000));
        assert!(Json::parse(&deep).is_err(), "{open}");
    }
}
