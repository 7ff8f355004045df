//! The thinking controller: which ids are fed after which were sampled.
//!
//! One pure state machine for every front end (design README, decision 20). It sees each sampled id before the model
//! does and answers what to feed instead, so nothing ever has to be taken back:
//!
//! ```text
//!            budget used up · close token ranked high near the end · end of turn · call opening
//!   thinking ---------------------------------------------------------------------------------> answering
//!            feed: newline (unless the thought ends in one) · </think> · newline pair [· the call opening]
//! ```
//!
//! It never looks at text: a model that *writes about* `</think>` in ordinary tokens has closed nothing.

use crate::tokenizer::{Special, TokenId, Tokenizer};

/// The ids the controller needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThinkTokens {
    /// Closes a thought.
    pub close: TokenId,
    /// Opens a call.
    pub call: TokenId,
    /// End a turn: `<|im_end|>` and `<|endoftext|>`.
    pub ends: [TokenId; 2],
    /// A newline, as ids.
    pub newline: Vec<TokenId>,
    /// Two newlines, as ids.
    pub newline_pair: Vec<TokenId>,
}

impl ThinkTokens {
    /// Looks them up.
    pub fn new(tokenizer: &Tokenizer) -> Self {
        let encode = |text: &[u8]| tokenizer.encode_text(text);
        Self::from_parts(tokenizer.special(), encode(b"\n"), encode(b"\n\n"))
    }

    /// From a vocabulary's markers and the ids of its newlines.
    pub fn from_parts(
        special: &Special,
        newline: Vec<TokenId>,
        newline_pair: Vec<TokenId>,
    ) -> Self {
        Self {
            close: special.think_end,
            call: special.tool_call,
            ends: [special.im_end, special.endoftext],
            newline,
            newline_pair,
        }
    }
}

/// How many tokens a reply may spend, and when its thought has to end (cli.md 9.6). With `remaining` = `tokens` less
/// those generated: at `remaining <= hard` the thought is closed; at `remaining <= soft` it is closed as soon as the
/// close token is among the `top_rank` most likely ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Tokens from the start of the reply.
    pub tokens: usize,
    /// Where the close token is taken when it is likely.
    pub soft: usize,
    /// Where it is forced.
    pub hard: usize,
    /// How likely: 1 is the most likely token.
    pub top_rank: usize,
}

impl Budget {
    /// A limit on the thought alone: its last eighth (at least 64 tokens) is the soft zone (server.md 5.2).
    pub fn thought(tokens: usize) -> Self {
        Self { tokens, soft: (tokens / 8).max(64), hard: 0, top_rank: 3 }
    }

    /// The largest thought that leaves a reply of at most `reply_tokens` room for an answer: an eighth, and at least
    /// 256 tokens.
    pub fn largest_thought(reply_tokens: usize) -> usize {
        reply_tokens.saturating_sub((reply_tokens / 8).max(256))
    }
}

/// What a generation starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThinkOptions {
    /// The prompt ends inside a thought.
    pub thinking: bool,
    /// The limit on it, if there is one.
    pub budget: Option<Budget>,
    /// A call opened inside the thought closes the thought first. Only where the request has tools.
    pub recover_calls: bool,
}

/// A token as it was drawn.
#[derive(Debug, Clone, Copy)]
pub struct Sampled<'a> {
    /// Its id.
    pub id: TokenId,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// How many tokens the reply may still take, this one included.
    pub room: usize,
}

/// How a token that is fed relates to what people see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Part of the thought.
    Thought,
    /// Markup between thought and answer: not shown.
    Hidden,
    /// Part of the answer, or of a call.
    Answer,
}

/// A token to feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fed {
    /// Its id.
    pub id: TokenId,
    /// What people see of it.
    pub show: Show,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Feed these, in order. The sampled token is among them only if it was kept.
    Feed(Vec<Fed>),
    /// The reply is over; this end token is not fed as part of it.
    End(TokenId),
}

