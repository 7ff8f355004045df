//! Random replies: what is streamed is what is answered, and every stream ends once.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{Shape, answer};
use super::support::{Reply, events, frames, read, stamp};
use crate::server::{Api, Failure, FailureKind, Finish, Update};

const TOOLS: &str = r#"[{"type":"function","name":"read"},{"type":"custom","name":"patch"},{"type":"local_shell"}]"#;

fn shape(api: Api) -> Shape {
    let body = match api {
        Api::Chat => {
            r#"{"messages":[{"content":"q"}],"stream_options":{"include_usage":true}}"#.to_owned()
        }
        Api::Completions => r#"{"prompt":"q","stream_options":{"include_usage":true}}"#.to_owned(),
        Api::Responses => format!(
            "{{\"input\":\"q\",\"include\":[\"reasoning.encrypted_content\"],\"tools\":{TOOLS}}}"
        ),
        Api::Messages => r#"{"messages":[{"role":"user","content":"q"}]}"#.to_owned(),
    };
    read(api, &body).unwrap().shape
}

/// Pieces as the engine sends them: never empty.
fn pieces() -> impl Strategy<Value = Vec<String>> {
    vec("[a-zé😀\n\"\\\\<]{1,6}", 0..4)
}

/// A function and the JSON of its arguments, cut anywhere.
fn call() -> impl Strategy<Value = (String, Vec<String>)> {
    let name = prop_oneof![Just("read"), Just("patch"), Just("local_shell"), Just("other")];
    (name, any::<String>(), 1_usize..7).prop_map(|(name, text, cut)| {
        let json = match name {
            "patch" => json!({"input": text}),
            "local_shell" => json!({"command": ["echo", text]}),
            _ => json!({"path": text, "limit": 5}),
        };
        let json: Vec<char> = json.to_string().chars().collect();
        (name.to_owned(), json.chunks(cut).map(|piece| piece.iter().collect()).collect())
    })
}

fn reply() -> impl Strategy<Value = Reply> {
    let ends = prop_oneof![
        Just(Finish::Stop),
        Just(Finish::Length),
        Just(Finish::StopText("END".to_owned()))
    ];
    (pieces(), pieces(), vec(call(), 0..3), proptest::option::of(call()), ends).prop_map(
        |(reasoning, text, calls, open, finish)| {
            let finish = if open.is_some() {
                Finish::Length
            } else if calls.is_empty() {
                finish
            } else {
                Finish::Calls
            };
            // A cut-off call ends somewhere in its arguments.
            let open = open.map(|(name, mut pieces)| {
                pieces.truncate(pieces.len() / 2);
                (name, pieces)
            });
            let nothing = text.is_empty() && calls.is_empty() && open.is_none();
            let thought_open = nothing && finish == Finish::Length && !reasoning.is_empty();
            Reply { reasoning, thought_open, text, calls, open, finish, logprobs: false }
        },
    )
}

fn joined<'a>(parts: impl Iterator<Item = &'a Value>) -> String {
    parts.filter_map(Value::as_str).collect()
}

/// Puts the chunks of a chat stream together again.
fn chat_message(events: &[(Option<&str>, Value)]) -> Value {
    let choices = || events.iter().map(|(_, data)| &data["choices"][0]);
    let deltas = || choices().map(|choice| &choice["delta"]);
    let mut calls: Vec<Value> = Vec::new();
    for call in deltas().map(|delta| &delta["tool_calls"][0]).filter(|call| call.is_object()) {
        let index = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
        if call.get("id").is_some() {
            assert_eq!(index, calls.len());
            let mut call = call.clone();
            call.as_object_mut().unwrap().remove("index");
            calls.push(call);
        } else {
            let arguments = &mut calls[index]["function"]["arguments"];
            *arguments = json!(format!(
                "{}{}",
                arguments.as_str().unwrap(),
                call["function"]["arguments"].as_str().unwrap()
            ));
        }
    }
    let finish: Vec<&Value> =
        choices().map(|choice| &choice["finish_reason"]).filter(|f| f.is_string()).collect();
    assert_eq!(finish.len(), 1);
    json!({
        "content": joined(deltas().map(|delta| &delta["content"])),
        "reasoning": joined(deltas().map(|delta| &delta["reasoning_content"])),
        "calls": calls,
        "finish": finish[0],
        "usage": events[events.len() - 2].1["usage"],
    })
}

