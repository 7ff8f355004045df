//! Prompts on their way: where the next chunk ends, which slice of it runs, what is kept behind it.
//!
//! Between two slices anything may happen to other sessions. Nothing of that shows in the result: cuts depend on the
//! prompt and its borders, a chunk writes a slot that nobody reads, and K/V rows behind the committed length mean
//! nothing. So giving up in the middle costs the chunk that was open, and nothing else; nor does a lost device, whose
//! open chunk begins again once it is back (`recover`).

use std::time::{Duration, Instant};

use bytemuck::TransparentWrapper as _;

use super::backend::{Chunk, Outcome, Wanted};
use super::report::{Advance, Border, BorderKind, Foresight, Slice, Stage, SyncReport, Target};
use super::session::{Keep, Session};
use super::sync::{self, Restarts, Start, SyncPlan};
use super::{BackendKind, Engine as _, Error, ModelEngine, SessionId, anchors};
use crate::model::SlotId;
use crate::tokenizer::TokenId;

/// A prompt that a session is being brought to.
#[derive(Debug)]
pub(super) struct Job {
    /// All tokens of the session in the end.
    tokens: Vec<TokenId>,
    borders: Vec<Border>,
    report: SyncReport,
    open: Option<OpenChunk>,
}

/// A chunk that was begun.
#[derive(Debug, Clone, Copy)]
struct OpenChunk {
    /// Position behind its last token.
    end: usize,
    target: SlotId,
}

impl ModelEngine {
    /// Decides where to start.
    fn plan(&self, id: SessionId, target: &Target<'_>) -> Result<(SyncPlan, SyncReport), Error> {
        if target.tokens.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        self.check(0, target.tokens)?;
        let session = self.session(id)?;
        let live = session.tokens().len();
        let (has_logits, kept) = (session.logits.is_some(), session.kept());
        let restarts = Restarts { live: session.tokens(), has_logits, kept: &kept };
        let mut plan = sync::plan(&self.tokenizer, &restarts, target);
        if plan.tokens.len() > self.info.ctx_tokens {
            // The same text in the session's own tokens is longer than in the prompt's.
            let exactly = Target { by_text: false, ..*target };
            plan = sync::plan(&self.tokenizer, &restarts, &exactly);
        }
        let report = SyncReport {
            reuse: plan.reuse,
            miss: plan.miss,
            live,
            common: plan.common,
            prompt: plan.tokens.len(),
            reused: plan.reused,
            evaluated: 0,
            cancelled: false,
        };
        Ok((plan, report))
    }

    /// What [`Self::begin`] would do.
    pub(super) fn foretell(&self, id: SessionId, target: &Target<'_>) -> Result<Foresight, Error> {
        let (plan, report) = self.plan(id, target)?;
        Ok(Foresight { report, tokens: plan.tokens })
    }

    /// Decides where to start and goes back there.
    pub(super) fn begin(&mut self, id: SessionId, target: Target<'_>) -> Result<SyncReport, Error> {
        let (plan, report) = self.plan(id, &target)?;
        self.give_up(id);
        match plan.start {
            Start::Live => {}
            Start::Kept(index) => {
                let now = self.tick();
                let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
                session.go_back(&mut self.book, index, now);
            }
            Start::Empty => self.reset(id)?,
        }
        if report.total() > 0 {
            let job = Job { tokens: plan.tokens, borders: plan.borders, report, open: None };
            self.session_mut(id)?.job = Some(job);
        }
        Ok(report)
    }

    /// The next slice of a session's prompt.
    pub(super) fn advance(&mut self, id: SessionId, slice: &Slice<'_>) -> Result<Advance, Error> {
        let others = self.sessions.values().filter(|session| session.id != id);
        if let Some(other) = others.into_iter().find(|session| session.is_mid_chunk()) {
            return Err(Error::ChunkOpen { session: id.0, open: other.id.0 });
        }
        let session = self.session_mut(id)?;
        let mut job = session.job.take().ok_or(Error::NoPrompt(id.0))?;
        let stage = self.twice(|engine| engine.slice(id, &mut job, slice))?;
        if stage == Stage::Cancelled {
            job.report.cancelled = true;
            self.drop_chunk(&mut job);
        }
        let report = job.report;
        if matches!(stage, Stage::Open | Stage::Between) {
            self.session_mut(id)?.job = Some(job);
        }
        Ok(Advance { stage, report })
    }

    /// Ends a session's prompt, if one is under way.
    pub(super) fn give_up(&mut self, id: SessionId) {
        let job = self.sessions.get_mut(&id).and_then(|session| session.job.take());
        if let Some(mut job) = job {
            self.drop_chunk(&mut job);
        }
    }

    fn drop_chunk(&mut self, job: &mut Job) {
        if let Some(open) = job.open.take() {
            self.backend.abandon();
            self.release_target(open.target);
        }
    }

    /// Drops all chunks that were open on a device that is lost: their prompts go on with them from their first layer.
    pub(super) fn drop_chunks(&mut self) {
        let jobs = self.sessions.values_mut().filter_map(|session| session.job.as_mut());
        let open: Vec<OpenChunk> = jobs.filter_map(|job| job.open.take()).collect();
        for chunk in open {
            self.release_target(chunk.target);
        }
    }

    /// Lets go of the slot that a chunk was to be written to, unless that is a session's own.
    fn release_target(&mut self, target: SlotId) {
        if self.sessions.values().all(|session| session.slot != target) {
            self.book.release(target);
        }
    }

