//! Streamed chat answers.
//!
//! ```text
//!  role ─► reasoning_content … ─► content … ─► (header, arguments …) per call ─► finish_reason ─► [usage] ─► [DONE]
//!    └── on failure, from anywhere ─► [finish_reason "error", if something was said] ─► error ─► [DONE]
//! ```

use serde_json::{Map, Value, json};

use super::super::errors;
use super::super::frame::Frame;
use super::super::shape::Shape;
use super::super::stamp::Stamp;
use super::super::{logprobs, usage};
use super::response::ChatForm;
use crate::server::{Api, Failure, Logprob, Outcome, Update};

/// The state of one stream.
#[derive(Debug)]
pub(crate) struct ChatStream {
    model: String,
    form: ChatForm,
    stamp: Stamp,
    begun: bool,
    /// Something of the reply was sent.
    spoken: bool,
    calls: usize,
    /// Probabilities whose text has not come yet.
    pending: Vec<Logprob>,
}

impl ChatStream {
    pub(crate) fn new(shape: &Shape, form: ChatForm, stamp: Stamp) -> Self {
        let model = shape.model.clone();
        Self { model, form, stamp, begun: false, spoken: false, calls: 0, pending: Vec::new() }
    }

    pub(crate) fn update(&mut self, update: &Update) -> Vec<Frame> {
        let mut frames = Vec::new();
        if !matches!(update, Update::Waiting(_) | Update::Failed(_)) {
            self.begin(&mut frames);
        }
        match update {
            Update::Waiting(_) | Update::Begin(_) | Update::CallEnd => {}
            Update::Reasoning(text) => self.delta(&json!({"reasoning_content": text}), &mut frames),
            Update::Text(text) => self.delta(&json!({"content": text}), &mut frames),
            Update::Logprob(logprob) => self.pending.push(logprob.clone()),
            Update::CallBegin { id, name } => {
                self.calls += 1;
                let function = json!({"name": name, "arguments": ""});
                self.call(json!({"id": id, "type": "function", "function": function}), &mut frames);
            }
            Update::CallArguments(text) => {
                self.call(json!({"function": {"arguments": text}}), &mut frames);
            }
            Update::End(outcome) => self.end(outcome, &mut frames),
            Update::Failed(failure) => self.fail(failure, &mut frames),
        }
        frames
    }

    fn begin(&mut self, frames: &mut Vec<Frame>) {
        if !self.begun {
            self.begun = true;
            frames.push(self.chunk(&json!({"role": "assistant", "content": ""}), None, None));
        }
    }

    /// A piece of the open call.
    fn call(&mut self, piece: Value, frames: &mut Vec<Frame>) {
        let delta = if self.form.legacy {
            json!({"function_call": piece["function"]})
        } else {
            let mut call = json!({"index": self.calls.saturating_sub(1)});
            if let (Value::Object(call), Value::Object(piece)) = (&mut call, piece) {
                call.extend(piece);
            }
            json!({"tool_calls": [call]})
        };
        self.delta(&delta, frames);
    }

    fn delta(&mut self, delta: &Value, frames: &mut Vec<Frame>) {
        self.spoken = true;
        let logprobs = self.take_logprobs(delta.get("content").is_some());
        frames.push(self.chunk(delta, logprobs, None));
    }

    fn end(&mut self, outcome: &Outcome, frames: &mut Vec<Frame>) {
        let logprobs = self.take_logprobs(true);
        frames.push(self.chunk(&json!({}), logprobs, Some(self.form.reason(outcome))));
        if self.form.include_usage {
            frames.push(usage::chunk(self.envelope(json!([])), outcome.usage));
        }
        frames.push(Frame::done());
    }

    fn fail(&mut self, failure: &Failure, frames: &mut Vec<Frame>) {
        if self.spoken {
            frames.push(self.chunk(&json!({}), None, Some("error")));
        }
        frames.extend(errors::openai_frames(Api::Chat, failure));
    }

    /// The probabilities of a piece of the answer, if there are any.
    fn take_logprobs(&mut self, of_answer: bool) -> Option<Value> {
        if !of_answer || self.pending.is_empty() {
            return None;
        }
        Some(logprobs::chat(&std::mem::take(&mut self.pending)))
    }

    fn chunk(&self, delta: &Value, logprobs: Option<Value>, finish: Option<&str>) -> Frame {
        let mut choice = json!({"index": 0, "delta": delta});
        if self.form.logprobs {
            choice["logprobs"] = logprobs.unwrap_or_default();
        }
        choice["finish_reason"] = json!(finish);
        Frame::data(&Value::Object(self.envelope(json!([choice]))))
    }

    fn envelope(&self, choices: Value) -> Map<String, Value> {
        self.stamp.envelope("chat.completion.chunk", &self.model, choices)
    }
}
