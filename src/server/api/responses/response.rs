//! Response objects and their items (server.md 9.3).

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::messages::response::object;
use super::super::shape::{Reason, Shape};
use super::super::stamp::Stamp;
use super::super::{signature, usage};
use super::custom;
use super::item::Entry;
use super::kinds::{Kind, Kinds};
use crate::chat::Arguments;
use crate::server::Outcome;

/// What a response depends on.
#[derive(Debug, Clone)]
pub(crate) struct ResponsesForm {
    /// The conversation that was answered, instructions excluded.
    pub(crate) history: Vec<Arc<Entry>>,
    /// The response that it continues.
    pub(crate) previous: Option<String>,
    /// Whether it may be continued by id.
    pub(crate) store: bool,
    /// Whether there may be several calls.
    pub(crate) parallel: bool,
    /// How thoughts are shown.
    pub(crate) thoughts: Thoughts,
    /// What calls are to the client.
    pub(crate) kinds: Kinds,
    /// Fields of the request that come back as they were.
    pub(crate) echo: Map<String, Value>,
}

/// How thoughts are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thoughts {
    /// Not at all.
    Hidden,
    /// As text.
    Plain,
    /// As text, with a signature that brings them back.
    Sealed,
}

/// Whether an item is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    InProgress,
    Completed,
    Incomplete,
}

impl Status {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
        }
    }

    fn whole(whole: bool) -> Self {
        if whole { Self::Completed } else { Self::Incomplete }
    }
}

pub(crate) const REASONING_PREFIX: &str = "rs_";
pub(crate) const MESSAGE_PREFIX: &str = "msg_";

/// The prefix of the ids of a function's calls.
pub(crate) fn call_prefix(form: &ResponsesForm, name: &str) -> &'static str {
    match form.kinds.get(name) {
        None | Some(Kind::Namespaced { .. }) => "fc_",
        Some(Kind::Custom) => "ctc_",
        Some(Kind::ToolSearch) => "tsc_",
        Some(Kind::LocalShell) => "lsh_",
    }
}

/// A thought.
pub(crate) fn reasoning_item(form: &ResponsesForm, id: &str, text: &str, status: Status) -> Value {
    let summary = if status == Status::InProgress {
        json!([])
    } else {
        json!([{"type": "summary_text", "text": text}])
    };
    let mut item =
        json!({"id": id, "type": "reasoning", "status": status.name(), "summary": summary});
    if form.thoughts == Thoughts::Sealed && status != Status::InProgress {
        item["encrypted_content"] = json!(signature::sign(text));
    }
    item
}

/// A text.
pub(crate) fn message_item(id: &str, text: &str, status: Status) -> Value {
    let content = if status == Status::InProgress { json!([]) } else { json!([text_part(text)]) };
    json!({
        "id": id,
        "type": "message",
        "status": status.name(),
        "role": "assistant",
        "content": content,
    })
}

/// The only part of a message.
pub(crate) fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": []})
}

/// A call as it stands in an item.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallText<'a> {
    pub(crate) call_id: &'a str,
    pub(crate) name: &'a str,
    /// Its arguments, or as much of them as there is; empty while nothing is known.
    pub(crate) json: &'a str,
}

/// A call, as what it is to the client.
pub(crate) fn call_item(
    form: &ResponsesForm,
    id: &str,
    call: CallText<'_>,
    status: Status,
) -> Value {
    let CallText { call_id, name, json } = call;
    let status = status.name();
    let arguments = || object(&Arguments::parse(json).unwrap_or_default());
    match form.kinds.get(name) {
        None => json!({
            "id": id, "type": "function_call", "status": status, "call_id": call_id,
            "name": name, "arguments": json,
        }),
        Some(Kind::Namespaced { namespace, name }) => json!({
            "id": id, "type": "function_call", "status": status, "call_id": call_id,
            "name": name, "namespace": namespace, "arguments": json,
        }),
        Some(Kind::Custom) => json!({
            "id": id, "type": "custom_tool_call", "status": status, "call_id": call_id,
            "name": name, "input": custom::input(json),
        }),
        Some(Kind::ToolSearch) => json!({
            "id": id, "type": "tool_search_call", "status": status, "call_id": call_id,
            "execution": "client", "arguments": arguments(),
        }),
        Some(Kind::LocalShell) => json!({
            "id": id, "type": "local_shell_call", "status": status, "call_id": call_id,
            "action": exec(&arguments()),
        }),
    }
}

/// The action of a shell call. A command in one text goes through a shell.
fn exec(arguments: &Value) -> Value {
    let command = match &arguments["command"] {
        Value::Array(words) => json!(words),
        Value::String(line) => json!(["sh", "-c", line]),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => json!([]),
    };
    json!({
        "type": "exec",
        "command": command,
        "timeout_ms": arguments["timeout_ms"],
        "working_directory": arguments["workdir"],
        "env": {},
    })
}

/// A response object around `output`. `usage` is known once the response has ended.
pub(crate) fn envelope(
    shape: &Shape,
    form: &ResponsesForm,
    stamp: &Stamp,
    status: &str,
    output: &[Value],
) -> Value {
    let completed_at = (status == "completed").then(|| stamp.now());
    let incomplete = (status == "incomplete").then(|| json!({"reason": "max_output_tokens"}));
    let mut object = json!({
        "id": stamp.id,
        "object": "response",
        "created_at": stamp.created,
        "completed_at": completed_at,
        "status": status,
        "error": null,
        "incomplete_details": incomplete,
        "model": shape.model,
        "output": output,
        "previous_response_id": form.previous,
        "parallel_tool_calls": form.parallel,
        "store": form.store,
    });
    for (name, value) in &form.echo {
        object[name] = value.clone();
    }
    object
}

/// The status of a response that has ended.
pub(crate) fn status(outcome: &Outcome) -> &'static str {
    if Reason::of(outcome) == Reason::Length { "incomplete" } else { "completed" }
}

/// The status of a text that is the last thing of a reply.
pub(crate) fn last_text(outcome: &Outcome) -> Status {
    Status::whole(Reason::of(outcome) != Reason::Length)
}

/// The status of a thought that is the last thing of a reply.
pub(crate) fn last_thought(outcome: &Outcome) -> Status {
    Status::whole(!outcome.thought_open)
}

/// The answer.
pub(crate) fn answer(
    shape: &Shape,
    form: &ResponsesForm,
    stamp: &Stamp,
    outcome: &Outcome,
) -> Value {
    let mut output = Vec::new();
    if form.thoughts != Thoughts::Hidden && !outcome.reasoning.is_empty() {
        let id = stamp.part(REASONING_PREFIX, output.len());
        output.push(reasoning_item(form, &id, &outcome.reasoning, last_thought(outcome)));
    }
    if !outcome.text.is_empty() {
        let last = outcome.calls.is_empty() && outcome.open_call.is_none();
        let status = if last { last_text(outcome) } else { Status::Completed };
        let id = stamp.part(MESSAGE_PREFIX, output.len());
        output.push(message_item(&id, &outcome.text, status));
    }
    let complete = outcome.calls.iter().map(|call| (call, Status::Completed));
    let open = outcome.open_call.iter().map(|call| (call, Status::Incomplete));
    for (call, status) in complete.chain(open) {
        let id = stamp.part(call_prefix(form, &call.name), output.len());
        let call = CallText { call_id: &call.id, name: &call.name, json: &call.json };
        output.push(call_item(form, &id, call, status));
    }
    let mut response = envelope(shape, form, stamp, status(outcome), &output);
    response["usage"] = usage::responses(outcome.usage);
    response
}