/// Puts the blocks of a messages stream together again.
fn blocks(events: &[(Option<&str>, Value)]) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    let mut open = false;
    for (name, data) in events {
        match *name {
            Some("content_block_start") => {
                assert!(!open && data["index"] == json!(blocks.len()));
                blocks.push(data["content_block"].clone());
                open = true;
            }
            Some("content_block_delta") => {
                assert!(open && data["index"] == json!(blocks.len() - 1));
                let block = blocks.last_mut().unwrap();
                for (delta, field) in [
                    ("thinking", "thinking"),
                    ("text", "text"),
                    ("signature", "signature"),
                    ("partial_json", "json"),
                ] {
                    if let Some(more) = data["delta"][delta].as_str() {
                        let so_far = block[field].as_str().unwrap_or_default().to_owned();
                        block[field] = json!(so_far + more);
                    }
                }
            }
            Some("content_block_stop") => {
                assert!(open);
                open = false;
                let block = blocks.last_mut().unwrap();
                if block["type"] == "tool_use" {
                    let json = block.as_object_mut().unwrap().remove("json").unwrap_or_default();
                    let input = serde_json::from_str(json.as_str().unwrap_or_default());
                    block["input"] = input.unwrap_or_default();
                }
            }
            _ => assert!(!open),
        }
    }
    blocks
}

/// Events that end a stream, by API.
fn ends(api: Api, events: &[(Option<&str>, Value)]) -> usize {
    let is_end = |(name, data): &&(Option<&str>, Value)| match api {
        Api::Chat | Api::Completions => *data == json!("[DONE]"),
        Api::Messages => matches!(*name, Some("message_stop" | "error")),
        Api::Responses => {
            matches!(*name, Some("response.completed" | "response.incomplete" | "response.failed"))
        }
    };
    let count = events.iter().filter(is_end).count();
    assert!(events.last().as_ref().is_some_and(is_end), "the end comes last");
    count
}

fn check_chat(reply: &Reply) {
    let shape = shape(Api::Chat);
    let whole = answer(&shape, &stamp(Api::Chat), &reply.outcome());
    let mut message = chat_message(&events(&frames(&shape, &reply.updates())));
    if reply.open.is_some() {
        message["calls"].as_array_mut().unwrap().pop();
    }
    let choice = &whole["choices"][0];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    assert_eq!(text(&message["content"]), text(&choice["message"]["content"]));
    assert_eq!(text(&message["reasoning"]), text(&choice["message"]["reasoning_content"]));
    let calls = choice["message"].get("tool_calls").cloned().unwrap_or_else(|| json!([]));
    assert_eq!(message["calls"], calls);
    assert_eq!(message["finish"], choice["finish_reason"]);
    assert_eq!(message["usage"], whole["usage"]);
    let by_calls = choice["finish_reason"] == "tool_calls";
    assert_eq!(by_calls, !reply.calls.is_empty() && reply.open.is_none());
    assert!(choice["message"]["content"].is_string() || !reply.calls.is_empty());
}

fn check_messages(reply: &Reply) {
    let shape = shape(Api::Messages);
    let whole = answer(&shape, &stamp(Api::Messages), &reply.outcome());
    let events = events(&frames(&shape, &reply.updates()));
    let mut blocks = blocks(&events);
    assert!(!blocks.is_empty() && whole["content"].as_array().is_some_and(|c| !c.is_empty()));
    if reply.open.is_some() {
        blocks.pop();
    }
    let said = |block: &&Value| block["text"] != "";
    let whole_blocks = whole["content"].as_array().unwrap();
    assert_eq!(
        blocks.iter().filter(said).collect::<Vec<_>>(),
        whole_blocks.iter().filter(said).collect::<Vec<_>>()
    );
    let (_, delta) = &events[events.len() - 2];
    assert_eq!(delta["delta"]["stop_reason"], whole["stop_reason"]);
    assert_eq!(delta["delta"]["stop_sequence"], whole["stop_sequence"]);
    assert_eq!(delta["usage"], whole["usage"]);
}

