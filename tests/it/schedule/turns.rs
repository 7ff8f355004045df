//! Conversations: what the next turn costs, counted in tokens.

use q36::chat::{Message, RenderOptions, render};
use q36::server::schedule::{Config, EffortBudgets};
use q36::server::{
    Api, Effort, Failure, FailureKind, Finish, Format, Input, Request, Sampling, State, Thinking,
    Update, What,
};
use q36::tokenizer::TokenId;

use super::harness::{Heard, Server, blunt, chat, demo, hear, with_tool};
use super::scripted::{Control, Replies, scripted};

const REPLIES: Replies = &[
    ("capital", "The user asks.\n</think>\n\nParis."),
    ("river", "Easy.\n</think>\n\nThe Seine."),
    ("blunt", "Short."),
    ("count", "one two three four five"),
    (
        "endless",
        "Hmm, so it is, and so on, and on, and on, without an end, as long as there is room for more of it",
    ),
];

fn server(control: &Control) -> Server {
    Server::start(Config::default(), scripted(2048, REPLIES, control))
}

fn capital() -> Vec<Message> {
    vec![Message::system("Be brief."), Message::user("What is the capital of France?")]
}

/// The conversation with a reply and another question.
fn next(messages: &[Message], heard: &Heard, thought: bool, question: &str) -> Vec<Message> {
    [messages, &[heard.message(thought), Message::user(question)]].concat()
}

/// Tokens of a control text.
fn tokens(server: &Server, text: &str) -> usize {
    let request = Request { input: Input::Text(text.to_owned()), ..chat(&[]) };
    server.desk.count(&request).unwrap()
}

const BETWEEN: &str =
    "<|im_end|>\n<|im_start|>user\nAnd the river?<|im_end|>\n<|im_start|>assistant\n<think>\n";

#[test]
fn the_second_turn_evaluates_only_the_new_text_whether_or_not_the_thought_comes_back() {
    for thought in [true, false] {
        let control = Control::default();
        let server = server(&control);
        let first = server.ask("1", chat(&capital()));
        assert_eq!(first.outcome.reasoning, "The user asks.");
        assert_eq!(
            (first.outcome.text.as_str(), first.outcome.finish.clone()),
            ("Paris.", Finish::Stop)
        );
        control.take();
        let messages = next(&capital(), &first, thought, "And the river?");
        let second = server.ask("2", chat(&messages));
        assert_eq!(second.outcome.text, "The Seine.");
        assert_eq!(second.evaluated(), tokens(&server, BETWEEN));
        assert_eq!(control.evaluated(), second.evaluated(), "the engine did no more");
        assert_eq!(server.continuation("2").source, "thinking-visible");
        // And so does the third.
        let messages = next(&messages, &second, thought, "And the river?");
        let third = server.ask("3", chat(&messages));
        assert_eq!(third.evaluated(), tokens(&server, BETWEEN));
    }
}

#[test]
fn without_a_thought_the_second_turn_evaluates_only_the_new_text() {
    let server = server(&Control::default());
    let messages = vec![Message::user("A blunt question")];
    let first = server.ask("1", blunt(&messages));
    assert_eq!(first.outcome.text, "Short.");
    let second = server.ask("2", blunt(&next(&messages, &first, false, "Still blunt?")));
    let between = "<|im_end|>\n<|im_start|>user\nStill blunt?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
    assert_eq!(second.evaluated(), tokens(&server, between));
}

#[test]
fn preserved_thoughts_go_on_by_their_own_text() {
    let server = server(&Control::default());
    let preserve = Thinking { preserve: Some(true), ..Thinking::default() };
    let first = server.ask("1", Request { thinking: preserve, ..chat(&capital()) });
    let messages = next(&capital(), &first, true, "And the river?");
    let second = server.ask("2", Request { thinking: preserve, ..chat(&messages) });
    assert_eq!(second.evaluated(), tokens(&server, BETWEEN));
}

#[test]
fn a_changed_answer_starts_anew() {
    let server = server(&Control::default());
    let first = server.ask("1", chat(&capital()));
    let mut messages = next(&capital(), &first, false, "And the river?");
    messages[2].content = "Lyon.".into();
    let second = server.ask("2", chat(&messages));
    assert_eq!(second.outcome.usage.cached_tokens, 0);
    assert_eq!(server.continuation("2").miss, Some("token-mismatch"));
}

#[test]
fn a_stop_text_keeps_the_session() {
    let control = Control::default();
    let server = server(&control);
    let messages = vec![Message::user("Please count")];
    let request = Request { stop: vec![" three".into()], ..blunt(&messages) };
    let first = server.ask("1", request);
    assert_eq!(first.outcome.text, "one two");
    assert_eq!(first.outcome.finish, Finish::StopText(" three".into()));
    let second = server.ask("2", blunt(&next(&messages, &first, false, "A blunt one")));
    assert!(second.outcome.usage.cached_tokens > first.outcome.usage.prompt_tokens);
    assert_eq!(second.outcome.text, "Short.");
}

