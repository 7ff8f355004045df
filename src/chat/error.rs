//! What is wrong with a conversation that cannot be rendered.

/// Why a conversation has no prompt. The first six are the official template's own refusals.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The conversation is empty.
    #[error("the conversation has no messages")]
    NoMessages,
    /// A role the template does not know.
    #[error("unknown message role `{0}`: expected system, developer, user, assistant or tool")]
    UnknownRole(String),
    /// A system message somewhere else than at the front.
    #[error("message {index} is a system message, which is allowed only as the first one")]
    SystemNotFirst {
        /// Index of the message, from 0.
        index: usize,
    },
    /// No message asks anything: every `user` message is only a wrapped tool result.
    #[error("the conversation has no user message that asks something")]
    NoUserQuery,
    /// The arguments of a call are some other JSON value.
    #[error("tool call arguments must be a JSON object, found {0}")]
    ArgumentsNotObject(&'static str),
    /// A tool that is not a JSON object.
    #[error("a tool must be a JSON object, found {0}")]
    ToolNotObject(&'static str),
    /// Text that is not JSON.
    #[error("invalid JSON: {0}")]
    InvalidJson(String),
    /// JSON nested beyond the limit.
    #[error("JSON is nested deeper than {0} levels")]
    JsonTooDeep(usize),
}
