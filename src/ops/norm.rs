//! Normalisations (model.md 3.2, 3.3): RMS with a weight, L2 of one head, RMS with a SiLU gate.

use super::silu;

/// Number of partial sums of [`sum_of`]; two AVX2 registers, so that additions overlap.
const LANES: usize = 16;

/// Sum of `f(x[i])`: lane `l` adds the values at positions `l, l + 16, ...`, lanes are joined by halving.
pub(super) fn sum_of(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (blocks, tail) = x.as_chunks::<LANES>();
    for block in blocks {
        for (lane, &v) in lanes.iter_mut().zip(block) {
            *lane += f(v);
        }
    }
    for (lane, &v) in lanes.iter_mut().zip(tail) {
        *lane += f(v);
    }
    let mut width = LANES / 2;
    while width > 0 {
        for l in 0..width {
            lanes[l] += lanes[l + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// Sum of `x[i]^2`, in the order of lanes.
pub fn sum_squares(x: &[f32]) -> f32 {
    sum_of(x, |v| v * v)
}

/// `out[i] = x[i] * weight[i] / sqrt(mean(x^2) + eps)`. All three slices have one length.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert!(x.len() == weight.len() && x.len() == out.len(), "rms_norm: lengths differ");
    let scale = inverse_rms(x, eps);
    for ((o, v), w) in out.iter_mut().zip(x).zip(weight) {
        *o = v * scale * w;
    }
}

/// [`rms_norm`] in place.
pub fn rms_norm_mut(x: &mut [f32], weight: &[f32], eps: f32) {
    assert!(x.len() == weight.len(), "rms_norm: lengths differ");
    let scale = inverse_rms(x, eps);
    for (v, w) in x.iter_mut().zip(weight) {
        *v = *v * scale * w;
    }
}

fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    1.0 / (sum_squares(x) / x.len() as f32 + eps).sqrt()
}

/// `x[i] = x[i] * scale / sqrt(sum(x^2) + eps)`: epsilon inside the root, a sum and not a mean, so an all-zero
/// head stays zero. `scale` is 1 for keys and `1 / sqrt(head size)` for queries.
pub fn l2_norm(x: &mut [f32], eps: f32, scale: f32) {
    let factor = scale / (sum_squares(x) + eps).sqrt();
    for v in x {
        *v *= factor;
    }
}

/// `out[j] = o[j] * weight[j] / sqrt(mean(o^2) + eps) * silu(gate[j])`: the norm first, then the gate
/// (model.md 3.3, step 8). One value head.
pub fn gated_rms_norm(o: &[f32], weight: &[f32], gate: &[f32], eps: f32, out: &mut [f32]) {
    assert!(o.len() == gate.len(), "gated_rms_norm: lengths differ");
    rms_norm(o, weight, eps, out);
    for (y, z) in out.iter_mut().zip(gate) {
        *y *= silu(*z);
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "exact results are meant")]
mod tests {
    use super::*;
    use crate::util::rng::Rng;

    const EPS: f32 = 1e-6;

    fn random(n: usize, scale: f32, rng: &mut Rng) -> Vec<f32> {
        (0..n).map(|_| (rng.unit_f32() * 2.0 - 1.0) * scale).collect()
    }

    #[test]
    fn rms_norm_matches_f64_within_four_units() {
        let mut rng = Rng::new(1);
        for n in [1, 2, 15, 16, 17, 31, 128, 255, 256, 2048, 2049] {
            for scale in [1e-4, 1.0, 1e4] {
                let (x, w) = (random(n, scale, &mut rng), random(n, 2.0, &mut rng));
                let mut out = vec![f32::NAN; n];
                rms_norm(&x, &w, EPS, &mut out);
                let mean = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / n as f64;
                let root = (mean + f64::from(EPS)).sqrt();
                for i in 0..n {
                    let exact = f64::from(x[i]) * f64::from(w[i]) / root;
                    // Sums of n squares in 16 lanes: below 4 units of 2^-23 for n up to 2049.
                    assert!((f64::from(out[i]) - exact).abs() <= exact.abs() * 5e-7, "n {n} i {i}");
                }
            }
        }
    }

    #[test]
    fn known_values() {
        let mut out = [0.0; 2];
        rms_norm(&[3.0, -4.0], &[1.0, 2.0], 0.0, &mut out);
        let rms = 12.5f32.sqrt();
        assert!((out[0] - 3.0 / rms).abs() < 1e-6 && (out[1] + 8.0 / rms).abs() < 1e-6);

        let mut head = [3.0, 4.0];
        l2_norm(&mut head, 0.0, 0.5);
        assert!((head[0] - 0.3).abs() < 1e-7 && (head[1] - 0.4).abs() < 1e-7);

        let mut zeros = [0.0; 128];
        l2_norm(&mut zeros, EPS, 1.0);
        assert_eq!(zeros, [0.0; 128]);

        // Epsilon is inside the root: a tiny head is damped, not blown up to length 1.
        let mut tiny = [1e-3, 0.0];
        l2_norm(&mut tiny, EPS, 1.0);
        assert!((tiny[0] - 1e-3 / 2e-6f32.sqrt()).abs() < 1e-6);
    }

    #[test]
    fn the_gate_comes_after_the_norm() {
        let (o, w, z) = ([1.0, 2.0, -2.0], [1.0, 0.5, 2.0], [0.0, 1.0, -30.0]);
        let mut out = [f32::NAN; 3];
        gated_rms_norm(&o, &w, &z, EPS, &mut out);
        let root = (3.0f64 + 1e-6).sqrt();
        let silu = |x: f64| x / (1.0 + (-x).exp());
        for i in 0..3 {
            let exact = f64::from(o[i]) * f64::from(w[i]) / root * silu(f64::from(z[i]));
            assert!((f64::from(out[i]) - exact).abs() <= 1e-6 * exact.abs().max(1e-9), "{i}");
        }
    }
}
