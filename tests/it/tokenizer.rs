//! The tokenizer with the published vocabulary, against official ids and the official expression.

use std::io::Read;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use q36::model::Model;
use q36::tokenizer::Segment::{Control, Payload};
use q36::tokenizer::{
    ADDED_TOKENS, Kind, Segment, StreamDecoder, TokenId, Tokenizer, VocabSource, pieces,
};
use q36::util::rng::Rng;
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
        let file = std::fs::File::open(path).expect("committed");
        flate2::read::GzDecoder::new(file).read_to_end(&mut text).expect("gzip");
        serde_json::from_slice(&text).expect("the three arrays")
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
pub(crate) fn published() -> &'static Tokenizer {
    static TOKENIZER: LazyLock<Tokenizer> =
        LazyLock::new(|| Tokenizer::new(Vocabulary::load().source()).expect("sound"));
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

/// Ids as the model reference prints them.
fn list(ids: &[TokenId]) -> String {
    ids.iter().map(TokenId::to_string).collect::<Vec<_>>().join(" ")
}

#[test]
fn ids_equal_the_table_of_the_model_reference() {
    let table = [
        ("Hello, world!", "9419 11 1814 0"),
        ("  two spaces", "220 1330 12258"),
        ("def f(x):\n    return x\n", "727 281 2007 1590 198 262 460 830 198"),
        ("\t\tx", "197 9921"),
        ("x = 10\n\n\n  y", "87 283 220 16 15 1358 220 374"),
        ("I'm we'LL don'T", "40 2688 567 6 3950 1459 16813"),
        ("it\u{2019}s", "275 725"),
        ("cafe\u{301}", "895 1795 52033"),
        ("naïve café", "3267 36328 571 50203"),
        ("日本語のテスト", "247359 15303 181801"),
        ("Привет, мир", "51844 26125 7921 11 160202"),
        ("नमस्ते", "58069 84237 150104 153348"),
        ("😀👍🏽", "169706 9008 239 235 9008 237 121"),
        ("1234567", "16 17 18 19 20 21 22"),
        ("a\r\nb\r\n\r\nc", "64 317 65 845 66"),
        (" \n \n x", "30858 830"),
        ("end   ", "400 262"),
        ("\u{a0}x", "3966 87"),
        ("foo_bar::baz()", "7724 13975 476 41159 363"),
        ("https://a.b/c?d=1&e=%20", "2349 1074 64 918 2805 30 67 28 16 65772 7598 17 15"),
        ("<|im_end|>", "27 91 316 6018 91 29"),
        ("<think>", "13314 741 29"),
        ("<tools>", "27 15449 29"),
        ("</tool_call>", "510 13766 13042 29"),
    ];
    for (text, expected) in table {
        assert_eq!(list(&published().encode_text(text.as_bytes())), expected, "{text:?}");
    }
    let control = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n";
    assert_eq!(
        list(&published().encode_control(control.as_bytes())),
        "248045 846 198 9419 248046 198 248045 74455 198 248068 198"
    );
    assert_eq!(list(&published().encode_control(b"<tool_call></tool_call>")), "248058 248059");
}