/// Why a thought was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseKind {
    /// The model closed it.
    Natural,
    /// In the soft zone, with the close token among the likely ones.
    Soft,
    /// The budget was used up.
    Hard,
    /// The model ended its turn inside the thought.
    End,
    /// The model opened a call inside the thought.
    Call,
}

impl CloseKind {
    /// The name in traces and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Natural => "natural",
            Self::Soft => "soft_forced",
            Self::Hard => "hard_forced",
            Self::End => "eos_forced",
            Self::Call => "call_forced",
        }
    }
}

/// The first closing of a thought in a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloseEvent {
    /// Why.
    pub kind: CloseKind,
    /// Which token of the reply the close token is, from 1.
    pub index: usize,
    /// What was left of the budget when it was decided; `None` without a budget.
    pub remaining: Option<usize>,
    /// Rank of the close token then; `None` where it was not asked for.
    pub rank: Option<usize>,
}

/// The state of one generation.
#[derive(Debug, Clone)]
pub struct ThinkController {
    tokens: ThinkTokens,
    options: ThinkOptions,
    thinking: bool,
    ends_in_newline: bool,
    generated: usize,
    thought_tokens: usize,
    closed: Option<CloseEvent>,
}

impl ThinkController {
    /// A controller for a reply that has not begun.
    pub fn new(tokens: ThinkTokens, options: ThinkOptions) -> Self {
        Self {
            tokens,
            options,
            thinking: options.thinking,
            // The newline behind `<think>` belongs to the prompt: an empty thought still gets its own.
            ends_in_newline: false,
            generated: 0,
            thought_tokens: 0,
            closed: None,
        }
    }

    /// True while the thought is open.
    pub fn is_thinking(&self) -> bool {
        self.thinking
    }

    /// Tokens fed so far.
    pub fn generated(&self) -> usize {
        self.generated
    }

    /// Tokens fed so far that belong to the thought, markup excluded.
    pub fn thought_tokens(&self) -> usize {
        self.thought_tokens
    }

    /// How the thought was closed.
    pub fn closed(&self) -> Option<CloseEvent> {
        self.closed
    }

    /// Decides about a sampled token. `close_rank` tells the rank of the close token among the logits the token was
    /// drawn from, 1 for the largest; it is called in the soft zone only.
    pub fn step(&mut self, sampled: Sampled<'_>, close_rank: impl FnOnce() -> usize) -> Step {
        if !self.thinking {
            return self.answer(sampled);
        }
        let remaining = self.options.budget.map(|b| b.tokens.saturating_sub(self.generated));
        let mut event = CloseEvent { kind: CloseKind::Natural, index: 0, remaining, rank: None };
        let forced =
            self.over_budget(&mut event, close_rank).or_else(|| self.misplaced(sampled.id));
        if let Some(kind) = forced
            && self.closing_tokens(kind) <= sampled.room
        {
            return Step::Feed(self.force(CloseEvent { kind, ..event }));
        }
        if sampled.id == self.tokens.close {
            return Step::Feed(self.close(event, &[], &[]));
        }
        if self.tokens.ends.contains(&sampled.id) {
            return Step::End(sampled.id);
        }
        self.think(sampled)
    }

    /// Whether an id must not stand inside a thought.
    fn misplaced(&self, id: TokenId) -> Option<CloseKind> {
        if self.tokens.ends.contains(&id) {
            return Some(CloseKind::End);
        }
        (id == self.tokens.call && self.options.recover_calls).then_some(CloseKind::Call)
    }

    fn over_budget(
        &self,
        event: &mut CloseEvent,
        close_rank: impl FnOnce() -> usize,
    ) -> Option<CloseKind> {
        let (budget, remaining) = (self.options.budget?, event.remaining?);
        if remaining <= budget.hard {
            return Some(CloseKind::Hard);
        }
        if remaining > budget.soft {
            return None;
        }
        let rank = close_rank();
        event.rank = Some(rank);
        (rank <= budget.top_rank).then_some(CloseKind::Soft)
    }

