//! Prompts on their way, a slice at a time, in turn.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Error;
use super::decode::first_rules;
use super::floor::Floor;
use super::slot::{Serving, Work};
use crate::engine::{self, Border, Slice, Stage, Target};
use crate::kv::{Moment, Name};
use crate::server::{Update, Waiting, What};
use crate::tokenizer::TokenId;

/// A prompt that is being evaluated.
#[derive(Debug)]
pub(super) struct Filling {
    pub(super) serving: Serving,
    /// What the session will hold.
    pub(super) tokens: Vec<TokenId>,
    pub(super) borders: Vec<Border>,
    /// Where evaluation stops, and what the session is saved as there; the last is the end.
    pub(super) parts: VecDeque<(usize, Option<Moment>)>,
    pub(super) reused: usize,
    /// The file that the session was loaded from.
    pub(super) loaded: Option<Name>,
    pub(super) started: Instant,
    /// When the present chunk began, and where.
    pub(super) chunk: (Instant, usize),
    /// How long its slices have taken.
    pub(super) worked: Duration,
}

/// The session that gets the next slice: the one whose chunk is open, else the next one behind the last.
pub(super) fn next_in_turn(waiting: &[bool], (last, is_open): (usize, bool)) -> Option<usize> {
    if is_open && waiting.get(last) == Some(&true) {
        return Some(last);
    }
    let n = waiting.len();
    (1..=n).map(|step| (last + step) % n).find(|&index| waiting[index])
}

/// Tokens that may be evaluated to take a session back, while nobody waits for other work and while somebody does.
const TAKE_BACK_TOKENS: (usize, usize) = (256, 32);

impl Floor {
    /// One slice of one prompt; whether there was one.
    pub(super) fn prefill_slice(&mut self) -> Result<bool, Error> {
        let is_filling = |work: &Work| matches!(work, Work::Prefill(_));
        let waiting: Vec<bool> = self.slots.iter().map(|slot| is_filling(&slot.work)).collect();
        let Some(index) = next_in_turn(&waiting, self.last_slice) else { return Ok(false) };
        let limit = self.slice_limit();
        let slot = &self.slots[index];
        let Work::Prefill(filling) = &slot.work else { return Ok(false) };
        let outbox = &filling.serving.outbox;
        let slice = Slice { limit, cancelled: &|| outbox.is_abandoned() };
        let began = Instant::now();
        let advanced = self.engine.advance_sync(slot.session, &slice);
        if let Work::Prefill(filling) = &mut self.slots[index].work {
            filling.worked += began.elapsed();
        }
        match advanced {
            Ok(advance) => {
                self.last_slice = (index, advance.stage == Stage::Open);
                match advance.stage {
                    Stage::Open => {}
                    Stage::Between => self.tell_progress(index),
                    Stage::Done => {
                        self.tell_progress(index);
                        self.end_part(index)?;
                    }
                    Stage::Cancelled => self.cancel(index),
                }
            }
            Err(error) => self.prefill_failed(index, error)?,
        }
        Ok(true)
    }

    /// Shorter while others decode: a fifth of the stall that is allowed, since a slice has a least share that it cannot
    /// divide, and predictions are not exact. At the default that is [`Slice::BESIDE`].
    fn slice_limit(&self) -> Duration {
        let decodes = self.slots.iter().any(|slot| matches!(slot.work, Work::Decode(_)));
        let config = &self.common.config;
        let (limit, quantum) = if decodes {
            ((config.decode_stall / 5).min(Slice::ALONE), config.sharing.mixed)
        } else {
            (Slice::ALONE, config.sharing.alone)
        };
        shortened(limit, quantum, self.token_seconds)
    }

