//! What went wrong with a request, before it is put into an API's shape.

use std::fmt;

/// Why a request failed, with everything that an answer says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Which kind; decides status, type and code.
    pub kind: FailureKind,
    /// For people: names the field and what was found.
    pub message: String,
    /// The field of the request, where there is one.
    pub param: Option<String>,
    /// Tokens of the reply that it ended.
    pub output_tokens: usize,
}

/// Kinds of failure (server.md 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The body or a value in it is not acceptable.
    Invalid,
    /// The prompt does not fit the context.
    ContextLength {
        /// Tokens of the prompt.
        prompt: usize,
        /// Positions of the context.
        ctx: usize,
    },
    /// `previous_response_id` names nothing that is kept.
    UnknownResponse,
    /// A path names a response that is not kept.
    NoResponse,
    /// A wrong or missing key.
    Unauthorized,
    /// No such model.
    UnknownModel,
    /// No such path.
    UnknownPath,
    /// The path exists, but not with this method.
    Method,
    /// The request took too long to arrive.
    Timeout,
    /// The body is too large.
    TooLarge,
    /// Too many requests are waiting.
    QueueFull,
    /// The engine failed.
    Engine,
    /// The model is being loaded.
    Loading,
    /// The server is stopping.
    Stopping,
}

impl Failure {
    /// A failure of a kind.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), param: None, output_tokens: 0 }
    }

    /// A field with a value that is not acceptable.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FailureKind::Invalid, message).about(param)
    }

    /// Nothing can be served yet.
    pub fn loading() -> Self {
        Self::new(FailureKind::Loading, "the model is being loaded")
    }

    /// Nothing is served any more.
    pub fn stopping() -> Self {
        Self::new(FailureKind::Stopping, "the server is shutting down")
    }

    /// Names the field.
    #[must_use]
    pub fn about(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }
}

impl FailureKind {
    /// The HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Self::Invalid | Self::ContextLength { .. } | Self::UnknownResponse => 400,
            Self::Unauthorized => 401,
            Self::UnknownModel | Self::UnknownPath | Self::NoResponse => 404,
            Self::Method => 405,
            Self::Timeout => 408,
            Self::TooLarge => 413,
            Self::QueueFull => 429,
            Self::Engine => 500,
            Self::Loading | Self::Stopping => 503,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
