//! Logistic functions in their stable forms (model.md 11.10, 11.23) and the gated product of the experts.

use super::exp::{exp, rounded};

/// `1 / (1 + e^-x)`; the exponential is always of a value <= 0, so nothing overflows. Within 2.5 units in the
/// last place.
#[inline]
pub fn sigmoid(x: f32) -> f32 {
    let e = exp(-x.abs());
    let numerator = if x < 0.0 { e } else { 1.0 };
    numerator / (1.0 + e)
}

/// `x * sigmoid(x)`.
#[inline]
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// `log(1 + e^t)`, `t` itself above 20. In f64: a step size of e^-20 must not vanish against 1, and there are only
/// as many calls as value heads.
pub fn softplus(t: f32) -> f32 {
    if t > 20.0 { t } else { rounded(f64::from(t).exp().ln_1p()) }
}

/// `gate[i] = silu(gate[i]) * up[i]`. Both slices have one length.
pub fn swiglu_mut(gate: &mut [f32], up: &[f32]) {
    assert!(gate.len() == up.len(), "swiglu: lengths differ");
    for (g, u) in gate.iter_mut().zip(up) {
        *g = silu(*g) * u;
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "exact results are meant")]
mod tests {
    use super::*;

    fn close(got: f32, exact: f64, relative: f64) {
        assert!((f64::from(got) - exact).abs() <= exact.abs() * relative, "{got} against {exact}");
    }

    #[test]
    fn sigmoid_and_silu_match_f64_over_their_range() {
        for i in -8800..=8800 {
            let x = i as f32 / 100.0;
            let exact = 1.0 / (1.0 + f64::from(-x).exp());
            close(sigmoid(x), exact, 3e-7);
            close(silu(x), f64::from(x) * exact, 4e-7);
        }
        assert_eq!(sigmoid(0.0), 0.5);
        assert_eq!(sigmoid(200.0), 1.0);
        assert_eq!(sigmoid(-200.0), 0.0);
        assert_eq!(silu(-200.0), 0.0);
        assert!(sigmoid(f32::NAN).is_nan());
    }

    #[test]
    fn softplus_keeps_small_steps() {
        for t in [-80.0f32, -30.0, -16.7, -10.0, -1.0, 0.0, 1.0, 19.9] {
            close(softplus(t), f64::from(t).exp().ln_1p(), 1e-7);
        }
        assert!(softplus(-20.0) > 2e-9);
        assert_eq!(softplus(20.5), 20.5);
    }

    #[test]
    fn the_gate_is_the_first_argument() {
        let mut out = [0.0, 1.0, -2.0];
        swiglu_mut(&mut out, &[5.0, 3.0, 2.0]);
        assert_eq!(out[0], 0.0);
        close(out[1], 3.0 / (1.0 + (-1.0f64).exp()), 4e-7);
        close(out[2], -4.0 / (1.0 + 2.0f64.exp()), 4e-7);
    }
}