    fn tell_progress(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let done = self.engine.tokens(slot.session).len();
        let Work::Prefill(filling) = &mut slot.work else { return };
        let (since, from) = filling.chunk;
        let total = filling.tokens.len();
        filling.serving.outbox.send(Update::Waiting(Waiting::Prefill { done, total }));
        let (started, reused) = (filling.started, filling.reused);
        filling.chunk = (Instant::now(), done);
        let worked = std::mem::take(&mut filling.worked);
        if done > from {
            self.token_seconds = worked.as_secs_f64() / (done - from) as f64;
        }
        let what = What::PrefillChunk {
            done: done.saturating_sub(reused),
            total: total - reused,
            chunk_tps: rate(done.saturating_sub(from), since.elapsed()),
            average_tps: rate(done.saturating_sub(reused), started.elapsed()),
        };
        self.say(index, what);
    }

    /// Begins with the next part of a prompt; what needs no evaluation is done at once.
    pub(super) fn begin_part(&mut self, index: usize) -> Result<(), Error> {
        let slot = &self.slots[index];
        let Work::Prefill(filling) = &slot.work else { return Ok(()) };
        let Some(&(end, _)) = filling.parts.front() else { return self.begin_reply(index) };
        let serving = &filling.serving;
        let target = Target { borders: &filling.borders, ..Target::tokens(&filling.tokens[..end]) };
        // Said before the logits are made that the first token is drawn from.
        self.engine.expect_draws(slot.session, serving.prepared.params);
        let rules = first_rules(&self.tokenizer, serving);
        let ruled = self.engine.set_rules(slot.session, rules);
        match ruled.and_then(|()| self.engine.begin_sync(slot.session, target)) {
            Ok(report) if report.total() == 0 => self.end_part(index),
            Ok(_) => Ok(()),
            Err(error) => self.prefill_failed(index, error),
        }
    }

    /// A part is evaluated: it is saved if it is worth that, and the next one begins.
    fn end_part(&mut self, index: usize) -> Result<(), Error> {
        let Work::Prefill(filling) = &mut self.slots[index].work else { return Ok(()) };
        if let Some((_, Some(moment))) = filling.parts.pop_front()
            && let Err(error) = self.save(index, moment)
        {
            return self.prefill_failed(index, error);
        }
        self.begin_part(index)
    }

    /// A state from a file that cannot be continued is deleted, and the prompt begins anew (server.md 14.2).
    fn prefill_failed(&mut self, index: usize, error: engine::Error) -> Result<(), Error> {
        let session = self.slots[index].session;
        let Work::Prefill(filling) = &mut self.slots[index].work else { return Ok(()) };
        let Some(name) = filling.loaded.take().filter(|_| !Self::is_fatal(&error)) else {
            return self.failed(index, error);
        };
        filling.tokens.clone_from(&filling.serving.prepared.prompt.ids);
        filling.borders = engine::turn_borders(&self.tokenizer, &filling.tokens);
        filling.reused = 0;
        filling.serving.usage.cached_tokens = 0;
        filling.serving.usage.prompt_tokens = filling.tokens.len();
        let tokens = filling.tokens.clone();
        self.common.saved.discard(&name);
        self.common.saved.forget(session);
        self.slots[index].cut(0);
        if let Err(error) = self.engine.reset(session) {
            return self.failed(index, error);
        }
        let parts = self.parts(session, &tokens, 0);
        if let Work::Prefill(filling) = &mut self.slots[index].work {
            filling.parts = parts;
        }
        let text = format!("a saved session could not be continued: {error}");
        if let Some(number) = self.slots[index].serving().map(|serving| serving.number) {
            self.common.note(number, || text.clone());
        }
        self.say(index, What::Warning(text));
        self.begin_part(index)
    }

    /// Saves a session as it stands.
    pub(super) fn save(&mut self, index: usize, moment: Moment) -> Result<(), engine::Error> {
        if matches!(moment, Moment::Evict | Moment::Shutdown) {
            self.take_back(index)?;
            self.settle(index)?;
        }
        let tools = self.tool_blocks(index);
        let slot = &self.slots[index];
        if self.common.saved.save(&mut *self.engine, slot, moment, tools)? {
            let tokens = self.engine.tokens(self.slots[index].session).len();
            let text = format!("saving {tokens} tokens, {}", moment.reason().name());
            self.say(index, What::Cache(text));
        }
        Ok(())
    }