    fn slice(&mut self, id: SessionId, job: &mut Job, slice: &Slice<'_>) -> Result<Stage, Error> {
        if (slice.cancelled)() {
            return Ok(Stage::Cancelled);
        }
        let begin = Instant::now();
        let is_new = job.open.is_none();
        let open = match job.open {
            Some(open) => open,
            None => self.next_chunk(id, job, slice.limit)?,
        };
        job.open = Some(open);
        let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
        let pos = session.tokens().len();
        let new = &job.tokens[pos..open.end];
        let is_last = open.end == job.tokens.len();
        let chunk = Chunk {
            tokens: TokenId::peel_slice(new),
            pos,
            source: session.slot,
            target: open.target,
            logits: is_last,
            wanted: Wanted { ask: session.ask(), rules: &session.rules },
            cancelled: slice.cancelled,
        };
        let begun = if is_new { self.backend.begin(&session.kv, &chunk) } else { Ok(()) };
        let outcome =
            begun.and_then(|()| self.backend.advance(&mut session.kv, &chunk, slice.limit));
        let held = match outcome {
            Ok(Outcome::Done(held)) => held,
            Ok(Outcome::Cancelled) => return Ok(Stage::Cancelled),
            Ok(Outcome::Open) => {
                self.rest(begin);
                return Ok(if (slice.cancelled)() { Stage::Cancelled } else { Stage::Open });
            }
            Err(error) => {
                self.backend.abandon();
                job.open = None;
                return Err(self.failed(&[(id, open.target)], error));
            }
        };
        session.commit(&mut self.book, open.target, new, held);
        let evaluated = new.len();
        job.open = None;
        job.report.evaluated = open.end - job.report.reused;
        self.clock_tokens(evaluated, begin.elapsed());
        self.keep_at(id, job, open.end)?;
        if is_last {
            self.rest(begin);
            return Ok(Stage::Done);
        }
        if (slice.cancelled)() {
            return Ok(Stage::Cancelled);
        }
        self.rest(begin);
        Ok(Stage::Between)
    }

    /// Where the next chunk ends and which slot it is written to.
    fn next_chunk(
        &mut self,
        id: SessionId,
        job: &Job,
        limit: Duration,
    ) -> Result<OpenChunk, Error> {
        let pos = self.session(id)?.tokens().len();
        let cut = sync::next_cut(pos, job.tokens.len(), self.info.chunk_tokens, &job.borders);
        let share = self.backend.share(cut - pos, limit, self.token_seconds);
        let target = self.target(id, share == 1)?;
        Ok(OpenChunk { end: pos + share, target })
    }

    /// Remembers how fast the CPU is, by steps that are long enough to tell.
    fn clock_tokens(&mut self, tokens: usize, time: Duration) {
        if self.info.backend == BackendKind::Cpu && tokens >= 16 {
            self.token_seconds = time.as_secs_f64() / tokens as f64;
        }
    }

    /// Keeps the state at a border, and at the end of a prompt whose last border is far away or that has none.
    fn keep_at(&mut self, id: SessionId, job: &Job, pos: usize) -> Result<(), Error> {
        let border = job.borders.iter().find(|border| border.pos == pos).map(|border| border.kind);
        let shared = match border {
            Some(BorderKind::Shared) => true,
            Some(BorderKind::Turn) => false,
            Some(BorderKind::Stop) | None if pos < job.tokens.len() => return Ok(()),
            Some(BorderKind::Stop) | None => {
                let all = self.session(id)?.anchor_positions();
                let is_near = |&&at: &&usize| pos - at < self.anchors.spacing;
                if all.iter().flatten().any(|at| is_near(&at)) {
                    return Ok(());
                }
                false
            }
        };
        self.take_anchor(id, shared)
    }

    /// Pins the session's present state, and lets others go for it where the budget asks for that.
    fn take_anchor(&mut self, id: SessionId, shared: bool) -> Result<(), Error> {
        if self.anchors.slots == 0 {
            return Ok(());
        }
        let now = self.tick();
        let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
        let pos = session.tokens().len();
        session.drop_anchor(&mut self.book, pos);
        if !shared {
            let [turns, ends] = session.anchor_positions();
            if let Some(at) = anchors::crowded(&turns, &ends, pos, self.anchors.spacing) {
                session.drop_anchor(&mut self.book, at);
            }
        }
        while self.sessions.values().flat_map(Session::anchors).count() >= self.anchors.slots {
            let all = self.sessions.values().flat_map(Session::anchors);
            let Some((owner, at)) = anchors::first_out(all) else { break };
            let session = self.sessions.get_mut(&owner).ok_or(Error::NoSession(owner.0))?;
            session.drop_anchor(&mut self.book, at);
        }
        let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
        session.anchor(&mut self.book, shared, now);
        Ok(())
    }

    /// Distinct slots that snapshots hold.
    pub(super) fn slots_of_snapshots(&self) -> std::collections::BTreeSet<SlotId> {
        let all = self.sessions.values().flat_map(Session::kept_slots);
        all.filter(|(_, keep)| matches!(keep, Keep::Snapshot(_))).map(|(slot, _)| slot).collect()
    }

    /// The next moment of the order in which anchors are used.
    fn tick(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }
}

impl Session {
    /// Whether a chunk of its prompt is open.
    pub(super) fn is_mid_chunk(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.open.is_some())
    }
}
