//! Steps of sessions: which slot is written, and what becomes of a failed one.

use std::collections::BTreeMap;
use std::time::Instant;

use super::backend::{Row, Wanted};
use super::sample::DrawRules;
use super::session::Session;
use super::{Error, ModelEngine, SessionId, power};
use crate::model::SlotId;
use crate::tokenizer::{TokenId, TokenMask};

/// What the draws of a session see besides its logits, in the forms that backends take.
#[derive(Debug, Default)]
pub(super) struct Rules {
    seen: DrawRules,
    /// What the rules allow of what can be drawn; `None` is all of it.
    allowed: Option<TokenMask>,
    /// The addends with plain ids.
    addends: Vec<(u32, f32)>,
    /// Names the content within an engine; 0 is no rules at all.
    version: u64,
}

impl Rules {
    /// The version of no rules that any session has.
    pub(super) const NONE: u64 = u64::MAX;

    /// `None` when nothing is left that can be drawn.
    pub(super) fn new(rules: DrawRules, drawable: &TokenMask, version: u64) -> Option<Self> {
        let allowed = rules.allowed().map(|mask| {
            let mut allowed = mask.clone();
            allowed.intersect(drawable);
            allowed
        });
        if allowed.as_ref().is_some_and(TokenMask::is_empty) {
            return None;
        }
        let addends = rules.addends().iter().map(|&(id, addend)| (id.0, addend)).collect();
        let version = if rules == DrawRules::default() { 0 } else { version };
        Some(Self { seen: rules, allowed, addends, version })
    }

    pub(super) fn rules(&self) -> &DrawRules {
        &self.seen
    }

    pub(super) fn allowed(&self) -> Option<&TokenMask> {
        self.allowed.as_ref()
    }

    pub(super) fn addends(&self) -> &[(u32, f32)] {
        &self.addends
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }
}

impl ModelEngine {
    pub(super) fn session(&self, id: SessionId) -> Result<&Session, Error> {
        self.sessions.get(&id).ok_or(Error::NoSession(id.0))
    }

