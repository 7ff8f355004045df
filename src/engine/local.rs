//! The engine on this machine: a model file, a backend, sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bytemuck::TransparentWrapper as _;

use super::backend::{Backend, Chunk, Held, Outcome, Row};
use super::gpu::Wanted;
use super::sample::{NonFinite, Sampler, SamplerParams};
use super::session::Session;
use super::slots::SlotBook;
use super::state::Identity;
use super::sync::{self, Restarts, Start};
use super::{
    Engine, Error, Info, Profile, SessionId, SnapshotId, SyncControl, SyncReport, lock, power,
};
use crate::model::SlotId;
use crate::tokenizer::{TokenId, Tokenizer};
use crate::util::notice::Notice;

/// A model that is open on this machine. [`super::Prepared::open`] makes it.
pub struct ModelEngine {
    pub(super) info: Info,
    pub(super) tokenizer: Tokenizer,
    pub(super) backend: Backend,
    pub(super) identity: Identity,
    pub(super) book: SlotBook,
    pub(super) slots: usize,
    /// Slots that snapshots may hold; the rest belong to sessions and the open step.
    pub(super) snapshot_slots: usize,
    pub(super) power: u8,
    /// Hears of a lost device.
    pub(super) notice: Notice,
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

/// How a step ended.
pub(super) enum Ended {
    Done,
    /// Early, because its caller asked for it.
    Cancelled,
}

impl ModelEngine {
    pub(super) fn session(&self, id: SessionId) -> Result<&Session, Error> {
        self.sessions.get(&id).ok_or(Error::NoSession(id.0))
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

    /// Evaluates `tokens` behind the session's last one and commits them.
    ///
    /// A chunk of a prompt is written to another slot than it reads, so that abandoning it costs
    /// nothing. A single token is evaluated in place unless somebody else holds the slot.
    pub(super) fn step_once(
        &mut self,
        id: SessionId,
        tokens: &[TokenId],
        logits: bool,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<Ended, Error> {
        let target = self.target(id, tokens.len() == 1)?;
        let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
        let chunk = Chunk {
            tokens: TokenId::peel_slice(tokens),
            pos: session.tokens().len(),
            source: session.slot,
            target,
            logits,
            cancelled,
        };
        match self.backend.chunk(&mut session.kv, &chunk) {
            Ok(Outcome::Done(held)) => {
                session.commit(&mut self.book, target, tokens, held);
                Ok(Ended::Done)
            }
            Ok(Outcome::Cancelled) => {
                self.book.release(target);
                Ok(Ended::Cancelled)
            }
            Err(error) => Err(self.failed(&[(id, target)], error)),
        }
    }

    /// The slot that a step of the session writes: its own when nobody else holds it and the step is a
    /// single token, else a free one.
    fn target(&mut self, id: SessionId, single: bool) -> Result<SlotId, Error> {
        let source = self.session(id)?.slot;
        if single && self.book.is_exclusive(source) {
            return Ok(source);
        }
        self.book.acquire().ok_or(Error::NoSlot { slots: self.slots })
    }

    /// Cleans up behind steps that failed. A state that was being written in place is half written:
    /// nothing of its sequence can be continued.
    fn failed(&mut self, steps: &[(SessionId, SlotId)], error: Error) -> Error {
        for &(id, target) in steps {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            if session.slot != target {
                self.book.release(target);
            } else if !error.is_lost() {
                // After a loss the tokens are evaluated again, so nothing of them is in doubt.
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
                Err(error) => return Err(self.failed(&targets, error)),
            }
        }
        let mut sessions: BTreeMap<_, _> =
            self.sessions.iter_mut().map(|(id, session)| (*id, session)).collect();
        let mut rows: Vec<_> = steps
            .iter()
            .zip(&targets)
            .map(|(&(id, token), &(_, target))| {
                let session = sessions.remove(&id).expect("every step was checked");
                Row {
                    token: token.0,
                    pos: session.tokens().len(),
                    source: session.slot,
                    target,
                    wanted: session.wanted,
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
    fn rest(&self, start: Instant) {
        let rest = power::rest_after(start.elapsed(), self.power);
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
    }

    /// Distinct slots that snapshots hold.
    fn slots_of_snapshots(&self) -> BTreeSet<SlotId> {
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
        self.reset_slot(slot)?;
        let kv = match self.backend.new_kv() {
            Ok(kv) => kv,
            Err(error) => {
                self.book.release(slot);
                return Err(error);
            }
        };
        let id = SessionId(self.next_session);
        self.next_session += 1;
        self.sessions.insert(id, Session::new(id, kv, slot));
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
                has_logits: session.logits.is_some(),
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
            let last = end == prompt.len();
            let ended = self.step(id, &prompt[start..end], last, &|| control.cancelled())?;
            if let Ended::Cancelled = ended {
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
        for group in steps.chunks(self.backend.batch()) {
            self.rows(group)?;
        }
        self.rest(begin);
        Ok(())
    }

    fn logits(&mut self, id: SessionId) -> Result<Option<&[f32]>, Error> {
        if !self.sessions.contains_key(&id) {
            return Ok(None);
        }
        self.fetch(id)?;
        Ok(self.session(id)?.logits.row())
    }

    fn sample(&mut self, id: SessionId, sampler: &mut Sampler) -> Result<TokenId, Error> {
        let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
        if let Held::Device(short) = &session.logits
            && let Some(token) = sampler.sample_short(short)
        {
            return Ok(token);
        }
        self.fetch(id)?;
        let session = self.session(id)?;
        let row = session.logits.row().ok_or(Error::NoState(id.0))?;
        sampler.sample(row, self.tokenizer.drawable()).map_err(|NonFinite { rows }| {
            Error::NoFiniteLogit { rows, position: session.tokens().len() }
        })
    }

    fn expect_draws(&mut self, id: SessionId, params: SamplerParams) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.wanted = Wanted::for_draws(params);
        }
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
        self.logits(id)?;
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
            let slot = session.slot;
            self.reset_slot(slot)?;
        }
        Ok(())
    }

    fn profile(&mut self) -> Option<Profile> {
        self.backend.profile()
    }

    fn set_power(&mut self, percent: u8) {
        self.power = percent.clamp(1, 100);
    }
}
