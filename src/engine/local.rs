//! The engine on this machine: a model file, a backend, sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::backend::{Backend, Held};
use super::report::{Advance, Foresight, Slice, SyncReport, Target};
use super::sample::{DrawRules, NonFinite, Sampler, SamplerParams};
use super::session::Session;
use super::slots::SlotBook;
use super::state::Identity;
use super::steps::Rules;
use super::{Draws, Engine, Error, Info, Profile, SessionId, SnapshotId, lock};
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
    /// What anchors may take.
    pub(super) anchors: AnchorSlots,
    /// Counts uses of anchors, for their order.
    pub(super) uses: u64,
    /// Most sessions of a step.
    pub(super) step_sessions: usize,
    pub(super) power: u8,
    /// Hears of a lost device.
    pub(super) notice: Notice,
    /// Seconds a prompt token takes on the CPU, as last measured; 0 before that.
    pub(super) token_seconds: f64,
    pub(super) sessions: BTreeMap<SessionId, Session>,
    pub(super) next_session: u32,
    pub(super) next_snapshot: u64,
    /// Versions of rules given out.
    pub(super) rule_versions: u64,
    pub(super) draws: Draws,
    /// Held until the engine is dropped.
    pub(super) _lock: Option<lock::InstanceLock>,
}

/// Slots for anchors of all sessions, and how close those of one may stand.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnchorSlots {
    pub(super) slots: usize,
    /// In tokens.
    pub(super) spacing: usize,
}

impl std::fmt::Debug for ModelEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelEngine").field("info", &self.info).finish_non_exhaustive()
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
        if self.sessions.len() + self.snapshot_slots + self.anchors.slots + 1 >= self.slots {
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
        self.give_up(id);
        if let Some(session) = self.sessions.remove(&id) {
            session.close(&mut self.book);
        }
    }

    fn begin_sync(&mut self, id: SessionId, target: Target<'_>) -> Result<SyncReport, Error> {
        self.begin(id, target)
    }

    fn foresee(&self, id: SessionId, target: Target<'_>) -> Result<Foresight, Error> {
        self.foretell(id, &target)
    }

    fn advance_sync(&mut self, id: SessionId, slice: &Slice<'_>) -> Result<Advance, Error> {
        self.advance(id, slice)
    }

    fn end_sync(&mut self, id: SessionId) {
        self.give_up(id);
    }

    fn decode(&mut self, steps: &[(SessionId, TokenId)]) -> Result<(), Error> {
        let mut seen = BTreeSet::new();
        for &(id, token) in steps {
            let session = self.session(id)?;
            assert!(seen.insert(id), "session {} appears twice in one step", id.0);
            if session.job.is_some() {
                return Err(Error::Unfinished(id.0));
            }
            if session.tokens().is_empty() {
                return Err(Error::NoState(id.0));
            }
            self.check(session.tokens().len(), &[token])?;
        }
        let begin = Instant::now();
        let most = self.backend.batch().min(self.step_sessions).max(1);
        for group in steps.chunks(most) {
            self.rows(group)?;
        }
        self.rest(begin);
        Ok(())
    }

    fn logits(&mut self, id: SessionId) -> Result<Option<&[f32]>, Error> {
        match self.sessions.get(&id) {
            Some(session) if session.job.is_none() => {}
            _ => return Ok(None),
        }
        self.fetch(id)?;
        Ok(self.session(id)?.logits.row())
    }

    fn sample(&mut self, id: SessionId, sampler: &mut Sampler) -> Result<TokenId, Error> {
        let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
        if session.job.is_some() {
            return Err(Error::Unfinished(id.0));
        }
        let rules = &session.rules;
        match &session.logits {
            Held::Nothing => return Err(Error::NoState(id.0)),
            Held::Host(_) => self.draws.whole += 1,
            Held::Device { short, rules: version } => {
                let is_present = *version == rules.version();
                let drawn = is_present.then(|| sampler.sample_short(short, rules.rules()));
                if let Some(token) = drawn.flatten() {
                    self.draws.short += 1;
                    return Ok(token);
                }
                self.draws.fetched += 1;
            }
        }
        self.fetch(id)?;
        let session = self.session(id)?;
        let rules = &session.rules;
        let row = session.logits.row().ok_or(Error::NoState(id.0))?;
        let allowed = rules.allowed().unwrap_or(self.tokenizer.drawable());
        sampler.sample_by(row, allowed, rules.rules()).map_err(|NonFinite { rows }| {
            Error::NoFiniteLogit { rows, position: session.tokens().len() }
        })
    }

    fn expect_draws(&mut self, id: SessionId, params: SamplerParams) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.draws = params;
        }
    }

    fn set_rules(&mut self, id: SessionId, rules: DrawRules) -> Result<(), Error> {
        let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
        if *session.rules.rules() == rules {
            return Ok(());
        }
        self.rule_versions += 1;
        let rules = Rules::new(rules, self.tokenizer.drawable(), self.rule_versions);
        session.rules = rules.ok_or(Error::NothingAllowed(id.0))?;
        Ok(())
    }

    fn draws(&self) -> Draws {
        self.draws
    }

    fn tokens(&self, id: SessionId) -> &[TokenId] {
        self.sessions.get(&id).map_or(&[], Session::tokens)
    }

    fn restarts(&self, id: SessionId) -> usize {
        self.sessions.get(&id).map_or(0, |session| session.kept().len())
    }

    fn snapshot(&mut self, id: SessionId) -> Result<SnapshotId, Error> {
        let session = self.session(id)?;
        if session.job.is_some() {
            return Err(Error::Unfinished(id.0));
        }
        let slot = session.slot;
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
        self.give_up(id);
        let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
        session.restore(&mut self.book, snapshot)
    }

    fn release(&mut self, id: SessionId, snapshot: SnapshotId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.forget(&mut self.book, snapshot);
        }
    }

    fn reset(&mut self, id: SessionId) -> Result<(), Error> {
        self.give_up(id);
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
