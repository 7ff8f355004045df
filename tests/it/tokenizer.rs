//! The tokenizer with the published vocabulary, against official ids.

use std::io::Read;
use std::time::Instant;

use q36::tokenizer::{Segment, TokenId, Tokenizer, VocabSource};
use unicode_normalization::UnicodeNormalization;

use crate::support;

/// `vocab_qwen36.json.gz`.
#[derive(serde::Deserialize)]
struct Vocabulary {
    tokens: Vec<String>,
    types: Vec<i32>,
    merges: Vec<String>,
}

impl Vocabulary {
    fn load() -> Self {
        let path = support::repo("tests/test-vectors/vocab_qwen36.json.gz");
        let mut text = Vec::new();
        let file = std::fs::File::open(path).unwrap();
        flate2::read::GzDecoder::new(file).read_to_end(&mut text).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    fn source(&self) -> VocabSource<'_> {
        VocabSource {
            tokens: Box::new(self.tokens.iter().map(String::as_bytes)),
            types: Box::new(self.types.iter().copied()),
            merges: Box::new(self.merges.iter().map(String::as_bytes)),
            eos: Some(248_046),
            bos: Some(248_044),
        }
    }
}

/// Built once for all tests.
fn published() -> &'static Tokenizer {
    static TOKENIZER: std::sync::LazyLock<Tokenizer> =
        std::sync::LazyLock::new(|| Tokenizer::new(Vocabulary::load().source()).unwrap());
    &TOKENIZER
}

/// A line of `tokenizer_vectors.jsonl`.
#[derive(serde::Deserialize)]
struct Vector {
    text: String,
    mode: String,
    ids: Vec<u32>,
}

fn numbers(ids: &[TokenId]) -> Vec<u32> {
    ids.iter().map(|id| id.0).collect()
}

#[test]
fn ids_equal_the_official_ones() {
    let path = support::repo("tests/test-vectors/tokenizer_vectors.jsonl");
    let lines = std::fs::read_to_string(path).unwrap();
    let mut count = 0;
    for line in lines.lines() {
        let vector: Vector = serde_json::from_str(line).unwrap();
        // The official tokenizer normalises; this one leaves that to whoever makes the text.
        let text: String = vector.text.nfc().collect();
        let ids = match vector.mode.as_str() {
            "payload" => published().encode_text(text.as_bytes()),
            "control" => published().encode_control(text.as_bytes()),
            other => panic!("unknown mode {other}"),
        };
        assert_eq!(numbers(&ids), vector.ids, "{} {text:?}", vector.mode);
        assert_eq!(published().decode(&ids), text.as_bytes());
        count += 1;
    }
    assert_eq!(count, 3396);
}
