//! What structured output costs for each token: masks over the published vocabulary, along texts that models write.
//!
//! First a table of single masks, the first pass apart from later ones, since a grammar's automaton is made while it is
//! used; then criterion's times for what is paid once: reading the vocabulary and building constraints.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::io::Read as _;
use std::time::{Duration, Instant};

use criterion::Criterion;
use q36::chat::{Json, Tool};
use q36::server::Format;
use q36::server::grammar::{Constraint, Grammar};
use q36::tokenizer::{Tokenizer, VocabSource};

/// A part of a long text, with some of everything.
const ITEM: &str = r#"{"name": "A longer text with some words, \"quotes\" and é", "tags": ["a", "b"], "n": {"x": -1.5e3}}"#;

/// Passes over each text.
const PASSES: usize = 30;

fn main() {
    let tokenizer = vocabulary();
    let grammar = Grammar::new(&tokenizer).expect("the vocabulary is sound");
    let cases = cases(&grammar);
    table(&tokenizer, &cases);
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    let mut group = criterion.benchmark_group("grammar");
    group.bench_function("read the vocabulary", |b| b.iter(|| Grammar::new(black_box(&tokenizer))));
    for case in &cases {
        group.bench_function(format!("build: {}", case.name), |b| b.iter(|| (case.make)(&grammar)));
    }
    group.finish();
    criterion.final_summary();
}

/// The vocabulary of the real model, as committed for tests.
fn vocabulary() -> Tokenizer {
    #[derive(serde::Deserialize)]
    struct Vocabulary {
        tokens: Vec<String>,
        types: Vec<i32>,
        merges: Vec<String>,
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/test-vectors/vocab_qwen36.json.gz");
    let mut text = Vec::new();
    let file = std::fs::File::open(path).expect("committed");
    flate2::read::GzDecoder::new(file).read_to_end(&mut text).expect("gzip");
    let all: Vocabulary = serde_json::from_slice(&text).expect("three arrays");
    let source = VocabSource {
        tokens: Box::new(all.tokens.iter().map(String::as_bytes)),
        types: Box::new(all.types.iter().copied()),
        merges: Box::new(all.merges.iter().map(String::as_bytes)),
        eos: Some(248_046),
        bos: Some(248_044),
    };
    Tokenizer::new(source).expect("sound")
}

/// A text that is held to something.
struct Case {
    name: &'static str,
    make: Box<dyn Fn(&Grammar) -> Constraint>,
    text: String,
}

fn cases(grammar: &Grammar) -> Vec<Case> {
    let wide = wide();
    let cases = vec![
        Case {
            name: "any object",
            make: Box::new(|grammar| by_format(grammar, &Format::JsonObject)),
            text: format!("{{\"items\": [\n  {}\n]}}", [ITEM; 30].join(",\n  ")),
        },
        Case {
            name: "a schema of 200 properties",
            make: Box::new(move |grammar| by_format(grammar, &schema(&wide))),
            text: wide_text(),
        },
        Case {
            name: "a strict text by a pattern",
            make: Box::new(|grammar| {
                parameter(grammar, r#"{"type":"string","pattern":"^/[a-z/_.]+$","maxLength":400}"#)
            }),
            text: format!(
                "\n/{}\n</parameter>",
                "usr/local/share/some_folder/file.name/".repeat(10)
            ),
        },
        Case {
            name: "a strict text by its length",
            make: Box::new(|grammar| {
                parameter(grammar, r#"{"type":"string","minLength":1,"maxLength":20000}"#)
            }),
            text: format!(
                "\n{}\n</parameter>",
                "fn main() {\n    println!(\"<b>{}</b>\", 1 < 2);\n}\n".repeat(12)
            ),
        },
        Case {
            name: "a strict object",
            make: Box::new(|grammar| {
                parameter(
                    grammar,
                    r#"{"type":"array","items":{"type":"object","properties":{"path":{"type":"string"},"line":{"type":"integer"}},"required":["path","line"],"additionalProperties":false}}"#,
                )
            }),
            text: format!(
                "\n[{}]\n</parameter>",
                vec![r#"{"path": "src/main.rs", "line": 120}"#; 20].join(", ")
            ),
        },
    ];
    for case in &cases {
        black_box((case.make)(grammar));
    }
    cases
}

fn by_format(grammar: &Grammar, format: &Format) -> Constraint {
    grammar.constraint(format).expect("it can be enforced").expect("it constrains")
}

fn schema(text: &str) -> Format {
    Format::JsonSchema { name: "answer".into(), schema: Json::parse(text).expect("JSON") }
}

/// Every kind of property, fifty times.
fn wide() -> String {
    let four = |n: usize| {
        format!(
            r#""text{n}":{{"type":"string","maxLength":80}},"day{n}":{{"type":"string","format":"date"}},
               "kind{n}":{{"enum":["first{n}","second{n}"]}},"size{n}":{{"type":"number","minimum":0,"maximum":{n}.5}}"#
        )
    };
    let all: Vec<String> = (0..50).map(four).collect();
    let names: Vec<String> =
        (0..50).map(|n| format!(r#""text{n}","day{n}","kind{n}","size{n}""#)).collect();
    format!(
        r#"{{"type":"object","properties":{{{}}},"required":[{}],"additionalProperties":false}}"#,
        all.join(","),
        names.join(",")
    )
}

fn wide_text() -> String {
    let four = |n: usize| {
        format!(
            r#""text{n}": "some words of text", "day{n}": "2024-02-29", "kind{n}": "second{n}", "size{n}": 0.25"#
        )
    };
    let all: Vec<String> = (0..50).map(four).collect();
    format!("{{{}}}", all.join(", "))
}

/// What holds the only parameter of a strict function.
fn parameter(grammar: &Grammar, property: &str) -> Constraint {
    let tool = format!(r#"{{"name":"f","parameters":{{"properties":{{"p":{property}}}}}}}"#);
    let tool = Tool::parse(&tool).expect("JSON");
    let forms = grammar.values(&[tool], &BTreeSet::from(["f".to_owned()])).expect("enforced");
    forms.held.into_values().next().expect("it constrains")
}

#[expect(clippy::print_stdout, reason = "the table is the result")]
fn table(tokenizer: &Tokenizer, cases: &[Case]) {
    let grammar = Grammar::new(tokenizer).expect("the vocabulary is sound");
    println!("| text | tokens | pass | mean | p99 | slowest |\n|---|---:|---|---:|---:|---:|");
    for case in cases {
        let ids = tokenizer.encode_text(case.text.as_bytes());
        let fresh = (case.make)(&grammar);
        let (mut first, mut later) = (Vec::new(), Vec::new());
        for pass in 0..PASSES {
            let mut constraint = fresh.clone();
            for &id in &ids {
                let started = Instant::now();
                let mask = black_box(constraint.mask()).expect("it can go on");
                let took = started.elapsed();
                assert!(mask.contains(id), "{}: {:?}", case.name, tokenizer.bytes(id));
                constraint.accept(id).expect("it is allowed");
                if pass == 0 { first.push(took) } else { later.push(took) }
            }
        }
        for (pass, mut times) in [("first", first), ("later", later)] {
            times.sort_unstable();
            let mean = times.iter().sum::<Duration>() / u32::try_from(times.len()).expect("few");
            let p99 = times[times.len() * 99 / 100];
            let slowest = times[times.len() - 1];
            println!(
                "| {} | {} | {pass} | {mean:.1?} | {p99:.1?} | {slowest:.1?} |",
                case.name,
                ids.len()
            );
        }
    }
}
