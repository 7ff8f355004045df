//! `q36 run` as a user meets it: answers, streams, exit codes, diagnostics.

use std::path::Path;

use serde_json::Value;

use crate::support::{Cut, Output, q36, temp_dir};

const MODEL: &str = "models/q36-tiny.gguf";

const COMMON: [&str; 9] = ["run", "-m", MODEL, "--temp", "0", "-sys", "", "-c", "1024"];

fn run(args: &[&str]) -> Output {
    run_with(args, "")
}

fn run_with(args: &[&str], stdin: &str) -> Output {
    q36([&COMMON, args].concat()).stdin(stdin).run()
}

/// Runs, expects success, and returns stdout.
fn answer(args: &[&str]) -> String {
    run(args).expect_status(0).stdout
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn answers_on_stdout_and_says_the_rest_on_stderr() {
    let out = run(&["-p", "What is the capital of France?", "--nothink"]);
    assert_eq!(out.stdout, "The capital of France is Paris.\n");
    assert_eq!(out.status, Some(0));
    assert!(out.stderr.contains("processing 21 input tokens: 21/21 (100.0%)"), "{}", out.stderr);
    assert!(out.stderr.contains("prefill: ") && out.stderr.contains("t/s"), "{}", out.stderr);
    let quiet = run(&["-p", "What is the capital of France?", "--nothink", "--quiet"]);
    assert_eq!(quiet.stderr, "");
}

#[test]
fn prompts_come_from_files_and_stdin_too() {
    let expected = "The capital of France is Paris.\n";
    let text = "What is the capital of France?";
    let dir = temp_dir();
    let file = dir.path().join("prompt.txt");
    std::fs::write(&file, text).unwrap();
    assert_eq!(answer(&["--nothink", "--prompt-file", file.to_str().unwrap()]), expected);
    assert_eq!(run_with(&["--nothink"], text).stdout, expected);
    assert_eq!(run_with(&["--nothink", "-p", "-"], text).stdout, expected);
    let rendered = format!(
        "<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    );
    assert_eq!(answer(&["-p", &rendered]), expected);
}

#[test]
fn reasoning_goes_where_it_is_sent() {
    let ask = |place: &'static str| run(&["-p", "17 + 25", "--show-thinking", place]);
    assert_eq!(ask("auto").stdout, "17 + 25 = 42\n");
    assert_eq!(ask("never").stdout, "17 + 25 = 42\n");
    assert_eq!(ask("stdout").stdout, "17 + 25 = 42\n\n17 + 25 = 42\n");
    let aside = ask("stderr");
    assert_eq!(aside.stdout, "17 + 25 = 42\n");
    assert!(aside.stderr.contains("17 + 25 = 42"), "{}", aside.stderr);
}

#[test]
fn json_has_text_reasoning_usage_and_reason() {
    let out = answer(&["-p", "17 + 25", "--json"]);
    let v: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&v["text"], &v["reasoning"]), (&"17 + 25 = 42".into(), &"17 + 25 = 42".into()));
    assert_eq!((&v["finish"], &v["usage"]["prompt_tokens"]), (&"stop".into(), &16.into()));
    let lines = answer(&["-p", "17 + 25", "--stream-json"]);
    let lines: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let join = |ty: &str| -> String {
        lines.iter().filter(|l| l["type"] == ty).map(|l| l["text"].as_str().unwrap()).collect()
    };
    assert_eq!(join("text"), "17 + 25 = 42");
    assert_eq!(join("reasoning").trim(), "17 + 25 = 42");
    assert_eq!(lines.last().unwrap()["type"], "done");
}

#[test]
fn a_seed_draws_the_same_reply_again() {
    let draw = |seed: &'static str| {
        answer(&["-p", "Tell me a story", "--temp", "1", "-n", "12", "--nothink", "--seed", seed])
    };
    assert_eq!(draw("7"), draw("7"));
    assert!((1..5).any(|n| draw(["1", "2", "3", "4"][n - 1]) != draw("7")));
}

