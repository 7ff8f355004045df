//! From a request to everything that serving it needs but a session: pure, on the thread of whoever asks, so that what
//! cannot be served is refused before it waits for anything.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Config;
use super::bindings::CallIds;
use super::format::{Form, Forms, Values};
use super::replay::{Memory, Replayed, ToolFiles};
use crate::chat::{
    self, Budget, Conversation, RenderOptions, Role, ThinkMode, Toolset, render, render_open,
};
use crate::engine::sample::SamplerParams;
use crate::kv;
use crate::server::{Choice, Effort, Failure, FailureKind, Input, Request, Thinking};
use crate::tokenizer::{TokenId, Tokenizer};
use crate::util::random;

/// What is needed to prepare requests, for any thread.
pub struct Office {
    /// The vocabulary.
    pub(super) tokenizer: Arc<Tokenizer>,
    /// How requests are served.
    pub(super) config: Arc<Config>,
    /// Positions of a session.
    pub(super) ctx_tokens: usize,
    /// What is remembered of tool calls, and files that know more.
    tools: Mutex<Tools>,
    forms: Forms,
}

/// Memory and disk.
struct Tools {
    memory: Option<Memory>,
    disk: Option<ToolFiles>,
}

/// A request that can be served.
#[derive(Debug)]
pub struct Prepared {
    pub(super) prompt: Rendered,
    /// The conversation as it was rendered, and how; `None` for plain text.
    pub(super) chat: Option<(Conversation, RenderOptions)>,
    /// The functions that may be called; `None` for none.
    pub(super) tools: Option<Toolset>,
    /// The prompt ends inside a thought.
    pub(super) thinking: bool,
    /// The limit on the thought, before it is known how much room the reply has.
    pub(super) budget: ThoughtLimit,
    /// How a call that must come begins.
    pub(super) opening: Vec<TokenId>,
    /// What holds the answer to its format.
    pub(super) form: Option<Form>,
    /// What holds the values of calls to their schemas.
    pub(super) values: Option<Values>,
    pub(super) params: SamplerParams,
    pub(super) seed: u64,
    pub(super) replayed: Replayed,
    /// Something that was asked for was given in a lesser form.
    pub(super) lessened: Option<&'static str>,
}

/// How long a thought may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThoughtLimit {
    /// As long as the reply.
    None,
    /// So many tokens, and never so many that no room is left for an answer; `None` is only the latter.
    Tokens(Option<usize>),
}

impl ThoughtLimit {
    /// The budget within a reply of so many tokens.
    pub(super) fn within(self, reply_tokens: usize) -> Option<Budget> {
        let Self::Tokens(limit) = self else { return None };
        let largest = Budget::largest_thought(reply_tokens);
        Some(Budget::thought(limit.map_or(largest, |limit| limit.min(largest))))
    }
}

/// A prompt as text and as tokens.
#[derive(Debug, Clone)]
pub(super) struct Rendered {
    /// Its segments; `None` where it came as tokens.
    segments: Option<chat::Prompt>,
    pub(super) bytes: Vec<u8>,
    /// Byte offsets of its added tokens.
    pub(super) markers: Vec<usize>,
    replays: Vec<Range<usize>>,
    pub(super) ids: Vec<TokenId>,
    /// The calls whose results it ends with.
    pub(super) calls: Option<AnsweredCalls>,
}

/// Calls whose results stand at the end of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AnsweredCalls {
    pub(super) calls: CallIds,
    /// Where the turn with the calls ends, before its end marker.
    pub(super) end: usize,
}

impl Rendered {
    fn new(tokenizer: &Tokenizer, prompt: chat::Prompt) -> Self {
        let marked = tokenizer.encode_prompt_marked(&prompt.token_segments());
        Self {
            bytes: prompt.bytes(),
            markers: marked.markers,
            replays: prompt.replays().to_vec(),
            ids: marked.ids,
            calls: None,
            segments: Some(prompt),
        }
    }

    fn of_tokens(tokenizer: &Tokenizer, ids: Vec<TokenId>) -> Self {
        let text = tokenizer.text(&ids);
        let (bytes, markers) = (text.bytes, text.markers);
        Self { segments: None, bytes, markers, replays: Vec::new(), ids, calls: None }
    }

