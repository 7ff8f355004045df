//! `q36 serve` as a process: start, end, logs, printed configurations. What it says on the network is tested in the
//! library and by `tests/clients`.

use std::net::TcpListener;

use serde_json::Value;

use crate::support::{Output, q36, tiny_model};

/// Starts on a free port, and stops once it is ready.
fn serve_and_stop(flags: &[&str]) -> Output {
    let model = tiny_model();
    let model = model.to_str().expect("the repository's path is UTF-8");
    let args = ["serve", "-m", model, "--cpu", "--port", "0", "-c", "256"];
    q36([&args, flags].concat()).interrupt_at(|said| said.contains("ready")).run().expect_status(0)
}

#[test]
fn ctrl_c_ends_a_server_that_serves_well() {
    let out = serve_and_stop(&[]);
    assert_eq!(out.stdout, "");
    for said in
        ["listening on http://127.0.0.1:", "state: loading", "state: ready", "state: stopping"]
    {
        assert!(out.stderr.contains(said), "{said}: {}", out.stderr);
    }
    for line in out.stderr.lines() {
        let stamp: Vec<bool> = line.bytes().take(13).map(|b| b.is_ascii_digit()).collect();
        assert_eq!(stamp.iter().filter(|is_digit| **is_digit).count(), 10, "{line}");
    }
}

#[test]
fn logs_are_objects_where_that_is_asked_for_and_only_warnings_when_quiet() {
    let out = serve_and_stop(&["--log-format", "json"]);
    for line in out.stderr.lines() {
        let object: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert!(object["event"].is_string() && object["time"].is_u64(), "{line}");
    }
}

#[test]
fn a_server_that_others_can_reach_without_a_key_says_so() {
    let warning = "--api-key KEY lets only those in who have it";
    assert!(serve_and_stop(&["--host", "0.0.0.0"]).stderr.contains(warning));
    assert!(!serve_and_stop(&["--host", "0.0.0.0", "--api-key", "k"]).stderr.contains(warning));
}

#[test]
fn what_cannot_be_served_ends_at_once() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let model = tiny_model();
    let model = model.to_str().expect("the repository's path is UTF-8");
    let out = q36(["serve", "-m", model, "--cpu", "--port", &port]).run().expect_status(1);
    let said = format!("q36: cannot listen on 127.0.0.1:{port}: ");
    assert!(out.stderr.starts_with(&said) && out.stderr.contains("\nhint: "), "{}", out.stderr);
    let out = q36(["serve", "-m", "none.gguf", "--cpu", "--port", "0"]).run().expect_status(1);
    assert!(out.stderr.contains("none.gguf"), "{}", out.stderr);
    for flags in [
        &["--batched-session", "0"][..],
        &["--batched-session", "-1"],
        &["--port", "65536"],
        &["--effort-budgets", "low"],
        &["--kv-cache-cold-max-tokens", "100"],
        &["--print-config", "emacs"],
        &["--print-config", "codex", "--port", "0"],
    ] {
        let out = q36([&["serve", "-m", model], flags].concat()).run().expect_status(2);
        assert!(out.stderr.starts_with("q36 serve: "), "{flags:?}: {}", out.stderr);
    }
}

#[test]
fn configurations_are_printed_and_nothing_is_opened() {
    let print = |client: &str, flags: &[&str]| {
        let args = ["serve", "--port", "9000", "-c", "65536", "--print-config", client];
        q36([&args, flags].concat()).env("Q36_API_KEY", "").run().expect_status(0)
    };
    for client in ["opencode", "pi"] {
        let out = print(client, &[]);
        let file: Value = serde_json::from_str(&out.stdout).unwrap();
        let text = file.to_string();
        assert!(text.contains("http://127.0.0.1:9000/v1") && text.contains("65536"), "{text}");
        assert!(out.stderr.contains("Start: "), "{}", out.stderr);
    }
    assert!(print("codex", &[]).stdout.contains("wire_api = \"responses\""));
    assert!(print("claude-code", &[]).stdout.starts_with("#!/bin/sh\n"));
    let secret = print("opencode", &["--api-key", "hush"]);
    assert!(!format!("{}{}", secret.stdout, secret.stderr).contains("hush"));
}
