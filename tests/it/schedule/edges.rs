//! Requests at the edges of what can be served: the last positions of a context, some of the tools, texts that go on.

use std::collections::BTreeSet;

use q36::chat::{Message, Tool};
use q36::server::schedule::Config;
use q36::server::{Api, Choice, FailureKind, Finish, Input, Request, Update, What};
use q36::tokenizer::TokenId;

use super::harness::{Server, blunt, chat, with_tool};
use super::scripted::{Control, Replies, scripted};

const REPLIES: Replies = &[
    ("goodbye", "So long.\n</think>\n\nBye.<|endoftext|>"),
    ("forced", "No need.\n</think>\n\n<tool_call>\n<function=f>\n</function>\n</tool_call>"),
];

fn server() -> Server {
    Server::start(Config::default(), scripted(2048, REPLIES, &Control::default()))
}

#[test]
fn a_prompt_may_leave_one_position_and_its_reply_takes_what_is_left() {
    let server = server();
    let id = server.desk.tokenize("a").unwrap()[0];
    let request = |count: usize| Request {
        api: Api::Completions,
        input: Input::Tokens(vec![id; count]),
        limit: Some(1_000_000),
        ..chat(&[])
    };
    for (count, room) in [(2047, 0), (2046, 1)] {
        let outcome = server.ask("1", request(count)).outcome;
        assert_eq!(outcome.usage.prompt_tokens, count);
        assert!(outcome.usage.output_tokens <= room, "{outcome:?}");
    }
    let failure = server.desk.submit("2".into(), request(2048), &[]).unwrap_err();
    assert_eq!(failure.kind, FailureKind::ContextLength { prompt: 2048, ctx: 2048 });
}

#[test]
fn only_allowed_functions_are_called_and_the_prompt_has_all_of_them() {
    let server = server();
    let mut request = with_tool(chat(&[Message::user("forced")]));
    if let Input::Chat { conversation, .. } = &mut request.input {
        let other =
            r#"{"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}}"#;
        conversation.tools.push(Tool::parse(other).unwrap());
    }
    let all = server.desk.count(&request).unwrap();
    let names = |request: &Request| {
        let heard = server.ask("1", request.clone());
        let name = |update: &Update| {
            if let Update::CallBegin { name, .. } = update { Some(name.clone()) } else { None }
        };
        heard.updates.iter().filter_map(name).collect::<Vec<_>>()
    };
    assert_eq!(names(&request)[..1], ["f"], "the script wants this one");
    request.calls.allowed = Some(BTreeSet::from(["g".to_owned()]));
    request.calls.choice = Choice::Required;
    assert_eq!(server.desk.count(&request).unwrap(), all);
    let called = names(&request);
    assert!(!called.is_empty() && called.iter().all(|name| name == "g"), "{called:?}");
}

#[test]
fn a_text_that_goes_on_is_continued_as_it_stands() {
    let server = server();
    for text in ["The answer: ", "\n    indented", "x"] {
        let begun = Message::assistant(text).with_reasoning("");
        let mut request = blunt(&[Message::user("q"), begun]);
        if let Input::Chat { continues, .. } = &mut request.input {
            *continues = true;
        }
        let rendered = format!(
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n{text}"
        );
        let plain = Request { input: Input::Text(rendered), ..chat(&[]) };
        let count = |request: &Request| server.desk.count(request).unwrap();
        assert_eq!(count(&request), count(&plain), "{text:?}");
    }
}

#[test]
fn the_end_of_the_text_ends_a_reply_and_is_said() {
    let server = server();
    let heard = server.ask("1", chat(&[Message::user("goodbye")]));
    assert_eq!((heard.outcome.text.as_str(), heard.outcome.finish), ("Bye.", Finish::Stop));
    let is_said =
        |what: &What| matches!(what, What::Warning(text) if text.contains("<|endoftext|>"));
    // The lines about a reply follow its last update.
    server.wait_until(|server| server.finish("1").is_some());
    assert!(server.said("1").iter().any(is_said), "{:?}", server.said("1"));
    let ids = Input::Tokens(vec![TokenId(1)]);
    server.ask("2", Request { api: Api::Completions, input: ids, ..chat(&[]) });
    server.wait_until(|server| server.finish("2").is_some());
    assert!(!server.said("2").iter().any(is_said), "plain text ends so by its nature");
}
