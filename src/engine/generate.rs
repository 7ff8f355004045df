//! One reply, token by token: sample, let the thinking controller decide, feed.
//!
//! A token is handed out before it is evaluated, so its text is on the screen while the model works,
//! and the last token of a reply is never evaluated at all. Whoever drives this decides between two
//! tokens whether to go on; dropping it is cancelling it.

use std::collections::VecDeque;

use super::sample::{self, Sampler};
use super::{Engine, Error, SessionId};
use crate::chat::{Fed, Sampled, Step, ThinkController, ThinkOptions, ThinkTokens};
use crate::tokenizer::TokenId;

/// Why a reply ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model ended its turn.
    Stop,
    /// The limit of tokens was reached.
    Length,
    /// The context is full.
    ContextFull,
}

impl Finish {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ContextFull => "context",
        }
    }
}

/// What happens next in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A token of it.
    Token(Fed),
    /// It is over.
    End(Finish),
}

/// A reply in the making.
#[derive(Debug)]
pub struct Generation {
    session: SessionId,
    sampler: Sampler,
    think: ThinkController,
    close: TokenId,
    /// Handed out, not yet evaluated.
    unfed: Option<TokenId>,
    /// Decided, not yet handed out.
    queue: VecDeque<Fed>,
    /// Tokens that may still be handed out.
    room: usize,
    /// Why there is no more room.
    at_limit: Finish,
}

impl Generation {
    /// A reply of at most `limit` tokens to the prompt that `session` was synced to. One position
    /// of the context stays free, so that the turn can be closed.
    pub fn new(
        engine: &mut dyn Engine,
        session: SessionId,
        sampler: Sampler,
        options: ThinkOptions,
        limit: usize,
    ) -> Self {
        engine.expect_draws(session, sampler.params());
        let tokens = ThinkTokens::new(engine.tokenizer());
        let free = engine.info().ctx_tokens.saturating_sub(engine.tokens(session).len() + 1);
        Self {
            session,
            sampler,
            close: tokens.close,
            think: ThinkController::new(tokens, options),
            unfed: None,
            queue: VecDeque::new(),
            room: limit.min(free),
            at_limit: if limit <= free { Finish::Length } else { Finish::ContextFull },
        }
    }

    /// The session that it is drawn from.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// How the thought goes.
    pub fn think(&self) -> &ThinkController {
        &self.think
    }

    /// Tokens that were decided on and not handed out yet: the rest of what closes a thought. Who stops here has to
    /// keep them, or the thought stays open.
    pub fn decided(&self) -> impl Iterator<Item = TokenId> {
        self.queue.iter().map(|fed| fed.id)
    }

    /// The next token, or the end.
    ///
    /// # Errors
    /// When evaluation fails, or leaves nothing that could be sampled.
    pub fn next(&mut self, engine: &mut dyn Engine) -> Result<Next, Error> {
        if self.room == 0 {
            return Ok(Next::End(self.at_limit));
        }
        if let Some(token) = self.unfed.take() {
            engine.decode(&[(self.session, token)])?;
        }
        if self.queue.is_empty() {
            match self.draw(engine)? {
                Step::Feed(fed) => self.queue.extend(fed),
                Step::End(_) => return Ok(Next::End(Finish::Stop)),
            }
        }
        let fed = self.queue.pop_front().expect("the controller feeds at least one token");
        self.unfed = Some(fed.id);
        self.room -= 1;
        Ok(Next::Token(fed))
    }

    fn draw(&mut self, engine: &mut dyn Engine) -> Result<Step, Error> {
        let id = engine.sample(self.session, &mut self.sampler)?;
        let bytes = engine.tokenizer().bytes(id).to_vec();
        let sampled = Sampled { id, bytes: &bytes, room: self.room };
        let (session, close, mut failed) = (self.session, self.close, None);
        let rank = || match engine.logits(session) {
            Ok(row) => row
                .and_then(|row| sample::rank_of(row, close))
                .map_or(usize::MAX, |before| before + 1),
            Err(e) => {
                failed = Some(e);
                usize::MAX
            }
        };
        let step = self.think.step(sampled, rank);
        failed.map_or(Ok(step), Err)
    }
}

/// Whether a prompt's last opened thought is still open at its end.
pub fn ends_inside_thought(engine: &dyn Engine, prompt: &[TokenId]) -> bool {
    let special = engine.tokenizer().special();
    let last = prompt
        .iter()
        .rev()
        .find(|&&id| id == special.think || id == special.think_end || id == special.im_start);
    last == Some(&special.think)
}