#[test]
fn limits_end_a_reply_and_nothing_can_be_asked_for() {
    let server = server(&Control::default());
    let messages = vec![Message::user("Please count")];
    let cut = server.ask("1", Request { limit: Some(3), ..blunt(&messages) });
    assert_eq!((cut.outcome.finish.clone(), cut.outcome.usage.output_tokens), (Finish::Length, 3));
    let nothing = server.ask("2", Request { limit: Some(0), ..blunt(&messages) });
    assert_eq!(
        (nothing.outcome.finish.clone(), nothing.outcome.usage.output_tokens),
        (Finish::Length, 0)
    );
}

/// Tokens of a thought that would go on for longer.
fn bounded(server: &Server, thinking: Thinking) -> usize {
    let request = Request { thinking, limit: Some(400), ..chat(&[Message::user("endless")]) };
    let heard = server.ask("1", request);
    assert!(!heard.outcome.thought_open);
    heard.outcome.usage.reasoning_tokens
}

#[test]
fn a_named_effort_bounds_the_thought() {
    let efforts = EffortBudgets { low: Some(5), medium: Some(7), ..EffortBudgets::default() };
    let config = Config { efforts, ..Config::default() };
    let server = Server::start(config, scripted(2048, REPLIES, &Control::default()));
    for (effort, tokens) in [(Effort::Low, 5), (Effort::Medium, 7)] {
        let thinking = Thinking { effort: Some(effort), ..Thinking::default() };
        assert_eq!(bounded(&server, thinking), tokens, "{effort:?}");
    }
}

#[test]
fn a_number_of_tokens_bounds_the_thought_whatever_the_effort() {
    let server = server(&Control::default());
    for effort in [None, Some(Effort::High)] {
        let thinking = Thinking { budget: Some(5), effort, ..Thinking::default() };
        assert_eq!(bounded(&server, thinking), 5, "{effort:?}");
    }
}

#[test]
fn the_largest_effort_is_lessened_in_a_small_context_and_that_is_said() {
    let server = server(&Control::default());
    let is_said = |id: &str, effort: Effort| {
        let thinking = Thinking { effort: Some(effort), ..Thinking::default() };
        server.ask(id, Request { thinking, ..chat(&capital()) });
        let is_about = |what: &What| matches!(what, What::Warning(text) if text.contains("effort"));
        server.said(id).iter().any(is_about)
    };
    assert!(is_said("1", Effort::Max));
    assert!(!is_said("2", Effort::XHigh));
}

