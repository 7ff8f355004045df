//! A server that dies: what it saved of replies on their way is found by what clients send back.

use std::path::Path;
use std::time::{Duration, Instant};

use q36::chat::Message;
use q36::engine::tokenizer_of;
use q36::kv::{self, Limits};
use q36::model::Model;
use q36::server::schedule::Config;
use q36::server::{Finish, Request, Sampling, Thinking};
use tempfile::TempDir;

use super::disk::{call, long, short};
use super::harness::{Heard, Server, blunt, chat, demo, with_tool};
use crate::support::{temp_dir, tiny_model};

/// Distance of saves in tokens, and more than the marks between two turns have.
const STEP: usize = 40;
const BETWEEN: usize = 30;

fn config(dir: &Path, step: usize) -> Config {
    let limits = Limits {
        min_tokens: 32,
        cold_max_tokens: 0,
        continued_tokens: step,
        align_tokens: 0,
        ..Limits::default()
    };
    let disk = kv::Config { limits, ..kv::Config::new(dir.to_path_buf()) };
    Config { disk: Some(disk), ..Config::default() }
}

/// What is on disk once nothing more is being written: all that a server leaves that ends without a word.
fn left_behind(dir: &Path) -> TempDir {
    let names = || {
        let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| !path.ends_with(".q36-kv.lock")).collect::<Vec<_>>()
    };
    let is_written = |path: &std::path::PathBuf| path.extension().is_some_and(|ext| ext == "kv");
    let (mut quiet, end) = (Instant::now(), Instant::now() + Duration::from_mins(1));
    let mut seen = names().len();
    while quiet.elapsed() < Duration::from_millis(200) {
        assert!(Instant::now() < end, "files are being written all the time");
        let now = names();
        if now.len() != seen || !now.iter().all(is_written) {
            (quiet, seen) = (Instant::now(), now.len());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let copy = temp_dir();
    for path in names() {
        std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    copy
}

/// A thought that does not end by itself, of more than `STEP` tokens where `budget` is 200.
fn ponders(request: Request, budget: Option<usize>) -> Request {
    let model = Model::open(&tiny_model()).unwrap();
    let special = *tokenizer_of(&model).unwrap().special();
    let ends = [special.think_end, special.im_end, special.endoftext];
    let bias = ends.into_iter().map(|id| (id, -1000.0)).collect();
    let sampling = Sampling { bias, ..request.sampling };
    Request { sampling, thinking: Thinking { budget, ..request.thinking }, ..request }
}

/// Asks a server that finds nothing but `dir`.
fn ask_after(dir: &TempDir, request: Request) -> (Heard, &'static str) {
    let server = Server::start(config(dir.path(), STEP), demo(1, 0));
    let heard = server.ask("after", request);
    (heard, server.continuation("after").source)
}

#[test]
fn a_frontier_inside_a_thought_is_saved_with_the_answer_behind_it() {
    let dir = temp_dir();
    let messages = long("Tell me about the fox.");
    let server = Server::start(config(dir.path(), STEP), demo(1, 0));
    let first =
        server.ask("1", ponders(Request { limit: Some(700), ..short(chat(&messages)) }, Some(200)));
    assert!(first.outcome.usage.reasoning_tokens > STEP, "{:?}", first.outcome);
    assert_ne!(first.outcome.finish, Finish::Length);
    let left = left_behind(dir.path());
    for thought in [false, true] {
        let next = [&messages[..], &[first.message(thought), Message::user("And the bear?")]];
        let (second, source) = ask_after(&left, short(chat(&next.concat())));
        assert_eq!(source, "disk-text");
        assert!(second.evaluated() < BETWEEN, "{:?}", second.outcome.usage);
        assert!(second.outcome.usage.cached_tokens > first.outcome.usage.prompt_tokens + STEP);
    }
}

#[test]
fn no_text_is_saved_that_nobody_sends() {
    let dir = temp_dir();
    let server = Server::start(config(dir.path(), STEP), demo(1, 0));
    let prompt = server.desk.count(&chat(&long("Tell me about the fox."))).unwrap();
    // It is cut off inside of its thought.
    let request = Request { limit: Some(3 * STEP), ..chat(&long("Tell me about the fox.")) };
    let cut = server.ask("1", ponders(request, None));
    assert!(cut.outcome.thought_open, "{:?}", cut.outcome);
    let left = left_behind(dir.path());
    let files = std::fs::read_dir(left.path()).unwrap().count();
    assert_eq!(files, prompt / STEP, "those of the prompt");
}

#[test]
fn a_reply_that_becomes_a_call_is_saved_at_its_end() {
    // So close that a call passes one.
    let step = 16;
    for thinks in [false, true] {
        let dir = temp_dir();
        let server = Server::start(config(dir.path(), step), demo(1, 0));
        let request = call(&server, thinks);
        let first = server.ask("1", request);
        assert_eq!(first.outcome.finish, Finish::Calls, "{:?}", first.outcome);
        assert!(first.outcome.usage.output_tokens > step, "{:?}", first.outcome.usage);
        let left = left_behind(dir.path());
        let next = [long("Call the function."), vec![first.message(true), Message::tool("done")]];
        let base = if thinks { chat(&next.concat()) } else { blunt(&next.concat()) };
        let (second, source) = ask_after(&left, with_tool(short(base)));
        assert_eq!(source, "disk-text");
        assert!(second.evaluated() < BETWEEN, "thinks {thinks}: {:?}", second.outcome.usage);
    }
}

#[test]
fn a_row_of_calls_is_found_by_the_next_question_although_its_thoughts_are_gone() {
    let dir = temp_dir();
    let server = Server::start(config(dir.path(), STEP), demo(1, 0));
    let mut messages = long("Call the function.");
    for round in 0..2 {
        let mut request = call(&server, true);
        if let q36::server::Input::Chat { conversation, .. } = &mut request.input {
            conversation.messages.clone_from(&messages);
        }
        let heard = server.ask(&format!("call {round}"), request);
        assert_eq!(heard.outcome.finish, Finish::Calls, "{:?}", heard.outcome);
        messages.extend([heard.message(true), Message::tool("done")]);
    }
    let thinking = Thinking { budget: Some(20), ..Thinking::default() };
    let last = Request { thinking, ..short(with_tool(chat(&messages))) };
    let answer = server.ask("answer", last);
    assert_ne!(answer.outcome.finish, Finish::Length, "{:?}", answer.outcome);
    let left = left_behind(dir.path());
    messages.extend([answer.message(true), Message::user("And then?")]);
    let (next, source) = ask_after(&left, with_tool(short(chat(&messages))));
    assert_eq!(source, "disk-text");
    assert!(next.evaluated() < BETWEEN, "{:?}", next.outcome.usage);
}
