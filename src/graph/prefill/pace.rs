//! How a chunk is cut into submissions (vulkan.md 4.9): as many layers as fit a slice of time; at long context, where
//! the attention of one layer is too long for that, ranges of its query rows. Pure.

use std::cell::Cell;
use std::time::Duration;

/// Ranges begin at multiples of so many tokens: what a workgroup of attention takes at most.
const RANGE: usize = 64;

/// What is known of the device's speed.
#[derive(Debug)]
pub(in crate::graph) struct Pace {
    /// How long a slice may take before the host looks whether to go on.
    slice: Duration,
    /// Seconds of one layer for one token, as measured last; 0 before that.
    layer: Cell<f64>,
    /// Seconds of one query token with one key in one layer, as measured last or assumed.
    pair: Cell<f64>,
}

/// Pairs of query and key of `count` tokens from token `first` of a chunk at `pos`.
pub(super) fn pairs(pos: usize, first: usize, count: usize) -> f64 {
    let (before, count) = ((pos + first) as f64, count as f64);
    count * before + count * (count + 1.0) / 2.0
}

impl Pace {
    pub(super) fn new(slice: Duration, pair_seconds: f64) -> Self {
        Self { slice, layer: Cell::new(0.0), pair: Cell::new(pair_seconds) }
    }

    /// Changes how long a slice may take.
    pub(in crate::graph) fn set_slice(&mut self, slice: Duration) {
        self.slice = slice;
    }

    /// Whether `share` layers more fit a slice that has `begun` layers of `tokens`. The first of a slice always do;
    /// nothing is added to them as long as nothing is known.
    pub(super) fn fits(&self, begun: f64, share: f64, tokens: usize) -> bool {
        let layer = self.layer.get() * tokens as f64;
        begun == 0.0 || (layer > 0.0 && (begun + share) * layer <= self.slice.as_secs_f64())
    }

    /// Whether the attention of a layer is worth slices of its own.
    pub(super) fn splits(&self, pos: usize, tokens: usize) -> bool {
        pairs(pos, 0, tokens) * self.pair.get() > self.slice.as_secs_f64() / 2.0
    }

    /// How many tokens from `first` on the next slice of attention takes, at least one block of them.
    pub(super) fn range(&self, pos: usize, first: usize, tokens: usize) -> usize {
        let left = tokens - first;
        let budget = self.slice.as_secs_f64() / self.pair.get();
        let fit = |blocks: &usize| pairs(pos, first, blocks * RANGE) <= budget;
        let blocks = (2..=left.div_ceil(RANGE)).take_while(fit).last().unwrap_or(1);
        left.min(blocks * RANGE)
    }

    /// Learns from layers that have run.
    pub(super) fn ran_layers(&self, share: f64, tokens: usize, time: Duration) {
        self.layer.set(time.as_secs_f64() / (share * tokens as f64));
    }

    /// Learns from attention that has run.
    pub(super) fn ran_pairs(&self, pairs: f64, time: Duration) {
        self.pair.set(time.as_secs_f64() / pairs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLICE: Duration = Duration::from_millis(50);

    #[test]
    fn layers_fill_a_slice_once_their_time_is_known() {
        let pace = Pace::new(SLICE, 1e-9);
        assert!(pace.fits(0.0, 1.0, 512) && !pace.fits(1.0, 1.0, 512));
        pace.ran_layers(1.0, 512, Duration::from_millis(12));
        assert!(pace.fits(3.0, 1.0, 512) && !pace.fits(4.0, 1.0, 512));
        assert!(!pace.fits(3.0, 1.0, 1024) && pace.fits(0.0, 1.0, 1 << 20));
    }

    #[test]
    fn attention_is_split_where_it_is_long() {
        // The board at 3 TFLOP/s, 16 heads of 256.
        let pace = Pace::new(SLICE, 16_384.0 / 3e12);
        assert!(!pace.splits(0, 2048));
        assert!(pace.splits(100_000, 2048));
        // Over a second in all, so more than twenty slices.
        let mut first = 0;
        let mut slices = 0;
        while first < 2048 {
            first += pace.range(100_000, first, 2048);
            slices += 1;
        }
        assert!((20..=32).contains(&slices), "{slices}");
        pace.ran_pairs(1e9, Duration::from_millis(10));
        assert!(!pace.splits(100_000, 2048), "a faster device needs no slices");
    }

    proptest! {
        #[test]
        fn ranges_cover_a_chunk_in_slices(
            pos in 0_usize..200_000,
            tokens in 1_usize..2049,
            exponent in -14_i32..-3,
        ) {
            let pace = Pace::new(SLICE, 10_f64.powi(exponent));
            let mut first = 0;
            while first < tokens {
                prop_assert!(first.is_multiple_of(RANGE));
                let count = pace.range(pos, first, tokens);
                let time = pairs(pos, first, count) * 10_f64.powi(exponent);
                prop_assert!(count > 0 && (count <= RANGE || time <= SLICE.as_secs_f64()));
                first += count;
            }
            prop_assert_eq!(first, tokens);
        }
    }
}
