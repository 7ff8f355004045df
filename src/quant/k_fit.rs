//! What the quantizers of `Q2_K` and `Q4_K` share (model.md 5.13): groups are fitted one by one, then
//! their scales and minima are quantized, then the weights once more with what was stored.

use super::fit::{self, Affine, AffineRule};
use super::plain::{f16_to_f32, f32_to_f16};
use super::round::{clamped, rne};

/// Groups of one block, fitted independently.
pub(super) struct Groups<const G: usize, const N: usize> {
    fits: [Affine<N>; G],
    /// Sum of the weights of each group.
    weights: [f32; G],
}

/// Factors of one block as they will be stored.
pub(super) struct Factors<const G: usize> {
    /// Scale of the scales, as an f16 pattern.
    pub(super) d: u16,
    /// Scale of the minima, as an f16 pattern.
    pub(super) dmin: u16,
    pub(super) scales: [u8; G],
    pub(super) mins: [u8; G],
}

impl<const G: usize, const N: usize> Groups<G, N> {
    /// Fits `G` groups of `N` values, weighted by what `weigh` says of each group.
    pub(super) fn fit(
        x: &[f32],
        rule: &AffineRule,
        weigh: impl Fn(usize, &[f32; N]) -> [f32; N],
    ) -> Self {
        let groups = x.as_chunks::<N>().0;
        let weighted: [[f32; N]; G] = std::array::from_fn(|g| weigh(g, &groups[g]));
        Self {
            fits: std::array::from_fn(|g| fit::affine(&groups[g], &weighted[g], rule)),
            weights: weighted.map(|w| w.iter().fold(0.0, |sum, v| sum + v)),
        }
    }

    /// Quantizes scales and minima to `max` by a weighted fit.
    pub(super) fn weighted_factors(&self, max: u8) -> Factors<G> {
        let fit = |values: [f32; G]| {
            let (factor, levels) = fit::scale(&values, &self.weights, max);
            (f32_to_f16(factor), levels.map(|l| clamped(l, max)))
        };
        let (d, scales) = fit(self.scales());
        let (dmin, mins) = fit(self.mins());
        Factors { d, dmin, scales, mins }
    }

    /// Quantizes scales and minima to `max` by their maxima.
    pub(super) fn plain_factors(&self, max: u8) -> Factors<G> {
        let top = f32::from(max);
        let fit = |values: [f32; G]| {
            let largest = values.into_iter().fold(0.0, f32::max);
            let inverse = if largest > 0.0 { top / largest } else { 0.0 };
            (f32_to_f16(largest / top), values.map(|v| clamped(rne(inverse * v), max)))
        };
        let (d, scales) = fit(self.scales());
        let (dmin, mins) = fit(self.mins());
        Factors { d, dmin, scales, mins }
    }

    /// The levels of all values under the stored factors; a group whose scale became 0 keeps its own.
    pub(super) fn levels(&self, x: &[f32], factors: &Factors<G>, max: u8) -> [u8; 256] {
        let mut out = [0; 256];
        let (d, dmin) = (f16_to_f32(factors.d), f16_to_f32(factors.dmin));
        for (g, out) in out.chunks_exact_mut(N).enumerate() {
            let scale = d * f32::from(factors.scales[g]);
            let min = dmin * f32::from(factors.mins[g]);
            if scale == 0.0 {
                out.copy_from_slice(&self.fits[g].levels);
                continue;
            }
            for (level, v) in out.iter_mut().zip(&x[g * N..]) {
                *level = clamped(rne((v + min) / scale), max);
            }
        }
        out
    }

    fn scales(&self) -> [f32; G] {
        std::array::from_fn(|g| self.fits[g].scale)
    }

    fn mins(&self) -> [f32; G] {
        std::array::from_fn(|g| self.fits[g].min)
    }
}

/// The sum of squares of `x`, from left to right.
pub(super) fn sum_of_squares(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |sum, v| sum + v * v)
}

/// `importance sqrt(sigma2 + x²)`.
pub(super) fn importance_weights<const N: usize>(
    x: &[f32; N],
    importance: &[f32],
    sigma2: f32,
) -> [f32; N] {
    std::array::from_fn(|i| importance[i] * (sigma2 + x[i] * x[i]).sqrt())
}
