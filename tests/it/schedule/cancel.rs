//! Clients that leave, and a server that ends.

use std::time::Duration;

use proptest::prelude::*;
use q36::chat::Message;
use q36::server::schedule::Config;
use q36::server::{FailureKind, Request};

use super::harness::{Server, blunt, hear};
use super::scripted::{Control, Did, Replies, scripted};

const REPLIES: Replies = &[
    ("count", "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"),
    ("first", "This is the first."),
];

fn ask(text: &str) -> Request {
    blunt(&[Message::user(text)])
}

fn server(control: &Control) -> Server {
    Server::start(Config::default(), scripted(2048, REPLIES, control))
}

#[test]
fn who_leaves_the_queue_is_forgotten_and_nobody_else() {
    let control = Control::default();
    let server = server(&control);
    control.allow_steps(0);
    let running = server.submit("running", ask("count"));
    server.wait_until(|server| server.desk.status().slots[0].state == "decode");
    let gone = server.submit("gone", ask("first"));
    let stays = server.submit("stays", ask("first"));
    drop(gone);
    control.release();
    assert!(hear(running).unwrap().outcome.text.ends_with("fourteen"));
    assert_eq!(hear(stays).unwrap().outcome.text, "This is the first.");
    assert_eq!(server.finish("gone"), Some("cancelled"));
}

#[test]
fn who_leaves_during_the_prompt_frees_the_session_and_what_was_evaluated_stays() {
    let control = Control::default();
    let server = server(&control);
    control.allow_slices(3);
    let long = format!("{} first", "word ".repeat(40));
    let gone = server.submit("gone", ask(&long));
    server.wait_until(|_| control.evaluated() == 12);
    drop(gone);
    control.release();
    server.wait_until(|server| server.finish("gone") == Some("cancelled"));
    assert_eq!(server.desk.status().slots[0].state, "idle");
    control.take();
    let again = server.ask("again", ask(&long));
    assert!(again.outcome.usage.cached_tokens >= 12);
    assert_eq!(again.outcome.text, "This is the first.");
}

#[test]
fn who_leaves_during_the_reply_frees_the_session() {
    let control = Control::default();
    let server = server(&control);
    control.allow_steps(3);
    let gone = server.submit("gone", ask("count"));
    server.wait_until(|_| control.evaluated() > 0);
    drop(gone);
    control.release();
    server.wait_until(|server| server.finish("gone").is_some());
    assert_eq!(server.ask("next", ask("first")).outcome.text, "This is the first.");
    let steps = control.take().iter().filter(|did| matches!(did, Did::Step(_))).count();
    assert!(steps < 20, "the reply of fourteen words did not go on: {steps}");
}

#[test]
fn a_client_that_does_not_read_pauses_and_then_goes_and_nobody_waits_for_it() {
    let words: &'static str = Box::leak("word ".repeat(1500).into_boxed_str());
    let replies: Replies = Box::leak(Box::new([("long", words), REPLIES[0], REPLIES[1]]));
    let patience = Duration::from_millis(300);
    let config = Config { client_stall: patience, sessions: 2, ..Config::default() };
    let server = Server::start(config, scripted(2048, replies, &Control::default()));
    // With the alternatives of each token a mebibyte is soon full.
    let request = || Request { logprobs: Some(20), limit: None, ..ask("long") };
    let silent = server.submit("silent", request());
    server.wait_until(|server| server.desk.status().slots[0].state == "paused");
    assert_eq!(server.ask("other", ask("first")).outcome.text, "This is the first.");
    server.wait_until(|server| server.finish("silent") == Some("cancelled"));
    drop(silent);
    let heard = server.ask("reads", request());
    assert!(heard.outcome.usage.output_tokens > 1400, "{:?}", heard.outcome.usage);
}

#[test]
fn a_server_that_stops_answers_everybody() {
    let control = Control::default();
    let server = server(&control);
    control.allow_steps(2);
    let running = server.submit("running", ask("count"));
    server.wait_until(|server| server.desk.status().slots[0].state == "decode");
    let queued = server.submit("queued", ask("first"));
    server.desk.stop();
    control.release();
    for inbox in [running, queued] {
        assert_eq!(hear(inbox).unwrap_err().kind, FailureKind::Stopping);
    }
    server.stop().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn in_whatever_order_clients_come_and_go_those_who_stay_are_answered(
        clients in prop::collection::vec((0usize..2, 0usize..40, any::<bool>()), 1..10),
    ) {
        let control = Control::default();
        let config = Config { sessions: 2, ..Config::default() };
        let server = Server::start(config, scripted(2048, REPLIES, &control));
        let mut staying = Vec::new();
        for (number, (which, steps, leaves)) in clients.into_iter().enumerate() {
            let (question, reply) = REPLIES[which];
            let inbox = server.submit(&format!("{number}"), ask(question));
            control.allow_steps(steps % 5);
            control.allow_slices(steps);
            if leaves {
                drop(inbox);
            } else {
                staying.push((reply, inbox));
            }
        }
        control.release();
        for (reply, inbox) in staying {
            prop_assert_eq!(hear(inbox).unwrap().outcome.text, reply);
        }
        server.wait_until(|server| {
            let status = server.desk.status();
            status.queued == 0 && status.slots.iter().all(|slot| slot.state == "idle")
        });
        server.stop().unwrap();
    }
}
