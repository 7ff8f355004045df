//! A server that nobody asks anything puts its model away, and takes it out again.

use std::sync::mpsc::channel;
use std::time::Duration;

use q36::chat::Message;
use q36::kv::{self, Limits};
use q36::server::schedule::{Config, Opened};
use q36::server::{FailureKind, Request, State, Update, Waiting};

use super::harness::{Server, blunt, chat, demo, hear};
use super::scripted::{Control, Replies, scripted};
use crate::support::temp_dir;

const REPLIES: Replies = &[("capital", "The user asks.\n</think>\n\nParis."), ("blunt", "Short.")];

fn impatient() -> Config {
    Config { idle_unload: Some(Duration::from_millis(1)), ..Config::default() }
}

fn capital() -> Vec<Message> {
    vec![Message::user("What is the capital of France?")]
}

fn is_idle(server: &Server) -> bool {
    server.desk.status().state == State::Idle
}

#[test]
fn an_idle_model_leaves_memory_and_comes_back_with_the_next_request() {
    let control = Control::default();
    let server = Server::start(impatient(), scripted(2048, REPLIES, &control));
    for round in 0..3 {
        server.wait_until(is_idle);
        assert_eq!(control.engines(), 0, "the engine is dropped before the server says idle");
        assert!(server.desk.count(&chat(&capital())).unwrap() > 0, "prompts are counted");
        assert_eq!(control.engines(), 0, "and wake nobody");
        let heard = server.ask(&format!("{round}"), chat(&capital()));
        assert_eq!(heard.outcome.text, "Paris.");
        assert!(heard.updates.contains(&Update::Waiting(Waiting::Loading)));
    }
    server.wait_until(is_idle);
    server.stop().unwrap();
}

#[test]
fn what_an_idle_server_has_saved_is_found_when_it_wakes() {
    let text = "The fox met the bear at the river. ".repeat(10);
    let first = vec![Message::system(text), Message::user("What did the fox do?")];
    let short = |messages: &[Message]| Request {
        limit: None,
        stop: vec![" ".into(), "e".into()],
        ..blunt(messages)
    };
    let converse = |config: Config, waits: bool| {
        let server = Server::start(config, demo(1, 0));
        let answer = server.ask("1", short(&first));
        if waits {
            server.wait_until(is_idle);
            assert!(server.desk.status().slots.is_empty(), "it has no sessions");
        }
        let next = [&first[..], &[answer.message(false), Message::user("And the bear?")]].concat();
        let second = server.ask("2", short(&next));
        (server.continuation("2").source, second.evaluated(), second.outcome.text)
    };
    let dir = temp_dir();
    let limits = Limits { min_tokens: 32, ..Limits::default() };
    let disk = kv::Config { limits, ..kv::Config::new(dir.path().to_path_buf()) };
    let (_, live, expected) = converse(Config::default(), false);
    let (source, evaluated, answer) = converse(Config { disk: Some(disk), ..impatient() }, true);
    assert_eq!((source, answer), ("disk-text", expected));
    assert!(evaluated <= live, "{evaluated} tokens, with the session in memory {live}");
    // Without a disk the conversation is only evaluated anew.
    let (source, evaluated, _) = converse(impatient(), true);
    assert_eq!(source, "none");
    assert!(evaluated > 2 * live);
}

#[test]
fn while_the_model_is_loaded_again_questions_about_the_server_are_answered_and_requests_wait() {
    let (release, gate) = channel::<()>();
    let mut open = scripted(2048, REPLIES, &Control::default());
    let mut is_first = true;
    let open = move || -> Opened {
        if !std::mem::replace(&mut is_first, false) {
            gate.recv().unwrap();
        }
        open()
    };
    let server = Server::start(Config { max_queue: 1, ..impatient() }, open);
    server.wait_until(is_idle);
    let woke = server.submit("woke", blunt(&[Message::user("A blunt one")]));
    server.wait_until(|server| server.desk.status().state == State::Loading);
    assert!(server.desk.count(&chat(&capital())).unwrap() > 0);
    assert!(server.desk.facts().is_some());
    let waits = server.submit("waits", chat(&capital()));
    let refused = server.desk.submit("full".into(), chat(&capital()), &[]).unwrap_err();
    assert_eq!(
        refused.kind,
        FailureKind::QueueFull,
        "no more than may wait, and one for the session"
    );
    release.send(()).unwrap();
    assert_eq!(hear(woke).unwrap().outcome.text, "Short.");
    assert_eq!(hear(waits).unwrap().outcome.text, "Paris.");
}