    /// As saved texts are compared with it.
    pub(super) fn text(&self) -> kv::Prompt<'_> {
        kv::Prompt { bytes: &self.bytes, markers: &self.markers, replayed: &self.replays }
    }

    /// Whether other tokens of the same text are as good.
    pub(super) fn is_text(&self) -> bool {
        self.segments.is_some()
    }

    /// Tokens of what stands behind the first `bytes`. `None` where they cannot be told.
    pub(super) fn rest(&self, tokenizer: &Tokenizer, bytes: usize) -> Option<Vec<TokenId>> {
        let segments = self.segments.as_ref()?.token_segments();
        Some(tokenizer.encode_prompt_from(&segments, bytes)?.ids)
    }
}

impl Office {
    /// For an open model. `disk` is asked for tool calls that memory does not know.
    pub(super) fn new(
        config: Arc<Config>,
        tokenizer: Arc<Tokenizer>,
        ctx_tokens: usize,
        disk: Option<ToolFiles>,
    ) -> Self {
        let tools = Mutex::new(Tools { memory: config.tool_replay.map(Memory::new), disk });
        Self { tokenizer, config, ctx_tokens, tools, forms: Forms::default() }
    }

    /// The vocabulary.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// How many sessions there are, and how many requests may wait for them.
    pub fn limits(&self) -> (usize, usize) {
        (self.config.sessions, self.config.max_queue)
    }

    /// Whether requests are written down.
    pub fn is_traced(&self) -> bool {
        self.config.trace.is_some()
    }

    /// Tokens of a request's prompt, whether or not it fits.
    ///
    /// # Errors
    /// What is wrong with the conversation.
    pub fn count(&self, request: &Request) -> Result<usize, Failure> {
        Ok(self.read(request)?.prompt.ids.len())
    }

    /// Works on what is remembered of tool calls, if anything is.
    pub(super) fn with_memory<T>(&self, work: impl FnOnce(&mut Memory) -> T) -> Option<T> {
        self.tools().memory.as_mut().map(work)
    }

    fn tools(&self) -> MutexGuard<'_, Tools> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renders a request and decides everything that can be decided without a session.
    ///
    /// # Errors
    /// What is wrong with the request, and [`FailureKind::ContextLength`].
    pub fn prepare(&self, request: &Request) -> Result<Prepared, Failure> {
        let Read { prompt, chat, tools, replayed, thought } = self.read(request)?;
        self.check_length(request, &prompt)?;
        self.check_bias(request)?;
        let opening = self.opening(request, tools.as_ref())?;
        let values = self.forms.values(&self.tokenizer, request)?;
        let form = self.forms.form(&self.tokenizer, request)?;
        let may_call = request.calls.choice != Choice::None;
        let is_new = matches!(request.input, Input::Chat { continues: false, .. });
        Ok(Prepared {
            prompt,
            chat,
            tools: tools.filter(|_| may_call).map(|tools| match &request.calls.allowed {
                Some(names) => tools.only(names),
                None => tools,
            }),
            thinking: is_new && thought.mode.thinks(),
            budget: thought.budget,
            opening,
            form,
            lessened: thought.lessened,
            values,
            params: request.sampling.params(self.config.sampling),
            seed: request.sampling.seed.unwrap_or_else(random_seed),
            replayed,
        })
    }

    fn read(&self, request: &Request) -> Result<Read, Failure> {
        let thought = self.think_mode(&request.thinking);
        let plain = |prompt| Read {
            prompt,
            chat: None,
            tools: None,
            replayed: Replayed::default(),
            thought,
        };
        let (conversation, continues) = match &request.input {
            Input::Chat { conversation, continues } => (conversation, *continues),
            Input::Text(text) => {
                return Ok(plain(Rendered::new(&self.tokenizer, chat::Prompt::rendered(text))));
            }
            Input::Tokens(ids) => return Ok(plain(self.tokens(request, ids)?)),
        };
        let tools = Toolset::new(&conversation.tools);
        let mut conversation = conversation.clone();
        let replayed = self.restore_calls(&mut conversation, &tools);
        let preserve = request.thinking.preserve.unwrap_or(self.config.preserve_thinking);
        let options = RenderOptions {
            add_generation_prompt: !continues,
            thinking: thought.mode,
            preserve_thinking: preserve,
        };
        let prompt = self.render(request, &conversation, options)?;
        let tools = (!conversation.tools.is_empty()).then_some(tools);
        Ok(Read { prompt, chat: Some((conversation, options)), tools, replayed, thought })
    }

