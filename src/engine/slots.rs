//! Who holds which recurrent-state slot.
//!
//! A recurrent state cannot be cut back like K/V rows, so "the state at position p" exists only as
//! long as somebody keeps the slot that holds it. This is the book-keeping alone; the numbers in the
//! slots belong to the backend. A slot is written only by whoever is its single holder.

use crate::model::SlotId;

/// Counts holders: 0 means free.
#[derive(Debug)]
pub(super) struct SlotBook {
    holders: Vec<u32>,
}

impl SlotBook {
    /// All of `n` slots free.
    pub(super) fn new(n: usize) -> Self {
        Self { holders: vec![0; n] }
    }

    /// Takes a free slot; the caller is its single holder.
    pub(super) fn acquire(&mut self) -> Option<SlotId> {
        let index = self.holders.iter().position(|&n| n == 0)?;
        self.holders[index] = 1;
        Some(SlotId(u32::try_from(index).expect("slot counts are small")))
    }

    /// Adds a holder.
    pub(super) fn pin(&mut self, slot: SlotId) {
        let holders = &mut self.holders[slot.0 as usize];
        assert!(*holders > 0, "only a held slot can be pinned");
        *holders += 1;
    }

    /// Removes a holder.
    pub(super) fn release(&mut self, slot: SlotId) {
        let holders = &mut self.holders[slot.0 as usize];
        assert!(*holders > 0, "a slot is released as often as it is held");
        *holders -= 1;
    }

    /// Whether a step may write the slot it reads.
    pub(super) fn is_exclusive(&self, slot: SlotId) -> bool {
        self.holders[slot.0 as usize] == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_only_when_its_last_holder_left() {
        let mut book = SlotBook::new(2);
        let a = book.acquire().unwrap();
        book.pin(a);
        assert!(!book.is_exclusive(a));
        let b = book.acquire().unwrap();
        assert_ne!(a, b);
        assert_eq!(book.acquire(), None);
        book.release(a);
        assert!(book.is_exclusive(a));
        assert_eq!(book.acquire(), None);
        book.release(a);
        assert_eq!(book.acquire(), Some(a));
    }
}
