//! Bodies that nobody means well by: none panics, and what is accepted can be answered.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use super::super::{Context, ResponseStore, answer, failure_body, parse};
use super::support::{MINIMAL, Reply, VOCAB, frames, read, stamp};
use crate::chat::{RenderOptions, render};
use crate::server::{Api, FailureKind, Input};

const APIS: [Api; 4] = [Api::Chat, Api::Completions, Api::Responses, Api::Messages];

/// Names that mean something somewhere.
const NAMES: &[&str] = &[
    "messages",
    "input",
    "prompt",
    "system",
    "instructions",
    "tools",
    "tool_choice",
    "model",
    "stream",
    "stream_options",
    "include_usage",
    "thinking",
    "type",
    "budget_tokens",
    "reasoning",
    "effort",
    "summary",
    "reasoning_effort",
    "output_config",
    "format",
    "response_format",
    "json_schema",
    "schema",
    "text",
    "role",
    "content",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "id",
    "call_id",
    "tool_call_id",
    "tool_use_id",
    "tool_use",
    "input_schema",
    "parameters",
    "description",
    "strict",
    "is_error",
    "signature",
    "encrypted_content",
    "previous_response_id",
    "include",
    "store",
    "action",
    "status",
    "output",
    "namespace",
    "custom",
    "stop",
    "stop_sequences",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "n",
    "suffix",
    "echo",
    "metadata",
    "chat_template_kwargs",
    "enable_thinking",
    "source",
    "data",
    "reasoning_content",
];

/// Words that mean something somewhere.
const WORDS: &[&str] = &[
    "user",
    "assistant",
    "system",
    "developer",
    "tool",
    "function",
    "text",
    "tool_use",
    "tool_result",
    "thinking",
    "enabled",
    "disabled",
    "adaptive",
    "auto",
    "none",
    "any",
    "required",
    "high",
    "json_schema",
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "local_shell_call",
    "local_shell_call_output",
    "tool_search_output",
    "item_reference",
    "web_search_call",
    "custom",
    "namespace",
    "tool_search",
    "local_shell",
    "completed",
    "in_progress",
    "image_url",
    "c1",
    "",
    "q36r1.eJw.00000000",
    "{\"a\":1}",
    "{",
    "x-anthropic-a: 1",
    "<think>a</think>b",
];

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3_i64..30).prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        select(WORDS).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            vec((select(NAMES), inner), 0..7).prop_map(|entries| {
                let entry = |(name, value): (&str, Value)| (name.to_owned(), value);
                Value::Object(entries.into_iter().map(entry).collect::<Map<_, _>>())
            }),
        ]
    })
}