    /// Gives calls of the history their original texts, or else the order of their schemas.
    pub(super) fn restore_calls(
        &self,
        conversation: &mut Conversation,
        tools: &Toolset,
    ) -> Replayed {
        let mut own = self.tools();
        let Tools { memory, disk } = &mut *own;
        if let Some(memory) = memory {
            return memory.restore(conversation, tools, disk.as_mut());
        }
        for message in &mut conversation.messages {
            super::replay::order(&mut message.tool_calls, tools);
        }
        Replayed::default()
    }

    fn render(
        &self,
        request: &Request,
        conversation: &Conversation,
        options: RenderOptions,
    ) -> Result<Rendered, Failure> {
        let field = request.api.prompt_field();
        let invalid = |error: chat::Error| Failure::invalid(field, error.to_string());
        if options.add_generation_prompt {
            let prompt = render(conversation, &options).map_err(invalid)?;
            let answered = answered_calls(conversation, &prompt);
            return Ok(Rendered { calls: answered, ..Rendered::new(&self.tokenizer, prompt) });
        }
        let last = conversation.messages.last();
        let can_go_on = last.is_some_and(|m| m.role == Role::Assistant && m.tool_calls.is_empty());
        if !can_go_on {
            let text = "only a last message of the assistant without calls can be continued";
            return Err(Failure::invalid(field, text));
        }
        let prompt = render_open(conversation, &options).map_err(invalid)?;
        Ok(Rendered::new(&self.tokenizer, prompt))
    }

    fn tokens(&self, request: &Request, ids: &[TokenId]) -> Result<Rendered, Failure> {
        let rows = self.tokenizer.vocab_size();
        if let Some(at) = ids.iter().position(|id| id.index() >= rows) {
            let text =
                format!("token {} at index {at} is beyond the vocabulary of {rows}", ids[at].0);
            return Err(Failure::invalid(request.api.prompt_field(), text));
        }
        Ok(Rendered::of_tokens(&self.tokenizer, ids.to_vec()))
    }

    fn check_length(&self, request: &Request, prompt: &Rendered) -> Result<(), Failure> {
        let (tokens, ctx) = (prompt.ids.len(), self.ctx_tokens);
        let field = request.api.prompt_field();
        if tokens == 0 {
            return Err(Failure::invalid(field, "the prompt is empty"));
        }
        if tokens >= ctx {
            let kind = FailureKind::ContextLength { prompt: tokens, ctx };
            let text = format!("a prompt of {tokens} tokens does not fit a context of {ctx}");
            return Err(Failure::new(kind, text).about(field));
        }
        Ok(())
    }

    fn check_bias(&self, request: &Request) -> Result<(), Failure> {
        let rows = self.tokenizer.vocab_size();
        match request.sampling.bias.iter().find(|(id, _)| id.index() >= rows) {
            Some((id, _)) => {
                let text = format!("token {} is beyond the vocabulary of {rows}", id.0);
                Err(Failure::invalid("logit_bias", text))
            }
            None => Ok(()),
        }
    }

    /// How a call that must come begins: to where the model chooses.
    fn opening(&self, request: &Request, tools: Option<&Toolset>) -> Result<Vec<TokenId>, Failure> {
        let text = match &request.calls.choice {
            Choice::Auto | Choice::None => return Ok(Vec::new()),
            Choice::Required if tools.is_some() => "\n<function".to_owned(),
            Choice::Function(name) if tools.is_some_and(|t| t.function(name).is_some()) => {
                // With the newline, which is one token with what is before it.
                format!("\n<function={name}>\n")
            }
            Choice::Required => {
                return Err(Failure::invalid(
                    "tool_choice",
                    "a call is required, but there are no tools",
                ));
            }
            Choice::Function(name) => {
                let text = format!("`{name}` is not the name of a tool of this request");
                return Err(Failure::invalid("tool_choice", text));
            }
        };
        let mut opening = vec![self.tokenizer.special().tool_call];
        opening.extend(self.tokenizer.encode_text(text.as_bytes()));
        Ok(opening)
    }

    fn think_mode(&self, wanted: &Thinking) -> Thought {
        let on = wanted.on.unwrap_or(wanted.effort.is_some() || self.config.thinking);
        if !on {
            return Thought { mode: ThinkMode::Off, budget: ThoughtLimit::None, lessened: None };
        }
        let wants_max = wanted.effort == Some(Effort::Max);
        let mode = if wants_max { ThinkMode::Max } else { ThinkMode::On }.within(self.ctx_tokens);
        let by_effort = wanted.effort.map(|effort| self.config.efforts.of(effort));
        let budget = match (wanted.budget, by_effort) {
            (Some(tokens), _) => ThoughtLimit::Tokens(Some(tokens)),
            (None, Some(tokens)) => ThoughtLimit::Tokens(tokens),
            (None, None) => ThoughtLimit::None,
        };
        let lessened = (wants_max && mode != ThinkMode::Max)
            .then_some("effort max needs a larger context: thinking as for xhigh");
        Thought { mode, budget, lessened }
    }
}

