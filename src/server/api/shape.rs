//! What the form of an answer depends on besides the answer.

use super::chat::response::ChatForm;
use super::completions::response::CompletionsForm;
use super::responses::response::ResponsesForm;
use crate::server::{Api, Finish, Outcome, Request};

/// What the form of an answer depends on.
#[derive(Debug, Clone)]
pub struct Shape {
    /// The API that it is for.
    pub api: Api,
    /// The model's name as the client wrote it.
    pub model: String,
    /// Whether it is streamed.
    pub stream: bool,
    pub(super) form: Form,
}

/// What one API needs besides.
#[derive(Debug, Clone)]
pub(super) enum Form {
    Chat(ChatForm),
    Completions(CompletionsForm),
    Responses(Box<ResponsesForm>),
    Messages,
}

impl Shape {
    /// The shape of the answer to `request`.
    pub(super) fn new(request: &Request, form: Form) -> Self {
        Self { api: request.api, model: request.model.clone(), stream: request.stream, form }
    }
}

/// Why a reply ended, as clients are told. A call that was cut off makes it a cut-off reply, whatever was complete before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason<'a> {
    Stop,
    StopText(&'a str),
    Length,
    Calls,
}

impl<'a> Reason<'a> {
    /// Why `outcome` ended: by calls exactly when it has complete ones and no open one.
    pub(super) fn of(outcome: &'a Outcome) -> Self {
        match &outcome.finish {
            _ if outcome.open_call.is_some() => Self::Length,
            _ if !outcome.calls.is_empty() => Self::Calls,
            Finish::StopText(text) => Self::StopText(text),
            Finish::Length => Self::Length,
            Finish::Stop | Finish::Calls => Self::Stop,
        }
    }

    /// As chat and completions say it.
    pub(super) fn openai(self) -> &'static str {
        match self {
            Self::Stop | Self::StopText(_) => "stop",
            Self::Length => "length",
            Self::Calls => "tool_calls",
        }
    }
}
