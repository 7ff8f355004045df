//! What the histories of all APIs have in common: calls, their results, thoughts.

use std::collections::HashSet;

use super::node::Node;
use super::system;
use crate::chat::{
    Arguments, Conversation, Json, Message, Role, Tool, ToolCall, arguments_or_input,
};
use crate::server::{Failure, FailureKind, Input};

/// Arguments as a client hands them back: an object, or a string that has one. What is neither becomes the parameter
/// `input`; nothing is no argument.
pub(super) fn arguments(node: Option<&Node<'_>>) -> Arguments {
    let Some(node) = node else { return Arguments::default() };
    match node.as_str() {
        Some(text) if text.trim().is_empty() => Arguments::default(),
        Some(text) => arguments_or_input(&text),
        None => arguments_or_input(node.text()),
    }
}

/// The argument of a tool that takes plain text.
pub(super) fn input_argument(text: &str) -> Arguments {
    let mut arguments = Arguments::default();
    arguments.set("input", Json::string(text));
    arguments
}

/// A call that a client knows by `id`.
pub(super) fn call(id: Option<String>, name: String, arguments: Arguments) -> ToolCall {
    ToolCall { id: id.filter(|id| !id.is_empty()), name, arguments }
}

/// A reply without calls whose thought was given apart or, by some clients, at the head of the text: only there the
/// renderer looks for it. A text that mentions the markers further on keeps them.
pub(super) fn reply(text: String, thought: Option<String>) -> Message {
    let found_in_text = thought.is_none() && text.trim_start().starts_with("<think>");
    let message = Message::assistant(text);
    if found_in_text { message } else { message.with_reasoning(thought.unwrap_or_default()) }
}

/// The calls that results may answer.
#[derive(Debug, Default)]
pub(super) struct Known {
    ids: HashSet<String>,
    any: bool,
}

impl Known {
    /// Notes the calls of a reply.
    pub(super) fn note(&mut self, calls: &[ToolCall]) {
        self.any |= !calls.is_empty();
        self.ids.extend(calls.iter().filter_map(|call| call.id.clone()));
    }

    /// Whether a result has a call; one that names none is taken for the last one.
    pub(super) fn explains(&self, id: Option<&str>) -> bool {
        id.map_or(self.any, |id| self.ids.contains(id))
    }
}

/// A result whose call is nowhere; `param` is the field that should have it.
pub(super) fn unexplained(param: &str, id: Option<&str>) -> Failure {
    let id = id.unwrap_or("(none)");
    let whole = if param == "input" { "input" } else { "messages history" };
    let message =
        format!("continuation state not available for call_id {id}; replay the full {whole}");
    Failure::new(FailureKind::Invalid, message).about(param)
}

/// The input of a conversation; `may_continue` where a last message of the assistant is to be gone on with.
pub(super) fn input(messages: Vec<Message>, tools: Vec<Tool>, may_continue: bool) -> Input {
    let mut messages = system::fold(messages);
    let mut continues = false;
    if let Some(last) = messages.last().filter(|last| may_continue && is_open(last)) {
        let thought = last.reasoning.as_deref().unwrap_or_default();
        if last.content.trim().is_empty() && thought.trim().is_empty() {
            // A beginning of nothing is an ordinary reply.
            messages.pop();
        } else {
            continues = true;
        }
    }
    Input::Chat {
        conversation: Conversation::new(messages).with_tools(tools).normalised(),
        continues,
    }
}

fn is_open(message: &Message) -> bool {
    message.role == Role::Assistant && message.tool_calls.is_empty()
}
