//! Tool loops: calls, their exact replay, what may be called.

use q36::chat::{Arguments, Message};
use q36::server::schedule::{Config, ReplayLimits};
use q36::server::{Api, Calls, Choice, Finish, Request, Update, What};

use super::harness::{Heard, Server, blunt, chat, with_tool};
use super::scripted::{Control, Replies, scripted};

/// Written as the template would not: a space too much, arguments in another order.
const REPLIES: Replies = &[
    (
        "twice",
        "Both.\n</think>\n\n<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=f>\n<parameter=n>\n2\n</parameter>\n</function>\n</tool_call>",
    ),
    (
        "list",
        "A call.\n</think>\n\nLooking.\n\n\n<tool_call>\n<function=f>\n<parameter=n>\n 5.0\n</parameter>\n<parameter=s>\n02\n</parameter>\n</function>\n</tool_call>",
    ),
    ("<tool_response>", "Done.\n</think>\n\nThere it is."),
    ("inside", "I call it: <tool_call>\n<function=f>\n</function>\n</tool_call>"),
    ("forced", "No need.\n</think>\n\n<tool_call>\n<function=f>\n</function>\n</tool_call>"),
    ("thanks", "Nice.\n</think>\n\nYou are welcome."),
];

fn server() -> Server {
    Server::start(Config::default(), scripted(4096, REPLIES, &Control::default()))
}

fn list() -> Vec<Message> {
    vec![Message::user("Please list the files")]
}

/// The conversation with a reply's calls and their results.
fn answered(messages: &[Message], heard: &Heard, thought: bool) -> Vec<Message> {
    let results = heard.outcome.calls.iter().map(|_| Message::tool("a.c"));
    let mut all = [messages, &[heard.message(thought)]].concat();
    all.extend(results);
    all
}

const RESULT: &str = "<|im_end|>\n<|im_start|>user\n<tool_response>\na.c\n</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n";

fn tokens(server: &Server, text: &str) -> usize {
    let input = q36::server::Input::Text(text.to_owned());
    server.desk.count(&Request { input, ..chat(&[]) }).unwrap()
}

