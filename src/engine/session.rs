//! The book-keeping of one session: its tokens, where its state stands, what it remembers.

use super::backend::{Held, Kv};
use super::prefill::Job;
use super::sample::{Sampler, SamplerParams};
use super::slots::SlotBook;
use super::steps::Rules;
use super::sync::Kept;
use super::{Error, SessionId, SnapshotId, anchors};
use crate::model::SlotId;
use crate::tokenizer::TokenId;

/// A position whose state was kept.
#[derive(Debug)]
struct Restart {
    pos: usize,
    slot: SlotId,
    /// What was kept it for.
    keep: Keep,
    /// Snapshots have some.
    logits: Option<Vec<f32>>,
    /// When it was taken or used last.
    used: u64,
}

/// Who asked for a state to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// A caller, who names it.
    Snapshot(SnapshotId),
    /// Nobody: a border of a prompt.
    Anchor {
        /// The end of what new conversations share.
        shared: bool,
    },
}

/// One sequence. The K/V rows at and beyond `tokens.len()` mean nothing; the slot holds the state
/// after the last token, or zeros when there is none.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) kv: Kv,
    pub(super) slot: SlotId,
    /// How tokens will be drawn.
    pub(super) draws: SamplerParams,
    /// What draws see besides the logits.
    pub(super) rules: Rules,
    /// The prompt that it is being brought to.
    pub(super) job: Option<Job>,
    tokens: Vec<TokenId>,
    pub(super) logits: Held,
    restarts: Vec<Restart>,
}

impl Session {
    pub(super) fn new(id: SessionId, kv: Kv, slot: SlotId) -> Self {
        Self {
            id,
            kv,
            slot,
            draws: SamplerParams { temperature: 0.0, ..SamplerParams::default() },
            rules: Rules::default(),
            job: None,
            tokens: Vec::new(),
            logits: Held::Nothing,
            restarts: Vec::new(),
        }
    }

    pub(super) fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Which logits a step is to bring back.
    pub(super) fn ask(&self) -> super::sample::Ask {
        Sampler::ask(self.draws, self.rules.rules())
    }

    /// Positions it can go back to, in order of their taking.
    pub(super) fn kept(&self) -> Vec<Kept> {
        let kept = self.restarts.iter().map(|r| Kept {
            pos: r.pos,
            has_logits: r.logits.is_some(),
            is_snapshot: matches!(r.keep, Keep::Snapshot(_)),
        });
        kept.collect()
    }

    /// Slots that its kept positions hold, and what for.
    pub(super) fn kept_slots(&self) -> impl Iterator<Item = (SlotId, Keep)> {
        self.restarts.iter().map(|r| (r.slot, r.keep))
    }

    /// Its anchors, named by session and position.
    pub(super) fn anchors(&self) -> impl Iterator<Item = anchors::Anchor<(SessionId, usize)>> {
        self.restarts.iter().filter_map(|r| match r.keep {
            Keep::Anchor { shared } => {
                Some(anchors::Anchor { id: (self.id, r.pos), shared, used: r.used })
            }
            Keep::Snapshot(_) => None,
        })
    }

    /// Positions whose state some slot holds, the kept ones and the present one, in order; none of an empty session.
    pub(super) fn stations(&self) -> Vec<(usize, SlotId)> {
        let mut all: Vec<_> = self.restarts.iter().map(|r| (r.pos, r.slot)).collect();
        if !self.tokens.is_empty() {
            all.push((self.tokens.len(), self.slot));
        }
        all.sort_by_key(|&(pos, slot)| (pos, slot.0));
        all.dedup();
        all
    }

    /// Adopts the outcome of a step: `slot` is held by the session from now on, and `new` tokens are
    /// committed.
    pub(super) fn commit(
        &mut self,
        book: &mut SlotBook,
        slot: SlotId,
        new: &[TokenId],
        logits: Held,
    ) {
        if slot != self.slot {
            book.release(self.slot);
            self.slot = slot;
        }
        self.tokens.extend_from_slice(new);
        self.logits = logits;
    }

    /// Pins the present position for a caller. Its logits must be on the host.
    pub(super) fn remember(&mut self, book: &mut SlotBook, id: SnapshotId) -> Result<(), Error> {
        let logits = self.logits.row().ok_or(Error::NoState(self.id.0))?.to_vec();
        self.keep(book, Keep::Snapshot(id), Some(logits), 0);
        Ok(())
    }

