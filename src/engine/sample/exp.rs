//! The exponential behind a draw.
//!
//! Plain additions and multiplications in a fixed order: unlike the platform's library it gives the same bits
//! everywhere, so that a seed draws the same tokens on every machine, and the compiler turns a loop over a
//! vocabulary into vector code.

/// exp(x) for x ≤ 0, to two units in the last place; 0 below -87, short of the subnormal numbers.
#[inline]
pub(super) fn exp(x: f32) -> f32 {
    // Adding it rounds to a whole number and leaves that number in the low bits.
    const WHOLE: f32 = 12_582_912.0;
    // ln 2 in two parts: products of the first with small whole numbers are exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    // (exp(r) - 1 - r) / r^2 on |r| ≤ ln 2 / 2, highest power first; Cephes, `expf`, rounded to f32.
    const TAIL: [f32; 6] =
        [1.987_569_2e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5e-1];
    let whole = x * std::f32::consts::LOG2_E + WHOLE;
    let n = whole - WHOLE;
    let r = x - n * LN_2[0] - n * LN_2[1];
    let tail = TAIL.iter().fold(0.0, |sum, c| sum * r + c);
    let power = f32::from_bits((whole.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    let y = (tail * r * r + r + 1.0) * power;
    if x < -87.0 { 0.0 } else { y }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_close_to_the_exact_value() {
        let mut worst = 0.0f64;
        for i in 0..=870_000u32 {
            let x = -(i as f32) / 10_000.0;
            let exact = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - exact).abs() / exact);
        }
        assert!(worst < 2.4e-7, "{worst:e}");
    }

    #[test]
    fn ends_are_exact() {
        assert_eq!(exp(0.0).to_bits(), 1.0f32.to_bits());
        assert_eq!(exp(-0.0).to_bits(), 1.0f32.to_bits());
        for x in [-87.001, -1e30, f32::NEG_INFINITY] {
            assert_eq!(exp(x).to_bits(), 0);
        }
    }

    #[test]
    fn bits_are_fixed_for_ever() {
        let bits: Vec<u32> = [-1e-3, -0.5, -1.0, -10.0, -80.0].map(|x| exp(x).to_bits()).into();
        assert_eq!(bits, [1_065_336_447, 1_058_751_896, 1_052_531_378, 943_614_926, 96_464_058]);
    }
}