    fn closing_tokens(&self, kind: CloseKind) -> usize {
        let newline = if self.ends_in_newline { 0 } else { self.tokens.newline.len() };
        let call = usize::from(kind == CloseKind::Call);
        newline + 1 + self.tokens.newline_pair.len() + call
    }

    /// Closes the thought as the template writes it, and opens the call that was to stand inside.
    fn force(&mut self, event: CloseEvent) -> Vec<Fed> {
        let newline = if self.ends_in_newline { Vec::new() } else { self.tokens.newline.clone() };
        let pair = self.tokens.newline_pair.clone();
        let mut fed = self.close(event, &newline, &pair);
        if event.kind == CloseKind::Call {
            self.generated += 1;
            fed.push(Fed { id: self.tokens.call, show: Show::Answer });
        }
        fed
    }

    /// Feeds `before`, the close token and `after`.
    fn close(&mut self, mut event: CloseEvent, before: &[TokenId], after: &[TokenId]) -> Vec<Fed> {
        event.index = self.generated + before.len() + 1;
        self.closed.get_or_insert(event);
        self.thinking = false;
        let ids = before.iter().chain([&self.tokens.close]).chain(after);
        let fed: Vec<Fed> = ids.map(|&id| Fed { id, show: Show::Hidden }).collect();
        self.generated += fed.len();
        fed
    }

    fn think(&mut self, sampled: Sampled<'_>) -> Step {
        self.generated += 1;
        self.thought_tokens += 1;
        if let Some(last) = sampled.bytes.last() {
            self.ends_in_newline = *last == b'\n';
        }
        Step::Feed(vec![Fed { id: sampled.id, show: Show::Thought }])
    }

