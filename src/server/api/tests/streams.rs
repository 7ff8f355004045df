//! Every order of events, byte by byte.

use super::super::{Encoder, Shape};
use super::support::{Reply, frames, golden, golden_reply, read, stamp};
use crate::server::{Api, Failure, FailureKind, Finish, Update, Waiting};

const CHAT: &str = r#"{"model":"m","messages":[{"content":"q"}],"stream":true,"stream_options":{"include_usage":true}}"#;
const CHAT_LOGPROBS: &str =
    r#"{"model":"m","messages":[{"content":"q"}],"logprobs":true,"top_logprobs":2}"#;
const COMPLETIONS: &str = r#"{"model":"m","prompt":"q","stream_options":{"include_usage":true}}"#;
const COMPLETIONS_LOGPROBS: &str = r#"{"model":"m","prompt":"q","logprobs":2}"#;
const RESPONSES: &str = r#"{"model":"m","input":"q","include":["reasoning.encrypted_content"],"metadata":{"k":"v"},
    "tools":[{"type":"function","name":"read"},{"type":"custom","name":"patch"},{"type":"local_shell"},{"type":"tool_search"},
             {"type":"namespace","name":"mcp__a__","tools":[{"name":"find"}]}]}"#;
const MESSAGES: &str = r#"{"model":"m","messages":[{"role":"user","content":"q"}]}"#;

fn shape(api: Api, body: &str) -> Shape {
    read(api, body).unwrap().shape
}

/// A thought, a text and two calls.
fn calls() -> Reply {
    Reply::new(&["Need the ", "file list."], &["Look", "ing."])
        .call("list_files", &["{", "\"pattern\":\"*.c", "\",\"max_depth\":2}"])
        .call("now", &["{}"])
}

fn cut_call() -> Reply {
    Reply::new(&[], &["Writing."]).cut_call("write", &["{\"text\":\"a", "b"])
}

/// A thought, and nothing behind it although it is whole.
fn thought() -> Reply {
    Reply::new(&["Nothing ", "to say."], &[])
}

fn stopped() -> Reply {
    Reply::new(&["A list."], &["On", "e"]).finish(Finish::StopText("END".to_owned()))
}

fn cut_thought() -> Reply {
    let reply = Reply::new(&["Hm, ", "let me"], &[]).finish(Finish::Length);
    Reply { thought_open: true, ..reply }
}

/// A failure after `count` updates of a reply, each of three tokens.
fn broken(count: usize) -> Vec<Update> {
    let mut updates = calls().updates();
    updates.truncate(count);
    let failure = Failure::new(FailureKind::Engine, "the device was lost");
    updates.push(Update::Failed(Failure { output_tokens: 3 * count, ..failure }));
    updates
}

#[test]
fn chat_streams_are_as_reviewed() {
    let chat = shape(Api::Chat, CHAT);
    golden_reply("chat-calls", &chat, &calls());
    golden_reply("chat-cut-call", &chat, &cut_call());
    golden_reply("chat-cut-thought", &chat, &cut_thought());
    golden_reply("chat-thought", &chat, &thought());
    golden_reply("chat-stop-text", &chat, &stopped());
    golden_reply("chat-nothing", &chat, &Reply::default());
    golden("chat-failed-early", &frames(&chat, &broken(0)), None);
    golden("chat-failed", &frames(&chat, &broken(2)), None);
    let reply = Reply::new(&["t"], &["a", "é"]).with_logprobs();
    golden_reply("chat-logprobs", &shape(Api::Chat, CHAT_LOGPROBS), &reply);
}