    /// Takes a session whose reply was cut short back to where its prompt opens the reply, if it can begin again near that:
    /// whoever asks again, or goes on with something else, has the prompt up to there and not the reply.
    fn take_back(&mut self, index: usize) -> Result<(), engine::Error> {
        let slot = &mut self.slots[index];
        let session = slot.session;
        let Some(prompt) = slot.loose.take() else { return Ok(()) };
        let Some(mut prompt) = self.engine.tokens(session).get(..prompt).map(<[_]>::to_vec) else {
            return Ok(());
        };
        let borders = engine::turn_borders(&self.tokenizer, &prompt);
        prompt.truncate(borders.last().map_or(prompt.len(), |border| border.pos));
        let target = Target::tokens(&prompt);
        let (alone, beside) = TAKE_BACK_TOKENS;
        let most = if self.is_active() { beside } else { alone };
        let is_far = self.engine.foresee(session, target)?.report.total() > most;
        // While another prompt's chunk is open no other one can be evaluated.
        if prompt.is_empty() || is_far || self.last_slice.1 {
            return Ok(());
        }
        if self.engine.begin_sync(session, target)?.total() > 0 {
            let slice = Slice { limit: Slice::ALONE, cancelled: &|| false };
            while self.engine.advance_sync(session, &slice)?.stage != Stage::Done {}
        }
        self.slots[index].cut(prompt.len());
        Ok(())
    }

    /// Evaluates what was handed out of a finished turn and not evaluated, so that the text that the client saw is the
    /// text of the state.
    pub(super) fn settle(&mut self, index: usize) -> Result<(), engine::Error> {
        let slot = &mut self.slots[index];
        let tokens = self.engine.tokens(slot.session).len();
        let room = self.engine.info().ctx_tokens - tokens;
        let Some(binding) = slot.bindings.last_mut() else { return Ok(()) };
        if binding.tokens != tokens || binding.tail.len() >= room {
            return Ok(());
        }
        for token in std::mem::take(&mut binding.tail) {
            self.engine.decode(&[(slot.session, token)])?;
            binding.tokens += 1;
        }
        Ok(())
    }
}

/// A limit, or as long as `quantum` tokens take if that is shorter and known.
fn shortened(limit: Duration, quantum: Option<usize>, token_seconds: f64) -> Duration {
    let seconds = quantum.map(|tokens| tokens as f64 * token_seconds).filter(|s| *s > 0.0);
    seconds.map_or(limit, |seconds| Duration::from_secs_f64(seconds.min(limit.as_secs_f64())))
}

/// Tokens a second.
pub(super) fn rate(tokens: usize, took: Duration) -> f64 {
    if took.is_zero() { 0.0 } else { tokens as f64 / took.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantum_shortens_slices_and_never_lengthens_them() {
        let limit = Duration::from_millis(250);
        assert_eq!(shortened(limit, None, 0.001), limit);
        assert_eq!(shortened(limit, Some(128), 0.0), limit, "nothing is known yet");
        assert_eq!(shortened(limit, Some(128), 0.001), Duration::from_millis(128));
        assert_eq!(shortened(limit, Some(2048), 0.001), limit);
    }

    #[test]
    fn prompts_take_turns_and_an_open_chunk_is_finished_first() {
        let all = [true, true, false, true];
        assert_eq!(next_in_turn(&all, (0, false)), Some(1));
        assert_eq!(next_in_turn(&all, (1, false)), Some(3));
        assert_eq!(next_in_turn(&all, (3, false)), Some(0));
        assert_eq!(next_in_turn(&all, (1, true)), Some(1));
        assert_eq!(next_in_turn(&all, (2, true)), Some(3), "it is gone");
        assert_eq!(next_in_turn(&[false, true], (1, false)), Some(1));
        assert_eq!(next_in_turn(&[false, false], (1, true)), None);
    }
}
