//! How a chunk is cut into slices (vulkan.md 4.9): as many layers as are expected to take no longer than its caller
//! allows; at long context, where the attention of one layer is too long for that, ranges of its query rows. Pure.

use std::time::Duration;

/// Ranges begin at multiples of so many tokens: what a workgroup of attention takes at most.
const RANGE: usize = 64;

/// What a chunk has before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    layer: usize,
    stage: Stage,
}

/// Where a chunk stands within a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing of it has run.
    Before,
    /// The attention of the query rows from this one on is left, and what follows it.
    Query(usize),
    /// Only what follows attention is left.
    After,
}

/// What is submitted at once: something of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) layer: usize,
    pub(super) part: Part,
}

/// Which part of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it.
    Whole,
    /// What comes before attention.
    Rows,
    /// The attention of some query rows.
    Attention {
        /// Token of the chunk that the first of them belongs to.
        first: usize,
        /// How many.
        count: usize,
    },
    /// What follows attention.
    Rest,
}

/// The chunk that is cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    /// Its size class.
    pub(super) class: usize,
    /// Position of its first token.
    pub(super) pos: usize,
    /// Its tokens.
    pub(super) tokens: usize,
}

/// What is known of the device's speed. Layers differ: an attention layer takes longer the more there is to look at.
#[derive(Debug)]
pub(super) struct Pace {
    /// For each size class, for each layer.
    classes: Vec<Vec<Layer>>,
    /// Seconds of one query token with one key in one layer, as measured last or assumed.
    pair: f64,
}

/// What is known of a layer.
#[derive(Debug, Clone, Copy, Default)]
struct Layer {
    /// Whether it can run in parts.
    has_parts: bool,
    whole: Seen,
    rows: Seen,
    rest: Seen,
}

/// Seconds for a token in the last two chunks; 0 where nothing is known yet.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    last: f64,
    before: f64,
}

impl Seen {
    /// What the next chunk is expected to take: as much more than the last as that took more than the one before, but
    /// no more than a quarter, since times waver. `None` where nothing is known.
    fn expected(self) -> Option<f64> {
        let growth = if self.before > 0.0 { self.last - self.before } else { 0.0 };
        (self.last > 0.0).then(|| self.last + growth.clamp(0.0, self.last / 4.0))
    }

    fn took(&mut self, tokens: usize, time: Duration) {
        *self = Self { last: time.as_secs_f64() / tokens as f64, before: self.last };
    }
}

impl Place {
    /// Before the first layer.
    pub(super) const START: Self = Self { layer: 0, stage: Stage::Before };

    /// What is left behind a unit of a chunk of so many tokens.
    pub(super) fn behind(unit: Unit, tokens: usize) -> Self {
        let Unit { layer, part } = unit;
        match part {
            Part::Whole | Part::Rest => Self { layer: layer + 1, stage: Stage::Before },
            Part::Rows => Self { layer, stage: Stage::Query(0) },
            Part::Attention { first, count } if first + count < tokens => {
                Self { layer, stage: Stage::Query(first + count) }
            }
            Part::Attention { .. } => Self { layer, stage: Stage::After },
        }
    }

    /// Whether all of so many layers have run.
    pub(super) fn is_end(self, layers: usize) -> bool {
        self.layer >= layers
    }
}

/// Pairs of query and key of `count` tokens from token `first` of a chunk at `pos`.
fn pairs(pos: usize, first: usize, count: usize) -> f64 {
    let (before, count) = ((pos + first) as f64, count as f64);
    count * before + count * (count + 1.0) / 2.0
}

impl Pace {
    /// For so many size classes of as many layers as `has_parts` has places: it says which of them can run in parts.
    /// A pair of query and key is assumed to take `pair_seconds` until some have been seen.
    pub(super) fn new(classes: usize, has_parts: &[bool], pair_seconds: f64) -> Self {
        let layer = |&has_parts: &bool| Layer { has_parts, ..Layer::default() };
        let layers: Vec<Layer> = has_parts.iter().map(layer).collect();
        Self { classes: vec![layers; classes], pair: pair_seconds }
    }

    /// What runs next of a chunk, in order: units that are expected to take no longer than `limit` together, but at
    /// least one, and one alone that nothing is known of. A range of query rows is the first of its slice.
    pub(super) fn slice(&self, chunk: Work, from: Place, limit: Duration) -> Vec<Unit> {
        let mut left = limit.as_secs_f64();
        let (mut units, mut place) = (Vec::new(), from);
        while !place.is_end(self.classes[chunk.class].len()) {
            let unit = self.next(chunk, place, limit);
            left -= self.expected(chunk, unit).unwrap_or(f64::INFINITY);
            let opens = matches!(unit.part, Part::Attention { .. });
            if !units.is_empty() && (opens || left < 0.0) {
                break;
            }
            units.push(unit);
            place = Place::behind(unit, chunk.tokens);
        }
        units
    }

