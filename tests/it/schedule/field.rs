//! Trouble that users reported of comparable servers (server.md 18.1, 18.2), where no other test is about it: reuse that
//! fails without a word, and saved sessions that make things worse.

use std::path::Path;

use q36::chat::Message;
use q36::kv::{self, Limits};
use q36::model::Model;
use q36::server::schedule::Config;
use q36::server::{Finish, Request};

use super::disk::{call, long, short};
use super::harness::{Heard, Server, blunt, chat, demo, with_tool};
use super::scripted::{Control, Replies, scripted};
use super::spoiled::spoiled;
use crate::support::{temp_dir, tiny_model};

const REPLIES: Replies = &[
    ("plan", "I wonder.\n</think>\n\nShall I read it?"),
    (
        "list",
        "A call.\n</think>\n\n<tool_call>\n<function=f>\n<parameter=s>\n02\n</parameter>\n</function>\n</tool_call>",
    ),
    ("<tool_response>", "Seen.\n</think>\n\nThere it is. Go on?"),
    ("thanks", "Nice.\n</think>\n\nYou are welcome."),
    ("odd", "A call.\n</think>\n\nI call:\n<function=nobody>\n</function>"),
    ("hi", "Ho."),
];

fn config(dir: &Path, limits: Limits) -> Config {
    let disk = kv::Config { limits, ..kv::Config::new(dir.to_path_buf()) };
    Config { disk: Some(disk), ..Config::default() }
}

fn next(messages: &[Message], heard: &Heard, question: &str) -> Vec<Message> {
    [messages, &[heard.message(false), Message::user(question)]].concat()
}

/// Tokens of a question behind a turn, and of the opening of its answer.
fn between(server: &Server, question: &str) -> usize {
    let text = format!(
        "<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n<think>\n"
    );
    server.desk.count(&Request { input: q36::server::Input::Text(text), ..chat(&[]) }).unwrap()
}

fn files(dir: &Path) -> usize {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    names.filter(|path| path.extension().is_some_and(|ext| ext == "kv")).count()
}

#[test]
fn a_prompt_of_any_length_is_reused_in_memory_and_what_is_told_is_what_was_saved() {
    let control = Control::default();
    let server = Server::start(Config::default(), scripted(2048, REPLIES, &control));
    let messages = [Message::user("hi")];
    let first = server.ask("1", blunt(&messages));
    assert_eq!(control.evaluated(), first.evaluated());
    control.take();
    let second = server.ask("2", blunt(&next(&messages, &first, "hi")));
    let usage = second.outcome.usage;
    assert!(usage.cached_tokens >= first.outcome.usage.prompt_tokens, "{usage:?}");
    assert_eq!(control.evaluated(), usage.prompt_tokens - usage.cached_tokens);
}

#[test]
fn a_prompt_is_found_on_disk_from_the_least_length_that_is_saved() {
    let limits = Limits { min_tokens: 64, ..Limits::default() };
    for (words, is_found) in [(3, false), (20, true)] {
        let dir = temp_dir();
        let text = "The fox met the bear. ".repeat(words);
        let request = || Request {
            limit: Some(1),
            ..blunt(&[Message::system(text.clone()), Message::user("Who?")])
        };
        let server = Server::start(config(dir.path(), limits), demo(1, 0));
        let tokens = server.ask("1", request()).outcome.usage.prompt_tokens;
        assert_eq!(tokens >= 64, is_found);
        server.stop().unwrap();
        let server = Server::start(config(dir.path(), limits), demo(1, 0));
        let again = server.ask("2", request());
        assert_eq!(again.outcome.usage.cached_tokens > 0, is_found, "{:?}", again.outcome.usage);
    }
}

#[test]
fn a_turn_that_ends_without_a_call_goes_on_in_a_conversation_of_calls() {
    let server = Server::start(Config::default(), scripted(4096, REPLIES, &Control::default()));
    let mut messages = vec![Message::user("Make a plan")];
    let plan = server.ask("1", with_tool(chat(&messages)));
    assert_eq!(plan.outcome.finish, Finish::Stop);
    messages = next(&messages, &plan, "list");
    let call = server.ask("2", with_tool(chat(&messages)));
    assert_eq!(call.evaluated(), between(&server, "list"));
    assert_eq!(call.outcome.finish, Finish::Calls);
    messages.extend([call.message(false), Message::tool("a.c")]);
    let stop = server.ask("3", with_tool(chat(&messages)));
    assert_eq!(stop.outcome.finish, Finish::Stop);
    messages = next(&messages, &stop, "thanks");
    let last = server.ask("4", with_tool(chat(&messages)));
    assert_eq!(last.evaluated(), between(&server, "thanks"));
}

#[test]
fn a_call_that_was_cut_off_costs_no_more_than_its_turn() {
    let server = Server::start(Config::default(), demo(1, 4));
    let cut = server.ask("1", Request { limit: Some(6), ..call(&server, false) });
    assert!(cut.outcome.open_call.is_some(), "{:?}", cut.outcome);
    let messages = next(&long("Call the function."), &cut, "And then?");
    let again = server.ask("2", with_tool(short(blunt(&messages))));
    assert_eq!(server.continuation("2").source, "anchor");
    assert!(again.evaluated() < 40, "{:?}", again.outcome.usage);
}