#[test]
fn prompts_of_segments_equal_official_ids() {
    let prompt = [
        Control("<|im_start|>user\n"),
        Payload("q1"),
        Control("<|im_end|>\n<|im_start|>assistant\n"),
        Payload("a1"),
        Control("<|im_end|>\n<|im_start|>user\n"),
        Payload("q2"),
        Control("<|im_end|>\n<|im_start|>assistant\n<think>\n"),
        Payload("r2"),
        Control("\n</think>\n\n<tool_call>\n<function="),
        Payload("f"),
        Control(">\n<parameter="),
        Payload("x"),
        Control(">\n"),
        Payload("1"),
        Control("\n</parameter>\n</function>\n</tool_call><|im_end|>\n<|im_start|>user\n"),
        Control("<tool_response>\n"),
        Payload("ok"),
        Control("\n</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n"),
        Payload("r3"),
        Control("\n</think>\n\n"),
        Payload("final"),
        Control("<|im_end|>\n"),
    ];
    let expected = "248045 846 198 80 16 248046 198 248045 74455 198 64 16 248046 198 248045 846 198 80 17 \
        248046 198 248045 74455 198 248068 198 81 17 198 248069 271 248058 198 27 1628 17572 29 198 27 15704 \
        24582 29 198 16 198 510 15704 29 198 510 1628 29 198 248059 248046 198 248045 846 198 248066 198 547 \
        198 248067 248046 198 248045 74455 198 248068 198 81 18 198 248069 271 11483 248046 198";
    let marked = published().encode_prompt_marked(&prompt);
    assert_eq!(list(&marked.ids), expected);
    let text = published().text(&marked.ids);
    assert_eq!(text.bytes.len(), 349);
    assert_eq!(text.markers, marked.markers);
    assert_eq!(text.markers.len(), marked.ids.iter().filter(|id| id.0 >= 248_044).count());

    let empty_value = [Control("<parameter=x>\n"), Payload(""), Control("\n</parameter>")];
    let ids = published().encode_prompt(&empty_value);
    assert!(ids.contains(&TokenId(271)), "{ids:?}");
    let pasted = [Control("<|im_start|>user\n"), Payload("<|im_end|>"), Control("<|im_end|>")];
    assert_eq!(
        list(&published().encode_prompt(&pasted)),
        "248045 846 198 27 91 316 6018 91 29 248046"
    );
}

#[test]
fn rows_are_what_the_publisher_made_them() {
    let t = published();
    assert_eq!(t.vocab_size(), 248_320);
    for (row, text) in (248_044..).zip(ADDED_TOKENS) {
        assert_eq!(t.added_token(text), Some(TokenId(row)));
        assert_eq!(t.bytes(TokenId(row)), text.as_bytes());
        assert!(t.kind(TokenId(row)).is_added());
    }
    assert_eq!(t.added_token("<tools>"), None);
    let special = t.special();
    let found = [special.im_start, special.im_end, special.endoftext, special.think];
    assert_eq!(list(&found), "248045 248046 248044 248068");
    let ends: Vec<TokenId> = (0..248_320).map(TokenId).filter(|&id| t.is_end(id)).collect();
    assert_eq!(list(&ends), "248044 248046");
    assert_eq!(t.drawable().count(), 248_077);
    let unused = |row: u32| t.kind(TokenId(row)) == Kind::Unused;
    assert!((0..248_320).all(|row| unused(row) == (row >= 248_077)));
    assert_eq!(t.spelling(TokenId(220)), "Ġ");
    assert_eq!(t.visible_bytes(special.think), b"<think>");
    assert_eq!(t.visible_bytes(special.im_end), b"");
}

#[test]
fn a_published_vocabulary_with_a_moved_marker_is_refused() {
    let check = |damage: &dyn Fn(&mut Vocabulary), expected: &str| {
        let mut vocabulary = Vocabulary::load();
        damage(&mut vocabulary);
        let error = Tokenizer::new(vocabulary.source()).unwrap_err();
        assert_eq!(error.to_string(), format!("tokenizer: {expected}"));
    };
    check(
        &|v| v.tokens.swap(248_045, 248_046),
        "expected id 248045 = <|im_start|>, got <|im_end|>",
    );
    check(&|v| v.types[248_068] = 5, "expected id 248068 = <think>, got <think> (Unused)");
}

#[test]
fn the_demo_vocabulary_gives_the_ids_of_its_fixtures() {
    let model = Model::open(&support::tiny_model()).unwrap();
    let vocabulary = model.vocabulary().unwrap();
    let tokenizer = Tokenizer::new(VocabSource {
        tokens: Box::new(vocabulary.tokens),
        types: Box::new(vocabulary.types.into_iter()),
        merges: Box::new(vocabulary.merges),
        eos: Some(vocabulary.eos),
        bos: vocabulary.bos,
    })
    .unwrap();
    let path = support::repo("tests/test-vectors/tiny-q2.json");
    let fixture: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let prompts = fixture["prompts"].as_array().unwrap();
    assert_eq!(prompts.len(), 14);
    for prompt in prompts {
        let text = prompt["prompt"].as_str().unwrap();
        let ids: Vec<u32> = serde_json::from_value(prompt["ids"].clone()).unwrap();
        let found = tokenizer.encode_control(text.as_bytes());
        assert_eq!(numbers(&found), ids, "{}", prompt["name"]);
        assert_eq!(tokenizer.decode(&found), text.as_bytes());
    }
}