#[test]
fn a_tool_loop_evaluates_only_the_results() {
    for thought in [true, false] {
        let server = server();
        let call = server.ask("1", with_tool(chat(&list())));
        assert_eq!(call.outcome.finish, Finish::Calls);
        assert_eq!(call.outcome.text, "Looking.");
        assert_eq!(call.outcome.calls[0].json, r#"{"n":5,"s":"02"}"#);
        assert!(call.outcome.calls[0].id.starts_with("call_"));
        let messages = answered(&list(), &call, thought);
        let result = server.ask("2", with_tool(chat(&messages)));
        assert_eq!(result.outcome.text, "There it is.");
        assert_eq!(result.evaluated(), tokens(&server, RESULT), "thought {thought}");
        // A question behind the loop goes on as well, although the thoughts of the loop are gone from its prompt.
        let messages = [messages, vec![result.message(thought), Message::user("thanks")]].concat();
        let last = server.ask("3", with_tool(chat(&messages)));
        let between =
            "<|im_end|>\n<|im_start|>user\nthanks<|im_end|>\n<|im_start|>assistant\n<think>\n";
        assert_eq!(last.evaluated(), tokens(&server, between));
        assert_eq!(last.outcome.text, "You are welcome.");
    }
}

#[test]
fn arguments_that_come_back_in_another_spelling_are_the_same() {
    let server = server();
    let call = server.ask("1", with_tool(chat(&list())));
    let mut messages = answered(&list(), &call, false);
    messages[1].tool_calls[0].arguments = Arguments::parse(r#"{"s": "02", "n": 5.0}"#).unwrap();
    let result = server.ask("2", with_tool(chat(&messages)));
    assert_eq!(result.evaluated(), tokens(&server, RESULT));
}

#[test]
fn an_edited_call_is_rendered_anew() {
    let server = server();
    let call = server.ask("1", with_tool(chat(&list())));
    let mut messages = answered(&list(), &call, false);
    messages[1].tool_calls[0].arguments = Arguments::parse(r#"{"n": 6, "s": "02"}"#).unwrap();
    messages[1].tool_calls[0].id = Some("call_other".into());
    let result = server.ask("2", with_tool(chat(&messages)));
    assert_eq!(result.outcome.usage.cached_tokens, 0);
}

#[test]
fn a_changed_text_before_a_call_goes_on_by_the_ids() {
    let server = server();
    let call = server.ask("1", with_tool(chat(&list())));
    let mut messages = answered(&list(), &call, false);
    messages[1].content = "looking".into();
    let result = server.ask("2", with_tool(chat(&messages)));
    assert_eq!(server.continuation("2").source, "chat-tool-output");
    assert_eq!(result.evaluated(), tokens(&server, RESULT));
}

#[test]
fn without_replay_calls_go_on_by_what_stands_for_them() {
    let config = Config { tool_replay: None, ..Config::default() };
    let server = Server::start(config, scripted(4096, REPLIES, &Control::default()));
    let call = server.ask("1", with_tool(chat(&list())));
    let result = server.ask("2", with_tool(chat(&answered(&list(), &call, false))));
    assert_eq!(result.evaluated(), tokens(&server, RESULT));
}

#[test]
fn forgotten_calls_are_rendered_by_their_schema() {
    let few = ReplayLimits { ids: 1, ..ReplayLimits::default() };
    let config = Config { tool_replay: Some(few), sessions: 2, ..Config::default() };
    let server = Server::start(config, scripted(4096, REPLIES, &Control::default()));
    let call = server.ask("1", with_tool(chat(&list())));
    server.ask("2", with_tool(chat(&[Message::user("list, somebody else")])));
    let result = server.ask("3", with_tool(chat(&answered(&list(), &call, false))));
    assert_eq!(result.outcome.text, "There it is.");
    assert_eq!(server.continuation("3").source, "chat-tool-output", "the ids are still bound");
}

#[test]
fn parallel_calls_share_a_turn() {
    let server = server();
    let messages = vec![Message::user("twice")];
    let both = server.ask("1", with_tool(chat(&messages)));
    assert_eq!(both.outcome.calls.len(), 2);
    let result = server.ask("2", with_tool(chat(&answered(&messages, &both, true))));
    assert_eq!(result.outcome.text, "There it is.");
    assert!(result.outcome.usage.cached_tokens > both.outcome.usage.prompt_tokens);
    let mut one = with_tool(chat(&messages));
    one.calls.parallel = false;
    let single = server.ask("3", one);
    assert_eq!(single.outcome.calls.len(), 1);
    // Its last token was not evaluated, and is not lost.
    let messages = answered(&messages, &single, true);
    let result = server.ask("4", with_tool(chat(&messages)));
    assert_eq!(result.evaluated(), tokens(&server, RESULT) + 1);
    assert_eq!(result.outcome.text, "There it is.");
}

#[test]
fn a_call_inside_the_thought_is_a_call() {
    let server = server();
    let heard = server.ask("1", with_tool(chat(&[Message::user("inside")])));
    assert_eq!(heard.outcome.reasoning, "I call it:");
    assert_eq!((heard.outcome.calls.len(), heard.outcome.finish.clone()), (1, Finish::Calls));
    let closed = What::ThoughtClosed { how: "call_forced", tokens: 6 };
    let said = server.said("1");
    let is_closed = |what: &What| matches!(what, What::ThoughtClosed { how: "call_forced", .. });
    assert!(said.iter().any(is_closed), "{closed:?} in {said:?}");
}

#[test]
fn no_call_begins_where_none_is_wanted() {
    let server = server();
    let mut request = with_tool(chat(&[Message::user("forced")]));
    request.calls.choice = Choice::None;
    let heard = server.ask("1", request.clone());
    assert!(heard.outcome.calls.is_empty(), "{:?}", heard.outcome);
    // The tools are in the prompt all the same: it is the beginning of other prompts.
    request.calls = Calls::default();
    assert_eq!(server.desk.count(&request).unwrap(), heard.outcome.usage.prompt_tokens);
}

#[test]
fn a_call_can_be_demanded() {
    let server = server();
    for (choice, asked) in [(Choice::Required, "r"), (Choice::Function("f".into()), "f")] {
        for thinks in [true, false] {
            let messages = [Message::user(format!("forced {asked}"))];
            let mut request = with_tool(if thinks { chat(&messages) } else { blunt(&messages) });
            request.calls.choice = choice.clone();
            let heard = server.ask("1", request);
            let begins = |u: &Update| matches!(u, Update::CallBegin { name, .. } if name == "f");
            // Without a thought the script does not know where it is, but only one name can be spelled.
            assert!(heard.updates.iter().any(begins), "{choice:?} {thinks}");
        }
    }
}

#[test]
fn ids_are_of_the_api() {
    let server = server();
    let request = Request { api: Api::Messages, ..with_tool(chat(&list())) };
    let heard = server.ask("1", request.clone());
    assert!(heard.outcome.calls[0].id.starts_with("toolu_"));
    let messages = answered(&list(), &heard, true);
    let mut next = with_tool(chat(&messages));
    next.api = Api::Messages;
    let mut changed = next.clone();
    let result = server.ask("2", next);
    assert_eq!(result.evaluated(), tokens(&server, RESULT));
    if let q36::server::Input::Chat { conversation, .. } = &mut changed.input {
        conversation.messages[1].content = "other".into();
    }
    // The session has gone on since: the position is behind it, and the engine cannot go back.
    let result = server.ask("3", changed);
    assert_eq!(result.outcome.usage.cached_tokens, 0);
}