#[test]
fn a_limit_ends_the_reply_and_says_so() {
    let out = run(&["-p", "Tell me a story", "--nothink", "-n", "3"]);
    assert_eq!(out.status, Some(0));
    assert!(out.stderr.contains("ended by: length"), "{}", out.stderr);
    let full = run(&["-p", "Tell me a long story", "--nothink", "-c", "24"]);
    assert_eq!(full.status, Some(0), "{}", full.stderr);
    assert!(full.stderr.contains("ended by: context"), "{}", full.stderr);
}

#[test]
fn mistakes_have_a_code_and_a_next_step() {
    let check = |args: &[&str], code: i32, text: &str| {
        let out = run(args);
        assert_eq!(out.status, Some(code), "{args:?}: {}", out.stderr);
        assert!(out.stderr.contains(text), "{args:?}: {}", out.stderr);
        assert_eq!(out.stdout, "");
    };
    check(&["-p", "a", "-p", "b"], 2, "specify only one prompt source");
    check(&["--prompt-file", "/nonexistent"], 2, "cannot read /nonexistent");
    check(&["-p", ""], 2, "the prompt is empty");
    check(&["-p", "a", "-m", "/nonexistent.gguf"], 1, "/nonexistent.gguf");
    check(&["-p", "a", "-m", "README.md"], 1, "README.md");
    check(&["-p", "a", "-c", "9000"], 2, "context length of 8192");
    check(&["-p", "a b c d e f g h i j k l m n", "-c", "8"], 1, "do not fit a context of 8");
    check(&["-p", "a", "--dir-steering-ffn", "1"], 1, "--dir-steering-file");
    check(&["-p", "a", "--dir-steering-file", "README.md"], 1, "8 x 256 f32 values (8192 bytes)");
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let args = [&COMMON[..], &["-p", "Tell me a long story", "--nothink", "-n", "400"]].concat();
    let out = q36(args).cut(Cut { after_bytes: 3, interrupt: false }).run().expect_status(0);
    assert!(!out.stderr.contains("panicked"), "{}", out.stderr);
}

#[test]
fn ctrl_c_ends_the_reply_cleanly() {
    let args = [&COMMON[..], &["-p", "Tell me a long story", "--nothink", "-n", "400"]].concat();
    let out = q36(args).cut(Cut { after_bytes: 3, interrupt: true }).run().expect_status(130);
    assert!(out.stdout.ends_with('\n'), "the shell's prompt gets its own line: {}", out.stdout);
    assert!(out.stderr.contains("ended by: interrupted"), "{}", out.stderr);
}

#[test]
fn ctrl_c_ends_a_prompt_before_it_is_through() {
    let text = "The fox went to the river to drink. There it met a bear. ".repeat(400);
    let args = ["run", "--cpu", "-m", MODEL, "-c", "8192", "-p", &text, "--prefill-chunk", "512"];
    let begun = |said: &str| said.contains("input tokens: 0/");
    let out = q36(args).interrupt_at(begun).run().expect_status(130);
    assert_eq!(out.stdout.trim(), "");
    assert!(out.stderr.contains("ended by: interrupted"), "{}", out.stderr);
    let time = out.to_end.expect("a signal was sent");
    assert!(time < std::time::Duration::from_secs(30), "ended {time:?} after the signal");
}

#[test]
fn tokens_are_dumped_without_template_and_markers_are_one_id() {
    let text = "<|im_start|>user\nHi<tool_call><tools>";
    let out = answer(&["--dump-tokens", "-p", text]);
    let ids: Vec<u32> = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert_eq!(out.lines().count(), ids.len() + 1);
    assert_eq!(out.matches("<tool_call>").count(), 1);
    assert!(!out.contains("<tools>"), "plain text is several tokens: {out}");
    let v: Value =
        serde_json::from_str(&answer(&["--dump-tokens", "-p", "a😀", "--json"])).unwrap();
    let bytes: Vec<u8> = v
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|t| t["bytes"].as_array().unwrap())
        .map(|b| u8::try_from(b.as_u64().unwrap()).unwrap())
        .collect();
    assert_eq!(bytes, "a😀".as_bytes());
}

