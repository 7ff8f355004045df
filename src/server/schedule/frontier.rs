//! Saves of replies on their way (server.md 14.3): where, and under which text.
//!
//! A file is found by its text, so a position is worth saving only where its text comes back. It does not inside a
//! thought, which a client shows and forgets, nor in a reply that may yet become a call: whether its thought stays in the
//! prompt is decided by its end. And a client whose server dies in the middle of a reply asks the same again; nobody ever
//! sends the half of a call. So a frontier that is passed there is not lost but postponed: to the first piece of the
//! answer behind the thought, or, where there are functions, to the end of the reply, whose form is known then. What a
//! dead server leaves to be evaluated again is therefore one distance of saves and one reply at most, whatever of them
//! were thoughts, and for clients that send thoughts back as for those that do not.
//!
//! The answer that ends a row of calls takes the thoughts of the whole row out of the prompt, and with them every text that
//! a file of the row was saved under. Where the row was long, its end is therefore saved again.

use super::Error;
use super::floor::Floor;
use super::slot::{Serving, Work};
use crate::chat::Role;
use crate::engine;
use crate::kv::Moment;
use crate::server::Input;
use crate::tokenizer::{TokenId, Tokenizer};

impl Floor {
    /// Saves a reply that has passed a frontier, once its text is one that comes back.
    pub(super) fn save_at_frontier(&mut self, index: usize) -> Result<(), Error> {
        let slot = &self.slots[index];
        let Work::Decode(active) = &slot.work else { return Ok(()) };
        let tokens = self.engine.tokens(slot.session);
        let (at, last) = (tokens.len(), slot.tried);
        if !self.common.saved.is_due(slot.session, (at, last))
            || !active.serving.comes_back(&self.tokenizer, tokens)
        {
            return Ok(());
        }
        self.slots[index].tried = at;
        self.save(index, Moment::Continued).or_else(|error| self.failed(index, error))
    }

    /// Saves the end of a reply that has passed a frontier where it could not be saved. The client has its answer.
    pub(super) fn save_finished(&mut self, index: usize, serving: &Serving) -> Result<(), Error> {
        let slot = &self.slots[index];
        let tokens = self.engine.tokens(slot.session);
        let at = tokens.len();
        let is_bound = slot.bindings.last().is_some_and(|binding| binding.tokens == at);
        let ends_row = slot.bindings.last().is_some_and(|binding| binding.calls.is_none())
            && serving.answers_calls();
        let is_due = if is_bound && ends_row {
            let began = question(&self.tokenizer, tokens).unwrap_or(0);
            self.common.saved.is_overdue((at, began))
        } else {
            self.common.saved.is_due(slot.session, (at, slot.tried))
        };
        if !is_due || !(is_bound || serving.comes_back(&self.tokenizer, tokens)) {
            return Ok(());
        }
        self.slots[index].tried = at;
        let saved = self.settle(index).and_then(|()| self.save(index, Moment::Continued));
        saved.or_else(|error| self.not_saved(index, error))
    }

    /// Says so, unless nothing works any more.
    pub(super) fn not_saved(&self, index: usize, error: engine::Error) -> Result<(), Error> {
        if Self::is_fatal(&error) {
            return Err(error.into());
        }
        let text = format!("session not saved: {error}");
        self.common.say(None, Some(index), crate::server::What::Cache(text));
        Ok(())
    }
}

impl Serving {
    /// Whether a later prompt may begin with the text of these tokens, which are its prompt and a part of the reply.
    fn comes_back(&self, tokenizer: &Tokenizer, tokens: &[TokenId]) -> bool {
        let Some((_, options)) = &self.prepared.chat else { return true };
        let continues = matches!(self.request.input, Input::Chat { continues: true, .. });
        if self.prepared.tools.is_some() {
            return false;
        }
        continues || options.preserve_thinking || self.answer_key(tokenizer, tokens).is_some()
    }

    /// Whether its prompt ends with results of calls, whose thoughts leave it with the next question.
    fn answers_calls(&self) -> bool {
        self.prepared.chat.as_ref().is_some_and(|(conversation, options)| {
            let row = conversation.messages.iter().rev().take_while(|m| m.role != Role::User);
            !options.preserve_thinking && row.into_iter().any(|m| !m.tool_calls.is_empty())
        })
    }
}

/// Where the last question begins: the last turn of the user that holds no results of calls.
fn question(tokenizer: &Tokenizer, tokens: &[TokenId]) -> Option<usize> {
    let opening = tokenizer.encode_control(b"<|im_start|>user");
    let result = tokenizer.special().tool_response;
    // Behind the opening is the end of its line.
    let holds_results =
        |at: usize| tokens[at + opening.len()..].iter().take(2).any(|&id| id == result);
    (0..tokens.len()).rev().find(|&at| tokens[at..].starts_with(&opening) && !holds_results(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_question_is_before_the_results_of_its_calls() {
        let tokenizer = Tokenizer::stand_in(400).unwrap();
        let at = |text: &str| question(&tokenizer, &tokenizer.encode_control(text.as_bytes()));
        let first = "<|im_start|>user\nfirst<|im_end|>\n";
        let call = "<|im_start|>assistant\n<tool_call>x</tool_call><|im_end|>\n";
        let result = "<|im_start|>user\n<tool_response>\nr\n</tool_response><|im_end|>\n";
        let before = |text: &str| Some(tokenizer.encode_control(text.as_bytes()).len());
        assert_eq!(at(first), Some(0));
        assert_eq!(at(&[first, call, result, call, result].concat()), Some(0));
        assert_eq!(
            at(&[first, call, result, first].concat()),
            before(&[first, call, result].concat())
        );
        assert_eq!(at("plain text"), None);
    }
}
