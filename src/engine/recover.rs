//! After a lost device: it is opened and loaded again, and every session's committed tokens are evaluated anew, into
//! the slots and up to the remembered positions that the book knows. Then the step that found out runs once more.
//!
//! What a session committed is what it keeps, whatever the device lost; a step that failed has committed nothing, nor
//! has a chunk of a prompt that was open: it begins again, and its caller does not notice. A device that is lost again, or does not come back, is an error for the caller; the next call tries again.

use std::time::{Duration, Instant};

use bytemuck::TransparentWrapper as _;

use super::backend::{Backend, Chunk, Held, Outcome, Wanted};
use super::{Error, LoadReport, ModelEngine, SessionId, sync};
use crate::model::SlotId;
use crate::tokenizer::TokenId;
use crate::util::units::grouped;

impl ModelEngine {
    /// How the weights were loaded onto a device; `None` where none computes.
    pub fn load_report(&self) -> Option<LoadReport> {
        match &self.backend {
            Backend::Cpu(_) => None,
            Backend::Gpu(gpu) => gpu.load_report(),
        }
    }

    /// Bytes a second of plain copying from the page cache to the device, which loading is measured against. Takes a
    /// while. `None` where no device computes or the model is no file.
    ///
    /// # Errors
    /// When the file or the device fails.
    pub fn copy_rate(&mut self) -> Result<Option<f64>, Error> {
        match &mut self.backend {
            Backend::Cpu(_) => Ok(None),
            Backend::Gpu(gpu) => gpu.copy_rate(),
        }
    }

    /// [`ModelEngine::rows_once`], and again should the device be lost.
    pub(super) fn rows(&mut self, steps: &[(SessionId, TokenId)]) -> Result<(), Error> {
        self.twice(|engine| engine.rows_once(steps))
    }

    /// Makes a slot that of an empty sequence.
    pub(super) fn reset_slot(&mut self, slot: SlotId) -> Result<(), Error> {
        self.twice(|engine| engine.backend.reset_slot(slot))
    }

    /// Brings a session's logits to the host.
    pub(super) fn fetch(&mut self, id: SessionId) -> Result<(), Error> {
        self.twice(|engine| {
            let session = engine.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
            engine.backend.fetch(&session.kv, &mut session.logits)
        })
    }

    /// Makes the device seem lost after so many more submissions, and again after so many after that. For tests.
    #[doc(hidden)]
    pub fn pretend_lost_after(&mut self, submissions: &[u64]) {
        if let Backend::Gpu(gpu) = &mut self.backend {
            gpu.pretend_lost_after(submissions);
        }
    }

    /// Does something that may find the device lost, and again once it is back.
    pub(super) fn twice<T>(
        &mut self,
        mut work: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match work(self) {
            Err(error) if error.is_lost() => {
                self.recover(&error)?;
                work(self)
            }
            other => other,
        }
    }

    fn recover(&mut self, cause: &Error) -> Result<(), Error> {
        let begin = Instant::now();
        let why = cause.to_string();
        let why = why.lines().next().unwrap_or_default();
        self.notice.away(&format!("{why}; opening it again"));
        let failed = |error| Error::Recovery(Box::new(error));
        // They hold the slots that tokens are evaluated into.
        self.drop_chunks();
        self.backend.rebuild().map_err(failed)?;
        let mut evaluated = 0;
        for id in self.sessions.keys().copied().collect::<Vec<_>>() {
            match self.replay(id) {
                Ok(tokens) => evaluated += tokens,
                Err(error) => {
                    // What is not restored must not be used.
                    self.backend.forsake();
                    return Err(failed(error));
                }
            }
        }
        let (tokens, seconds) = (grouped(evaluated as u64), begin.elapsed().as_secs_f64());
        self.notice.back(&format!("the device is back: {tokens} tokens again in {seconds:.1} s"));
        Ok(())
    }

    /// Evaluates a session's tokens into its slots; how many that took.
    fn replay(&mut self, id: SessionId) -> Result<usize, Error> {
        let kv = self.backend.new_kv()?;
        let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
        session.kv = kv;
        let (stations, slot) = (session.stations(), session.slot);
        if stations.is_empty() {
            self.backend.reset_slot(slot)?;
            return Ok(0);
        }
        let spare = self.book.acquire().ok_or(Error::NoSlot { slots: self.slots })?;
        let mut done: Vec<(usize, SlotId)> = Vec::new();
        let mut evaluated = 0;
        let result = stations.iter().try_for_each(|&station| {
            // Positions are evaluated from the last one before them.
            let base = done.iter().rev().find(|(pos, _)| *pos < station.0).copied();
            evaluated += station.0 - base.map_or(0, |(pos, _)| pos);
            done.push(station);
            self.replay_to(id, base, station, spare)
        });
        self.book.release(spare);
        result.map(|()| evaluated)
    }

    /// Evaluates the tokens from `base` to a position, into the slot that holds it. Chunks go from one slot to the
    /// other, `spare` being that other, so that the last one ends where it should.
    fn replay_to(
        &mut self,
        id: SessionId,
        base: Option<(usize, SlotId)>,
        (end, slot): (usize, SlotId),
        spare: SlotId,
    ) -> Result<(), Error> {
        let first = base.map_or(0, |(pos, _)| pos);
        let next = |&pos: &usize| {
            (pos < end).then(|| sync::next_cut(pos, end, self.info.chunk_tokens, &[]))
        };
        let ends: Vec<usize> = std::iter::successors(Some(first), next).skip(1).collect();
        let into = |left: usize| if left.is_multiple_of(2) { slot } else { spare };
        let mut source = if let Some((_, slot)) = base {
            slot
        } else {
            let start = into(ends.len());
            self.backend.reset_slot(start)?;
            start
        };
        let mut pos = first;
        for (i, &chunk_end) in ends.iter().enumerate() {
            let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
            let target = into(ends.len() - 1 - i);
            let is_live = chunk_end == session.tokens().len() && target == session.slot;
            let tokens = session.tokens()[pos..chunk_end].to_vec();
            let wants_logits = is_live && matches!(session.logits, Held::Device { .. });
            let chunk = Chunk {
                tokens: TokenId::peel_slice(&tokens),
                pos,
                source,
                target,
                logits: wants_logits,
                wanted: Wanted { ask: session.ask(), rules: &session.rules },
                cancelled: &|| false,
            };
            self.backend.begin(&session.kv, &chunk)?;
            let held = loop {
                match self.backend.advance(&mut session.kv, &chunk, Duration::MAX)? {
                    Outcome::Open => {}
                    Outcome::Done(held) => break held,
                    Outcome::Cancelled => unreachable!("nobody cancels this"),
                }
            };
            if wants_logits {
                session.logits = held;
            }
            (pos, source) = (chunk_end, target);
        }
        Ok(())
    }
}
