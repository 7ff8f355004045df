//! Chat answers that are not streamed.

use serde_json::{Value, json};

use super::super::shape::{Reason, Shape};
use super::super::stamp::Stamp;
use super::super::{logprobs, usage};
use crate::server::{Call, Outcome};

/// What a chat answer depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChatForm {
    /// A stream ends with the numbers of tokens.
    pub(crate) include_usage: bool,
    /// Probabilities of tokens were asked for.
    pub(crate) logprobs: bool,
}

/// The answer. A call that was cut off is not in it: nobody could make it.
pub(crate) fn answer(shape: &Shape, form: ChatForm, stamp: &Stamp, outcome: &Outcome) -> Value {
    let calls: Vec<Value> = outcome.calls.iter().map(call).collect();
    let content = if outcome.text.is_empty() && !calls.is_empty() {
        Value::Null
    } else {
        json!(outcome.text)
    };
    let mut message = json!({"role": "assistant", "content": content});
    if !outcome.reasoning.is_empty() {
        message["reasoning_content"] = json!(outcome.reasoning);
    }
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    let logprobs = form.logprobs.then(|| logprobs::chat(&outcome.logprobs));
    let choice = json!({
        "index": 0,
        "message": message,
        "logprobs": logprobs,
        "finish_reason": Reason::of(outcome).openai(),
    });
    let mut answer = stamp.envelope("chat.completion", &shape.model, json!([choice]));
    answer.insert("usage".to_owned(), usage::chat(outcome.usage));
    Value::Object(answer)
}

fn call(call: &Call) -> Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.json},
    })
}
