//! What a client wants, whatever API it speaks. Everything in it was checked.

use std::collections::BTreeSet;

use crate::chat::{Conversation, Json};
use crate::engine::sample::{Penalties, SamplerParams};
use crate::tokenizer::TokenId;

/// The APIs that generate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Api {
    /// `POST /v1/chat/completions`.
    Chat,
    /// `POST /v1/completions`.
    Completions,
    /// `POST /v1/responses`.
    Responses,
    /// `POST /v1/messages`.
    Messages,
}

impl Api {
    /// Its name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Messages => "messages",
        }
    }

    /// The field of its requests that the prompt comes from.
    pub fn prompt_field(self) -> &'static str {
        match self {
            Self::Chat | Self::Messages => "messages",
            Self::Completions => "prompt",
            Self::Responses => "input",
        }
    }
}

/// A request to generate.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Where it came in.
    pub api: Api,
    /// The model's name as the client wrote it: echoed, never refused.
    pub model: String,
    /// What is to be continued.
    pub input: Input,
    /// Whether and how long to think.
    pub thinking: Thinking,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Most tokens of the reply; `None` is the server's default. 0 evaluates the prompt and ends.
    pub limit: Option<usize>,
    /// Texts that end the answer, in the client's order; none is empty.
    pub stop: Vec<String>,
    /// Which calls the reply may have.
    pub calls: Calls,
    /// What the answer's text must be.
    pub format: Format,
    /// How many likely tokens to report beside each token of the answer; `None` reports nothing.
    pub logprobs: Option<u8>,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// Sessions of requests with the same hint may have more in common than their text tells.
    pub affinity: Option<String>,
}

/// What is to be continued.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A conversation.
    Chat {
        /// Messages and tools, as the model is to see them.
        conversation: Conversation,
        /// The last message is the assistant's and goes on, instead of a new one being opened.
        continues: bool,
    },
    /// Text to be continued as it stands; markers in it count.
    Text(String),
    /// Tokens to be continued.
    Tokens(Vec<TokenId>),
}

/// Whether and how long to think (server.md 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Thinking {
    /// On or off, where the request or the model's name says so; `None` is the server's default.
    pub on: Option<bool>,
    /// How much effort was asked for.
    pub effort: Option<Effort>,
    /// Most tokens of the thought, where a number was given.
    pub budget: Option<usize>,
    /// Whether thoughts of older turns are rendered too; `None` is the server's default.
    pub preserve: Option<bool>,
}

/// Named efforts; `none` is [`Thinking::on`] `Some(false)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effort {
    /// As short as possible.
    Minimal,
    /// Short.
    Low,
    /// Usual.
    Medium,
    /// Long.
    High,
    /// As long as it takes.
    XHigh,
    /// As long as it takes, with words that ask for more; needs a large context.
    Max,
}

/// How tokens are drawn: what the client left out is the server's default.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sampling {
    /// Temperature, 0 for greedy.
    pub temperature: Option<f32>,
    /// Nucleus, in (0, 1].
    pub top_p: Option<f32>,
    /// Most candidates, 0 for all.
    pub top_k: Option<usize>,
    /// Least share of the most likely candidate's probability.
    pub min_p: Option<f32>,
    /// The seed; `None` is a random one.
    pub seed: Option<u64>,
    /// Penalties on tokens of prose and values, never on tool syntax.
    pub penalties: Penalty,
    /// Addends on logits of prose and values.
    pub bias: LogitBias,
}

impl Sampling {
    /// With the server's defaults for what was left out.
    pub fn params(&self, defaults: SamplerParams) -> SamplerParams {
        SamplerParams {
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_p: self.top_p.unwrap_or(defaults.top_p),
            top_k: self.top_k.unwrap_or(defaults.top_k),
            min_p: self.min_p.unwrap_or(defaults.min_p),
        }
    }
}

/// Penalties; the default does nothing.
pub type Penalty = Penalties;

/// Addends on logits, by token.
pub type LogitBias = Vec<(TokenId, f32)>;

/// Which calls a reply may have. Without tools none of it matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calls {
    /// Whether there may, or must be one.
    pub choice: Choice,
    /// Whether there may be several.
    pub parallel: bool,
    /// Functions whose arguments must obey their schema.
    pub strict: BTreeSet<String>,
    /// The only functions that may be called; `None` for all. The others stay in the prompt.
    pub allowed: Option<BTreeSet<String>>,
}

impl Default for Calls {
    fn default() -> Self {
        Self { choice: Choice::Auto, parallel: true, strict: BTreeSet::new(), allowed: None }
    }
}

/// The client's `tool_choice`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Choice {
    /// The model decides.
    #[default]
    Auto,
    /// No call.
    None,
    /// At least one call.
    Required,
    /// A call of this function.
    Function(String),
}

/// What the answer's text must be.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Format {
    /// Anything.
    #[default]
    Text,
    /// A JSON object.
    JsonObject,
    /// JSON that obeys a schema.
    JsonSchema {
        /// The client's name for it.
        name: String,
        /// The schema.
        schema: Json,
    },
}
