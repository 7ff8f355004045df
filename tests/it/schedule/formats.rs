//! Answers in a form, on the demo model: what it writes at temperature 1 is nonsense, but always in form.

use q36::chat::{Json, Message, Tool};
use q36::server::schedule::Config;
use q36::server::{Choice, FailureKind, Finish, Format, Outcome, Request, Sampling, Thinking};
use serde_json::Value;

use super::harness::{Server, chat, demo, hear, with_tool};
use super::scripted::{Control, Replies, scripted};
use crate::support::schema::obeys;

/// A form that ends soon, whatever is drawn.
const PERSON: &str = r#"{"type":"object","properties":{"name":{"type":"string","maxLength":12},
    "kind":{"enum":["fox","bear","büffel \"b\""]},"age":{"type":"integer","minimum":0,"maximum":120},
    "tags":{"type":"array","items":{"type":"boolean"},"maxItems":3}},
    "required":["name","kind","age","tags"],"additionalProperties":false}"#;

fn by_schema(schema: &str) -> Format {
    Format::JsonSchema { name: "answer".into(), schema: Json::parse(schema).unwrap() }
}

/// A question whose reply is sampled, with a thought of at most so many tokens.
fn ask(format: Format, seed: u64, thought: Option<usize>) -> Request {
    let thinking = Thinking { on: Some(thought.is_some()), budget: thought, ..Thinking::default() };
    Request {
        sampling: Sampling { temperature: Some(1.0), seed: Some(seed), ..Sampling::default() },
        limit: Some(800),
        format,
        thinking,
        ..chat(&[Message::user("Where did the fox meet the bear?")])
    }
}

fn value(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.text).unwrap_or_else(|error| panic!("{error}: {}", outcome.text))
}

#[test]
fn every_answer_obeys_its_schema_with_a_thought_and_without() {
    let schema: Value = serde_json::from_str(PERSON).unwrap();
    let server = Server::start(Config::default(), demo(1, 0));
    for seed in 1..=6 {
        for thought in [None, Some(9)] {
            let heard = server.ask("x", ask(by_schema(PERSON), seed, thought));
            assert_eq!(heard.outcome.finish, Finish::Stop, "{:?}", heard.outcome);
            assert_eq!(heard.outcome.reasoning.is_empty(), thought.is_none());
            let value = value(&heard.outcome);
            assert!(obeys(&schema, &schema, &value), "{value}");
        }
    }
}

#[test]
fn every_object_that_ends_is_one_and_what_is_cut_says_so() {
    let server = Server::start(Config::default(), demo(1, 0));
    let mut ended = 0;
    for seed in 1..=8 {
        let thought = (seed % 2 == 0).then_some(5);
        let request = Request { limit: Some(120), ..ask(Format::JsonObject, seed, thought) };
        let heard = server.ask("x", request);
        match heard.outcome.finish {
            Finish::Stop => {
                assert!(value(&heard.outcome).is_object());
                ended += 1;
            }
            Finish::Length => assert!(heard.outcome.text.starts_with('{')),
            Finish::StopText(_) | Finish::Calls => panic!("{:?}", heard.outcome),
        }
    }
    assert!(ended > 0, "nothing was tested");
    let cut = server.ask("x", Request { limit: Some(4), ..ask(by_schema(PERSON), 1, None) });
    assert_eq!(cut.outcome.finish, Finish::Length);
    assert!(cut.outcome.text.starts_with('{'));
}

#[test]
fn a_stop_text_cuts_a_form_short() {
    let server = Server::start(Config::default(), demo(1, 0));
    let stop = vec!["\"kind\"".to_owned()];
    let heard = server.ask("x", Request { stop, ..ask(by_schema(PERSON), 3, None) });
    assert_eq!(heard.outcome.finish, Finish::StopText("\"kind\"".into()));
    assert!(heard.outcome.text.starts_with('{') && !heard.outcome.text.contains("kind"));
}

/// Forms of all kinds and none, so that masks of several kinds share a step.
fn company() -> Vec<Request> {
    vec![
        ask(by_schema(PERSON), 1, None),
        ask(by_schema(PERSON), 2, Some(6)),
        strict_call(3),
        Request { limit: Some(60), ..ask(Format::Text, 4, None) },
        strict_call(5),
    ]
}

