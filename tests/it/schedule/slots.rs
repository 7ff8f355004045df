//! Several sessions: who gets which, in which order work is done, and that nobody notices the others.

use std::time::Duration;

use q36::chat::Message;
use q36::server::schedule::Config;
use q36::server::{FailureKind, Request, Sampling, Update, Waiting};

use super::harness::{Server, blunt, chat, demo, hear};
use super::scripted::{Control, Did, Replies, scripted};

const REPLIES: Replies = &[
    ("count", "one two three four five six seven eight nine ten"),
    ("first", "This is the first."),
    ("second", "This is the second."),
    ("third", "This is the third."),
];

fn ask(text: &str) -> Request {
    blunt(&[Message::user(text)])
}

fn server(sessions: usize, control: &Control) -> Server {
    let config = Config { sessions, ..Config::default() };
    Server::start(config, scripted(2048, REPLIES, control))
}

#[test]
fn more_clients_than_sessions_all_get_their_own_answer() {
    let server = server(2, &Control::default());
    let texts = ["first", "second", "third", "count", "third", "second", "first"];
    let inboxes: Vec<_> =
        (0..).zip(texts).map(|(n, text)| server.submit(&format!("{n}"), ask(text))).collect();
    for (text, inbox) in texts.iter().zip(inboxes) {
        let heard = hear(inbox).unwrap();
        let expected = REPLIES.iter().find(|(key, _)| key == text).unwrap().1;
        assert_eq!(heard.outcome.text, expected);
    }
    assert_eq!(server.desk.status().queued, 0);
}

#[test]
fn a_reply_is_the_same_in_company_and_alone() {
    let sampled = |text: &str, seed: u64| Request {
        sampling: Sampling { seed: Some(seed), temperature: Some(1.0), ..Sampling::default() },
        limit: Some(12),
        ..blunt(&[Message::user(text)])
    };
    let requests = [
        sampled("The fox met the bear.", 7),
        sampled("Where is the river?", 8),
        sampled("The fox met the bear.", 9),
        sampled("What year was it in the town by the river, and who was there?", 10),
        sampled("Where is the river?", 11),
        sampled("The fox met the bear.", 7),
        sampled("Who was there?", 12),
    ];
    let alone: Vec<String> = requests
        .iter()
        .map(|request| {
            let server = Server::start(Config::default(), demo(1, 0));
            server.ask("1", request.clone()).outcome.text
        })
        .collect();
    let config = Config { sessions: 4, ..Config::default() };
    let server = Server::start(config, demo(4, 0));
    let inboxes: Vec<_> =
        requests.iter().map(|request| server.submit("x", request.clone())).collect();
    let together: Vec<String> =
        inboxes.into_iter().map(|inbox| hear(inbox).unwrap().outcome.text).collect();
    assert_eq!(together, alone);
    assert_eq!(together[0], together[5], "the same request with the same seed");
}

#[test]
fn a_long_prompt_and_a_reply_alternate() {
    let control = Control::default();
    let server = server(2, &control);
    control.allow_steps(0);
    let reply = server.submit("reply", ask("count"));
    server.wait_until(|server| server.desk.status().slots[0].state == "decode");
    control.take();
    let long = "word ".repeat(60);
    let prompt = server.submit("prompt", ask(&format!("{long} first")));
    control.release();
    hear(reply).unwrap();
    hear(prompt).unwrap();
    let did = control.take();
    // From the first slice to the last step of the reply that was under way nothing comes twice in a row.
    let first = did.iter().position(|did| matches!(did, Did::Slice(..))).unwrap();
    let end = did.iter().rposition(|did| *did == Did::Step(vec![0])).unwrap();
    assert!(end > first + 8, "they ran at the same time: {did:?}");
    for pair in did[first..end].windows(2) {
        let is_slice = |did: &Did| matches!(did, Did::Slice(..));
        assert_ne!(is_slice(&pair[0]), is_slice(&pair[1]), "{pair:?}");
    }
}