#[test]
fn logits_and_logprobs_are_dumped_as_json() {
    let dir = temp_dir();
    let (logits, logprobs) = (dir.path().join("l.json"), dir.path().join("p.json"));
    let out = answer(&[
        "-p",
        "Say 😀",
        "--nothink",
        "-n",
        "4",
        "--logprobs-top-k",
        "2",
        "--dump-logits",
        logits.to_str().unwrap(),
        "--dump-logprobs",
        logprobs.to_str().unwrap(),
    ]);
    assert_eq!(out, "", "diagnostics print no text");
    let v = json(&logits);
    let row = v["logits"].as_array().unwrap();
    assert_eq!((row.len(), &v["vocab"]), (4096, &4096.into()));
    let best = v["argmax_token"]["id"].as_u64().unwrap();
    assert_eq!(row[usize::try_from(best).unwrap()], v["argmax_logit"]);
    let p = json(&logprobs);
    let steps = p["steps"].as_array().unwrap();
    assert!((1..=4).contains(&steps.len()));
    assert_eq!(steps[0]["selected"]["id"], best);
    for step in steps {
        let top = step["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 2);
        assert_eq!(top[0]["token"], step["selected"]);
        assert!(top[0]["logprob"].as_f64().unwrap() <= 0.0);
        assert!(top[0]["logit"].as_f64() >= top[1]["logit"].as_f64());
    }
}

#[test]
fn perplexity_is_one_line() {
    let text = "The capital of France is Paris. ".repeat(12);
    let dir = temp_dir();
    let file = dir.path().join("t.txt");
    std::fs::write(&file, &text).unwrap();
    let out = answer(&["--perplexity-file", file.to_str().unwrap()]);
    let field = |name: &str| -> f64 {
        let tail = out.split(&format!("{name}=")).nth(1).unwrap();
        tail.split_whitespace().next().unwrap().parse().unwrap()
    };
    assert_eq!(out.lines().count(), 1);
    assert!((field("tokens") - field("scored") - 32.0).abs() < 0.5);
    assert!((field(" avg_nll").exp() - field("ppl")).abs() < 1e-3 * field("ppl"));
    assert!(field("ppl") < 20.0, "a repeated sentence is easy: {out}");
    let short = run(&["--perplexity-file", file.to_str().unwrap(), "-n", "8"]);
    assert!(short.stdout.contains("tokens=40 scored=8"), "{}", short.stdout);
}

#[test]
fn decoding_and_prefilling_agree_to_the_bit_on_the_cpu() {
    let out = run(&["-p", "Hello!", "--nothink", "--decode-consistency", "5"]);
    assert_eq!(out.status, Some(0), "{}", out.stderr);
    assert!(out.stderr.contains("max |d| 0.0"), "{}", out.stderr);
}

#[test]
fn inspect_shows_the_file_and_needs_no_prompt() {
    let shown = answer(&["--inspect"]);
    assert!(shown.contains("qwen35moe"), "{shown}");
    let v: Value = serde_json::from_str(&answer(&["--inspect", "--json"])).unwrap();
    assert!(v.is_object());
    let dir = temp_dir();
    let (text, out) = (dir.path().join("t.txt"), dir.path().join("l.json"));
    let args =
        ["--perplexity-file", text.to_str().unwrap(), "--dump-logits", out.to_str().unwrap()];
    let both = run(&args).expect_status(2);
    assert!(both.stderr.contains("goes alone"), "{}", both.stderr);
}

#[test]
fn a_dry_run_prints_the_plan_and_loads_nothing() {
    let out = run(&["-p", "x", "--dry-run"]);
    assert_eq!(out.status, Some(0), "{}", out.stderr);
    assert!(out.stdout.contains("1024 tokens") && out.stdout.contains("fits"), "{}", out.stdout);
    let v: Value = serde_json::from_str(&answer(&["-p", "x", "--dry-run", "--json"])).unwrap();
    assert_eq!((&v["ctx_tokens"], &v["fits"]), (&1024.into(), &true.into()));
}
