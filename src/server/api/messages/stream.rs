//! Streamed messages answers.
//!
//! ```text
//!  message_start ─► ping ─► block 0 ─► block 1 … ─► message_delta ─► message_stop
//!  block: content_block_start ─► content_block_delta … ─► content_block_stop; never two at once
//!    └── on failure, from anywhere ─► [content_block_stop] ─► error
//! ```

use serde_json::{Value, json};

use super::super::frame::Frame;
use super::super::shape::Shape;
use super::super::stamp::Stamp;
use super::super::{errors, signature, usage};
use super::response;
use crate::server::{Failure, Outcome, Update, Usage};

/// The state of one stream.
#[derive(Debug)]
pub(crate) struct MessagesStream {
    model: String,
    stamp: Stamp,
    begun: bool,
    open: Option<Block>,
    /// Index of the open block, or of the next one.
    index: usize,
    /// There was a block that is more than a thought.
    shown: bool,
    thought: String,
}

/// The kind of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    Thinking,
    Text,
    ToolUse,
}

impl MessagesStream {
    pub(crate) fn new(shape: &Shape, stamp: Stamp) -> Self {
        Self {
            model: shape.model.clone(),
            stamp,
            begun: false,
            open: None,
            index: 0,
            shown: false,
            thought: String::new(),
        }
    }

    pub(crate) fn update(&mut self, update: &Update) -> Vec<Frame> {
        let mut frames = Vec::new();
        match update {
            Update::Waiting(_) | Update::Logprob(_) => {}
            Update::Begin(usage) => self.begin(*usage, &mut frames),
            Update::Reasoning(text) => {
                self.open(Block::Thinking, &mut frames);
                self.thought.push_str(text);
                self.delta(&json!({"type": "thinking_delta", "thinking": text}), &mut frames);
            }
            Update::Text(text) => {
                self.open(Block::Text, &mut frames);
                self.delta(&json!({"type": "text_delta", "text": text}), &mut frames);
            }
            Update::CallBegin { id, name } => {
                let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                self.start(Block::ToolUse, &block, &mut frames);
            }
            Update::CallArguments(text) => self.arguments(text, &mut frames),
            Update::CallEnd => self.close(&mut frames),
            Update::End(outcome) => self.end(outcome, &mut frames),
            Update::Failed(failure) => self.fail(failure, &mut frames),
        }
        frames
    }

    fn begin(&mut self, usage: Usage, frames: &mut Vec<Frame>) {
        if self.begun {
            return;
        }
        self.begun = true;
        let message = json!({
            "id": self.stamp.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            "usage": usage::messages(Usage { output_tokens: 0, reasoning_tokens: 0, ..usage }),
        });
        frames.push(event("message_start", json!({"message": message})));
        frames.push(ping());
    }

    /// Makes sure that a block of this kind is open.
    fn open(&mut self, block: Block, frames: &mut Vec<Frame>) {
        if self.open == Some(block) {
            return;
        }
        let start = match block {
            Block::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
            Block::Text | Block::ToolUse => json!({"type": "text", "text": ""}),
        };
        self.start(block, &start, frames);
    }

    fn start(&mut self, block: Block, start: &Value, frames: &mut Vec<Frame>) {
        self.begin(Usage::default(), frames);
        self.close(frames);
        self.open = Some(block);
        self.shown |= block != Block::Thinking;
        let start = json!({"index": self.index, "content_block": start});
        frames.push(event("content_block_start", start));
    }

    fn arguments(&mut self, text: &str, frames: &mut Vec<Frame>) {
        if self.open == Some(Block::ToolUse) {
            self.delta(&json!({"type": "input_json_delta", "partial_json": text}), frames);
        }
    }

    fn delta(&self, delta: &Value, frames: &mut Vec<Frame>) {
        frames.push(event("content_block_delta", json!({"index": self.index, "delta": delta})));
    }

    fn close(&mut self, frames: &mut Vec<Frame>) {
        let Some(block) = self.open.take() else { return };
        if block == Block::Thinking {
            let signature = signature::sign(&std::mem::take(&mut self.thought));
            self.delta(&json!({"type": "signature_delta", "signature": signature}), frames);
        }
        frames.push(event("content_block_stop", json!({"index": self.index})));
        self.index += 1;
    }

    fn end(&mut self, outcome: &Outcome, frames: &mut Vec<Frame>) {
        self.begin(outcome.usage, frames);
        self.close(frames);
        if !self.shown {
            self.open(Block::Text, frames);
            self.close(frames);
        }
        let (stop_reason, stop_sequence) = response::stop(outcome);
        let delta = json!({"stop_reason": stop_reason, "stop_sequence": stop_sequence});
        let usage = usage::messages(outcome.usage);
        frames.push(event("message_delta", json!({"delta": delta, "usage": usage})));
        frames.push(event("message_stop", json!({})));
    }

    fn fail(&mut self, failure: &Failure, frames: &mut Vec<Frame>) {
        self.close(frames);
        frames.push(event("error", json!({"error": errors::messages_error(failure)})));
    }
}

/// What keeps a connection alive.
pub(crate) fn ping() -> Frame {
    event("ping", json!({}))
}

/// An event whose data begins with its own name.
fn event(name: &'static str, fields: Value) -> Frame {
    let mut data = json!({"type": name});
    if let (Value::Object(data), Value::Object(fields)) = (&mut data, fields) {
        data.extend(fields);
    }
    Frame::named(name, &data)
}
