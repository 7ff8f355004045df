//! What is written down of requests.

use q36::chat::Message;
use q36::server::schedule::{Config, TraceConfig};

use super::harness::{Server, blunt, hear};
use super::scripted::{Control, Replies, scripted};
use crate::support::temp_dir;

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
        hear(server.desk.submit_with_body(id.into(), request, body.as_bytes()).unwrap()).unwrap();
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
