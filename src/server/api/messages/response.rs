//! Messages answers that are not streamed.

use serde_json::{Map, Value, json};

use super::super::shape::{Reason, Shape};
use super::super::stamp::Stamp;
use super::super::{signature, usage};
use crate::chat::{Arguments, Json};
use crate::server::Outcome;

/// The answer. A call that was cut off is not in it: nobody could make it.
pub(crate) fn answer(shape: &Shape, stamp: &Stamp, outcome: &Outcome) -> Value {
    let mut content = Vec::new();
    if !outcome.reasoning.is_empty() {
        content.push(json!({
            "type": "thinking",
            "thinking": outcome.reasoning,
            "signature": signature::sign(&outcome.reasoning),
        }));
    }
    // Never without anything to show.
    if !outcome.text.is_empty() || outcome.calls.is_empty() {
        content.push(json!({"type": "text", "text": outcome.text}));
    }
    for call in &outcome.calls {
        let input = object(&call.arguments);
        content.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}));
    }
    let (stop_reason, stop_sequence) = stop(outcome);
    json!({
        "id": stamp.id,
        "type": "message",
        "role": "assistant",
        "model": shape.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": stop_sequence,
        "usage": usage::messages(outcome.usage),
    })
}

/// Why the reply ended, and the text that ended it.
pub(super) fn stop(outcome: &Outcome) -> (&'static str, Option<&str>) {
    match Reason::of(outcome) {
        Reason::Stop => ("end_turn", None),
        Reason::StopText(text) => ("stop_sequence", Some(text)),
        Reason::Length => ("max_tokens", None),
        Reason::Calls => ("tool_use", None),
    }
}

/// Arguments as an object. Numbers that no JSON reader can hold are handed on as they were spelled, in a string.
pub(in super::super) fn object(arguments: &Arguments) -> Value {
    let value = |spelled: &Json| {
        serde_json::from_str(spelled.text()).unwrap_or_else(|_| json!(spelled.text()))
    };
    let entry = |(name, spelled): (&str, &Json)| (name.to_owned(), value(spelled));
    Value::Object(arguments.iter().map(entry).collect::<Map<String, Value>>())
}
