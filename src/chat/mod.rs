//! The text protocol of Qwen3.6: rendering prompts, steering the thought, reading replies.
//!
//! One renderer, one thinking controller and one reader serve every front end. Nothing here knows a tensor, a session,
//! a terminal or an API: prompts leave as segments of text, replies arrive as token ids and bytes.
//!
//! ```text
//! Conversation -- render --> Prompt (control and payload segments) -- tokenizer --> ids
//! ids of the reply -- ThinkController --> ids to feed -- Reader --> events, and the Reply
//! ```

mod error;
mod event;
mod json;

pub mod canonical;
pub mod convert;
mod message;
mod parse;
mod prompt;
mod render;
mod stream;
mod think;
mod tools;

pub use error::Error;
pub use event::{End, ErrorKind, Event, Failure, ParsedCall, Phase, Repair, Reply};
pub use json::Json;
pub(crate) use json::kind as json_kind;
pub use message::{Arguments, Conversation, Message, Role, Tool, ToolCall};
pub use prompt::{Kind, Marker, Prompt, RawBlock, Segment};
pub(crate) use render::thought_opening;
pub use render::{
    RenderOptions, THINK_MAX_MIN_CTX_TOKENS, THINK_MAX_TEXT, ThinkMode, render, render_open,
};
pub use stream::{Reader, ReaderOptions, Source};
pub use think::{
    Budget, CloseEvent, CloseKind, Fed, Sampled, Show, Step, ThinkController, ThinkOptions,
    ThinkTokens,
};
pub use tools::{Function, Param, ParamType, Toolset, arguments_or_input};
