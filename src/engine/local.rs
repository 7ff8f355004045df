//! The engine on this machine: a model file, a backend, sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bytemuck::TransparentWrapper as _;

use super::slots::SlotBook;
use super::sync::{self, Restarts, Start};
use super::{Engine, Error, Info, SessionId, SnapshotId, SyncControl, SyncReport, lock, power};
use crate::cpu::{self, Logits, Step};
use crate::tokenizer::{TokenId, Tokenizer};

type Session = super::session::Session<cpu::Kv>;

/// A model that is open on this machine. [`super::Prepared::open`] makes it.
pub struct ModelEngine {
    pub(super) info: Info,
    pub(super) tokenizer: Tokenizer,
    pub(super) backend: cpu::Backend,
    pub(super) book: SlotBook,
    pub(super) slots: usize,
    /// Slots that snapshots may hold; the rest belong to sessions and the open step.
    pub(super) snapshot_slots: usize,
    pub(super) power: u8,
    pub(super) sessions: BTreeMap<SessionId, Session>,
    pub(super) next_session: u32,
    pub(super) next_snapshot: u64,
    /// Held until the engine is dropped.
    pub(super) _lock: Option<lock::InstanceLock>,
}

impl std::fmt::Debug for ModelEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelEngine").field("info", &self.info).finish_non_exhaustive()
    }
}

/// A step that ended early because its caller asked for it.
enum Outcome {
    Done,
    Cancelled,
}

impl ModelEngine {
    fn session(&self, id: SessionId) -> Result<&Session, Error> {
        self.sessions.get(&id).ok_or(Error::NoSession(id.0))
    }

    /// Everything that can be refused before a state changes.
    fn check(&self, held: usize, new: &[TokenId]) -> Result<(), Error> {
        let needed = held + new.len();
        if needed > self.info.ctx_tokens {
            return Err(Error::ContextFull { needed, ctx: self.info.ctx_tokens });
        }
        match new.iter().position(|id| id.index() >= self.info.vocab) {
            Some(i) => Err(Error::BadToken { id: new[i].0, at: held + i, vocab: self.info.vocab }),
            None => Ok(()),
        }
    }

    /// Evaluates `tokens` behind the session's last one and commits them.
    ///
    /// A chunk of a prompt is written to another slot than it reads, so that abandoning it costs
    /// nothing. A single token is evaluated in place unless somebody else holds the slot.
    fn step(
        &mut self,
        id: SessionId,
        tokens: &[TokenId],
        logits: Logits,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<Outcome, Error> {
        let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
        let source = session.slot;
        let in_place = tokens.len() == 1 && self.book.is_exclusive(source);
        let target = if in_place {
            source
        } else {
            self.book.acquire().ok_or(Error::NoSlot { slots: self.slots })?
        };
        let step = Step {
            tokens: TokenId::peel_slice(tokens),
            pos: session.tokens().len(),
            source,
            target,
            logits,
            cancel: cancelled,
            tap: None,
        };
        let result = self.backend.forward(&mut session.kv, &step);
        match result {
            Ok(()) => {
                let row = (logits == Logits::Last).then(|| self.backend.logits());
                session.commit(&mut self.book, target, tokens, row);
                Ok(Outcome::Done)
            }
            Err(error) => {
                if in_place {
                    // The state is half written: nothing of the sequence can be continued.
                    session.clear(&mut self.book);
                    self.backend.reset_slot(source)?;
                } else {
                    self.book.release(target);
                }
                if matches!(error, cpu::Error::Cancelled { .. }) {
                    return Ok(Outcome::Cancelled);
                }
                Err(error.into())
            }
        }
    }

    /// Sleeps as `--power` asks after work that began at `start`.
    fn rest(&self, start: Instant) {
        let rest = power::rest_after(start.elapsed(), self.power);
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
    }

    /// Distinct slots that snapshots hold.
    fn slots_of_snapshots(&self) -> BTreeSet<cpu::SlotId> {
        self.sessions.values().flat_map(Session::snapshot_slots).collect()
    }
}

impl Engine for ModelEngine {
    fn info(&self) -> &Info {
        &self.info
    }

    fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    fn open_session(&mut self) -> Result<SessionId, Error> {
        // One slot stays free for the step that is open.
        if self.sessions.len() + self.snapshot_slots + 1 >= self.slots {
            return Err(Error::NoSlot { slots: self.slots });
        }
        let slot = self.book.acquire().ok_or(Error::NoSlot { slots: self.slots })?;
        self.backend.reset_slot(slot)?;
        let id = SessionId(self.next_session);
        self.next_session += 1;
        self.sessions.insert(id, Session::new(id, self.backend.new_kv(), slot));
        Ok(id)
    }

    fn close_session(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.remove(&id) {
            session.close(&mut self.book);
        }
    }

    fn sync(
        &mut self,
        id: SessionId,
        prompt: &[TokenId],
        control: &mut dyn SyncControl,
    ) -> Result<SyncReport, Error> {
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        self.check(0, prompt)?;
        let session = self.session(id)?;
        let plan = sync::plan(
            &Restarts {
                live: session.tokens(),
                has_logits: session.logits().is_some(),
                snapshots: &session.restarts(),
            },
            prompt,
        );
        match plan.start {
            Start::Live => {}
            Start::Snapshot(snapshot) => self.restore(id, snapshot)?,
            Start::Empty => self.reset(id)?,
        }
        let total = prompt.len() - plan.reused;
        let mut report = SyncReport {
            reuse: plan.start.reuse(),
            miss: plan.miss,
            reused: plan.reused,
            evaluated: 0,
            cancelled: false,
        };
        if total > 0 {
            control.progress(0, total);
        }
        for end in sync::cuts(plan.reused, prompt.len(), self.info.chunk_tokens) {
            let begin = Instant::now();
            let start = plan.reused + report.evaluated;
            let logits = if end == prompt.len() { Logits::Last } else { Logits::None };
            let outcome = self.step(id, &prompt[start..end], logits, &|| control.cancelled())?;
            if let Outcome::Cancelled = outcome {
                report.cancelled = true;
                break;
            }
            report.evaluated = end - plan.reused;
            control.progress(report.evaluated, total);
            if end < prompt.len() && control.cancelled() {
                report.cancelled = true;
                break;
            }
            self.rest(begin);
        }
        Ok(report)
    }

    fn decode(&mut self, steps: &[(SessionId, TokenId)]) -> Result<(), Error> {
        let mut seen = BTreeSet::new();
        for &(id, token) in steps {
            let session = self.session(id)?;
            assert!(seen.insert(id), "session {} appears twice in one step", id.0);
            if session.tokens().is_empty() {
                return Err(Error::NoState(id.0));
            }
            self.check(session.tokens().len(), &[token])?;
        }
        let begin = Instant::now();
        for &(id, token) in steps {
            self.step(id, &[token], Logits::Last, &|| false)?;
        }
        self.rest(begin);
        Ok(())
    }

    fn logits(&self, id: SessionId) -> Option<&[f32]> {
        self.sessions.get(&id)?.logits()
    }

    fn tokens(&self, id: SessionId) -> &[TokenId] {
        self.sessions.get(&id).map_or(&[], Session::tokens)
    }

    fn snapshot(&mut self, id: SessionId) -> Result<SnapshotId, Error> {
        let slot = self.session(id)?.slot;
        let mut held = self.slots_of_snapshots();
        held.insert(slot);
        if held.len() > self.snapshot_slots {
            return Err(Error::NoSlot { slots: self.slots });
        }
        let snapshot = SnapshotId(self.next_snapshot);
        let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
        session.remember(&mut self.book, snapshot)?;
        self.next_snapshot += 1;
        Ok(snapshot)
    }

    fn restore(&mut self, id: SessionId, snapshot: SnapshotId) -> Result<(), Error> {
        let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
        session.restore(&mut self.book, snapshot)
    }

    fn release(&mut self, id: SessionId, snapshot: SnapshotId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.forget(&mut self.book, snapshot);
        }
    }

    fn reset(&mut self, id: SessionId) -> Result<(), Error> {
        let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
        if !session.tokens().is_empty() {
            session.clear(&mut self.book);
            self.backend.reset_slot(session.slot)?;
        }
        Ok(())
    }

    fn set_power(&mut self, percent: u8) {
        self.power = percent.clamp(1, 100);
    }
}