    /// A unit took so long.
    pub(super) fn took(&mut self, chunk: Work, unit: Unit, time: Duration) {
        let layer = &mut self.classes[chunk.class][unit.layer];
        match unit.part {
            Part::Whole => layer.whole.took(chunk.tokens, time),
            Part::Rows => layer.rows.took(chunk.tokens, time),
            Part::Rest => layer.rest.took(chunk.tokens, time),
            Part::Attention { first, count } => {
                self.pair = time.as_secs_f64() / pairs(chunk.pos, first, count);
            }
        }
    }

    fn next(&self, chunk: Work, place: Place, limit: Duration) -> Unit {
        let layer = place.layer;
        let has_parts = self.classes[chunk.class][layer].has_parts;
        let part = match place.stage {
            Stage::Before if has_parts && self.splits(chunk, limit) => Part::Rows,
            Stage::Before => Part::Whole,
            Stage::Query(first) => {
                Part::Attention { first, count: self.range(chunk, first, limit) }
            }
            Stage::After => Part::Rest,
        };
        Unit { layer, part }
    }

    /// Seconds that a unit is expected to take; `None` where nothing is known.
    fn expected(&self, chunk: Work, unit: Unit) -> Option<f64> {
        let layer = &self.classes[chunk.class][unit.layer];
        let seen = match unit.part {
            Part::Whole => layer.whole,
            Part::Rows => layer.rows,
            Part::Rest => layer.rest,
            Part::Attention { first, count } => {
                return Some(pairs(chunk.pos, first, count) * self.pair);
            }
        };
        seen.expected().map(|seconds| seconds * chunk.tokens as f64)
    }

    /// Whether the attention of a layer is worth slices of its own.
    fn splits(&self, chunk: Work, limit: Duration) -> bool {
        pairs(chunk.pos, 0, chunk.tokens) * self.pair > limit.as_secs_f64() / 2.0
    }

