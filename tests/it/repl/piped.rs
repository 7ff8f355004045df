//! `q36 run --repl` on a pipe: answers on stdout, everything else on stderr, nothing evaluated twice.

use std::path::Path;

use q36::model::Model;
use q36::tokenizer::Tokenizer;

use super::{OPENING, count, following};
use crate::support::{Output, q36, temp_dir, tiny_model};

const COMMON: [&str; 11] = [
    "run",
    "--repl",
    "--cpu",
    "-m",
    "models/q36-tiny.gguf",
    "--temp",
    "0",
    "-sys",
    "",
    "-c",
    "1024",
];

pub(super) const FRANCE: &str = "What is the capital of France?";
const PARIS: &str = "The capital of France is Paris.\n";
pub(super) const SUM: &str = "17 + 25";
const RESULT: &str = "17 + 25 = 42\n";

fn talk(args: &[&str], typed: &str) -> Output {
    q36([&COMMON, args].concat()).stdin(typed).run()
}

fn tokenizer() -> Tokenizer {
    q36::engine::tokenizer_of(&Model::open(&tiny_model()).unwrap()).unwrap()
}

/// Tokens of each prompt that were evaluated, as the last line of its progress says.
fn evaluated(out: &Output) -> Vec<usize> {
    let lines = out.stderr.lines().filter(|line| line.ends_with(" (100.0%)"));
    let count = |line: &str| line.strip_prefix("processing ")?.split(' ').next()?.parse().ok();
    lines.filter_map(count).collect()
}

#[track_caller]
fn assert_said(out: &Output, expected: &[&str]) {
    let mut rest = out.stderr.as_str();
    for text in expected {
        let (_, behind) = rest.split_once(text).unwrap_or_else(|| {
            panic!("{text:?} is not said, or too early:\n{}", out.stderr);
        });
        rest = behind;
    }
}

#[test]
fn answers_are_on_stdout_and_each_prompt_costs_what_is_new() {
    let typed = format!("{FRANCE}\n\n/retry\n/undo\n{SUM}\n\"\"\"\n{SUM}\n\"\"\"\n");
    let out = talk(&["--nothink"], &typed).expect_status(0);
    assert_eq!(out.stdout, [PARIS, PARIS, RESULT, RESULT].concat());
    assert!(!out.stderr.contains('\x1b') && !out.stdout.contains('\x1b'));
    let tokenizer = tokenizer();
    let message = |text: &str| count(&tokenizer, &format!("<|im_start|>user\n{text}<|im_end|>\n"));
    let opening = count(&tokenizer, OPENING);
    let expected = [
        message(FRANCE) + opening,
        opening,
        // Nothing stands before the first message, so there is nothing to go back to.
        message(SUM) + opening,
        following(&tokenizer, SUM, OPENING),
    ];
    assert_eq!(evaluated(&out), expected);
    assert_said(&out, &["commands: /help", "prefill: ", "taken back: What is the capital"]);
}

#[test]
fn reasoning_is_not_mixed_into_a_pipe() {
    let out = talk(&[], &format!("{SUM}\n/stats\n")).expect_status(0);
    assert_eq!(out.stdout, RESULT);
    assert_said(&out, &["last answer", "input tokens", "reasoning", "generation, t/s"]);
    let shown = talk(&["--show-thinking", "stdout"], &format!("{SUM}\n")).expect_status(0);
    assert_eq!(shown.stdout, format!("{RESULT}\n{RESULT}"));
}

#[test]
fn a_conversation_is_saved_and_gone_on_with() {
    let dir = temp_dir();
    let file = dir.path().join("talk one.kv");
    let path = file.to_str().unwrap();
    let out = talk(&["--nothink"], &format!("/save {path}\n{FRANCE}\n/save {path}\n"));
    assert_said(&out.expect_status(0), &["nothing to save yet", "saved ", "talk one.kv"]);
    let typed = format!("/load {path}\n/tokens\n{SUM}\n/save {path}\n/undo\n/undo\n/undo\n");
    let out = talk(&["--nothink"], &typed).expect_status(0);
    assert_eq!(out.stdout, RESULT);
    assert_said(
        &out,
        &[
            "1 exchange, the last one: What is the capital of France?",
            "1 exchange\n",
            "saved ",
            "taken back: 17 + 25",
            "taken back: What is the capital",
            "nothing to undo",
        ],
    );
    // The whole conversation is in the file, the end of its last turn included.
    let tokenizer = tokenizer();
    assert_eq!(evaluated(&out)[0], following(&tokenizer, SUM, OPENING) - 2);
    let shown = q36(["kv", "show", path]).run().expect_status(0);
    assert!(shown.stdout.contains("What is the capital of France?"), "{}", shown.stdout);
    q36(["kv", "verify", path]).run().expect_status(0);
}

#[test]
fn files_that_are_no_conversations_change_nothing() {
    let dir = temp_dir();
    let notes = dir.path().join("notes.txt");
    std::fs::write(&notes, format!("{SUM}\n")).unwrap();
    let path = notes.to_str().unwrap();
    let typed = format!(
        "{FRANCE}\n/save {path}\n/load {path}\n/load /nonexistent\n/read /nonexistent\n/read {path}\n"
    );
    let out = talk(&["--nothink"], &typed).expect_status(0);
    assert_eq!(out.stdout, [PARIS, RESULT].concat());
    assert_said(
        &out,
        &[
            "notes.txt exists and is no saved session",
            "notes.txt",
            "/nonexistent",
            "cannot read /nonexistent",
        ],
    );
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), format!("{SUM}\n"));
    assert_eq!(evaluated(&out)[1], following(&tokenizer(), SUM, OPENING));
}

