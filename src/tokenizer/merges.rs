//! The merge list: which two neighbouring tokens become one, and in what order.

/// A merge that two ids have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Merge {
    /// Index in the list; lower goes first.
    pub(super) rank: u32,
    /// The token both become.
    pub(super) id: u32,
}

/// `left` is [`EMPTY`] in a free slot. Sixteen bytes: a probe seldom leaves its cache line.
#[derive(Clone, Copy)]
struct Slot {
    left: u32,
    right: u32,
    merge: Merge,
}

/// No id: vocabularies are far smaller.
const EMPTY: u32 = u32::MAX;

/// Pair of ids to merge; open addressing, at most half full.
pub(super) struct MergeTable {
    slots: Vec<Slot>,
    shift: u32,
}

impl MergeTable {
    /// Room for `merges` entries.
    pub(super) fn with_capacity(merges: usize) -> Self {
        let size = (merges * 2).next_power_of_two().max(16);
        let free = Slot { left: EMPTY, right: EMPTY, merge: Merge { rank: 0, id: 0 } };
        Self { slots: vec![free; size], shift: 64 - size.trailing_zeros() }
    }

    /// Slot where the pair is or would be, and whether it is there.
    #[expect(clippy::cast_possible_truncation, reason = "the shift leaves the bits of an index")]
    fn find(&self, left: u32, right: u32) -> (usize, bool) {
        let key = u64::from(left) << 32 | u64::from(right);
        // The top bits of a product with an odd constant depend on every bit of the key.
        let mut at = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize;
        let mask = self.slots.len() - 1;
        loop {
            let slot = &self.slots[at];
            if slot.left == left && slot.right == right {
                return (at, true);
            }
            if slot.left == EMPTY {
                return (at, false);
            }
            at = (at + 1) & mask;
        }
    }

    /// The merge of two neighbours.
    pub(super) fn get(&self, left: u32, right: u32) -> Option<Merge> {
        let (at, found) = self.find(left, right);
        found.then(|| self.slots[at].merge)
    }

    /// Adds a merge; a pair listed twice keeps its lower rank.
    pub(super) fn insert(&mut self, left: u32, right: u32, merge: Merge) {
        if let (at, false) = self.find(left, right) {
            self.slots[at] = Slot { left, right, merge };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_added_and_nothing_else() {
        let mut table = MergeTable::with_capacity(3000);
        for i in 0..3000 {
            table.insert(i % 60, i / 60, Merge { rank: i, id: 7 * i });
            table.insert(i % 60, i / 60, Merge { rank: i + 1, id: 0 });
        }
        for i in 0..3000 {
            assert_eq!(table.get(i % 60, i / 60), Some(Merge { rank: i, id: 7 * i }));
            assert_eq!(table.get(i % 60 + 60, i / 60), None);
        }
    }
}