#[test]
fn markup_that_is_no_call_is_text_and_the_next_turn_evaluates_only_itself() {
    let server = Server::start(Config::default(), scripted(4096, REPLIES, &Control::default()));
    let messages = vec![Message::user("Something odd")];
    let odd = server.ask("1", with_tool(chat(&messages)));
    assert_eq!(odd.outcome.finish, Finish::Stop);
    assert_eq!(odd.outcome.text, "I call:\n<function=nobody>\n</function>");
    server.wait_until(|server| server.finish("1").is_some());
    let said = format!("{:?}", server.said("1"));
    assert!(said.contains("invalid tool call"), "{said}");
    let last = server.ask("2", with_tool(chat(&next(&messages, &odd, "thanks"))));
    assert_eq!(last.evaluated(), between(&server, "thanks"));
}

#[test]
fn a_block_that_is_never_closed_costs_no_more_than_its_turn() {
    let server = Server::start(Config::default(), demo(1, 4));
    let model = Model::open(&tiny_model()).unwrap();
    let end = q36::engine::tokenizer_of(&model).unwrap().special().im_end;
    let mut request = call(&server, false);
    // The turn ends in the first value.
    request.sampling.bias = vec![(end, 1000.0)];
    let broken = server.ask("1", request);
    assert!(broken.outcome.calls.is_empty(), "{:?}", broken.outcome);
    assert!(broken.outcome.open_call.is_some(), "{:?}", broken.outcome);
    assert!(broken.outcome.usage.output_tokens < 100, "no limit cut it off: {:?}", broken.outcome);
    let messages = next(&long("Call the function."), &broken, "And then?");
    let again = server.ask("2", with_tool(short(blunt(&messages))));
    assert_eq!(server.continuation("2").source, "anchor");
    assert!(again.evaluated() < 40, "{:?}", again.outcome.usage);
}

#[test]
fn a_saved_session_that_cannot_be_continued_is_deleted_and_the_prompt_begins_anew() {
    let dir = temp_dir();
    let limits = Limits { min_tokens: 32, ..Limits::default() };
    let request = || Request { limit: Some(4), ..blunt(&long("What did the fox do?")) };
    let server = Server::start(config(dir.path(), limits), demo(1, 0));
    let first = server.ask("1", request());
    server.stop().unwrap();
    let before = files(dir.path());
    assert!(before > 0);
    let server = Server::start(config(dir.path(), limits), spoiled(demo(1, 0)));
    let again = server.ask("2", request());
    assert_eq!(server.continuation("2").source, "disk-text");
    assert_eq!(again.outcome.text, first.outcome.text);
    assert_eq!(again.outcome.usage.cached_tokens, 0, "told as it was");
    let said = format!("{:?}", server.said("2"));
    assert!(said.contains("could not be continued"), "{said}");
    server.wait_until(|server| server.has_noted("deleted "));
    // The same request does not come upon the same file again, but upon what was saved instead of it.
    server.wait_until(|server| server.has_noted("stored "));
    let third = server.ask("3", request());
    assert_eq!(server.continuation("3").source, "disk-text");
    assert!(third.outcome.usage.cached_tokens > 0);
    assert_eq!(third.outcome.text, first.outcome.text);
    assert!(!format!("{:?}", server.said("3")).contains("could not be continued"));
}

#[test]
fn making_room_for_a_session_that_gives_way_never_takes_the_file_that_is_about_to_be_loaded() {
    let dir = temp_dir();
    let limits = Limits { min_tokens: 32, cold_max_tokens: 0, ..Limits::default() };
    let messages = long("Tell me about the fox.");
    let other = "In the year 1000 the king went to the old town by the sea. ".repeat(8);
    let mut config = config(dir.path(), limits);
    let server = Server::start(config.clone(), demo(1, 0));
    let first = server.ask("1", short(chat(&messages)));
    // It gives way to another one, and is saved.
    server.ask("2", Request { limit: Some(4), ..blunt(&[Message::user(other.clone())]) });
    server.stop().unwrap();
    // Now there is room for the larger of the two and no more.
    let bytes = |path: &Path| std::fs::metadata(path).unwrap().len();
    let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let sizes: Vec<u64> = names
        .filter(|path| path.extension().is_some_and(|e| e == "kv"))
        .map(|path| bytes(&path))
        .collect();
    assert_eq!(sizes.len(), 2);
    config.disk.as_mut().unwrap().budget_bytes = sizes.iter().sum::<u64>() * 103 / 100;
    let server = Server::start(config, demo(1, 0));
    let third = Message::user("An island in the north has two rivers and a red house. ".repeat(8));
    server.ask("3", Request { limit: Some(4), ..blunt(&[third]) });
    let back = server.ask("4", short(chat(&next(&messages, &first, "And the bear?"))));
    assert_eq!(server.continuation("4").source, "disk-text");
    assert!(back.outcome.usage.cached_tokens > first.outcome.usage.prompt_tokens);
}
