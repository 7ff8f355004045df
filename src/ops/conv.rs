//! Causal depthwise convolution with SiLU (model.md 3.3 step 2, 3.4).

use super::silu;

/// `out[c] = silu( sum over j of taps[j][c] * window[j][c] )`, `j = 0` the oldest row and the last one the current
/// token. `window` holds raw rows (before convolution and SiLU); `taps` is tap-major: `window.len()` rows of
/// `out.len()` channels, the transpose of the stored tensor. Terms are added oldest first.
pub fn conv_silu(window: &[&[f32]], taps: &[f32], out: &mut [f32]) {
    let channels = out.len();
    assert!(taps.len() == window.len() * channels, "conv: {} taps", taps.len());
    for (j, (row, tap)) in window.iter().zip(taps.chunks_exact(channels)).enumerate() {
        assert!(row.len() == channels, "conv: a row of {} channels", row.len());
        let terms = out.iter_mut().zip(row.iter().zip(tap));
        if j == 0 {
            terms.for_each(|(o, (x, w))| *o = x * w);
        } else {
            terms.for_each(|(o, (x, w))| *o += x * w);
        }
    }
    for o in out {
        *o = silu(*o);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_tap_meets_oldest_row() {
        let rows: Vec<Vec<f32>> = (0..4).map(|r| vec![r as f32 + 1.0, -1.0, 0.5]).collect();
        let window: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
        let taps = [1.0, 0.1, 0.0, 10.0, 0.2, 0.0, 100.0, 0.3, 0.0, 0.001, 0.4, 2.0];
        let mut out = [f32::NAN; 3];
        conv_silu(&window, &taps, &mut out);
        let silu = |x: f64| x / (1.0 + (-x).exp());
        for (got, want) in out.iter().zip([silu(321.004), silu(-1.0), silu(1.0)]) {
            assert!((f64::from(*got) - want).abs() < 1e-4, "{out:?}");
        }
    }
}