    /// How many tokens from `first` on the next slice of attention takes, at least one block of them.
    fn range(&self, chunk: Work, first: usize, limit: Duration) -> usize {
        let left = chunk.tokens - first;
        let budget = limit.as_secs_f64() / self.pair;
        let fit = |blocks: &usize| pairs(chunk.pos, first, blocks * RANGE) <= budget;
        let blocks = (2..=left.div_ceil(RANGE)).take_while(fit).last().unwrap_or(1);
        left.min(blocks * RANGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: Duration = Duration::from_millis(50);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn work(pos: usize, tokens: usize) -> Work {
        Work { class: 0, pos, tokens }
    }

    fn whole(layer: usize) -> Unit {
        Unit { layer, part: Part::Whole }
    }

    /// How many whole layers the next slice from `first` on has.
    fn fitting(pace: &Pace, first: usize, tokens: usize, limit: Duration) -> usize {
        let from = Place { layer: first, stage: Stage::Before };
        let units = pace.slice(work(0, tokens), from, limit);
        assert!((first..).zip(&units).all(|(layer, unit)| *unit == whole(layer)));
        units.len()
    }

    #[test]
    fn layers_fit_until_the_time_is_used_up() {
        let mut pace = Pace::new(2, &[false; 6], 1e-9);
        assert_eq!(fitting(&pace, 0, 100, ms(50)), 1, "nothing is known");
        for (layer, time) in [10, 10, 30, 10, 60].into_iter().enumerate() {
            pace.took(work(0, 100), whole(layer), ms(time));
        }
        assert_eq!(fitting(&pace, 0, 100, ms(51)), 3);
        assert_eq!(fitting(&pace, 0, 100, ms(49)), 2);
        assert_eq!(fitting(&pace, 0, 50, ms(31)), 4, "half the tokens take half the time");
        assert_eq!(fitting(&pace, 4, 100, ms(50)), 1, "too long, but at least one");
        assert_eq!(fitting(&pace, 3, 100, Duration::MAX), 2, "up to the first unknown one");
        assert_eq!(fitting(&pace, 5, 100, Duration::MAX), 1);
        let other = Work { class: 1, ..work(0, 100) };
        assert_eq!(pace.slice(other, Place::START, ms(51)), [whole(0)], "classes differ");
    }

    #[test]
    fn what_grew_is_expected_to_grow_on() {
        let mut pace = Pace::new(1, &[false; 2], 1e-9);
        for times in [[20, 20], [22, 18]] {
            for (layer, time) in times.into_iter().enumerate() {
                pace.took(work(0, 100), whole(layer), ms(time));
            }
        }
        // 24 and 18 are expected: what became shorter is not expected to go on with that.
        assert_eq!(fitting(&pace, 0, 100, ms(43)), 2);
        assert_eq!(fitting(&pace, 0, 100, ms(41)), 1);
        pace.took(work(0, 100), whole(0), ms(88));
        assert_eq!(fitting(&pace, 0, 100, ms(111)), 1, "four times as long is not expected again");
        assert_eq!(fitting(&pace, 0, 100, ms(129)), 2);
    }

    #[test]
    fn attention_is_split_where_it_is_long() {
        // The board at 3 TFLOP/s, 16 heads of 256.
        let mut pace = Pace::new(1, &[true], 16_384.0 / 3e12);
        assert_eq!(pace.slice(work(0, 2048), Place::START, LIMIT), [whole(0)]);
        let chunk = work(100_000, 2048);
        assert_eq!(pace.slice(chunk, Place::START, Duration::MAX), [whole(0)]);
        // Over a second in all, so more than twenty slices.
        let (mut place, mut slices) = (Place::START, 0);
        while !place.is_end(1) {
            let units = pace.slice(chunk, place, LIMIT);
            let last = *units.last().expect("something runs");
            assert!(units.len() == 1 && last.part != Part::Whole, "{units:?}");
            (place, slices) = (Place::behind(last, 2048), slices + 1);
        }
        assert!((22..=34).contains(&slices), "{slices}");
        let range = Part::Attention { first: 0, count: 1000 };
        pace.took(chunk, Unit { layer: 0, part: range }, ms(10));
        assert_eq!(pace.slice(chunk, Place::START, LIMIT), [whole(0)], "a faster device");
    }

    #[test]
    fn parts_share_slices_with_the_layers_around_them() {
        // Two ranges, of which the second is shorter.
        let mut pace = Pace::new(1, &[false, true, false], 1e-3 / pairs(1000, 0, 64));
        let chunk = work(1000, 96);
        let unit = |layer, part| Unit { layer, part };
        for (layer, part) in [(0, Part::Whole), (1, Part::Rows), (1, Part::Rest), (2, Part::Whole)]
        {
            pace.took(chunk, unit(layer, part), Duration::from_micros(200));
        }
        let mut place = Place::START;
        let mut slices = Vec::new();
        while !place.is_end(3) {
            let units = pace.slice(chunk, place, ms(1));
            place = Place::behind(*units.last().expect("something runs"), chunk.tokens);
            slices.push(units);
        }
        let attention = |first, count| unit(1, Part::Attention { first, count });
        let expected = [
            vec![whole(0), unit(1, Part::Rows)],
            vec![attention(0, 64)],
            vec![attention(64, 32), unit(1, Part::Rest), whole(2)],
        ];
        assert_eq!(slices, expected);
    }

    proptest! {
        #[test]
        fn ranges_cover_a_chunk_in_slices(
            pos in 0_usize..200_000,
            tokens in 1_usize..2049,
            exponent in -14_i32..-3,
        ) {
            let pair = 10_f64.powi(exponent);
            let pace = Pace::new(1, &[true], pair);
            let chunk = work(pos, tokens);
            let mut first = 0;
            while first < tokens {
                prop_assert!(first.is_multiple_of(RANGE));
                let count = pace.range(chunk, first, LIMIT);
                let time = pairs(pos, first, count) * pair;
                prop_assert!(count > 0 && (count <= RANGE || time <= LIMIT.as_secs_f64()));
                first += count;
            }
            prop_assert_eq!(first, tokens);
        }

        #[test]
        fn every_part_runs_once_and_in_order_whatever_the_limits(
            has_parts in prop::collection::vec(any::<bool>(), 1..6),
            (pos, tokens) in (0_usize..100_000, 1_usize..600),
            limits in prop::collection::vec(0_u64..200_000, 1..5),
        ) {
            let mut pace = Pace::new(1, &has_parts, 1e-9);
            let chunk = work(pos, tokens);
            let mut limits = limits.into_iter().map(Duration::from_micros).cycle();
            let (mut place, mut done) = (Place::START, Vec::new());
            while !place.is_end(has_parts.len()) {
                for unit in pace.slice(chunk, place, limits.next().expect("without end")) {
                    pace.took(chunk, unit, Duration::from_micros(700));
                    place = Place::behind(unit, tokens);
                    done.push(unit);
                }
            }
            let mut done = done.into_iter();
            for (layer, has_parts) in has_parts.into_iter().enumerate() {
                let unit = done.next().expect("every layer runs");
                prop_assert_eq!(unit.layer, layer);
                if unit.part == Part::Whole {
                    continue;
                }
                prop_assert!(has_parts && unit.part == Part::Rows);
                let mut next = 0;
                while next < tokens {
                    let Some(Unit { part: Part::Attention { first, count }, .. }) = done.next()
                    else {
                        return Err(TestCaseError::fail("a range is missing"));
                    };
                    prop_assert_eq!(first, next);
                    next += count;
                }
                prop_assert_eq!(done.next(), Some(Unit { layer, part: Part::Rest }));
            }
            prop_assert_eq!(done.next(), None);
        }
    }
}
