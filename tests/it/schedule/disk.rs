//! Sessions on disk: a conversation survives a restart, whatever its client sees of it.

use std::path::Path;

use q36::chat::Message;
use q36::kv::{self, Limits};
use q36::server::schedule::Config;
use q36::server::{Choice, Finish, Request, Thinking};

use super::harness::{Server, blunt, chat, demo, with_tool};
use crate::support::temp_dir;

fn config(dir: &Path, sessions: usize) -> Config {
    let limits = Limits { min_tokens: 32, ..Limits::default() };
    let disk = kv::Config { limits, ..kv::Config::new(dir.to_path_buf()) };
    Config { sessions, disk: Some(disk), ..Config::default() }
}

pub(super) fn long(text: &str) -> Vec<Message> {
    vec![Message::system("The fox met the bear at the river. ".repeat(10)), Message::user(text)]
}

/// Short answers, by force.
pub(super) fn short(request: Request) -> Request {
    let stop = vec![" ".into(), "e".into(), "\n".into()];
    let thinking = Thinking { budget: Some(80), ..request.thinking };
    Request { stop, thinking, limit: Some(500), ..request }
}

#[test]
fn a_conversation_with_thoughts_goes_on_after_a_restart() {
    for thought in [true, false] {
        let dir = temp_dir();
        let messages = long("Tell me about the fox.");
        let server = Server::start(config(dir.path(), 1), demo(1, 0));
        let first = server.ask("1", short(chat(&messages)));
        assert_ne!(first.outcome.finish, Finish::Length);
        assert!(first.outcome.usage.reasoning_tokens > 0);
        server.stop().unwrap();
        let next =
            [messages, vec![first.message(thought), Message::user("And the bear?")]].concat();
        let server = Server::start(config(dir.path(), 1), demo(1, 0));
        let second = server.ask("2", short(chat(&next)));
        assert_eq!(server.continuation("2").source, "disk-text");
        assert!(second.evaluated() < 30, "{:?}", second.outcome.usage);
        assert!(second.outcome.usage.cached_tokens > first.outcome.usage.prompt_tokens);
    }
}

#[test]
fn the_shared_beginning_of_new_conversations_is_saved() {
    let dir = temp_dir();
    let server = Server::start(config(dir.path(), 1), demo(1, 0));
    let request = |text: &str| Request { limit: Some(4), ..blunt(&long(text)) };
    let first = server.ask("1", request("What did the fox do?"));
    assert_eq!(first.outcome.usage.cached_tokens, 0);
    server.stop().unwrap();
    let server = Server::start(config(dir.path(), 1), demo(1, 0));
    let other = server.ask("2", request("Where is the river?"));
    assert_eq!(server.continuation("2").source, "disk-text");
    assert!(other.evaluated() < 30, "{:?}", other.outcome.usage);
    // The same answer as without a disk.
    let fresh = Server::start(Config::default(), demo(1, 0));
    assert_eq!(fresh.ask("1", request("Where is the river?")).outcome.text, other.outcome.text);
}

#[test]
fn a_session_that_gives_way_comes_back_from_disk() {
    let dir = temp_dir();
    let server = Server::start(config(dir.path(), 1), demo(1, 0));
    let messages = long("Tell me about the fox.");
    let first = server.ask("1", short(chat(&messages)));
    let other = "In the year 1000 the king went to the old town by the sea. ".repeat(8);
    server.ask("2", Request { limit: Some(4), ..blunt(&[Message::user(other)]) });
    let next = [messages, vec![first.message(false), Message::user("And the bear?")]].concat();
    let back = server.ask("3", short(chat(&next)));
    assert_eq!(server.continuation("3").source, "disk-text");
    assert!(back.outcome.usage.cached_tokens > first.outcome.usage.prompt_tokens);
    server.wait_until(|server| server.has_noted("stored "));
}