    fn answer(&mut self, sampled: Sampled<'_>) -> Step {
        if self.tokens.ends.contains(&sampled.id) {
            return Step::End(sampled.id);
        }
        self.generated += 1;
        Step::Feed(vec![Fed { id: sampled.id, show: Show::Answer }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOSE: u32 = 100;
    const CALL: u32 = 101;
    const END: u32 = 102;
    const NEWLINE: u32 = 10;
    const PAIR: u32 = 11;
    const WORD: u32 = 1;
    const LINE: u32 = 2;

    fn controller(options: ThinkOptions) -> ThinkController {
        let tokens = ThinkTokens {
            close: TokenId(CLOSE),
            call: TokenId(CALL),
            ends: [TokenId(END), TokenId(END + 1)],
            newline: vec![TokenId(NEWLINE)],
            newline_pair: vec![TokenId(PAIR)],
        };
        ThinkController::new(tokens, options)
    }

    fn thinking(budget: Option<Budget>) -> ThinkController {
        controller(ThinkOptions { thinking: true, budget, recover_calls: true })
    }

    /// Feeds `id`, with the close token at `rank` and `room` tokens left, and compares the ids that come back.
    fn check(
        controller: &mut ThinkController,
        id: u32,
        (rank, room): (usize, usize),
        expected: &[u32],
    ) {
        let bytes: &[u8] = if id == LINE { b"so.\n" } else { b"word" };
        let sampled = Sampled { id: TokenId(id), bytes, room };
        let fed = match controller.step(sampled, || rank) {
            Step::Feed(fed) => fed.iter().map(|f| f.id.0).collect(),
            Step::End(_) => Vec::new(),
        };
        assert_eq!(fed, expected);
    }

    const FAR: (usize, usize) = (1000, 1000);

    fn closed(controller: &ThinkController) -> (CloseKind, usize, Option<usize>, Option<usize>) {
        let event = controller.closed().unwrap();
        (event.kind, event.index, event.remaining, event.rank)
    }

    #[test]
    fn the_model_closes_by_itself() {
        let mut c = thinking(None);
        check(&mut c, WORD, FAR, &[WORD]);
        check(&mut c, CLOSE, FAR, &[CLOSE]);
        check(&mut c, PAIR, FAR, &[PAIR]);
        check(&mut c, END, FAR, &[]);
        assert_eq!(closed(&c), (CloseKind::Natural, 2, None, None));
        assert_eq!((c.generated(), c.thought_tokens()), (3, 1));
    }

    #[test]
    fn an_end_inside_the_thought_closes_it_once() {
        let mut c = thinking(None);
        check(&mut c, END, FAR, &[NEWLINE, CLOSE, PAIR]);
        assert_eq!(closed(&c), (CloseKind::End, 2, None, None));
        check(&mut c, END, FAR, &[]);

        let mut c = thinking(None);
        check(&mut c, LINE, FAR, &[LINE]);
        check(&mut c, END + 1, FAR, &[CLOSE, PAIR]);
        assert_eq!(closed(&c), (CloseKind::End, 2, None, None));
    }

    #[test]
    fn a_call_inside_the_thought_closes_it_first() {
        let mut c = thinking(None);
        check(&mut c, WORD, FAR, &[WORD]);
        check(&mut c, CALL, FAR, &[NEWLINE, CLOSE, PAIR, CALL]);
        assert_eq!(closed(&c), (CloseKind::Call, 3, None, None));
        check(&mut c, CALL, FAR, &[CALL]);

        let mut c = controller(ThinkOptions { thinking: true, budget: None, recover_calls: false });
        check(&mut c, CALL, FAR, &[CALL]);
        assert!(c.is_thinking());
    }

    #[test]
    fn without_room_nothing_is_forced() {
        let mut c = thinking(Some(Budget::thought(0)));
        check(&mut c, CALL, (1, 2), &[CALL]);
        check(&mut c, END, (1, 2), &[]);
        assert!(c.is_thinking());
        check(&mut c, CLOSE, (1, 2), &[CLOSE]);
        assert_eq!(closed(&c).0, CloseKind::Natural);
    }

    #[test]
    fn the_budget_closes_softly_then_hard() {
        let budget = Budget { tokens: 10, soft: 6, hard: 2, top_rank: 3 };
        let mut c = thinking(Some(budget));
        for _ in 0..4 {
            check(&mut c, WORD, (1, 100), &[WORD]);
        }
        check(&mut c, WORD, (4, 100), &[WORD]);
        let mut hard = c.clone();
        check(&mut c, WORD, (3, 100), &[NEWLINE, CLOSE, PAIR]);
        assert_eq!(closed(&c), (CloseKind::Soft, 7, Some(5), Some(3)));

        for _ in 0..3 {
            check(&mut hard, LINE, FAR, &[LINE]);
        }
        check(&mut hard, WORD, FAR, &[CLOSE, PAIR]);
        assert_eq!(closed(&hard), (CloseKind::Hard, 9, Some(2), None));
        check(&mut hard, CLOSE, FAR, &[CLOSE]);
        assert_eq!(closed(&hard).0, CloseKind::Hard);
    }

    #[test]
    fn a_budget_of_nothing_closes_at_once() {
        let mut c = thinking(Some(Budget::thought(0)));
        check(&mut c, WORD, FAR, &[NEWLINE, CLOSE, PAIR]);
        assert_eq!(closed(&c), (CloseKind::Hard, 2, Some(0), None));
    }

    #[test]
    fn an_answer_without_thought_passes_through() {
        let mut c = controller(ThinkOptions::default());
        for id in [WORD, CALL, CLOSE] {
            check(&mut c, id, FAR, &[id]);
        }
        check(&mut c, END, FAR, &[]);
        assert_eq!(c.closed(), None);
    }

    #[test]
    fn thoughts_leave_room_for_the_answer() {
        assert_eq!(Budget::largest_thought(16_000), 14_000);
        assert_eq!(Budget::largest_thought(1000), 744);
        assert_eq!(Budget::largest_thought(100), 0);
        assert_eq!(Budget::thought(4096).soft, 512);
        assert_eq!(Budget::thought(100).soft, 64);
    }
}
