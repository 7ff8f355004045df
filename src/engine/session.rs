//! The book-keeping of one session: its tokens, where its state stands, what it remembers.

use super::backend::{Held, Kv};
use super::gpu::Wanted;
use super::slots::SlotBook;
use super::{Error, SessionId, SnapshotId};
use crate::model::SlotId;
use crate::tokenizer::TokenId;

/// A remembered position.
#[derive(Debug)]
struct Snapshot {
    id: SnapshotId,
    pos: usize,
    slot: SlotId,
    logits: Vec<f32>,
}

/// One sequence. The K/V rows at and beyond `tokens.len()` mean nothing; the slot holds the state
/// after the last token, or zeros when there is none.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) kv: Kv,
    pub(super) slot: SlotId,
    /// What a step is to bring back of its logits.
    pub(super) wanted: Wanted,
    tokens: Vec<TokenId>,
    pub(super) logits: Held,
    snapshots: Vec<Snapshot>,
}

impl Session {
    pub(super) fn new(id: SessionId, kv: Kv, slot: SlotId) -> Self {
        Self {
            id,
            kv,
            slot,
            wanted: Wanted::default(),
            tokens: Vec::new(),
            logits: Held::Nothing,
            snapshots: Vec::new(),
        }
    }

    pub(super) fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Remembered positions in order of creation.
    pub(super) fn restarts(&self) -> Vec<(SnapshotId, usize)> {
        self.snapshots.iter().map(|s| (s.id, s.pos)).collect()
    }

    /// Slots its remembered positions hold.
    pub(super) fn snapshot_slots(&self) -> impl Iterator<Item = SlotId> {
        self.snapshots.iter().map(|s| s.slot)
    }

    /// Positions whose state some slot holds, the remembered ones and the present one, in order; none of an empty
    /// session.
    pub(super) fn stations(&self) -> Vec<(usize, SlotId)> {
        let mut all: Vec<_> = self.snapshots.iter().map(|s| (s.pos, s.slot)).collect();
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

    /// Pins the present position. Its logits must be on the host.
    pub(super) fn remember(&mut self, book: &mut SlotBook, id: SnapshotId) -> Result<(), Error> {
        let logits = self.logits.row().ok_or(Error::NoState(self.id.0))?.to_vec();
        book.pin(self.slot);
        self.snapshots.push(Snapshot { id, pos: self.tokens.len(), slot: self.slot, logits });
        Ok(())
    }

    /// Returns to a remembered position, which stays remembered.
    pub(super) fn restore(&mut self, book: &mut SlotBook, id: SnapshotId) -> Result<(), Error> {
        let snapshot = self
            .snapshots
            .iter()
            .find(|s| s.id == id)
            .ok_or(Error::NoSnapshot { session: self.id.0, snapshot: id.0 })?;
        let (pos, slot) = (snapshot.pos, snapshot.slot);
        self.logits = Held::Host(snapshot.logits.clone());
        book.pin(slot);
        book.release(self.slot);
        self.slot = slot;
        self.cut(book, pos);
        Ok(())
    }

    /// Length, slot and logits of a remembered position.
    pub(super) fn remembered(&self, id: SnapshotId) -> Result<(usize, SlotId, &[f32]), Error> {
        let found = self.snapshots.iter().find(|s| s.id == id);
        let found = found.ok_or(Error::NoSnapshot { session: self.id.0, snapshot: id.0 })?;
        Ok((found.pos, found.slot, &found.logits))
    }

    /// Forgets a remembered position.
    pub(super) fn forget(&mut self, book: &mut SlotBook, id: SnapshotId) {
        self.drop_snapshots(book, |s| s.id == id);
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
        self.drop_snapshots(book, |s| s.pos > len);
    }

    fn drop_snapshots(&mut self, book: &mut SlotBook, gone: impl Fn(&Snapshot) -> bool) {
        self.snapshots.retain(|s| {
            let gone = gone(s);
            if gone {
                book.release(s.slot);
            }
            !gone
        });
    }
}