#[test]
fn a_form_is_filled_in_the_same_way_in_company_and_alone() {
    let said =
        |outcome: Outcome| (outcome.text, outcome.calls.first().map(|call| call.json.clone()));
    let alone = |request: Request| {
        said(Server::start(Config::default(), demo(1, 0)).ask("x", request).outcome)
    };
    let alone: Vec<_> = company().into_iter().map(alone).collect();
    for sessions in [2, 4] {
        let server = Server::start(Config { sessions, ..Config::default() }, demo(sessions, 0));
        let inboxes: Vec<_> =
            company().into_iter().map(|request| server.submit("x", request)).collect();
        let together: Vec<_> =
            inboxes.into_iter().map(|inbox| said(hear(inbox).unwrap().outcome)).collect();
        assert_eq!(together, alone, "{sessions} sessions");
    }
}

#[test]
fn an_answer_that_was_begun_goes_on_in_its_form() {
    let server = Server::start(Config::default(), demo(1, 0));
    let begun = |text: &str| {
        let messages = [Message::user("Where is the fox?"), Message::assistant(text)];
        let mut request = ask(by_schema(PERSON), 5, None);
        request.input = chat(&messages).input;
        if let q36::server::Input::Chat { continues, .. } = &mut request.input {
            *continues = true;
        }
        request
    };
    let start = r#"{"name": "A fox", "kind""#;
    let heard = server.ask("x", begun(start));
    let whole: Value = serde_json::from_str(&format!("{start}{}", heard.outcome.text)).unwrap();
    let schema: Value = serde_json::from_str(PERSON).unwrap();
    assert!(obeys(&schema, &schema, &whole), "{whole}");
    let failure = server.desk.submit("y".into(), begun("It is here."), &[]).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Invalid);
    assert_eq!(failure.param.as_deref(), Some("response_format"));
}

#[test]
fn a_reply_with_tools_is_a_call_or_in_form() {
    const REPLIES: Replies = &[
        (
            "call",
            "<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</function>\n</tool_call>",
        ),
        ("answer", "{\"n\": 1}"),
    ];
    let server = Server::start(Config::default(), scripted(2048, REPLIES, &Control::default()));
    let request = |text: &str| {
        let thinking = Thinking { on: Some(false), ..Thinking::default() };
        with_tool(Request { format: Format::JsonObject, thinking, ..chat(&[Message::user(text)]) })
    };
    let call = server.ask("1", request("Please call")).outcome;
    assert_eq!((call.finish, call.calls.len()), (Finish::Calls, 1));
    let answer = server.ask("2", request("Please answer")).outcome;
    assert_eq!((answer.finish.clone(), answer.text.as_str()), (Finish::Stop, "{\"n\": 1}"));
}

/// What a strict function takes: values and texts, each held to something.
const WEATHER: &str = r#"{"type":"object","properties":{"days":{"type":"integer","minimum":1,"maximum":99},
    "unit":{"type":"string","enum":["celsius","fahrenheit"]},"at":{"type":"array","items":{"type":"boolean"},
    "minItems":1,"maxItems":3},"city":{"type":"string","minLength":3,"maxLength":9},
    "code":{"type":"string","pattern":"^[A-Z]{2}-[0-9]{1,3}$"},"note":{"type":["string","null"],"maxLength":5}},
    "required":["days","unit","at","city","code","note"],"additionalProperties":false}"#;

/// A request that must be answered with a call of a strict function.
fn strict_call(seed: u64) -> Request {
    let tool =
        format!(r#"{{"type":"function","function":{{"name":"weather","parameters":{WEATHER}}}}}"#);
    let mut request = ask(Format::Text, seed, None);
    if let q36::server::Input::Chat { conversation, .. } = &mut request.input {
        conversation.tools = vec![Tool::parse(&tool).unwrap()];
    }
    request.calls.choice = Choice::Function("weather".into());
    request.calls.parallel = false;
    request.calls.strict.insert("weather".into());
    request
}

#[test]
fn calls_of_strict_functions_obey_their_schema() {
    let schema: Value = serde_json::from_str(WEATHER).unwrap();
    let server = Server::start(Config::default(), demo(1, 0));
    for seed in 1..=6 {
        let outcome = server.ask("x", strict_call(seed)).outcome;
        assert_eq!((&outcome.finish, outcome.calls.len()), (&Finish::Calls, 1), "{outcome:?}");
        let value: Value = serde_json::from_str(&outcome.calls[0].json).unwrap();
        assert!(obeys(&schema, &schema, &value), "{value}");
    }
}
