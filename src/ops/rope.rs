//! Rotary position embedding (model.md 3.7): pairs `(i, i + dims/2)` in the first `dims` values of a head, the rest untouched.
//!
//! Angles never pass through f32: a position is `512 * high + low`, both parts have a table of cosines and sines
//! computed in f64 and rounded once, and the two rotations are joined by the addition theorem in f32. The GPU uses
//! the same two tables (vulkan.md 3.8), which together are 256 KiB at the native context.

use super::exp::rounded;

/// Positions per entry of the high table.
const SPLIT: usize = 512;

/// Cosine and sine tables for all positions below a context size.
#[derive(Debug, Clone)]
pub struct RopeTable {
    pairs: usize,
    context: usize,
    high: Vec<[f32; 2]>,
    low: Vec<[f32; 2]>,
}

impl RopeTable {
    /// Tables for positions `0..context`, `dims` rotated values per head (even), frequencies `base^(-2i/dims)`.
    pub fn new(context: usize, dims: usize, base: f32) -> Self {
        assert!(dims.is_multiple_of(2), "rope rotates pairs, got {dims} values");
        let pairs = dims / 2;
        let table = |rows: usize, step: usize| {
            (0..rows)
                .flat_map(|row| (0..pairs).map(move |i| (row * step, i)))
                .map(|(pos, i)| {
                    let frequency = f64::from(base).powf(-2.0 * i as f64 / dims as f64);
                    let (sin, cos) = (pos as f64 * frequency).sin_cos();
                    [rounded(cos), rounded(sin)]
                })
                .collect()
        };
        let rows = context.div_ceil(SPLIT);
        Self { pairs, context, high: table(rows, SPLIT), low: table(SPLIT.min(context), 1) }
    }

    /// Rows `[cos, sin]` of positions 0, 512, 1024, ...: `pairs` values each.
    pub fn high(&self) -> &[[f32; 2]] {
        &self.high
    }

    /// Rows `[cos, sin]` of positions 0 to 511: `pairs` values each.
    pub fn low(&self) -> &[[f32; 2]] {
        &self.low
    }

    /// Cosine and sine of pair `i` at `pos`; error below 2e-7.
    #[inline]
    pub fn angle(&self, pos: usize, i: usize) -> [f32; 2] {
        let [ca, sa] = self.high[pos / SPLIT * self.pairs + i];
        let [cb, sb] = self.low[pos % SPLIT * self.pairs + i];
        [ca * cb - sa * sb, sa * cb + ca * sb]
    }

    /// Rotates one head to position `pos`: pair `i` is the values `i` and `i + dims/2`.
    pub fn rotate(&self, head: &mut [f32], pos: usize) {
        assert!(pos < self.context, "position {pos} outside the context of {}", self.context);
        let (first, second) = head[..2 * self.pairs].split_at_mut(self.pairs);
        for (i, (a, b)) in first.iter_mut().zip(second).enumerate() {
            let [cos, sin] = self.angle(pos, i);
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "exact results are meant")]
mod tests {
    use super::*;

    #[test]
    fn angles_of_the_reference_table() {
        let rope = RopeTable::new(262_144, 64, 10_000_000.0);
        for (i, pos, cos, sin) in [
            (0, 1000, 0.562_379_076, 0.826_879_541),
            (0, 262_143, -0.609_161_491, 0.793_046_202),
            (1, 1000, 0.444_123_347, 0.895_965_654),
            (1, 262_143, 0.920_803_160, 0.390_027_615),
            (2, 1000, 0.732_111_727, 0.681_184_571),
            (2, 262_143, -0.931_786_259, -0.363_007_394),
            (15, 1000, 0.866_175_195, 0.499_740_464),
            (15, 262_143, 0.496_810_180, -0.867_859_231),
            (31, 1000, 0.999_999_986, 0.000_165_482),
            (31, 262_143, 0.999_059_241, 0.043_366_268),
        ] {
            let [c, s] = rope.angle(pos, i);
            assert!((f64::from(c) - cos).abs() < 2e-7, "cos pair {i} at {pos}: {c}");
            assert!((f64::from(s) - sin).abs() < 2e-7, "sin pair {i} at {pos}: {s}");
        }
    }

    #[test]
    fn joined_angles_stay_within_the_bound() {
        let rope = RopeTable::new(262_144, 64, 10_000_000.0);
        for pos in (0..262_144).step_by(997) {
            for i in 0..32 {
                let theta = pos as f64 * 10_000_000f64.powf(-2.0 * f64::from(i) / 64.0);
                let [c, s] = rope.angle(pos, usize::try_from(i).unwrap());
                assert!((f64::from(c) - theta.cos()).abs() < 2e-7, "{pos} {i}");
                assert!((f64::from(s) - theta.sin()).abs() < 2e-7, "{pos} {i}");
            }
        }
    }

    #[test]
    fn rotates_neox_pairs_and_leaves_the_rest() {
        let rope = RopeTable::new(8, 4, 100.0);
        let mut head = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        rope.rotate(&mut head, 3);
        // Pair 0 is values 0 and 2 at angle 3; pair 1 is values 1 and 3 at angle 3 * 100^(-1/2).
        let exact = [
            3f64.cos() - 3.0 * 3f64.sin(),
            2.0 * 0.3f64.cos() - 4.0 * 0.3f64.sin(),
            3.0 * 3f64.cos() + 3f64.sin(),
            4.0 * 0.3f64.cos() + 2.0 * 0.3f64.sin(),
            5.0,
            6.0,
        ];
        for (got, want) in head.iter().zip(exact) {
            assert!((f64::from(*got) - want).abs() < 1e-6, "{head:?}");
        }
        let mut still = [1.0, 2.0, 3.0, 4.0];
        rope.rotate(&mut still, 0);
        assert_eq!(still, [1.0, 2.0, 3.0, 4.0]);
    }
}