#[test]
fn completions_streams_are_as_reviewed() {
    let completions = shape(Api::Completions, COMPLETIONS);
    golden_reply("completions-text", &completions, &Reply::new(&[], &["On", "ce."]));
    let cut = Reply::new(&[], &["On", "ce"]).finish(Finish::Length);
    golden_reply("completions-length", &completions, &cut);
    let stopped = Reply::new(&[], &["On", "ce"]).finish(Finish::StopText("END".to_owned()));
    golden_reply("completions-stop-text", &completions, &stopped);
    golden_reply("completions-nothing", &completions, &Reply::default());
    golden("completions-failed", &frames(&completions, &broken(6)), None);
    let reply = Reply::new(&[], &["é", "b"]).with_logprobs().finish(Finish::Length);
    golden_reply("completions-logprobs", &shape(Api::Completions, COMPLETIONS_LOGPROBS), &reply);
    let echo = shape(Api::Completions, r#"{"model":"m","prompt":"Say: ","echo":true}"#);
    golden_reply("completions-echo", &echo, &Reply::new(&[], &["ok"]));
}

#[test]
fn responses_streams_are_as_reviewed() {
    let responses = shape(Api::Responses, RESPONSES);
    golden_reply(
        "responses-text",
        &shape(Api::Responses, r#"{"model":"m","input":"q"}"#),
        &Reply::new(&[], &["OK", "."]),
    );
    golden_reply("responses-calls", &responses, &calls());
    let kinds = Reply::new(&[], &[])
        .call("patch", &["{\"input\":\"a\\", "nb\"}"])
        .call("local_shell", &["{\"command\":[\"ls\"],", "\"workdir\":\"/tmp\"}"])
        .call("tool_search", &["{\"query\":\"x\"}"])
        .call("mcp__a__find", &["{}"]);
    golden_reply("responses-kinds", &responses, &kinds);
    golden_reply("responses-cut-call", &responses, &cut_call());
    golden_reply("responses-cut-thought", &responses, &cut_thought());
    golden_reply("responses-thought", &responses, &thought());
    golden_reply("responses-thought-text", &responses, &Reply::new(&["An ", "aim."], &["OK", "."]));
    let unsaid =
        shape(Api::Responses, r#"{"model":"m","input":"q","reasoning":{"summary":"none"}}"#);
    golden_reply("responses-no-summary", &unsaid, &Reply::new(&["An ", "aim."], &["OK", "."]));
    golden("responses-failed-early", &frames(&responses, &broken(0)), None);
    golden("responses-failed", &frames(&responses, &broken(4)), None);
}

#[test]
fn messages_streams_are_as_reviewed() {
    let messages = shape(Api::Messages, MESSAGES);
    golden_reply("messages-calls", &messages, &calls());
    golden_reply("messages-cut-call", &messages, &cut_call());
    golden_reply("messages-cut-thought", &messages, &cut_thought());
    golden_reply("messages-thought", &messages, &thought());
    golden_reply("messages-nothing", &messages, &Reply::default());
    let stopped = Reply::new(&[], &["a"]).finish(Finish::StopText("END".to_owned()));
    golden_reply("messages-stop-text", &messages, &stopped);
    golden("messages-failed-early", &frames(&messages, &broken(0)), None);
    golden("messages-failed", &frames(&messages, &broken(4)), None);
}

#[test]
fn signs_of_life_are_as_reviewed() {
    for (api, body) in [
        (Api::Chat, CHAT),
        (Api::Completions, COMPLETIONS),
        (Api::Responses, r#"{"model":"m","input":"q"}"#),
        (Api::Messages, MESSAGES),
    ] {
        let mut encoder = Encoder::new(shape(api, body), stamp(api));
        let mut frames = Vec::new();
        for waiting in [
            Waiting::Queued { position: 2 },
            Waiting::Loading,
            Waiting::Prefill { done: 4096, total: 25_012 },
        ] {
            frames.extend(encoder.update(&Update::Waiting(waiting)));
            frames.extend(encoder.keepalive(Some(&waiting)));
        }
        frames.extend(encoder.update(&Update::Begin(Reply::usage())));
        frames.extend(encoder.keepalive(None));
        frames.extend(encoder.update(&Update::Text("a".to_owned())));
        frames.extend(encoder.keepalive(None));
        let end = Update::End(Box::new(Reply::new(&[], &["a"]).outcome()));
        frames.extend(encoder.update(&end));
        let over = [encoder.keepalive(None), encoder.update(&end)].concat();
        assert!(over.is_empty());
        golden(&format!("{}-keepalive", api.name()), &frames, None);
    }
}