#[test]
fn a_server_that_stops_in_the_middle_of_a_reply_has_its_prompt_afterwards() {
    let question = "Tell me what the fox and the bear did on that day by the river. ".repeat(4);
    let messages = long(&question);
    // Who asks again, and who goes on without the reply.
    let other = [messages.clone(), vec![Message::user("And the bear?")]].concat();
    for (next, new) in [(messages.clone(), 10), (other, 30)] {
        let dir = temp_dir();
        let server = Server::start(config(dir.path(), 1), demo(1, 2));
        let inbox = server.submit("1", Request { limit: None, ..chat(&messages) });
        server.wait_until(|server| server.desk.status().slots[0].state == "decode");
        server.stop().unwrap();
        drop(inbox);
        let server = Server::start(config(dir.path(), 1), demo(1, 2));
        let heard = server.ask("2", Request { limit: Some(4), ..chat(&next) });
        assert_eq!(server.continuation("2").source, "disk-text");
        assert!(heard.evaluated() <= new, "{:?}", heard.outcome.usage);
    }
}

#[test]
fn a_damaged_file_costs_the_prompt_and_nothing_else() {
    let dir = temp_dir();
    let server = Server::start(config(dir.path(), 1), demo(1, 0));
    let request = || Request { limit: Some(4), ..blunt(&long("What did the fox do?")) };
    let first = server.ask("1", request());
    server.stop().unwrap();
    let mut damaged = 0;
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ext| ext == "kv") {
            let mut bytes = std::fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0);
    let server = Server::start(config(dir.path(), 1), demo(1, 0));
    let again = server.ask("2", request());
    assert_eq!(again.outcome.text, first.outcome.text);
    assert_eq!(again.outcome.usage.cached_tokens, 0);
}

/// A call of the demo model: what the tags may be is prescribed, and its value is ended by force.
pub(super) fn call(server: &Server, thinks: bool) -> Request {
    let messages = long("Call the function.");
    let thinking = Thinking { budget: Some(30), ..Thinking::default() };
    let thought = Request { thinking, ..chat(&messages) };
    let mut request = with_tool(if thinks { thought } else { blunt(&messages) });
    request.calls.choice = Choice::Function("f".into());
    request.calls.parallel = false;
    let end = server.desk.tokenize("</parameter>").unwrap()[0];
    request.sampling.bias = vec![(end, 1000.0)];
    request
}

#[test]
fn a_tool_loop_goes_on_after_a_restart_with_the_very_text_of_its_calls() {
    let dir = temp_dir();
    let server = Server::start(config(dir.path(), 1), demo(1, 0));
    let first = server.ask("1", call(&server, false));
    assert_eq!(first.outcome.finish, Finish::Calls, "{:?}", first.outcome);
    server.stop().unwrap();
    let next =
        [long("Call the function."), vec![first.message(false), Message::tool("done")]].concat();
    let server = Server::start(config(dir.path(), 1), demo(1, 0));
    let result = server.ask("2", with_tool(short(blunt(&next))));
    assert_eq!(server.continuation("2").source, "disk-text");
    assert!(result.evaluated() < 30, "{:?}", result.outcome.usage);
    assert!(result.outcome.usage.cached_tokens > first.outcome.usage.prompt_tokens);
}

#[test]
fn long_prompts_and_replies_are_saved_on_their_way() {
    let dir = temp_dir();
    let mut config = config(dir.path(), 1);
    let disk = config.disk.as_mut().unwrap();
    disk.limits =
        Limits { continued_tokens: 50, align_tokens: 0, cold_max_tokens: 0, ..disk.limits };
    let server = Server::start(config, demo(1, 0));
    let request = Request { limit: Some(120), ..blunt(&long("Tell me about the fox.")) };
    let heard = server.ask("1", request);
    let tokens = heard.outcome.usage.prompt_tokens + heard.outcome.usage.output_tokens - 1;
    // One file at every multiple, of the prompt and of the reply.
    let expected = format!("q36_disk_files {}", tokens / 50);
    server.wait_until(|server| server.desk.metrics().lines().any(|line| line == expected));
}
