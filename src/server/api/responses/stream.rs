//! Streamed responses (server.md 9.4).
//!
//! ```text
//!  created ─► in_progress ─► item 0 ─► item 1 … ─► completed | incomplete | failed
//!  item: output_item.added ─► [part.added] ─► deltas ─► done ─► [part.done] ─► output_item.done
//! ```
//!
//! Every event carries its type and the next number. Exactly one of the last three ends every stream, since clients take
//! a stream without for a broken connection and ask again.

use serde_json::{Value, json};

use super::super::frame::Frame;
use super::super::shape::Shape;
use super::super::stamp::Stamp;
use super::super::{errors, usage};
use super::custom::{self, InputReader};
use super::kinds::Kind;
use super::response::{self, CallText, ResponsesForm, Status, Thoughts};
use crate::server::{Api, Failure, Outcome, Update, Usage};

/// The state of one stream.
#[derive(Debug)]
pub(crate) struct ResponsesStream {
    shape: Shape,
    form: ResponsesForm,
    stamp: Stamp,
    sequence: u64,
    begun: bool,
    usage: Usage,
    /// Items that are over.
    output: Vec<Value>,
    open: Option<Open>,
}

/// The item that is being written.
#[derive(Debug)]
struct Open {
    id: String,
    text: String,
    kind: OpenKind,
}

#[derive(Debug)]
enum OpenKind {
    Reasoning,
    Message,
    /// Its text is JSON.
    Call {
        call_id: String,
        name: String,
        deltas: Deltas,
    },
}

/// How the arguments of a call are streamed.
#[derive(Debug)]
enum Deltas {
    Json,
    /// What was sent of the plain text.
    Input {
        reader: Box<InputReader>,
        sent: bool,
    },
    /// Not at all: the finished item has them.
    None,
}

impl ResponsesStream {
    pub(crate) fn new(shape: Shape, form: ResponsesForm, stamp: Stamp) -> Self {
        Self {
            shape,
            form,
            stamp,
            sequence: 0,
            begun: false,
            usage: Usage::default(),
            output: Vec::new(),
            open: None,
        }
    }

    pub(crate) fn update(&mut self, update: &Update) -> Vec<Frame> {
        let mut frames = Vec::new();
        match update {
            Update::Waiting(_) | Update::Logprob(_) => {}
            Update::Begin(usage) => {
                self.usage = *usage;
                self.begin(&mut frames);
            }
            Update::Reasoning(text) if self.form.thoughts != Thoughts::Hidden => {
                self.reasoning(text, &mut frames);
            }
            Update::Reasoning(_) => self.begin(&mut frames),
            Update::Text(text) => self.text(text, &mut frames),
            Update::CallBegin { id, name } => self.call(id, name, &mut frames),
            Update::CallArguments(text) => self.arguments(text, &mut frames),
            Update::CallEnd => self.close(Status::Completed, &mut frames),
            Update::End(outcome) => self.end(outcome, &mut frames),
            Update::Failed(failure) => self.fail(failure, &mut frames),
        }
        frames
    }

    /// An event that clients count as a sign of life.
    pub(crate) fn keepalive(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        if self.begun {
            let response = self.response("in_progress");
            self.event("response.in_progress", json!({"response": response}), &mut frames);
        } else {
            self.begin(&mut frames);
        }
        frames
    }

    fn begin(&mut self, frames: &mut Vec<Frame>) {
        if !self.begun {
            self.begun = true;
            for name in ["response.created", "response.in_progress"] {
                let response = self.response("in_progress");
                self.event(name, json!({"response": response}), frames);
            }
        }
    }

    /// The response object with the items so far; before the end it has none.
    fn response(&self, status: &str) -> Value {
        let output: &[Value] = if status == "in_progress" { &[] } else { &self.output };
        let mut response = response::envelope(&self.shape, &self.form, &self.stamp, status, output);
        response["usage"] = Value::Null;
        response
    }