    pub(super) fn session_mut(&mut self, id: SessionId) -> Result<&mut Session, Error> {
        self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))
    }

    /// Everything that can be refused before a state changes.
    pub(super) fn check(&self, held: usize, new: &[TokenId]) -> Result<(), Error> {
        let needed = held + new.len();
        if needed > self.info.ctx_tokens {
            return Err(Error::ContextFull { needed, ctx: self.info.ctx_tokens });
        }
        match new.iter().position(|id| id.index() >= self.info.vocab) {
            Some(i) => Err(Error::BadToken { id: new[i].0, at: held + i, vocab: self.info.vocab }),
            None => Ok(()),
        }
    }

    /// The slot that a step of the session writes: its own when nobody else holds it and the step is a
    /// single token, else a free one.
    pub(super) fn target(&mut self, id: SessionId, single: bool) -> Result<SlotId, Error> {
        let source = self.session(id)?.slot;
        if single && self.book.is_exclusive(source) {
            return Ok(source);
        }
        self.book.acquire().ok_or(Error::NoSlot { slots: self.slots })
    }

    /// Cleans up behind steps that failed. A state that was being written in place is half written: its sequence can be
    /// continued only from where an older state was kept.
    pub(super) fn failed(&mut self, steps: &[(SessionId, SlotId)], error: Error) -> Error {
        for &(id, target) in steps {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            if session.slot != target {
                self.book.release(target);
            } else if error.is_lost() {
                // After a loss the tokens are evaluated again, so nothing of them is in doubt.
            } else if !session.fall_back(&mut self.book) {
                session.clear(&mut self.book);
                // When that fails too the device is gone, and the first error says so.
                let _ = self.backend.reset_slot(target);
            }
        }
        error
    }

    /// One token each of some sessions, in one step of the backend.
    pub(super) fn rows_once(&mut self, steps: &[(SessionId, TokenId)]) -> Result<(), Error> {
        let mut targets = Vec::with_capacity(steps.len());
        for &(id, _) in steps {
            match self.target(id, true) {
                Ok(target) => targets.push((id, target)),
                Err(error) => {
                    // Nothing has run yet: only slots that were taken for the step go back.
                    for (id, target) in targets {
                        if self.session(id)?.slot != target {
                            self.book.release(target);
                        }
                    }
                    return Err(error);
                }
            }
        }
        let mut sessions: BTreeMap<_, _> =
            self.sessions.iter_mut().map(|(id, session)| (*id, session)).collect();
        let mut rows: Vec<_> = steps
            .iter()
            .zip(&targets)
            .map(|(&(id, token), &(_, target))| {
                let session = sessions.remove(&id).expect("every step was checked");
                let (ask, pos) = (session.ask(), session.tokens().len());
                Row {
                    token: token.0,
                    pos,
                    source: session.slot,
                    target,
                    wanted: Wanted { ask, rules: &session.rules },
                    kv: &mut session.kv,
                }
            })
            .collect();
        let held = match self.backend.rows(&mut rows) {
            Ok(held) => held,
            Err(error) => return Err(self.failed(&targets, error)),
        };
        for ((&(id, token), (_, target)), held) in steps.iter().zip(targets).zip(held) {
            let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
            session.commit(&mut self.book, target, &[token], held);
        }
        Ok(())
    }

    /// Sleeps as `--power` asks after work that began at `start`.
    pub(super) fn rest(&self, start: Instant) {
        let rest = power::rest_after(start.elapsed(), self.power);
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{
        Anchors, BackendChoice, Border, BorderKind, Context, Engine as _, Options, Prepared, Reuse,
        Target, Unattended,
    };

    /// The demo model on the CPU, with room for two anchors.
    fn engine() -> ModelEngine {
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/q36-tiny.gguf");
        let mut options = Options::new(model.into());
        options.backend = BackendChoice::Cpu;
        options.context = Context::Exactly(128);
        options.anchors = Anchors { slots: 2, spacing: 0 };
        Prepared::new(options).unwrap().open(&mut |_, _| true).unwrap()
    }

    #[test]
    fn a_step_that_failed_in_place_costs_what_came_after_the_last_anchor() {
        let mut engine = engine();
        let prompt: Vec<TokenId> = (300..320).map(TokenId).collect();
        let id = engine.open_session().unwrap();
        let borders = [Border { pos: 12, kind: BorderKind::Turn }];
        let target = Target { borders: &borders, ..Target::tokens(&prompt[..15]) };
        engine.sync_to(id, target, &mut Unattended).unwrap();
        for &token in &prompt[15..18] {
            engine.decode(&[(id, token)]).unwrap();
        }
        // The end of the prompt was kept, too.
        let slot = engine.session(id).unwrap().slot;
        engine.failed(&[(id, slot)], Error::EmptyPrompt);
        assert_eq!(engine.tokens(id), &prompt[..15]);
        assert!(engine.logits(id).unwrap().is_none());
        let report = engine.sync(id, &prompt, &mut Unattended).unwrap();
        assert_eq!((report.reuse, report.reused, report.evaluated), (Reuse::Live, 15, 5));
        let again = engine.logits(id).unwrap().unwrap().to_vec();
        // The slot that was broken has been given back: nothing is left that nobody holds.
        engine.reset(id).unwrap();
        engine.sync(id, &prompt, &mut Unattended).unwrap();
        assert!(engine.logits(id).unwrap().unwrap() == again);
        // Without an anchor nothing is left.
        engine.reset(id).unwrap();
        engine.anchors.slots = 0;
        engine.sync(id, &prompt[..9], &mut Unattended).unwrap();
        let slot = engine.session(id).unwrap().slot;
        engine.failed(&[(id, slot)], Error::EmptyPrompt);
        assert!(engine.tokens(id).is_empty());
        engine.sync(id, &prompt, &mut Unattended).unwrap();
        assert!(engine.logits(id).unwrap().unwrap() == again);
    }
}
