//! A reply in the making, with the tokens that the transcript keeps of it.

use super::transcript::{Transcript, closing};
use crate::chat::{Budget, ThinkController, ThinkOptions};
use crate::engine::generate::{Generation, Next, ends_inside_thought};
use crate::engine::sample::Sampler;
use crate::engine::{Engine, Error, SessionId};
use crate::tokenizer::{TokenId, Tokenizer};

/// Generates, and remembers what was generated. Stop whenever you like: [`Reply::keep`] closes what is open.
#[derive(Debug)]
pub struct Reply {
    generation: Generation,
    tokens: Vec<TokenId>,
}

impl Reply {
    /// Begins a reply of at most `limit` tokens, with a thought within `budget`, to the prompt that a session was synced to.
    pub fn begin(
        engine: &mut dyn Engine,
        session: SessionId,
        sampler: Sampler,
        budget: Option<Budget>,
        limit: usize,
    ) -> Self {
        let thinking = ends_inside_thought(engine, engine.tokens(session));
        let options = ThinkOptions { thinking, budget, recover_calls: false };
        let generation = Generation::new(engine, session, sampler, options, limit);
        Self { generation, tokens: Vec::new() }
    }

    /// The next token, or the end.
    ///
    /// # Errors
    /// When evaluation fails, or leaves nothing that could be sampled.
    pub fn next(&mut self, engine: &mut dyn Engine) -> Result<Next, Error> {
        let next = self.generation.next(engine)?;
        if let Next::Token(fed) = next {
            self.tokens.push(fed.id);
        }
        Ok(next)
    }

    /// How the thought goes.
    pub fn think(&self) -> &ThinkController {
        self.generation.think()
    }

    /// Ends the reply here. What was generated stays in the transcript, a thought that is open is closed; where nothing
    /// was generated the message is taken back.
    pub fn keep(mut self, tokenizer: &Tokenizer, transcript: &mut Transcript) {
        if !self.tokens.is_empty() {
            self.tokens.extend(self.generation.decided());
            if self.generation.think().is_thinking() {
                let closing = closing(tokenizer, &self.tokens);
                self.tokens.extend(closing);
            }
        }
        transcript.answer(self.tokens);
    }
}