    /// Pins the present position as an anchor.
    pub(super) fn anchor(&mut self, book: &mut SlotBook, shared: bool, now: u64) {
        self.keep(book, Keep::Anchor { shared }, None, now);
    }

    fn keep(&mut self, book: &mut SlotBook, keep: Keep, logits: Option<Vec<f32>>, used: u64) {
        book.pin(self.slot);
        self.restarts.push(Restart { pos: self.tokens.len(), slot: self.slot, keep, logits, used });
    }

    /// Positions of its turns and of its shared ends, ascending.
    pub(super) fn anchor_positions(&self) -> [Vec<usize>; 2] {
        [false, true].map(|shared| {
            let mut all: Vec<usize> =
                self.anchors().filter(|a| a.shared == shared).map(|a| a.id.1).collect();
            all.sort_unstable();
            all
        })
    }

    /// Returns to a snapshot, which stays.
    pub(super) fn restore(&mut self, book: &mut SlotBook, id: SnapshotId) -> Result<(), Error> {
        let missing = Error::NoSnapshot { session: self.id.0, snapshot: id.0 };
        let index = self.restarts.iter().position(|r| r.keep == Keep::Snapshot(id));
        self.go_back(book, index.ok_or(missing)?, 0);
        Ok(())
    }

    /// Returns to one of the kept positions, which stays. Those behind it go.
    pub(super) fn go_back(&mut self, book: &mut SlotBook, index: usize, now: u64) {
        let restart = &mut self.restarts[index];
        restart.used = now;
        let (pos, slot) = (restart.pos, restart.slot);
        self.logits = restart.logits.clone().map_or(Held::Nothing, Held::Host);
        book.pin(slot);
        book.release(self.slot);
        self.slot = slot;
        self.cut(book, pos);
    }

    /// Length, slot and logits of a snapshot.
    pub(super) fn remembered(&self, id: SnapshotId) -> Result<(usize, SlotId, &[f32]), Error> {
        let found = self.restarts.iter().find(|r| r.keep == Keep::Snapshot(id));
        let found = found.and_then(|r| Some((r.pos, r.slot, r.logits.as_deref()?)));
        found.ok_or(Error::NoSnapshot { session: self.id.0, snapshot: id.0 })
    }

    /// Returns to the last kept position after a step in place has failed. Whether there was one.
    pub(super) fn fall_back(&mut self, book: &mut SlotBook) -> bool {
        // A position that shares the broken slot was written over with it.
        let own = self.slot;
        let kept = self.restarts.iter().enumerate().filter(|(_, r)| r.slot != own);
        let Some((index, _)) = kept.max_by_key(|(_, r)| r.pos) else { return false };
        let used = self.restarts[index].used;
        self.go_back(book, index, used);
        true
    }

    /// Forgets a snapshot.
    pub(super) fn forget(&mut self, book: &mut SlotBook, id: SnapshotId) {
        self.drop_restarts(book, |r| r.keep == Keep::Snapshot(id));
    }

    /// Forgets the anchor at a position.
    pub(super) fn drop_anchor(&mut self, book: &mut SlotBook, pos: usize) {
        self.drop_restarts(book, |r| r.pos == pos && matches!(r.keep, Keep::Anchor { .. }));
    }

    /// Empties the session. Its slot stays held and is the caller's to clear.
    pub(super) fn clear(&mut self, book: &mut SlotBook) {
        self.logits = Held::Nothing;
        self.cut(book, 0);
    }

    /// Ends the session: nothing of it holds a slot any more.
    pub(super) fn close(mut self, book: &mut SlotBook) {
        self.clear(book);
        book.release(self.slot);
    }

    /// Shortens the tokens; rows above `len` will be overwritten, so what remembers them goes.
    fn cut(&mut self, book: &mut SlotBook, len: usize) {
        self.tokens.truncate(len);
        self.drop_restarts(book, |r| r.pos > len);
    }

    fn drop_restarts(&mut self, book: &mut SlotBook, gone: impl Fn(&Restart) -> bool) {
        self.restarts.retain(|r| {
            let gone = gone(r);
            if gone {
                book.release(r.slot);
            }
            !gone
        });
    }
}