    fn reasoning(&mut self, text: &str, frames: &mut Vec<Frame>) {
        if !matches!(self.open, Some(Open { kind: OpenKind::Reasoning, .. })) {
            let id = self.start(response::REASONING_PREFIX, OpenKind::Reasoning, frames);
            let item = response::reasoning_item(&self.form, &id, "", Status::InProgress);
            self.added(&item, frames);
            let part = json!({"part": {"type": "summary_text", "text": ""}});
            self.of_item("response.reasoning_summary_part.added", &SUMMARY, part, frames);
        }
        self.extend(text);
        let delta = json!({"delta": text});
        self.of_item("response.reasoning_summary_text.delta", &SUMMARY, delta, frames);
    }

    fn text(&mut self, text: &str, frames: &mut Vec<Frame>) {
        if !matches!(self.open, Some(Open { kind: OpenKind::Message, .. })) {
            let id = self.start(response::MESSAGE_PREFIX, OpenKind::Message, frames);
            self.added(&response::message_item(&id, "", Status::InProgress), frames);
            let part = json!({"part": response::text_part("")});
            self.of_item("response.content_part.added", &CONTENT, part, frames);
        }
        self.extend(text);
        self.of_item("response.output_text.delta", &CONTENT, json!({"delta": text}), frames);
    }

    fn call(&mut self, call_id: &str, name: &str, frames: &mut Vec<Frame>) {
        let deltas = match self.form.kinds.get(name) {
            None | Some(Kind::Namespaced { .. }) => Deltas::Json,
            Some(Kind::Custom) => Deltas::Input { reader: Box::default(), sent: false },
            Some(Kind::ToolSearch | Kind::LocalShell) => Deltas::None,
        };
        let kind = OpenKind::Call { call_id: call_id.to_owned(), name: name.to_owned(), deltas };
        let id = self.start(response::call_prefix(&self.form, name), kind, frames);
        let call = CallText { call_id, name, json: "" };
        self.added(&response::call_item(&self.form, &id, call, Status::InProgress), frames);
    }

    fn arguments(&mut self, text: &str, frames: &mut Vec<Frame>) {
        self.extend(text);
        let Some(Open { kind: OpenKind::Call { deltas, .. }, .. }) = &mut self.open else { return };
        match deltas {
            Deltas::Json => {
                let delta = json!({"delta": text});
                self.of_item("response.function_call_arguments.delta", &[], delta, frames);
            }
            Deltas::Input { reader, sent } => {
                let text = reader.push(text);
                *sent |= !text.is_empty();
                if !text.is_empty() {
                    let delta = json!({"delta": text});
                    self.of_item("response.custom_tool_call_input.delta", &[], delta, frames);
                }
            }
            Deltas::None => {}
        }
    }

    /// Closes what is open and opens an item; gives its id.
    fn start(&mut self, prefix: &str, kind: OpenKind, frames: &mut Vec<Frame>) -> String {
        self.begin(frames);
        self.close(Status::Completed, frames);
        let id = self.stamp.part(prefix, self.output.len());
        self.open = Some(Open { id: id.clone(), text: String::new(), kind });
        id
    }

    fn extend(&mut self, text: &str) {
        if let Some(open) = &mut self.open {
            open.text.push_str(text);
        }
    }

    fn added(&mut self, item: &Value, frames: &mut Vec<Frame>) {
        let fields = json!({"output_index": self.output.len(), "item": item});
        self.event("response.output_item.added", fields, frames);
    }

