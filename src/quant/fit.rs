//! The two weighted searches behind the quantizers (model.md 5.11, 5.12).
//!
//! Sums run in f32 from left to right without fused multiply-add, and products are formed in the order
//! written: the bytes that come out are promised.

use super::round::{clamped, rne};

/// What counts as nothing.
pub(super) const EPS: f32 = 1e-15;

/// How an [`affine`] fit searches.
pub(super) struct AffineRule {
    /// Largest level.
    pub(super) max_level: u8,
    /// First offset tried, added to `max_level`.
    pub(super) first: f32,
    /// Distance of the offsets tried.
    pub(super) step: f32,
    /// Index of the last offset.
    pub(super) last: u8,
    /// How trials are compared; the least-squares step is the same for both.
    pub(super) loss: Loss,
}

/// The error of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// Its square.
    Squared,
    /// Its magnitude.
    Absolute,
}

/// `x ≈ scale levels - min`.
pub(super) struct Affine<const N: usize> {
    pub(super) scale: f32,
    /// At least 0.
    pub(super) min: f32,
    pub(super) levels: [u8; N],
}

/// Fits levels, scale and minimum to `x` with weights `w`.
///
/// Every trial spreads its levels from the best minimum found so far, not from the first one: the digests
/// of model.md 5.15 (and GGML) have it so, whatever the text of 5.11 says.
pub(super) fn affine<const N: usize>(x: &[f32; N], w: &[f32; N], rule: &AffineRule) -> Affine<N> {
    let low = x.iter().copied().fold(0.0, f32::min);
    let high = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if high <= low {
        return Affine { scale: 0.0, min: -low, levels: [0; N] };
    }
    let top = f32::from(rule.max_level);
    let levels_at =
        |inverse: f32, low: f32| x.map(|v| clamped(rne(inverse * (v - low)), rule.max_level));
    let error = |scale: f32, offset: f32, levels: &[u8; N]| {
        let mut sum = 0.0;
        for i in 0..N {
            let difference = scale * f32::from(levels[i]) + offset - x[i];
            sum += match rule.loss {
                Loss::Squared => w[i] * (difference * difference),
                Loss::Absolute => w[i] * difference.abs(),
            };
        }
        sum
    };

    let inverse = top / (high - low);
    let mut best = Affine { scale: 1.0 / inverse, min: low, levels: levels_at(inverse, low) };
    let mut best_error = error(best.scale, best.min, &best.levels);
    for k in 0..=rule.last {
        let inverse = (rule.first + rule.step * f32::from(k) + top) / (high - best.min);
        let levels = levels_at(inverse, best.min);
        let Some((scale, offset)) = least_squares(x, w, &levels) else { continue };
        let trial_error = error(scale, offset, &levels);
        if trial_error < best_error {
            best_error = trial_error;
            best = Affine { scale, min: offset, levels };
        }
    }
    best.min = -best.min;
    best
}

/// Scale and offset (at most 0) of the weighted least-squares line through the levels.
fn least_squares<const N: usize>(
    x: &[f32; N],
    w: &[f32; N],
    levels: &[u8; N],
) -> Option<(f32, f32)> {
    let (mut sw, mut sx, mut sl, mut sll, mut sxl) = (0.0f32, 0.0f32, 0.0f32, 0.0f32, 0.0f32);
    for i in 0..N {
        let l = f32::from(levels[i]);
        sw += w[i];
        sx += w[i] * x[i];
        sl += w[i] * l;
        sll += w[i] * l * l;
        sxl += w[i] * l * x[i];
    }
    let determinant = sw * sll - sl * sl;
    if determinant <= 0.0 {
        return None;
    }
    let offset = (sll * sx - sl * sxl) / determinant;
    Some(if offset > 0.0 { (sxl / sll, 0.0) } else { ((sw * sxl - sx * sl) / determinant, offset) })
}

/// Fits `x ≈ scale levels` without offset, for values that are mostly at least 0; levels go up to
/// `max_level` and may go below 0 where `x` does.
pub(super) fn scale<const N: usize>(x: &[f32; N], w: &[f32; N], max_level: u8) -> (f32, [i32; N]) {
    let high = x.iter().copied().fold(0.0, f32::max);
    if high < EPS {
        return (0.0, [0; N]);
    }
    let top = f32::from(max_level);
    let level = |scaled: f32| rne(scaled).min(i32::from(max_level));
    let error = |inverse: f32| {
        let scale = 1.0 / inverse;
        let mut sum = 0.0;
        for i in 0..N {
            let difference = x[i] - scale * level(inverse * x[i]) as f32;
            sum += w[i] * difference * difference;
        }
        sum
    };

    let mut best = top / high;
    let mut best_error = error(best);
    for k in [-4i8, -3, -2, -1, 1, 2, 3, 4] {
        let inverse = (0.1 * f32::from(k) + top) / high;
        let trial_error = error(inverse);
        if trial_error < best_error {
            best_error = trial_error;
            best = inverse;
        }
    }
    let mut levels = x.map(|v| level(best * v));
    let (xl, ll) = descend(x, w, &mut levels, level);
    (if ll > 0.0 { xl / ll } else { 0.0 }, levels)
}

/// Improves one level at a time, in up to five passes. Returns `sum w x l` and `sum w l²`.
fn descend<const N: usize>(
    x: &[f32; N],
    w: &[f32; N],
    levels: &mut [i32; N],
    level: impl Fn(f32) -> i32,
) -> (f32, f32) {
    let (mut xl, mut ll) = (0.0f32, 0.0f32);
    for i in 0..N {
        let l = levels[i] as f32;
        xl += w[i] * x[i] * l;
        ll += w[i] * l * l;
    }
    for _ in 0..5 {
        let mut changed = false;
        for i in 0..N {
            let old = levels[i] as f32;
            let mut xl_trial = xl - w[i] * x[i] * old;
            let mut ll_trial = ll - w[i] * old * old;
            if xl_trial <= 0.0 || ll_trial <= 0.0 {
                continue;
            }
            let trial = level(x[i] * ll_trial / xl_trial);
            if trial == levels[i] {
                continue;
            }
            let new = trial as f32;
            xl_trial += w[i] * x[i] * new;
            ll_trial += w[i] * new * new;
            if xl_trial * xl_trial * ll > xl * xl * ll_trial {
                levels[i] = trial;
                (xl, ll) = (xl_trial, ll_trial);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    (xl, ll)
}