#[test]
fn what_cannot_be_served_is_refused_before_it_waits() {
    let server = server(&Control::default());
    let refused = |request: Request| server.desk.submit("x".into(), request, &[]).unwrap_err();
    let long = "word ".repeat(3000);
    let failure = refused(chat(&[Message::user(long.as_str())]));
    let FailureKind::ContextLength { prompt, ctx } = failure.kind else { panic!("{failure:?}") };
    assert!(prompt > 2048 && ctx == 2048);
    assert_eq!(failure.param.as_deref(), Some("messages"));
    assert_eq!(server.desk.count(&chat(&[Message::user(long)])).unwrap(), prompt);
    let schema = q36::chat::Json::parse(r#"{"not":{}}"#).unwrap();
    let format = Format::JsonSchema { name: "answer".into(), schema };
    let json = refused(Request { format, ..chat(&capital()) });
    assert_eq!((json.kind, json.param.as_deref()), (FailureKind::Invalid, Some("response_format")));
    let nobody = refused(chat(&[Message::assistant("I")]));
    assert_eq!(nobody.kind, FailureKind::Invalid);
    let mut named = with_tool(chat(&capital()));
    named.calls.choice = q36::server::Choice::Function("g".into());
    assert_eq!(refused(named).param.as_deref(), Some("tool_choice"));
    let ids = Input::Tokens(vec![TokenId(1), TokenId(1 << 30)]);
    let beyond = refused(Request { input: ids, api: Api::Completions, ..chat(&[]) });
    assert_eq!(beyond.param.as_deref(), Some("prompt"));
}

#[test]
fn a_prompt_is_counted_while_another_request_is_served() {
    let control = Control::default();
    let server = server(&control);
    control.allow_steps(0);
    let busy = server.submit("busy", chat(&capital()));
    server.wait_until(|server| server.desk.status().slots[0].state == "decode");
    let conversation = q36::chat::Conversation::new(capital());
    let text = render(&conversation, &RenderOptions::default()).unwrap().text();
    assert_eq!(server.desk.count(&chat(&capital())).unwrap(), tokens(&server, &text));
    assert_eq!(
        server.desk.detokenize(&server.desk.tokenize("é<|im_end|>").unwrap()).unwrap(),
        "é<|im_end|>"
    );
    control.release();
    hear(busy).unwrap();
}

#[test]
fn plain_text_is_continued_as_it_stands() {
    let server = server(&Control::default());
    let text = "<|im_start|>user\nblunt<|im_end|>\n<|im_start|>assistant\n";
    let request = Request { api: Api::Completions, input: Input::Text(text.into()), ..chat(&[]) };
    let heard = server.ask("1", request.clone());
    assert_eq!((heard.outcome.text.as_str(), heard.outcome.reasoning.as_str()), ("Short.", ""));
    let ids = server.desk.tokenize("plain").unwrap();
    let heard = server.ask("2", Request { input: Input::Tokens(ids.clone()), ..request });
    assert_eq!(heard.outcome.usage.prompt_tokens, ids.len());
}

#[test]
fn an_answer_that_was_begun_goes_on() {
    let server = server(&Control::default());
    let begun = [Message::user("Please count"), Message::assistant("one two")];
    let mut request = blunt(&begun);
    if let Input::Chat { continues, .. } = &mut request.input {
        *continues = true;
    }
    let heard = server.ask("1", request);
    assert_eq!(heard.outcome.text, " three four five");
}

#[test]
fn updates_come_in_order_and_end_once() {
    let server = server(&Control::default());
    let heard = server.ask("1", Request { logprobs: Some(2), ..chat(&capital()) });
    let place = |found: fn(&Update) -> bool| heard.updates.iter().position(found).unwrap();
    let begin = place(|u| matches!(u, Update::Begin(_)));
    let thought = place(|u| matches!(u, Update::Reasoning(_)));
    let logprob = place(|u| matches!(u, Update::Logprob(_)));
    let text = place(|u| matches!(u, Update::Text(_)));
    assert!(begin < thought && thought < logprob && logprob < text);
    let ends = heard.updates.iter().filter(|u| matches!(u, Update::End(_) | Update::Failed(_)));
    assert_eq!(ends.count(), 1);
    let logprobs = &heard.outcome.logprobs;
    assert!(logprobs.iter().all(|l| l.top.len() == 2 && l.token.logprob <= 0.0));
    let bytes: Vec<u8> = logprobs.iter().flat_map(|l| l.token.bytes.clone()).collect();
    assert_eq!(String::from_utf8_lossy(&bytes).trim(), "Paris.");
}

#[test]
fn an_edited_last_message_restarts_at_an_anchor() {
    let server = Server::start(Config::default(), demo(1, 4));
    let long = "The fox met the bear at the river. ".repeat(12);
    let messages = vec![Message::system(long), Message::user("What did the fox do?")];
    let request = |messages: &[Message]| Request { limit: Some(8), ..blunt(messages) };
    let first = server.ask("1", request(&messages));
    assert_eq!(first.outcome.usage.cached_tokens, 0);
    // The same again: only the opening of the reply.
    let again = server.ask("2", request(&messages));
    assert_eq!(server.continuation("2").source, "anchor");
    assert!(again.evaluated() < 16, "{:?}", again.outcome.usage);
    assert_eq!(again.outcome.text, first.outcome.text);
    let edited = [messages[0].clone(), Message::user("What did the bear do?")];
    let third = server.ask("3", request(&edited));
    assert_eq!(server.continuation("3").source, "anchor");
    assert!(third.evaluated() < 40, "{:?}", third.outcome.usage);
    // The same answer as from a fresh start.
    let fresh = Server::start(Config::default(), demo(1, 4));
    assert_eq!(fresh.ask("1", request(&edited)).outcome.text, third.outcome.text);
}

#[test]
fn with_a_real_engine_the_second_turn_evaluates_only_the_new_text() {
    let server = Server::start(Config::default(), demo(1, 2));
    let messages = vec![Message::user("Tell me about the fox.")];
    let thinking = Thinking { budget: Some(80), ..Thinking::default() };
    let request = |messages: &[Message]| Request {
        thinking,
        limit: Some(600),
        stop: vec![" ".into(), "e".into(), "\n".into()],
        ..chat(messages)
    };
    let first = server.ask("1", request(&messages));
    assert!(first.outcome.usage.reasoning_tokens > 0);
    assert_ne!(first.outcome.finish, Finish::Length, "{:?}", first.outcome);
    let second = server.ask("2", request(&next(&messages, &first, false, "And the bear?")));
    let between =
        "<|im_end|>\n<|im_start|>user\nAnd the bear?<|im_end|>\n<|im_start|>assistant\n<think>\n";
    // The last token of the first reply may not have been evaluated.
    let evaluated = second.evaluated() - tokens(&server, between);
    assert!(evaluated <= 1, "{evaluated} tokens too many: {:?}", server.continuation("2"));
}

#[test]
fn a_request_that_comes_while_the_server_stops_is_refused() {
    let server = server(&Control::default());
    let desk = std::sync::Arc::clone(&server.desk);
    server.stop().unwrap();
    let refused: Failure = desk.submit("x".into(), chat(&capital()), &[]).unwrap_err();
    assert_eq!(refused.kind, FailureKind::Stopping);
    assert_eq!(desk.status().state, State::Stopping);
}

#[test]
fn penalties_and_addends_reach_the_draw() {
    let server = server(&Control::default());
    let messages = vec![Message::user("Please count")];
    let one = server.desk.tokenize("one").unwrap()[0];
    let sampling =
        Sampling { bias: vec![(one, -100.0)], temperature: Some(0.0), ..Sampling::default() };
    let heard = server.ask("1", Request { sampling, limit: Some(4), ..blunt(&messages) });
    assert!(!heard.outcome.text.starts_with("one"), "{}", heard.outcome.text);
}
