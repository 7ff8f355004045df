//! What is written down of requests.

use q36::chat::Message;
use q36::server::schedule::{Config, TraceConfig};
use q36::server::{Request, Thinking};

use super::harness::{Server, blunt, chat, hear, with_tool};
use super::scripted::{Control, Replies, scripted};
use crate::support::temp_dir;

/// A value of more than 128 tokens.
macro_rules! long {
    () => {
        "a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h i j k l m n o p q r s t u v w x y z \
         a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h i j k l m n o p q r s t u v w x y z \
         a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h i j k l m n o p q r s t u v w x y z"
    };
}

/// A call that opens inside the thought and whose value is not closed; one that ends nowhere; none.
const CALLS: Replies = &[
    (
        "inside",
        concat!(
            "I call it. <tool_call>\n<function=f>\n<parameter=s>\n",
            long!(),
            "\n</function>\n</tool_call>"
        ),
    ),
    ("cut", concat!("Why.\n</think>\n\n<tool_call>\n<function=f>\n<parameter=s>\n", long!())),
    ("plain", "Why.\n</think>\n\nSo."),
];

const REPLIES: Replies = &[("first", "One."), ("second", "Two.")];

#[test]
fn a_trace_has_the_request_as_it_came_and_where_it_left_the_session() {
    let dir = temp_dir();
    let path = dir.path().join("trace");
    let trace = TraceConfig { path: path.clone(), max_bytes: u64::MAX };
    let config = Config { trace: Some(trace), ..Config::default() };
    let server = Server::start(config, scripted(1024, REPLIES, &Control::default()));
    for (id, question) in [("1", "The first"), ("2", "A second")] {
        let body = format!("{{\"as\": \"it came {id}\"}}");
        let request = blunt(&[Message::user(question)]);
        hear(server.desk.submit(id.into(), request, body.as_bytes()).unwrap()).unwrap();
    }
    server.stop().unwrap();
    let written = std::fs::read_to_string(&path).unwrap();
    let (first, second) = written.split_once("===== end request 1 =====").unwrap();
    for (part, id, question) in [(first, "1", "The first"), (second, "2", "A second")] {
        let raw = format!("raw request:\n{{\"as\": \"it came {id}\"}}\nend of request\n");
        assert!(part.contains(&raw), "{part}");
        assert!(part.contains(&format!("<|im_start|>user\n{question}<|im_end|>")), "{part}");
    }
    assert!(!first.contains("leaves the session"), "an empty one cannot be left: {first}");
    let (_, window) = second.split_once("[2] the prompt leaves the session at token ").unwrap();
    let lines: Vec<&str> = window.lines().skip(1).take_while(|l| !l.starts_with('[')).collect();
    let has = |mark: &str| lines.iter().any(|line| line.split(' ').nth(1) == Some(mark));
    assert!(has("==") && has("!="), "{lines:?}");
    assert!(lines[0].contains("\"<|im_start|>\" | "), "{lines:?}");
}

#[test]
fn a_trace_tells_what_happened_while_a_reply_was_written() {
    let dir = temp_dir();
    let path = dir.path().join("trace");
    let trace = TraceConfig { path: path.clone(), max_bytes: u64::MAX };
    let config = Config { trace: Some(trace), ..Config::default() };
    let server = Server::start(config, scripted(4096, CALLS, &Control::default()));
    let thinking = Thinking { budget: Some(300), ..Thinking::default() };
    for question in ["inside", "cut", "plain"] {
        let request = Request { thinking, limit: Some(1000), ..chat(&[Message::user(question)]) };
        server.ask(question, if question == "plain" { request } else { with_tool(request) });
    }
    server.stop().unwrap();
    let written = std::fs::read_to_string(&path).unwrap();
    let events = |number: usize| -> Vec<&str> {
        let start = format!("[{number}] event: ");
        written.lines().filter_map(|line| line.strip_prefix(&start)).collect()
    };
    let check = |number: usize, expected: &[&str]| {
        let found = events(number);
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}, not {expected}");
        }
    };
    check(
        1,
        &[
            "prefill done, ",
            "thought closed, call_forced, at token ",
            "128 tokens, Payload",
            "the session stands for the turn, ",
            "calls understood although written otherwise: [MissingParameterClose]",
        ],
    );
    assert!(events(1)[0].contains("at most 1000 tokens"), "{:?}", events(1));
    assert!(events(1)[0].contains("a thought of 300, closed at "), "{:?}", events(1));
    check(
        2,
        &[
            "prefill done, ",
            "thought closed, natural, at token ",
            "128 tokens, Payload",
            "invalid tool call: the reply ended inside a tool call",
        ],
    );
    check(3, &["prefill done, ", "thought closed, natural", "the session stands for the turn, "]);
    // They stand where they happened.
    let at = |text: &str| written.find(text).unwrap_or_else(|| panic!("no {text}: {written}"));
    assert!(at("[1] event: thought closed") < at("[1] entered call f"));
    assert!(at("[1] entered call f") < at("[1] event: 128 tokens"));
    assert!(at("[1] event: 128 tokens") < at("[1] closed call"));
}
