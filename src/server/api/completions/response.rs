//! Completions that are not streamed.

use serde_json::{Value, json};

use super::super::shape::{Reason, Shape};
use super::super::stamp::Stamp;
use super::super::{logprobs, usage};
use crate::server::Outcome;

/// What a completion depends on.
#[derive(Debug, Clone)]
pub(crate) struct CompletionsForm {
    /// A stream ends with the numbers of tokens.
    pub(crate) include_usage: bool,
    /// Probabilities of tokens were asked for.
    pub(crate) logprobs: bool,
    /// What the answer begins with: nothing, or the prompt.
    pub(crate) echo: String,
}

/// The answer.
pub(crate) fn answer(
    shape: &Shape,
    form: &CompletionsForm,
    stamp: &Stamp,
    outcome: &Outcome,
) -> Value {
    let mut offset = 0;
    let logprobs = form.logprobs.then(|| logprobs::completions(&outcome.logprobs, &mut offset));
    let mut choice = json!({
        "text": format!("{}{}", form.echo, outcome.text),
        "index": 0,
        "logprobs": logprobs,
        "finish_reason": Reason::of(outcome).openai(),
    });
    if !outcome.reasoning.is_empty() {
        choice["reasoning_content"] = json!(outcome.reasoning);
    }
    let mut answer = stamp.envelope("text_completion", &shape.model, json!([choice]));
    answer.insert("usage".to_owned(), usage::chat(outcome.usage));
    Value::Object(answer)
}