/// Full bodies to start from.
const BODIES: [(Api, &str); 4] = [
    (
        Api::Chat,
        r#"{"model":"m","messages":[{"role":"system","content":"S"},{"role":"user","content":[{"type":"text","text":"q\ud83d\ude00"}]},{"role":"assistant","content":null,"reasoning_content":"t","tool_calls":[{"id":"c1","type":"function","function":{"name":"read","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"c1","content":"r"}],"tools":[{"type":"function","function":{"name":"read","parameters":{"type":"object"}}}],"tool_choice":"auto","temperature":0.5,"stop":["a"],"logit_bias":{"5":1},"thinking":{"type":"enabled","budget_tokens":5}}"#,
    ),
    (Api::Completions, r#"{"prompt":[1,2,3],"max_tokens":5,"logprobs":2,"echo":false,"seed":7}"#),
    (
        Api::Responses,
        r#"{"input":[{"role":"user","content":[{"type":"input_text","text":"q"}]},{"type":"reasoning","summary":[{"type":"summary_text","text":"t"}],"encrypted_content":"q36r1.x.0"},{"type":"function_call","call_id":"c1","name":"read","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"r"}]}],"tools":[{"type":"custom","name":"p","format":{"type":"grammar","definition":"x"}},{"type":"namespace","name":"n","tools":[{"name":"f"}]}],"reasoning":{"effort":"low","summary":"auto"},"include":["reasoning.encrypted_content"],"metadata":{"a":1}}"#,
    ),
    (
        Api::Messages,
        r#"{"system":[{"type":"text","text":"S"}],"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"c1","name":"read","input":{"a":1.0}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"r"}],"is_error":true}]}],"tools":[{"name":"read","input_schema":{"type":"object"}}],"max_tokens":5}"#,
    ),
];

/// Whether a conversation has a prompt; other inputs are one.
fn has_prompt(input: &Input) -> bool {
    match input {
        Input::Chat { conversation, .. } => render(conversation, &RenderOptions::default()).is_ok(),
        Input::Text(_) | Input::Tokens(_) => true,
    }
}

/// Reads a body; what is accepted is rendered and answered too. Gives whether it was.
fn survives(api: Api, body: &[u8]) -> bool {
    let responses = ResponseStore::new(4);
    let context = Context { strict_media: false, responses: &responses, vocab: VOCAB };
    match parse(api, body, &context) {
        Ok(parsed) => {
            has_prompt(&parsed.request.input);
            let reply = Reply::new(&["t"], &["a"]).call("read", &["{\"input\":", "\"x\"}"]);
            frames(&parsed.shape, &reply.updates());
            answer(&parsed.shape, &stamp(api), &reply.outcome());
            responses.remember(&parsed.shape, &stamp(api), &reply.outcome());
            true
        }
        Err(failure) => {
            assert!(!failure.message.is_empty());
            assert!(matches!(failure.kind, FailureKind::Invalid | FailureKind::UnknownResponse));
            failure_body(Some(api), &failure, "req_1");
            false
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_bytes_are_refused(body in vec(any::<u8>(), 0..200)) {
        for api in APIS {
            prop_assert!(!survives(api, &body));
        }
    }

    #[test]
    fn random_fields_never_panic(fields in vec((select(NAMES), value()), 0..8)) {
        for (api, body) in MINIMAL {
            let mut body: Map<String, Value> = serde_json::from_str(body).unwrap();
            body.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
            survives(api, Value::Object(body).to_string().as_bytes());
        }
    }

    #[test]
    fn damaged_bodies_never_panic(cuts in vec((any::<usize>(), 0_usize..12, "[\\[\\]{}\":,\\\\a-fu0-9]{0,4}"), 1..4)) {
        for (api, body) in BODIES {
            let mut body = body.as_bytes().to_vec();
            for (place, count, text) in &cuts {
                let start = place % (body.len() + 1);
                let end = (start + count).min(body.len());
                body.splice(start..end, text.bytes());
            }
            survives(api, &body);
        }
    }

    #[test]
    fn a_value_in_place_of_another_never_panics(place in any::<usize>(), value in value()) {
        for (api, body) in BODIES {
            let mut body: Value = serde_json::from_str(body).unwrap();
            let count = nodes(&mut body, &mut |_, _| {});
            let wanted = place % count;
            nodes(&mut body, &mut |index, node| {
                if index == wanted {
                    *node = value.clone();
                }
            });
            survives(api, body.to_string().as_bytes());
        }
    }
}

/// Visits every value of a tree, outermost first, and gives how many there are.
fn nodes(root: &mut Value, visit: &mut impl FnMut(usize, &mut Value)) -> usize {
    fn walk(node: &mut Value, next: &mut usize, visit: &mut impl FnMut(usize, &mut Value)) {
        let index = *next;
        *next += 1;
        match node {
            Value::Array(items) => items.iter_mut().for_each(|item| walk(item, next, visit)),
            Value::Object(map) => map.values_mut().for_each(|item| walk(item, next, visit)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        visit(index, node);
    }
    let mut next = 0;
    walk(root, &mut next, visit);
    next
}

#[test]
fn bodies_to_start_from_are_good() {
    for (api, body) in BODIES.into_iter().chain(MINIMAL) {
        assert!(survives(api, body.as_bytes()), "{api:?}");
        assert!(has_prompt(&read(api, body).unwrap().request.input), "{api:?}");
    }
}

#[test]
fn nesting_has_an_end() {
    let deep = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n));
    for (api, body) in MINIMAL {
        let with = |depth| format!("{},\"unknown\":{}}}", &body[..body.len() - 1], deep(depth));
        assert!(survives(api, with(127).as_bytes()));
        assert!(!survives(api, with(128).as_bytes()));
        assert!(!survives(api, with(100_000).as_bytes()));
    }
    // As deep as a body may be, where it reaches the prompt with more around it.
    let schema = format!("{}1{}", "{\"a\":".repeat(123), "}".repeat(123));
    let body = format!(
        r#"{{"messages":[{{"content":"q"}}],"tools":[{{"name":"f","parameters":{schema}}}]}}"#
    );
    survives(Api::Chat, body.as_bytes());
    survives(Api::Messages, body.as_bytes());
}

#[test]
fn large_bodies_take_time_in_proportion() {
    let text = "x\\n\\ud83d".repeat(1 << 20);
    let body = format!(r#"{{"messages":[{{"content":"{text}"}}]}}"#);
    assert!(survives(Api::Chat, body.as_bytes()));
    let list = |of: &dyn Fn(usize) -> String| (0..100_000).map(of).collect::<Vec<_>>().join(",");
    let messages = list(&|_| r#"{"content":"q"}"#.to_owned());
    assert!(survives(Api::Chat, format!(r#"{{"messages":[{messages}]}}"#).as_bytes()));
    let parts = list(&|i| format!(r#"{{"type":"image{i}"}}"#));
    assert!(survives(
        Api::Messages,
        format!(r#"{{"messages":[{{"content":[{parts}]}}]}}"#).as_bytes()
    ));
    let tools = list(&|i| format!(r#"{{"name":"f{i}"}}"#));
    for tools in [tools.clone(), format!(r#"{{"type":"namespace","name":"n","tools":[{tools}]}}"#)]
    {
        assert!(!survives(
            Api::Responses,
            format!(r#"{{"input":"q","tools":[{tools}]}}"#).as_bytes()
        ));
    }
    let names = list(&|i| format!(r#""k{i}":1"#));
    let call = format!(r#"{{"type":"local_shell_call","call_id":"c","action":{{{names}}}}}"#);
    assert!(survives(Api::Responses, format!(r#"{{"input":[{call}]}}"#).as_bytes()));
}
