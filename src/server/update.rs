//! What is said of a request while it is served. The last one is [`Update::End`] or [`Update::Failed`], exactly once.

use super::Failure;
use crate::chat::Arguments;
use crate::tokenizer::TokenId;

/// News of a request, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// Nothing of the reply yet.
    Waiting(Waiting),
    /// The prompt was checked and has a session; the numbers of prompt tokens are final. Comes before any text.
    Begin(Usage),
    /// A piece of the thought; whole characters.
    Reasoning(String),
    /// A piece of the answer; whole characters.
    Text(String),
    /// About a token of the answer, where the request asked for it; comes before the text it is part of.
    Logprob(Logprob),
    /// A call begins: its function's tag is complete.
    CallBegin {
        /// Unguessable, unique; the same in [`Outcome::calls`].
        id: String,
        /// The function.
        name: String,
    },
    /// A piece of the open call's arguments. All of a call joined are one JSON object, unless the reply was cut off in it.
    CallArguments(String),
    /// The open call is complete.
    CallEnd,
    /// The reply is over.
    End(Box<Outcome>),
    /// There will be no reply, or no more of it.
    Failed(Failure),
}

/// Why nothing happens yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// Others come first.
    Queued {
        /// How many, from 1.
        position: usize,
    },
    /// The model is being loaded.
    Loading,
    /// The prompt is being evaluated.
    Prefill {
        /// Tokens of it that are done, reused ones included.
        done: usize,
        /// All of them.
        total: usize,
    },
}

/// Tokens of a request (server.md 4.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Of the prompt, as it was evaluated.
    pub prompt_tokens: usize,
    /// Of those, reused.
    pub cached_tokens: usize,
    /// Of the reply: thought, markup and calls included.
    pub output_tokens: usize,
    /// Of those, the thought's.
    pub reasoning_tokens: usize,
}

/// A finished reply.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// Why it ended.
    pub finish: Finish,
    /// The thought.
    pub reasoning: String,
    /// Whether the reply ended inside the thought.
    pub thought_open: bool,
    /// The answer: all [`Update::Text`]s joined.
    pub text: String,
    /// Completed calls.
    pub calls: Vec<Call>,
    /// The call that the reply was cut off in: what was sent of it.
    pub open_call: Option<Call>,
    /// Tokens.
    pub usage: Usage,
    /// About the tokens of the answer, where asked for.
    pub logprobs: Vec<Logprob>,
}

/// A call of a reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Unguessable, unique.
    pub id: String,
    /// The function.
    pub name: String,
    /// Its arguments.
    pub arguments: Arguments,
    /// The same as JSON text: all [`Update::CallArguments`] of it joined.
    pub json: String,
}

/// Why a reply ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Finish {
    /// The model ended its turn.
    #[default]
    Stop,
    /// A text of [`super::Request::stop`] came, which is not part of the answer.
    StopText(String),
    /// A limit was reached, or the context is full.
    Length,
    /// There is at least one complete call.
    Calls,
}

/// How likely a token of the answer was.
#[derive(Debug, Clone, PartialEq)]
pub struct Logprob {
    /// The token.
    pub token: Ranked,
    /// The likeliest tokens, likeliest first.
    pub top: Vec<Ranked>,
}

/// A token with its probability.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    /// Its id.
    pub id: TokenId,
    /// Its bytes, which need not be whole characters.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability.
    pub logprob: f32,
}