/// The deltas of an item join to the item that is done, and those to the response.
fn check_responses(reply: &Reply) {
    let shape = shape(Api::Responses);
    let whole = answer(&shape, &stamp(Api::Responses), &reply.outcome());
    let events = events(&frames(&shape, &reply.updates()));
    assert_eq!(events.last().unwrap().1["response"], whole);
    for (index, (name, data)) in events.iter().enumerate() {
        assert_eq!(data["sequence_number"], json!(index));
        assert_eq!(*name, data["type"].as_str());
    }
    for (index, item) in whole["output"].as_array().unwrap().iter().enumerate() {
        let about = |name: &str| {
            let is = |(event, data): &&(Option<&str>, Value)| {
                *event == Some(name) && data["output_index"] == json!(index)
            };
            events.iter().filter(is).map(|(_, data)| data).collect::<Vec<_>>()
        };
        let [added, done] = ["response.output_item.added", "response.output_item.done"].map(about);
        assert_eq!((added.len(), done.len()), (1, 1));
        assert_eq!(done[0]["item"], *item);
        assert_eq!(added[0]["item"]["id"], item["id"]);
        let (deltas, text) = match item["type"].as_str().unwrap() {
            "reasoning" => ("response.reasoning_summary_text.delta", &item["summary"][0]["text"]),
            "message" => ("response.output_text.delta", &item["content"][0]["text"]),
            "function_call" => ("response.function_call_arguments.delta", &item["arguments"]),
            "custom_tool_call" => ("response.custom_tool_call_input.delta", &item["input"]),
            _ => continue,
        };
        let deltas = about(deltas);
        assert!(deltas.iter().all(|delta| delta["item_id"] == item["id"]));
        assert_eq!(joined(deltas.iter().map(|delta| &delta["delta"])), text.as_str().unwrap());
    }
}

fn check_completions(reply: &Reply) {
    let shape = shape(Api::Completions);
    let whole = answer(&shape, &stamp(Api::Completions), &reply.outcome());
    let events = events(&frames(&shape, &reply.updates()));
    let text = joined(events.iter().map(|(_, data)| &data["choices"][0]["text"]));
    assert_eq!(text, whole["choices"][0]["text"].as_str().unwrap());
    let last = &events[events.len() - 3].1["choices"][0];
    assert_eq!(last["finish_reason"], whole["choices"][0]["finish_reason"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_streamed_is_what_is_answered(reply in reply()) {
        check_chat(&reply);
        check_messages(&reply);
        check_responses(&reply);
        let plain = Reply { calls: Vec::new(), open: None, ..reply };
        let finish = if plain.finish == Finish::Calls { Finish::Stop } else { plain.finish.clone() };
        check_completions(&plain.finish(finish));
    }

    #[test]
    fn every_stream_ends_once(reply in reply(), cut in 0_usize..20, again in any::<bool>()) {
        for api in [Api::Chat, Api::Completions, Api::Responses, Api::Messages] {
            let shape = shape(api);
            let mut updates = reply.updates();
            prop_assert_eq!(ends(api, &events(&frames(&shape, &updates))), 1);
            updates.truncate(cut.min(updates.len() - 1));
            updates.push(Update::Failed(Failure::new(FailureKind::Stopping, "stopping")));
            if again {
                updates.extend(reply.updates());
            }
            prop_assert_eq!(ends(api, &events(&frames(&shape, &updates))), 1);
        }
    }

    #[test]
    fn updates_in_any_order_do_not_panic(reply in reply(), order in vec(0_usize..1000, 0..30)) {
        let all = reply.updates();
        let updates: Vec<Update> = order.iter().map(|i| all[i % all.len()].clone()).collect();
        for api in [Api::Chat, Api::Completions, Api::Responses, Api::Messages] {
            frames(&shape(api), &updates);
        }
    }
}
