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
    /// Calls are told as clients of the older form know them.
    pub(crate) legacy: bool,
}

impl ChatForm {
    /// Why a reply ended.
    pub(super) fn reason(self, outcome: &Outcome) -> &'static str {
        let reason = Reason::of(outcome);
        if self.legacy && reason == Reason::Calls { "function_call" } else { reason.openai() }
    }
}

/// The answer. A call that was cut off is not in it: nobody could make it.
pub(crate) fn answer(shape: &Shape, form: ChatForm, stamp: &Stamp, outcome: &Outcome) -> Value {
    let content = if outcome.text.is_empty() && !outcome.calls.is_empty() {
        Value::Null
    } else {
        json!(outcome.text)
    };
    let mut message = json!({"role": "assistant", "content": content});
    if !outcome.reasoning.is_empty() {
        message["reasoning_content"] = json!(outcome.reasoning);
    }
    match &outcome.calls[..] {
        [] => {}
        [first, ..] if form.legacy => {
            message["function_call"] = json!({"name": first.name, "arguments": first.json});
        }
        calls => message["tool_calls"] = calls.iter().map(call).collect(),
    }
    let logprobs = form.logprobs.then(|| logprobs::chat(&outcome.logprobs));
    let choice = json!({
        "index": 0,
        "message": message,
        "logprobs": logprobs,
        "finish_reason": form.reason(outcome),
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
