//! What the reader of a reply reports: events while it arrives, the whole at the end.

use super::{Arguments, RawBlock};

/// A piece of a reply, in the order of arrival. Joining the texts of neighbouring events of one kind gives the same
/// however the reply was cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A piece of the thought.
    Reasoning(String),
    /// A piece of the answer.
    Text(String),
    /// A call of this function begins.
    CallStart(String),
    /// A parameter of this name begins.
    ParamStart(String),
    /// A piece of the parameter's text.
    ParamBytes(String),
    /// The parameter is complete.
    ParamEnd {
        /// Its name.
        name: String,
        /// Its whole text.
        value: String,
    },
    /// The call is complete: it is now the last of [`Reader::calls`](super::Reader::calls).
    CallEnd,
    /// Markup that is no call. `raw` is its text: part of the answer, as long as no call was completed, and not
    /// repeated as [`Event::Text`].
    Error {
        /// What is wrong.
        kind: ErrorKind,
        /// The markup, white space before it included.
        raw: String,
    },
}

/// What is wrong with markup that is no call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ErrorKind {
    /// The reply ended inside a block.
    #[error("the reply ended inside a tool call")]
    Unterminated,
    /// `<tool_call>` and `</tool_call>` with nothing between.
    #[error("the tool call block is empty")]
    EmptyBlock,
    /// A function or parameter tag without a name.
    #[error("a tag of the tool call has no name")]
    MissingName,
    /// `</function>` without `<function=…>`.
    #[error("a function is closed that was not opened")]
    UnopenedFunction,
    /// `<parameter=…>` without `<function=…>`.
    #[error("a parameter stands outside of a function")]
    ParameterOutsideFunction,
    /// Text or a tag where only other tags may stand.
    #[error("unexpected text or tag between the tags of the tool call")]
    UnexpectedText,
    /// A JSON body that is not a call.
    #[error("the JSON body of the tool call is not a call")]
    BadJson,
    /// A tag of a call at the start of a line, outside of a block, that opens no known function.
    #[error("a tag of a tool call stands outside of a tool call")]
    StrayTag,
}

/// A deviation from the taught syntax that was understood all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Repair {
    /// `<function=…>` without `<tool_call>`.
    MissingOpener,
    /// `<tool_call>` spelled in ordinary tokens.
    SpelledOpener,
    /// A value that ended without `</parameter>`.
    MissingParameterClose,
    /// A function that ended without `</function>`.
    MissingFunctionClose,
    /// A block that ended without `</tool_call>`.
    MissingBlockClose,
    /// `</tool_call>` without a block.
    OrphanClose,
    /// `<function name="…">`, or a name in spaces or quotes.
    OddTag,
    /// `{"name": …, "arguments": …}` in place of tags.
    JsonBody,
    /// A parameter given twice; the last text counts.
    RepeatedParameter,
}

/// A call the model made.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedCall {
    /// The function, known or not.
    pub name: String,
    /// Names and texts as they were written, repeated ones included; JSON bodies give strings without quotes.
    pub texts: Vec<(String, String)>,
    /// The arguments by declared type.
    pub arguments: Arguments,
    /// What had to be understood.
    pub repairs: Vec<Repair>,
    /// A repaired value might have ended elsewhere: programs that change things should not run this call.
    pub ambiguous: bool,
}

/// How a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The model ended its turn.
    Turn,
    /// Anything else: a limit, a stop text, an interruption.
    Cut,
}

/// A block that is no call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What is wrong.
    pub kind: ErrorKind,
    /// Its text.
    pub raw: String,
}

/// Where in the protocol the next token stands: what may be sampled freely and what is syntax (server.md 11.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Inside the thought.
    Thinking,
    /// In the answer, or behind a block.
    Outside,
    /// Inside a block, where only tags may follow.
    Structural,
    /// Inside the value of a parameter.
    Payload,
}

/// A reply, read to its end.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reply {
    /// The thought, without white space around it.
    pub reasoning: String,
    /// True when a thought was left open.
    pub thought_open: bool,
    /// The answer: the text before the first call. Without a completed call it contains a failed block too, unless the
    /// reply was cut off inside of it.
    pub content: String,
    /// The calls, in order.
    pub calls: Vec<ParsedCall>,
    /// The calls exactly as they were written, for rendering this turn again. `None` without calls, and where they are
    /// not valid UTF-8.
    pub block: Option<RawBlock>,
    /// The block that is no call, if there was one; at most one is read.
    pub failure: Option<Failure>,
    /// All deviations that were understood, those of the calls included.
    pub repairs: Vec<Repair>,
}
