//! Streamed completions.
//!
//! ```text
//!  [prompt] ─► text … ─► empty text with finish_reason ─► [usage] ─► [DONE]
//!    └── on failure, from anywhere ─► [finish_reason "error", if something was said] ─► error ─► [DONE]
//! ```

use serde_json::{Map, Value, json};

use super::super::errors;
use super::super::frame::Frame;
use super::super::shape::{Reason, Shape};
use super::super::stamp::Stamp;
use super::super::{logprobs, usage};
use super::response::CompletionsForm;
use crate::server::{Api, Failure, Logprob, Outcome, Update};

/// The state of one stream.
#[derive(Debug)]
pub(crate) struct CompletionsStream {
    model: String,
    form: CompletionsForm,
    stamp: Stamp,
    spoken: bool,
    /// Probabilities whose text has not come yet.
    pending: Vec<Logprob>,
    /// Characters before the next token.
    offset: usize,
}

impl CompletionsStream {
    pub(crate) fn new(shape: &Shape, form: CompletionsForm, stamp: Stamp) -> Self {
        let model = shape.model.clone();
        Self { model, form, stamp, spoken: false, pending: Vec::new(), offset: 0 }
    }

    pub(crate) fn update(&mut self, update: &Update) -> Vec<Frame> {
        let mut frames = Vec::new();
        match update {
            Update::Begin(_) if !self.form.echo.is_empty() => {
                let echo = std::mem::take(&mut self.form.echo);
                frames.push(self.piece(&echo));
            }
            Update::Reasoning(text) => {
                self.spoken = true;
                frames.push(self.chunk(json!({"text": "", "reasoning_content": text}), None, None));
            }
            Update::Text(text) => frames.push(self.piece(text)),
            Update::Logprob(logprob) => self.pending.push(logprob.clone()),
            Update::End(outcome) => self.end(outcome, &mut frames),
            Update::Failed(failure) => self.fail(failure, &mut frames),
            // Without tools there are no calls.
            Update::Waiting(_)
            | Update::Begin(_)
            | Update::CallBegin { .. }
            | Update::CallArguments(_)
            | Update::CallEnd => {}
        }
        frames
    }

    fn piece(&mut self, text: &str) -> Frame {
        self.spoken = true;
        let logprobs = self.take_logprobs();
        self.chunk(json!({"text": text}), logprobs, None)
    }

    fn end(&mut self, outcome: &Outcome, frames: &mut Vec<Frame>) {
        let logprobs = self.take_logprobs();
        let reason = Reason::of(outcome).openai();
        frames.push(self.chunk(json!({"text": ""}), logprobs, Some(reason)));
        if self.form.include_usage {
            frames.push(usage::chunk(self.envelope(json!([])), outcome.usage));
        }
        frames.push(Frame::done());
    }

    fn fail(&mut self, failure: &Failure, frames: &mut Vec<Frame>) {
        if self.spoken {
            frames.push(self.chunk(json!({"text": ""}), None, Some("error")));
        }
        frames.extend(errors::openai_frames(Api::Completions, failure));
    }

    fn take_logprobs(&mut self) -> Option<Value> {
        if self.pending.is_empty() {
            return None;
        }
        let pending = std::mem::take(&mut self.pending);
        Some(logprobs::completions(&pending, &mut self.offset))
    }

    /// A chunk around `choice`, which has the text.
    fn chunk(&self, mut choice: Value, logprobs: Option<Value>, finish: Option<&str>) -> Frame {
        choice["index"] = json!(0);
        choice["logprobs"] = logprobs.unwrap_or_default();
        choice["finish_reason"] = json!(finish);
        Frame::data(&Value::Object(self.envelope(json!([choice]))))
    }

    fn envelope(&self, choices: Value) -> Map<String, Value> {
        self.stamp.envelope("text_completion", &self.model, choices)
    }
}