#[test]
fn what_fails_is_said_and_the_conversation_goes_on() {
    let long = "The fox went to the river. ".repeat(400);
    let typed = format!(
        "{long}\n/hlep\n/ctx\n/ctx 9000\n/power 0\n/think-max\n/nothink\n\
         <tool_response>x</tool_response>\n{FRANCE}\n/quit\nnot read\n"
    );
    let out = talk(&["--nothink"], &typed).expect_status(0);
    assert_eq!(out.stdout, PARIS);
    assert_said(
        &out,
        &[
            "tokens of a context of 1024\nhint: /undo or /clear",
            "unknown command: /hlep",
            "usage: /ctx N",
            "exceeds the model's context length of 8192",
            "usage: /power N",
            "needs a context of 98304 tokens",
            "thinking: on",
            "thinking: off",
        ],
    );
}

#[test]
fn another_context_keeps_the_conversation() {
    let typed = format!("{FRANCE}\n/ctx 16\n/ctx 2048\n/tokens\n{SUM}\n");
    let out = talk(&["--nothink"], &typed).expect_status(0);
    assert_eq!(out.stdout, [PARIS, RESULT].concat());
    assert_said(&out, &["the conversation takes", "context 2048 tokens", " of 2048 tokens used"]);
    // All of it is evaluated in the new one.
    let tokenizer = tokenizer();
    let asked = format!("<|im_start|>user\n{FRANCE}<|im_end|>\n{OPENING}{}", PARIS.trim());
    let expected = count(&tokenizer, &asked) + following(&tokenizer, SUM, OPENING);
    assert_eq!(evaluated(&out)[1], expected);
}

#[test]
fn the_system_text_is_replaced_under_the_conversation() {
    let typed =
        format!("/help\n/system\n{FRANCE}\n/system Be brief.\n/system\n{SUM}\n/system \"\"\n");
    let out = talk(&["--nothink"], &typed).expect_status(0);
    assert_said(
        &out,
        &[
            "Commands of a conversation:\n",
            "there is no system text",
            "replaced",
            "Be brief.\n",
            "removed",
        ],
    );
    assert!(evaluated(&out)[1] > evaluated(&out)[0], "{:?}", evaluated(&out));
}

#[test]
fn long_conversations_are_found_again_on_disk() {
    let dir = temp_dir();
    let states = dir.path().to_str().unwrap();
    let story = crate::kv::story(120);
    let keep = ["--nothink", "-n", "1", "--kv-disk-dir", states, "--kv-cache-min-tokens", "64"];
    let first = talk(&keep, &format!("{story}\n")).expect_status(0);
    let [prompt] = evaluated(&first)[..] else { panic!("{}", first.stderr) };
    assert!(files(dir.path()) >= 2, "the end of the prompt, and the end");
    let again = talk(&keep, &format!("{story}\n{SUM}\n")).expect_status(0);
    assert_said(&again, &[&format!("begins with {prompt} saved tokens")]);
    // What is live is longer than what is saved. The first answer was cut.
    assert_eq!(evaluated(&again), [following(&tokenizer(), SUM, OPENING) + 1]);
    q36(["kv", "verify", states]).run().expect_status(0);
}

#[test]
fn a_conversation_that_a_file_takes_the_place_of_is_saved_first() {
    let dir = temp_dir();
    let [file, states] = ["talk.kv", "states"].map(|name| dir.path().join(name));
    let [file, states] = [&file, &states].map(|path| path.to_str().unwrap());
    talk(&["--nothink"], &format!("{FRANCE}\n/save {file}\n")).expect_status(0);
    let keep = ["--nothink", "-n", "16", "--kv-disk-dir", states, "--kv-cache-min-tokens", "16"];
    let typed = format!("The fox met the bear.\n/load {file}\n{SUM}\n");
    let out = talk(&keep, &typed).expect_status(0);
    assert!(out.stdout.ends_with(RESULT), "{}{}", out.stdout, out.stderr);
    assert!(!out.stderr.contains("not saved"), "{}", out.stderr);
    assert_eq!(files(Path::new(states)), 3, "the message, its answer, and the other conversation");
}

fn files(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|e| e == "kv")).count()
}

#[test]
fn flags_of_one_answer_are_refused() {
    for (args, expected) in [
        (&["-p", "hi"][..], "--repl takes no prompt"),
        (&["--json"], "--json goes with a prompt"),
        (&["--output", "x"], "--output goes with a prompt"),
        (&["--raw"], "--raw goes with a prompt"),
        (&["--dump-tokens"], "--dump-tokens needs a prompt"),
        (&["--dump-logits", "x"], "a prompt is needed"),
    ] {
        let out = talk(args, "").expect_status(2);
        assert!(out.stderr.contains(expected), "{args:?}: {}", out.stderr);
    }
    let plan = talk(&["--dry-run"], "").expect_status(0);
    assert!(plan.stdout.contains("in 6 slots"), "states to go back to: {}", plan.stdout);
}

#[test]
fn a_pipe_without_the_flag_is_one_prompt() {
    let args = [&COMMON[..1], &COMMON[2..], &["--nothink"]].concat();
    let out = q36(args).stdin(format!("{FRANCE}\n")).run().expect_status(0);
    assert_eq!(out.stdout, PARIS);
    assert!(!out.stderr.contains("commands:"));
}
