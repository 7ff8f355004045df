//! The unused ranges of a block of memory: first fit, neighbours joined. Pure.

/// Free ranges, in ascending order, never touching each other.
#[derive(Debug)]
pub(super) struct FreeList {
    ranges: Vec<(u64, u64)>,
}

impl FreeList {
    /// All of `0..bytes`.
    pub(super) fn new(bytes: u64) -> Self {
        Self { ranges: vec![(0, bytes)] }
    }

    /// Takes `bytes` at a multiple of `align` out of the first range that has room; the start, or `None`.
    pub(super) fn take(&mut self, bytes: u64, align: u64) -> Option<u64> {
        for i in 0..self.ranges.len() {
            let (start, end) = self.ranges[i];
            let Some(from) = start.checked_next_multiple_of(align) else { continue };
            let Some(to) = from.checked_add(bytes).filter(|&to| to <= end) else { continue };
            let rest = [(start, from), (to, end)];
            self.ranges.splice(i..=i, rest.into_iter().filter(|r| r.0 < r.1));
            return Some(from);
        }
        None
    }

    /// Gives a range back that `take` handed out.
    pub(super) fn give(&mut self, start: u64, bytes: u64) {
        let mut range = (start, start + bytes);
        let i = self.ranges.partition_point(|r| r.0 < start);
        let mut replaced = i..i;
        if i > 0 && self.ranges[i - 1].1 >= range.0 {
            assert_eq!(self.ranges[i - 1].1, range.0, "range given back twice");
            range.0 = self.ranges[i - 1].0;
            replaced.start -= 1;
        }
        if let Some(&next) = self.ranges.get(i)
            && next.0 <= range.1
        {
            assert_eq!(next.0, range.1, "range given back twice");
            range.1 = next.1;
            replaced.end += 1;
        }
        self.ranges.splice(replaced, [range]);
    }

    /// Bytes not taken.
    pub(super) fn free_bytes(&self) -> u64 {
        self.ranges.iter().map(|r| r.1 - r.0).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_never_overlap_and_all_come_back(
            steps in prop::collection::vec((1_u64..300, 0_u32..9, any::<bool>()), 1..200)
        ) {
            let mut list = FreeList::new(4096);
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (bytes, shift, give) in steps {
                if give && !held.is_empty() {
                    let (start, bytes) = held.swap_remove(usize::try_from(bytes).unwrap() % held.len());
                    list.give(start, bytes);
                } else if let Some(start) = list.take(bytes, 1 << shift) {
                    prop_assert_eq!(start % (1 << shift), 0);
                    prop_assert!(start + bytes <= 4096);
                    prop_assert!(held.iter().all(|h| h.0 + h.1 <= start || start + bytes <= h.0));
                    held.push((start, bytes));
                }
                let taken: u64 = held.iter().map(|h| h.1).sum();
                prop_assert_eq!(list.free_bytes(), 4096 - taken);
                prop_assert!(list.ranges.windows(2).all(|w| w[0].1 < w[1].0));
            }
            for (start, bytes) in held {
                list.give(start, bytes);
            }
            prop_assert_eq!(list.ranges, vec![(0, 4096)]);
        }
    }
}