    /// Ends the open item, if there is one.
    fn close(&mut self, status: Status, frames: &mut Vec<Frame>) {
        let Some(open) = &self.open else { return };
        let (id, text) = (open.id.clone(), open.text.clone());
        let item = match &open.kind {
            OpenKind::Reasoning => {
                let item = response::reasoning_item(&self.form, &id, &text, status);
                let done = json!({"text": text});
                self.of_item("response.reasoning_summary_text.done", &SUMMARY, done, frames);
                let part = json!({"part": {"type": "summary_text", "text": text}});
                self.of_item("response.reasoning_summary_part.done", &SUMMARY, part, frames);
                item
            }
            OpenKind::Message => {
                let done = json!({"text": text});
                self.of_item("response.output_text.done", &CONTENT, done, frames);
                let part = json!({"part": response::text_part(&text)});
                self.of_item("response.content_part.done", &CONTENT, part, frames);
                response::message_item(&id, &text, status)
            }
            OpenKind::Call { call_id, name, .. } => {
                let call = CallText { call_id, name, json: &text };
                let item = response::call_item(&self.form, &id, call, status);
                if status == Status::Completed {
                    self.arguments_done(&text, frames);
                }
                item
            }
        };
        let fields = json!({"output_index": self.output.len(), "item": item});
        self.event("response.output_item.done", fields, frames);
        self.output.push(item);
        self.open = None;
    }

    /// Says that the arguments of the open call are whole. A call that was cut off must not look so.
    fn arguments_done(&mut self, text: &str, frames: &mut Vec<Frame>) {
        let Some(Open { kind: OpenKind::Call { deltas, .. }, .. }) = &self.open else { return };
        match deltas {
            Deltas::Json => {
                let done = json!({"arguments": text});
                self.of_item("response.function_call_arguments.done", &[], done, frames);
            }
            Deltas::Input { sent, .. } => {
                let input = custom::input(text);
                if !sent && !input.is_empty() {
                    let delta = json!({"delta": input});
                    self.of_item("response.custom_tool_call_input.delta", &[], delta, frames);
                }
                let done = json!({"input": input});
                self.of_item("response.custom_tool_call_input.done", &[], done, frames);
            }
            Deltas::None => {}
        }
    }

    fn end(&mut self, outcome: &Outcome, frames: &mut Vec<Frame>) {
        self.begin(frames);
        let status = match self.open.as_ref().map(|open| &open.kind) {
            Some(OpenKind::Reasoning) => response::last_thought(outcome),
            Some(OpenKind::Message) => response::last_text(outcome),
            Some(OpenKind::Call { .. }) => Status::Incomplete,
            None => Status::Completed,
        };
        self.close(status, frames);
        let status = response::status(outcome);
        let mut response = self.response(status);
        response["usage"] = usage::responses(outcome.usage);
        let name = if status == "completed" { "response.completed" } else { "response.incomplete" };
        self.event(name, json!({"response": response}), frames);
    }

    fn fail(&mut self, failure: &Failure, frames: &mut Vec<Frame>) {
        self.begin(frames);
        self.close(Status::Incomplete, frames);
        let error = errors::openai_error(Some(Api::Responses), failure);
        let code = if error["code"].is_null() { &error["type"] } else { &error["code"] };
        let mut response = self.response("failed");
        response["error"] = json!({"code": code, "message": error["message"]});
        let output_tokens = failure.output_tokens;
        response["usage"] = usage::responses(Usage { output_tokens, ..self.usage });
        self.event("response.failed", json!({"response": response}), frames);
    }

    /// An event about the open item: its id, its place, then `place` inside of it, then `fields`.
    fn of_item(
        &mut self,
        name: &'static str,
        place: &[&str],
        fields: Value,
        frames: &mut Vec<Frame>,
    ) {
        let id = self.open.as_ref().map(|open| open.id.as_str());
        let mut all = json!({"item_id": id, "output_index": self.output.len()});
        for part in place {
            all[part] = json!(0);
        }
        extend(&mut all, fields);
        self.event(name, all, frames);
    }

    fn event(&mut self, name: &'static str, fields: Value, frames: &mut Vec<Frame>) {
        let mut data = json!({"type": name, "sequence_number": self.sequence});
        self.sequence += 1;
        extend(&mut data, fields);
        frames.push(Frame::named(name, &data));
    }
}

/// An item has one part, the first.
const SUMMARY: [&str; 1] = ["summary_index"];
const CONTENT: [&str; 1] = ["content_index"];

fn extend(object: &mut Value, fields: Value) {
    if let (Value::Object(object), Value::Object(fields)) = (object, fields) {
        object.extend(fields);
    }
}