#[test]
fn replies_share_steps_and_prompts_take_turns() {
    let control = Control::default();
    let server = server(2, &control);
    control.allow_slices(0);
    let inboxes = ["count to ten", "count again"].map(|text| server.submit(text, ask(text)));
    control.release();
    for inbox in inboxes {
        hear(inbox).unwrap();
    }
    let did = control.take();
    assert!(did.contains(&Did::Step(vec![0, 1])), "{did:?}");
    let slices: Vec<u32> = did
        .iter()
        .filter_map(|did| if let Did::Slice(session, _) = did { Some(*session) } else { None })
        .collect();
    // The first one may have been alone at first.
    let both = slices.iter().position(|session| *session == 1).unwrap();
    assert!(slices[both..].windows(2).take(3).all(|pair| pair[0] != pair[1]), "{slices:?}");
}

#[test]
fn slices_beside_replies_take_a_fifth_of_the_stall_that_is_allowed_and_are_longer_alone() {
    let control = Control::default();
    let decode_stall = Duration::from_millis(100);
    let config = Config { sessions: 2, decode_stall, ..Config::default() };
    let server = Server::start(config, scripted(2048, REPLIES, &control));
    control.allow_steps(0);
    let reply = server.submit("reply", ask("count"));
    server.wait_until(|server| server.desk.status().slots[0].state == "decode");
    let (_, limits) = control.take_timed();
    assert!(limits.iter().all(|limit| *limit > decode_stall), "alone before it: {limits:?}");
    let prompt = server.submit("prompt", ask(&format!("{} first", "word ".repeat(200))));
    control.release();
    hear(reply).unwrap();
    hear(prompt).unwrap();
    let (did, limits) = control.take_timed();
    let end = did.iter().rposition(|did| *did == Did::Step(vec![0])).unwrap();
    let beside = did[..end].iter().filter(|did| matches!(did, Did::Slice(..))).count();
    assert!(beside > 4 && beside < limits.len(), "{beside} slices of {}", limits.len());
    assert!(limits[..beside].iter().all(|limit| *limit <= decode_stall / 5), "{limits:?}");
    assert!(limits.last().is_some_and(|limit| *limit > decode_stall), "alone behind it");
}

#[test]
fn a_failed_step_fails_all_its_members_and_nobody_else() {
    let control = Control::default();
    let server = server(3, &control);
    // All three begin together, so that the two short prompts are there within a round of each other.
    control.allow_slices(0);
    let failing = ["count to ten", "count again"].map(|text| server.submit(text, ask(text)));
    let other = ask(&format!("{} first", "word ".repeat(200)));
    let filling = server.submit("first", other);
    control.fail_step_of(2);
    control.release();
    for inbox in failing {
        assert_eq!(hear(inbox).unwrap_err().kind, FailureKind::Engine);
    }
    let heard = hear(filling).unwrap();
    assert_eq!(heard.outcome.text, "This is the first.");
    let did = control.take();
    let failed = did.iter().position(|did| *did == Did::Step(vec![0, 1])).unwrap();
    let evaluated = |did: &[Did]| -> usize {
        let of_prompt = |did: &Did| if let Did::Slice(2, tokens) = did { *tokens } else { 0 };
        did.iter().map(of_prompt).sum()
    };
    // Its prompt was on its way when the step failed, and went on from there.
    let [before, behind] = [&did[..failed], &did[failed..]].map(evaluated);
    assert!(before > 0 && behind > 0, "{before} tokens before and {behind} behind the failure");
    assert_eq!(before + behind, heard.evaluated());
    assert_eq!(server.ask("again", ask("second")).outcome.text, "This is the second.");
}

#[test]
fn a_failed_prompt_fails_alone() {
    let control = Control::default();
    let server = server(2, &control);
    control.fail_next_slice();
    let failure = hear(server.submit("1", ask("first"))).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Engine);
    assert_eq!(server.finish("1"), Some("error"));
    assert_eq!(server.ask("2", ask("first")).outcome.text, "This is the first.");
}

