//! A resident session, and the request it serves.

use std::time::Instant;

use super::bindings::{Binding, Key};
use super::decode::Active;
use super::prefill::Filling;
use super::prepare::Prepared;
use crate::chat::thought_opening;
use crate::engine::SessionId;
use crate::kv::{Extensions, VisibleKey};
use crate::server::{Api, Flags, Input, Outbox, Request, Usage};
use crate::tokenizer::{TokenId, Tokenizer};

/// A session of the engine, with what is known of it besides its tokens.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) session: SessionId,
    /// What its positions stand for, ascending.
    pub(super) bindings: Vec<Binding>,
    /// What its beginning stands for, where that is not its own text.
    pub(super) visible: Option<Visible>,
    /// Where a reply begins that was cut short: no client will send it back as the session holds it.
    pub(super) loose: Option<usize>,
    /// Ids of the calls in its conversation.
    pub(super) calls: Vec<String>,
    /// Where saving it on its way was tried last.
    pub(super) tried: usize,
    /// When it was used last, by a count of uses.
    pub(super) last_used: u64,
    /// The same in Unix seconds.
    pub(super) used_at: u64,
    /// What its client says of its requests.
    pub(super) affinity: Option<String>,
    pub(super) work: Work,
}

/// The first tokens of a session, and the text that they stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Visible {
    pub(super) tokens: usize,
    pub(super) key: Key,
}

/// What a session is doing.
#[derive(Debug, Default)]
pub(super) enum Work {
    #[default]
    Idle,
    Prefill(Box<Filling>),
    Decode(Box<Active>),
}

/// A request that has a session.
#[derive(Debug)]
pub(super) struct Serving {
    pub(super) id: String,
    /// Counts requests, for the trace.
    pub(super) number: u64,
    pub(super) request: Request,
    /// The body that it came in, where requests are written down.
    pub(super) body: Option<String>,
    pub(super) prepared: Box<Prepared>,
    pub(super) outbox: Outbox,
    pub(super) arrived: Instant,
    pub(super) usage: Usage,
    /// Since when its client has not kept up.
    pub(super) stalled: Option<Instant>,
}

impl Slot {
    /// One that has done nothing yet.
    pub(super) fn new(session: SessionId) -> Self {
        Self {
            session,
            bindings: Vec::new(),
            visible: None,
            loose: None,
            calls: Vec::new(),
            tried: 0,
            last_used: 0,
            used_at: 0,
            affinity: None,
            work: Work::Idle,
        }
    }

    /// The request it serves.
    pub(super) fn serving(&self) -> Option<&Serving> {
        match &self.work {
            Work::Idle => None,
            Work::Prefill(filling) => Some(&filling.serving),
            Work::Decode(active) => Some(&active.serving),
        }
    }

    pub(super) fn serving_mut(&mut self) -> Option<&mut Serving> {
        match &mut self.work {
            Work::Idle => None,
            Work::Prefill(filling) => Some(&mut filling.serving),
            Work::Decode(active) => Some(&mut active.serving),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.work, Work::Idle)
    }

    /// Forgets what stands for more tokens than the session has in common with what it was.
    pub(super) fn cut(&mut self, tokens: usize) {
        self.bindings.retain(|binding| binding.tokens <= tokens);
        self.tried = self.tried.min(tokens);
        if self.visible.as_ref().is_some_and(|visible| visible.tokens > tokens) {
            self.visible = None;
        }
    }

    /// The text by which a file with the session's present state is found; `None` where that is its own.
    pub(super) fn visible_key(
        &self,
        tokenizer: &Tokenizer,
        tokens: &[TokenId],
    ) -> Option<VisibleKey> {
        let bound = self.bindings.last().filter(|b| b.tokens == tokens.len() && b.tail.is_empty());
        let written = match &self.work {
            Work::Decode(active) => active.serving.answer_key(tokenizer, tokens),
            Work::Idle | Work::Prefill(_) => None,
        };
        let key = match bound.and_then(Binding::visible_key).or(written) {
            Some(key) => key,
            None => self.visible.as_ref()?.extended(tokenizer, tokens),
        };
        let own = tokenizer.text(tokens);
        (own.bytes != key.text).then_some(key)
    }
}

impl Visible {
    /// With the tokens that followed, as their own text.
    fn extended(&self, tokenizer: &Tokenizer, tokens: &[TokenId]) -> VisibleKey {
        let rest = tokenizer.text(tokens.get(self.tokens..).unwrap_or_default());
        let Key { mut text, mut markers } = self.key.clone();
        markers.extend(rest.markers.iter().map(|at| at + text.len()));
        text.extend(rest.bytes);
        VisibleKey { text, markers, kind: Extensions::THINKING_VISIBLE }
    }
}

impl Serving {
    /// What kind of request it is.
    pub(super) fn flags(&self) -> Flags {
        Flags {
            api: self.request.api.name(),
            tools: self.prepared.tools.is_some(),
            thinking: self.prepared.thinking,
            stream: self.request.stream,
        }
    }

    /// The text that its prompt and the answer so far will have when the conversation comes back: without the thought of
    /// this turn, which is an older one then. `None` inside the thought; where the reply may turn out to be a call, whose
    /// thought stays; and where no later text could begin so.
    pub(super) fn answer_key(
        &self,
        tokenizer: &Tokenizer,
        tokens: &[TokenId],
    ) -> Option<VisibleKey> {
        let Prepared { prompt, thinking, tools, chat, .. } = &*self.prepared;
        let (_, options) = chat.as_ref()?;
        let continues = matches!(self.request.input, Input::Chat { continues: true, .. });
        if tools.is_some() || options.preserve_thinking || continues {
            return None;
        }
        let shown = prompt.bytes.strip_suffix(thought_opening(*thinking).as_bytes())?;
        let mut written = tokens.get(self.usage.prompt_tokens..)?;
        if *thinking {
            let close = written.iter().position(|&id| id == tokenizer.special().think_end)?;
            written = &written[close + 1..];
        }
        let all = tokenizer.text(written);
        let answer = if *thinking { all.bytes.strip_prefix(b"\n\n")? } else { &all.bytes[..] };
        // The template trims answers; and what follows is tokenized by itself, which takes whole characters.
        if std::str::from_utf8(answer).ok()?.starts_with(char::is_whitespace) {
            return None;
        }
        let cut = all.bytes.len() - answer.len();
        let mut markers: Vec<usize> =
            prompt.markers.iter().copied().take_while(|&at| at < shown.len()).collect();
        markers.extend(all.markers.iter().map(|at| shown.len() + at - cut));
        let text = [shown, answer].concat();
        Some(VisibleKey { text, markers, kind: Extensions::THINKING_VISIBLE })
    }

    /// Whether what it leaves can be continued by a later request.
    pub(super) fn can_be_bound(&self) -> bool {
        self.request.api != Api::Completions && self.prepared.chat.is_some()
    }
}
