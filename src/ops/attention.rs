//! Softmax attention of one query over cached rows (model.md 3.6 steps 5 and 6).
//!
//! [`attend`] is the definition. Long contexts are computed in spans of keys whose [`Partial`] results are merged
//! in the order of the spans; where the borders of spans lie must depend on key positions alone, then so do the bits.

use super::norm::sum_of;
use super::{exp, sigmoid};
use crate::quant::{axpy, dot_f32};

/// `out = softmax(scale * q k_j) v_j` over all rows `j`: `keys` and `values` are `[rows][q.len()]`, at least one row.
/// `scores` is scratch of one value per row, and holds the unnormalised weights afterwards.
pub fn attend(
    q: &[f32],
    keys: &[f32],
    values: &[f32],
    scale: f32,
    scores: &mut [f32],
    out: &mut [f32],
) {
    for (score, key) in scores.iter_mut().zip(keys.chunks_exact(q.len())) {
        *score = dot_f32(q, key) * scale;
    }
    let partial = Partial::from_scores(scores);
    out.fill(0.0);
    for (weight, value) in scores.iter().zip(values.chunks_exact(q.len())) {
        axpy(*weight, value, out);
    }
    partial.finish(out);
}

/// The softmax of some of the keys, before division by the sum. Beside it lies a row `acc` of weighted values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Partial {
    /// Largest score.
    max: f32,
    /// Sum of `exp(score - max)`.
    sum: f32,
}

impl Partial {
    /// No key yet; its `acc` need not be set.
    pub const EMPTY: Self = Self { max: f32::NEG_INFINITY, sum: 0.0 };

    /// Replaces scores by their weights `exp(score - max)`. A NaN makes the sum NaN.
    pub fn from_scores(scores: &mut [f32]) -> Self {
        let max = scores.iter().fold(f32::NEG_INFINITY, |m, s| if *s > m { *s } else { m });
        for s in scores.iter_mut() {
            *s = exp(*s - max);
        }
        Self { max, sum: sum_of(scores, |v| v) }
    }

    /// Adds the keys of `later`, whose weighted values are `later_acc`, to these and theirs in `acc`.
    pub fn merge(&mut self, acc: &mut [f32], later: Self, later_acc: &[f32]) {
        if self.max == f32::NEG_INFINITY && self.sum == 0.0 {
            acc.copy_from_slice(later_acc);
            *self = later;
            return;
        }
        let max = if later.max > self.max { later.max } else { self.max };
        let (here, there) = (exp(self.max - max), exp(later.max - max));
        for (a, b) in acc.iter_mut().zip(later_acc) {
            *a = *a * here + b * there;
        }
        *self = Self { max, sum: self.sum * here + later.sum * there };
    }

    /// Divides the weighted values by the sum of weights.
    pub fn finish(self, acc: &mut [f32]) {
        let factor = 1.0 / self.sum;
        for a in acc {
            *a *= factor;
        }
    }
}

/// `o[i] *= sigmoid(gate[i])`: the output gate of a head, raw projection of the same token.
pub fn gate_output(o: &mut [f32], gate: &[f32]) {
    assert!(o.len() == gate.len(), "gate_output: lengths differ");
    for (v, g) in o.iter_mut().zip(gate) {
        *v *= sigmoid(*g);
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "exact results are meant")]
mod tests {
    use super::*;
    use crate::util::rng::Rng;

    fn random(n: usize, scale: f32, rng: &mut Rng) -> Vec<f32> {
        (0..n).map(|_| (rng.unit_f32() * 2.0 - 1.0) * scale).collect()
    }

    fn exact(q: &[f32], keys: &[f32], values: &[f32], scale: f32) -> Vec<f64> {
        let d = q.len();
        let dot =
            |k: &[f32]| q.iter().zip(k).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let scores: Vec<f64> = keys.chunks_exact(d).map(|k| dot(k) * f64::from(scale)).collect();
        let max = scores.iter().copied().fold(f64::MIN, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let total: f64 = weights.iter().sum();
        let column = |i: usize| {
            weights.iter().enumerate().map(|(j, w)| w * f64::from(values[j * d + i])).sum::<f64>()
        };
        (0..d).map(|i| column(i) / total).collect()
    }

    fn check(out: &[f32], expected: &[f64], what: &str) {
        for (a, b) in out.iter().zip(expected) {
            // Scores up to 16 in size carry 2^-24 relative error into the exponent: 1e-6 of values up to 1.
            assert!((f64::from(*a) - b).abs() < 4e-6, "{what}: {a} against {b}");
        }
    }

    #[test]
    fn one_span_and_merged_spans_match_f64() {
        let mut rng = Rng::new(11);
        for d in [1, 7, 64, 256] {
            for rows in [1, 2, 15, 63, 64, 65, 300] {
                let scale = 1.0 / (d as f32).sqrt();
                let q = random(d, 4.0, &mut rng);
                let (keys, values) =
                    (random(rows * d, 2.0, &mut rng), random(rows * d, 1.0, &mut rng));
                let expected = exact(&q, &keys, &values, scale);
                let (mut scores, mut out) = (vec![0.0; rows], vec![f32::NAN; d]);
                attend(&q, &keys, &values, scale, &mut scores, &mut out);
                check(&out, &expected, "whole");

                let (mut total, mut acc) = (Partial::EMPTY, vec![f32::NAN; d]);
                for (k, v) in keys.chunks(64 * d).zip(values.chunks(64 * d)) {
                    let mut scores: Vec<f32> =
                        k.chunks_exact(d).map(|k| dot_f32(&q, k) * scale).collect();
                    let partial = Partial::from_scores(&mut scores);
                    let mut part = vec![0.0; d];
                    scores.iter().zip(v.chunks_exact(d)).for_each(|(w, v)| axpy(*w, v, &mut part));
                    total.merge(&mut acc, partial, &part);
                }
                total.finish(&mut acc);
                check(&acc, &expected, "merged");
            }
        }
    }

    #[test]
    fn large_scores_do_not_overflow_and_nan_is_not_hidden() {
        let (mut scores, mut out) = ([0.0; 2], [f32::NAN]);
        attend(&[1e4], &[1e4, -1e4], &[3.0, 5.0], 1.0, &mut scores, &mut out);
        assert_eq!(out, [3.0]);
        attend(&[1.0], &[f32::NAN, 1.0], &[3.0, 5.0], 1.0, &mut scores, &mut out);
        assert!(out[0].is_nan());
    }

    #[test]
    fn the_gate_is_logistic() {
        let mut o = [2.0, 2.0, 2.0];
        gate_output(&mut o, &[0.0, 100.0, -100.0]);
        assert_eq!(o[..2], [1.0, 2.0]);
        assert!(o[2] < 1e-40);
    }
}