#[test]
fn those_who_wait_hear_their_place() {
    let control = Control::default();
    let config = Config { max_queue: 3, ..Config::default() };
    let server = Server::start(config, scripted(2048, REPLIES, &control));
    control.allow_steps(0);
    let first = server.submit("1", ask("first"));
    server.wait_until(|server| server.desk.status().slots[0].state == "decode");
    let waiting = ["second", "third", "count"].map(|text| server.submit(text, ask(text)));
    let full = server.desk.submit("x".into(), ask("first"), &[]).unwrap_err();
    assert_eq!(full.kind, FailureKind::QueueFull);
    assert_eq!(server.desk.status().queued, 3);
    control.release();
    hear(first).unwrap();
    let places: Vec<Vec<usize>> = waiting
        .into_iter()
        .map(|inbox| {
            let place = |update: &Update| {
                let Update::Waiting(Waiting::Queued { position }) = update else { return None };
                Some(*position)
            };
            hear(inbox).unwrap().updates.iter().filter_map(place).collect()
        })
        .collect();
    assert!(places[2].ends_with(&[2, 1]) || places[2].ends_with(&[1]), "{places:?}");
    assert!(places.iter().all(|places| places.is_sorted_by(|a, b| a > b)), "{places:?}");
}

#[test]
fn without_a_queue_free_sessions_are_served_and_nobody_waits() {
    let control = Control::default();
    let config = Config { max_queue: 0, ..Config::default() };
    let server = Server::start(config, scripted(2048, REPLIES, &control));
    control.allow_steps(0);
    let first = server.submit("1", ask("first"));
    server.wait_until(|server| server.desk.status().slots[0].state == "decode");
    let refused = server.desk.submit("2".into(), ask("second"), &[]).unwrap_err();
    assert_eq!(refused.kind, FailureKind::QueueFull);
    control.release();
    hear(first).unwrap();
    server.wait_until(|server| server.desk.status().slots[0].state == "idle");
    assert_eq!(server.ask("3", ask("third")).outcome.text, "This is the third.");
}

#[test]
fn a_conversation_finds_its_session_and_a_new_one_an_empty_one() {
    let server = server(2, &Control::default());
    let question = vec![Message::user("first")];
    let first = server.ask("1", blunt(&question));
    server.ask("2", ask("second"));
    let next = [question, vec![first.message(false), Message::user("third")]].concat();
    let heard = server.ask("3", blunt(&next));
    assert!(heard.outcome.usage.cached_tokens > first.outcome.usage.prompt_tokens);
    // The client is answered first, and what is remembered is told after that.
    server.wait_until(|server| server.desk.status().slots.iter().all(|s| s.binding == "thinking"));
    let status = server.desk.status();
    assert!(status.slots[0].tokens > status.slots[1].tokens);
    // Nothing of it is known: the session that was used longest ago gives way.
    server.ask("4", chat(&[Message::user("count")]));
    assert_eq!(server.desk.status().slots[0].tokens, status.slots[0].tokens);
}

#[test]
fn a_long_common_beginning_that_nothing_can_go_on_from_leaves_its_session_alone() {
    let control = Control::default();
    let server = server(2, &control);
    let system = Message::system("The fox met the bear at the river. ".repeat(20));
    let question = vec![system.clone(), Message::user("first")];
    let first = server.ask("1", blunt(&question));
    control.take();
    // A state behind the common beginning is of no use for a prompt that goes on otherwise.
    let other = server.ask("2", blunt(&[system, Message::user("second")]));
    assert_eq!(other.outcome.usage.cached_tokens, 0);
    let did = control.take();
    let is_elsewhere = |did: &Did| match did {
        Did::Slice(session, _) => *session == 1,
        Did::Step(sessions) => *sessions == [1],
    };
    assert!(did.iter().all(is_elsewhere), "the empty session is taken: {did:?}");
    let next = [question, vec![first.message(false), Message::user("third")]].concat();
    let heard = server.ask("3", blunt(&next));
    assert!(heard.outcome.usage.cached_tokens > first.outcome.usage.prompt_tokens);
}
