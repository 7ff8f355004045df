//! `q36 run --kv-disk-dir`: a prompt begins with what an earlier one left.

use std::path::Path;

use serde_json::Value;

use super::story;
use crate::support::{Output, q36, temp_dir};

fn ask(dir: &Path, text: &str, more: &[&str]) -> Output {
    let common = ["run", "--cpu", "-m", "models/q36-tiny.gguf", "--temp", "0", "-c", "4096"];
    let answer = ["-sys", "", "--nothink", "-n", "8", "--json", "-p", text];
    let line = [&common[..], &answer, &["--kv-disk-dir", dir.to_str().unwrap()], more].concat();
    q36(line).run()
}

fn answer(out: Output) -> (String, u64, u64) {
    let json: Value = serde_json::from_str(&out.expect_status(0).stdout).unwrap();
    let count = |key: &str| json["usage"][key].as_u64().unwrap();
    (json["text"].as_str().unwrap().to_owned(), count("cached_tokens"), count("prompt_tokens"))
}

#[test]
fn a_second_question_evaluates_only_what_is_new() {
    let dir = temp_dir();
    // A little more than the 2,048 tokens that saved positions are multiples of.
    let report = story(1080);
    let first = format!("{report}\nWhich animal was it?");
    let (text, cached, prompt) = answer(ask(dir.path(), &first, &[]));
    assert_eq!(cached, 0);
    assert!(prompt > 2100, "{prompt}");
    let again = ask(dir.path(), &first, &[]);
    assert!(again.stderr.contains("begins with 2048 saved tokens of "), "{}", again.stderr);
    // The same cuts, hence the same bits, whether loaded or evaluated.
    assert_eq!(answer(again), (text, 2048, prompt));
    let (_, cached, _) = answer(ask(dir.path(), &format!("{report}\nWhere?"), &[]));
    assert_eq!(cached, 2048);
    let (_, cached, _) = answer(ask(dir.path(), "In the year 1000 there was a bear.", &[]));
    assert_eq!(cached, 0);
    q36(["kv", "verify", dir.path().to_str().unwrap()]).run().expect_status(0);
}

#[test]
fn a_damaged_file_costs_time_and_nothing_else() {
    let dir = temp_dir();
    let text = story(300);
    let short = ["--kv-cache-min-tokens", "100"];
    let (expected, _, prompt) = answer(ask(dir.path(), &text, &short));
    let is_state = |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == "kv");
    let files = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let file = files.into_iter().find(is_state).unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    assert_eq!(answer(ask(dir.path(), &text, &short)), (expected, 0, prompt));
}

#[test]
fn it_goes_with_answers_and_with_directories_that_can_be_made() {
    let dir = temp_dir();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let out = ask(&file, "hi", &[]);
    assert_eq!(out.status, Some(1), "{}", out.stderr);
    assert!(out.stderr.contains("for saved sessions"), "{}", out.stderr);
    let dump = dir.path().join("logits.json");
    let out = ask(dir.path(), "hi", &["--dump-logits", dump.to_str().unwrap()]);
    assert_eq!(out.status, Some(2), "{}", out.stderr);
    assert!(out.stderr.contains("--kv-disk-dir goes with an answer"), "{}", out.stderr);
}
