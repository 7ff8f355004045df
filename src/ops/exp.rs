//! The exponential function, the same bits on every instruction set.
//!
//! The one of the C library differs between its variants for different processors. This one is branch-free, so
//! that a loop over a slice becomes vector code.

/// 1.5 * 2^23: adding it rounds a small float to an integer, which then stands in the low mantissa bits.
const ROUND: f32 = 12_582_912.0;
/// ln 2 in two parts; the first has 10 significant bits, so its product with an exponent is exact.
const LN2_HIGH: f32 = 355.0 / 512.0;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Polynomial of (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2, highest power first (Cephes `expf`).
#[expect(clippy::excessive_precision, reason = "the published decimal coefficients")]
const POLYNOMIAL: [f32; 6] = [
    1.987_569_15e-4,
    1.398_199_95e-3,
    8.333_451_9e-3,
    4.166_579_6e-2,
    1.666_666_55e-1,
    5.000_000_1e-1,
];

/// `e^x`, within 1 unit in the last place of the exact value over all of f32, subnormal results included.
/// Overflows to infinity above 88.72, is 0 below -103.98, keeps NaN.
#[inline]
pub fn exp(x: f32) -> f32 {
    // Comparisons, not `clamp`: NaN must pass, and both become plain vector selects.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * LN2_HIGH - n * LN2_LOW;
    let mut p = POLYNOMIAL[0];
    for c in &POLYNOMIAL[1..] {
        p = p * r + c;
    }
    let y = 1.0 + (r + r * r * p);
    // n is between -151 and 129: two factors, so that neither leaves the range of normal numbers and a
    // subnormal result is rounded once.
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    let half = n >> 1;
    y * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// A value computed in f64 because f32 would lose bits on the way, rounded once.
#[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is the purpose")]
pub(super) fn rounded(x: f64) -> f32 {
    x as f32
}

/// 2^n for n in -126..=127.
#[inline]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits(n.wrapping_add(127).cast_unsigned() << 23)
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "exact results are meant")]
mod tests {
    use super::*;

    /// Distance from the exact value in units in the last place of the exact value.
    fn ulps(x: f32) -> f64 {
        let exact = f64::from(x).exp();
        let nearest = rounded(exact);
        let unit = f64::from(nearest.next_up()) - f64::from(nearest);
        (f64::from(exp(x)) - exact).abs() / unit
    }

    #[test]
    fn stays_within_one_unit_in_the_last_place() {
        // Every 997th bit pattern of both signs up to the overflow; all of them were checked once.
        let mut worst = (0.0f64, 0.0f32);
        for sign in [0u32, 0x8000_0000] {
            for bits in (0..0x42d0_0000u32).step_by(997) {
                let x = f32::from_bits(bits | sign);
                if x > 88.7 {
                    break;
                }
                let e = ulps(x);
                if e > worst.0 {
                    worst = (e, x);
                }
            }
        }
        assert!(worst.0 <= 1.0, "{worst:?}");
    }

    #[test]
    fn edges() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(89.5), f32::INFINITY);
        assert_eq!(exp(-104.5), 0.0);
        assert!(exp(-100.0) > 0.0);
        assert!(exp(f32::NAN).is_nan());
    }
}