impl std::fmt::Debug for Office {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Office").field("ctx_tokens", &self.ctx_tokens).finish_non_exhaustive()
    }
}

/// A request that was rendered.
struct Read {
    prompt: Rendered,
    chat: Option<(Conversation, RenderOptions)>,
    tools: Option<Toolset>,
    replayed: Replayed,
    thought: Thought,
}

/// How a request thinks.
#[derive(Clone, Copy)]
struct Thought {
    mode: ThinkMode,
    budget: ThoughtLimit,
    lessened: Option<&'static str>,
}

/// A seed that nobody can guess, and never 0.
fn random_seed() -> u64 {
    u64::from_le_bytes(random::unguessable()).max(1)
}

/// The calls of the last assistant message, where nothing but results of exactly these follows.
fn answered_calls(conversation: &Conversation, prompt: &chat::Prompt) -> Option<AnsweredCalls> {
    let messages = &conversation.messages;
    let at = messages.iter().rposition(|message| message.role != Role::Tool)?;
    let calls = &messages[at].tool_calls;
    let ids: BTreeSet<String> = calls.iter().map(|call| call.id.clone()).collect::<Option<_>>()?;
    let results = messages.len() - at - 1;
    if calls.is_empty() || results != calls.len() {
        return None;
    }
    // The results share a turn, which ends last; the turn before it has the calls.
    let markers = prompt.markers();
    let ends = markers.iter().rev().filter(|marker| marker.text == "<|im_end|>");
    let end = ends.into_iter().nth(1)?.offset;
    Some(AnsweredCalls { calls: CallIds { ids, messages: at }, end })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::chat::Message;

    /// Messages as they would be rendered for a vocabulary of bytes and markers.
    pub(in crate::server::schedule) fn rendered(
        messages: &[Message],
        options: RenderOptions,
    ) -> Rendered {
        let tokenizer = Tokenizer::stand_in(400).unwrap();
        let conversation = Conversation::new(messages.to_vec());
        let prompt = render(&conversation, &options).unwrap();
        let calls = answered_calls(&conversation, &prompt);
        Rendered { calls, ..Rendered::new(&tokenizer, prompt) }
    }

    fn thought(ctx_tokens: usize, effort: Option<Effort>) -> Thought {
        let tokenizer = Arc::new(Tokenizer::stand_in(400).unwrap());
        let office = Office::new(Arc::new(Config::default()), tokenizer, ctx_tokens, None);
        office.think_mode(&Thinking { effort, ..Thinking::default() })
    }

    #[test]
    fn named_efforts_are_budgets_that_leave_room_for_an_answer() {
        // In a reply with much room, in one with an eighth of it to spare, in one with 256 tokens to spare.
        for (effort, budgets) in [
            (Effort::Minimal, [512, 512, 512]),
            (Effort::Low, [1024, 1024, 744]),
            (Effort::Medium, [4096, 3584, 744]),
            (Effort::High, [16_384, 3584, 744]),
            (Effort::XHigh, [87_500, 3584, 744]),
            (Effort::Max, [87_500, 3584, 744]),
        ] {
            let thought = thought(262_144, Some(effort));
            let found = [100_000, 4096, 1000].map(|reply| thought.budget.within(reply));
            let expected = budgets.map(|tokens| Some(Budget::thought(tokens)));
            assert_eq!(found, expected, "{effort:?}");
        }
        assert_eq!(thought(262_144, None).budget.within(100_000), None, "nothing is named");
    }

    #[test]
    fn the_largest_effort_needs_a_large_context_and_is_the_second_largest_without() {
        for (ctx_tokens, effort, mode, is_lessened) in [
            (98_304, Effort::Max, ThinkMode::Max, false),
            (98_303, Effort::Max, ThinkMode::On, true),
            (98_303, Effort::XHigh, ThinkMode::On, false),
        ] {
            let thought = thought(ctx_tokens, Some(effort));
            let found = (thought.mode, thought.lessened.is_some());
            assert_eq!(found, (mode, is_lessened), "{effort:?} in {ctx_tokens}");
            assert_eq!(thought.budget, ThoughtLimit::Tokens(None));
        }
    }
}