/// What random text is made of: characters that the rules tell apart, a few of each kind.
const MIX: [&str; 12] = [
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "stmdrvelSTMDRVEL",
    "éßñøЖяλΩאبतमกខ中文のテ한글ʰǅ𝒳𐐀ªº",
    "\u{300}\u{301}\u{308}\u{5B0}\u{64B}\u{93F}\u{94D}\u{E34}\u{20DD}\u{FE0F}",
    "0123456789",
    "²³½٣५Ⅷ①𝟘〇",
    " ",
    "\n\r",
    "\t\u{B}\u{C}\u{85}\u{A0}\u{1680}\u{2000}\u{2003}\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}\u{3000}",
    "'",
    ".,;:!?-_/\\\"()[]{}<>|@#$%^&*+=~`",
    "…—«»€©√😀👍🏽🇮🇹\u{200B}\u{200D}\u{FEFF}\u{0}\u{7F}\u{AD}\u{FFFD}\u{E000}",
];

#[test]
fn pieces_equal_the_official_expression() {
    let expression = concat!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}",
        r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    );
    let official = fancy_regex::Regex::new(expression).unwrap();
    let mix = MIX.map(|chars| chars.chars().collect::<Vec<char>>());
    let mut rng = Rng::new(36);
    let mut below = |n: usize| usize::try_from(rng.next_u64() >> 33).unwrap() % n;
    for _ in 0..300_000 {
        let mut text = String::new();
        for _ in 0..=below(10) {
            let chars = &mix[below(mix.len())];
            // Runs of one kind are what most rules are about.
            for _ in 0..=below(3) {
                text.push(chars[below(chars.len())]);
            }
        }
        let expected = official.find_iter(&text).map(|m| m.unwrap().as_str().as_bytes());
        assert!(pieces(text.as_bytes()).eq(expected), "{text:?}");
    }
}

#[test]
fn long_runs_take_bounded_time() {
    let start = Instant::now();
    for run in ["a", " ", "=", "\n", "é", "7", "ab", "\u{301}"] {
        let text = run.repeat(1_000_000 / run.len());
        let ids = published().encode_text(text.as_bytes());
        assert_eq!(published().decode(&ids), text.as_bytes());
    }
    // Two seconds here; a quadratic step would take hours.
    assert!(start.elapsed() < Duration::from_mins(1), "{:?}", start.elapsed());
}

/// Text and stray bytes: what files contain.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        any::<Vec<u8>>(),
        any::<String>().prop_map(String::into_bytes),
        "[ -~\n]{0,40}".prop_map(String::into_bytes),
        prop::sample::select(&ADDED_TOKENS[..]).prop_map(|t| t.as_bytes().to_vec()),
    ];
    prop::collection::vec(part, 0..5).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn any_bytes_come_back(bytes in bytes()) {
        let payload = published().encode_text(&bytes);
        prop_assert_eq!(published().decode(&payload), bytes.clone());
        prop_assert!(payload.iter().all(|id| published().kind(*id) == Kind::Normal));
        let control = published().encode_control(&bytes);
        prop_assert_eq!(published().decode(&control), bytes.clone());
        // Token by token through the stream, as a client sees it.
        let mut decoder = StreamDecoder::new();
        let mut text = String::new();
        for &id in &control {
            text += &decoder.push(published().bytes(id));
        }
        text += &decoder.finish_lossy();
        prop_assert_eq!(text, String::from_utf8_lossy(&bytes).into_owned());
    }

    #[test]
    fn cutting_a_prompt_anywhere_changes_no_id(text in "[ -~\n]{0,60}|\\PC{0,40}", cut: prop::sample::Index) {
        let at = (0..=text.len()).rev().find(|&at| at <= cut.index(text.len() + 1) && text.is_char_boundary(at));
        let (left, right) = text.split_at(at.unwrap());
        let expected = published().encode_text(text.as_bytes());
        for segments in [[Payload(left), Payload(right)], [Payload(left), Control(right)]] {
            let segments: [Segment<'_>; 2] = segments;
            prop_assert_eq!(&published().encode_prompt(&segments), &expected);
        }
    }
}
