//! `q36 run` at a terminal: keys, colours, pastes, signals.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::support::{q36_at_terminal, temp_dir};

const COMMON: [&str; 10] =
    ["run", "--cpu", "-m", "models/q36-tiny.gguf", "--temp", "0", "-sys", "", "-c", "2048"];

const PROMPT: &str = "q36> ";

#[test]
fn a_conversation_has_colours_completion_and_a_history() {
    let home = temp_dir();
    // A paste of many lines is one message, however it is sent.
    let pasted = (0..200).map(|n| format!("/line {n}\r")).collect::<Vec<_>>().concat();
    let steps = json!([
        {"see": PROMPT, "type": "17 + 25\r"},
        {"see": "generation: "},
        {"see": PROMPT, "resize": [40, 12], "type": "/re\t\t"},
        // The list of what it may become, the line again, and a fresh one.
        {"see": "/retry"},
        {"see": PROMPT, "type": "\x03"},
        // What is typed ahead is not lost.
        {"see": PROMPT, "type": "/think\r/nothink\r"},
        {"see": "thinking: on"},
        {"see": "thinking: off"},
        {"see": PROMPT, "type": format!("\x1b[200~{pasted}\x1b[201~")},
        {"see": "/line 199", "type": "\r"},
        {"see": "input tokens", "type": "\x03"},
        {"see": "taken back"},
        {"see": PROMPT, "type": "two\x1b\rlines"},
        {"see": "lines", "type": "\x03"},
        {"see": PROMPT, "type": "\x04"},
    ]);
    let Some(run) = q36_at_terminal(&steps, &COMMON) else { return };
    let out = run.home(home.path()).run().expect_status(0);
    assert_eq!(out.stderr, "", "{}", out.stdout);
    let shown = &out.stdout;
    for expected in [
        "\x1b[1mq36> \x1b[0m",
        "\x1b[36m\rprocessing ",
        "\x1b[90m17 + 25 = 42",
        "\x1b[0m\r\n17 + 25 = 42\r\n",
        "\x1b[36mprefill: ",
        "/read",
    ] {
        assert!(shown.contains(expected), "{expected:?} is not shown:\n{shown}");
    }
    assert!(!shown.contains("unknown command"), "{shown}");
    let history = home.path().join(".q36_history");
    assert_eq!(history.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let kept = std::fs::read_to_string(history).unwrap();
    let entries: Vec<&str> = kept.lines().skip(1).collect();
    assert_eq!(entries[..3], ["17 + 25", "/think", "/nothink"]);
    assert!(entries[3].starts_with("/line 0\\n/line 1\\n"), "{}", entries[3]);
    assert_eq!(entries.len(), 4);
}

#[test]
fn ctrl_c_stops_prompts_and_answers_and_keeps_the_session() {
    let long = "The fox went to the river to drink. There it met a bear. ".repeat(20);
    let steps = json!([
        {"see": PROMPT, "type": format!("{long}\r")},
        {"see": "input tokens: ", "type": "\x03"},
        {"see": "stopped; the message was taken back"},
        {"see": PROMPT, "type": "Tell me a long story\r"},
        {"see": "(100.0%)"},
        // The first line ends with a rate, the next begins with what the model says.
        {"see": "\r\n"},
        {"see": "a", "type": "\x03"},
        {"see": "ended by: interrupted"},
        {"see": PROMPT, "type": "/tokens\r"},
        {"see": "1 exchange"},
        {"see": PROMPT, "type": "17 + 25\r"},
        {"see": "generation: "},
        {"see": PROMPT, "type": "\x04"},
    ]);
    let args = [&COMMON[..], &["--nothink", "--prefill-chunk", "16"]].concat();
    let Some(run) = q36_at_terminal(&steps, &args) else { return };
    let out = run.run().expect_status(0);
    assert_eq!(out.stderr, "", "{}", out.stdout);
    assert!(out.stdout.contains("17 + 25 = 42\r\n"), "{}", out.stdout);
    assert!(!out.stdout.contains("^C"), "keys are not shown while it writes: {}", out.stdout);
}

#[test]
fn without_colour_nothing_is_coloured() {
    let steps = json!([
        {"see": PROMPT, "type": "17 + 25\r"},
        {"see": "generation: "},
        {"see": PROMPT, "type": "/quit\r"},
    ]);
    let Some(run) = q36_at_terminal(&steps, &COMMON) else { return };
    let out = run.env("NO_COLOR", "1").run().expect_status(0);
    assert!(out.stdout.contains("17 + 25 = 42\r\n"), "{}", out.stdout);
    // The line editor moves the cursor; nothing else escapes.
    let codes = out.stdout.split("\x1b[").skip(1);
    let ends = codes.map(|code| code.trim_start_matches(|c: char| !c.is_ascii_alphabetic()));
    assert!(ends.clone().all(|end| !end.starts_with('m')), "{}", out.stdout);
}

#[test]
fn a_signal_to_end_is_obeyed_at_the_prompt() {
    let term = 15;
    let steps = json!([{"see": PROMPT, "signal": term}]);
    let Some(run) = q36_at_terminal(&steps, &COMMON) else { return };
    let out = run.run().expect_status(130);
    assert!(out.stdout.contains("\x1b[?2004l"), "the terminal is put back: {:?}", out.stdout);
}
