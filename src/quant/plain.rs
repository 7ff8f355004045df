//! Halves and bfloats: conversions by bits, the same on every machine (model.md 5.1).
//!
//! Written out rather than taken from the hardware because two things are promised: NaN has one
//! spelling when stored, and f16 subnormals survive in both directions.

use std::cmp::Ordering;

/// The value of an IEEE half. Exact; NaN comes back quiet, its payload kept.
#[inline]
pub fn f16_to_f32(half: u16) -> f32 {
    /// 2^112: moves the half's exponent bias of 15 to the single's 127.
    const REBIAS: f32 = f32::from_bits(0x7780_0000);
    /// Infinity and NaN of a half, at the place of a single's exponent.
    const SPECIAL: u32 = 0x7C00 << 13;
    let sign = u32::from(half & 0x8000) << 16;
    let magnitude = u32::from(half & 0x7FFF) << 13;
    let bits = match magnitude.cmp(&SPECIAL) {
        Ordering::Less => (f32::from_bits(magnitude) * REBIAS).to_bits(),
        Ordering::Equal => 0x7F80_0000,
        Ordering::Greater => 0x7FC0_0000 | magnitude,
    };
    f32::from_bits(sign | bits)
}

/// The nearest IEEE half, ties to even. Too large values become infinity, subnormals are kept, NaN
/// becomes `0x7E00` with the sign of `x`.
#[inline]
pub fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = u16::try_from((bits >> 16) & 0x8000).expect("one bit below 2^16");
    let magnitude = bits & 0x7FFF_FFFF;
    let rounded = if magnitude > 0x7F80_0000 {
        0x7E00
    } else if magnitude >= 0x4780_0000 {
        // 65536 and above, infinity included; 65520..65536 gets there by the rounding below.
        0x7C00
    } else if magnitude >= 0x3880_0000 {
        // Normal: rebias, then round the 13 bits that go; a carry into the exponent is right.
        let rebased = magnitude - (112 << 23);
        (rebased + 0xFFF + ((rebased >> 13) & 1)) >> 13
    } else {
        // Subnormal: adding 0.5 leaves a multiple of 2^-24 in the low mantissa bits, rounded.
        (f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits()
    };
    sign | u16::try_from(rounded).expect("at most 0x7E00")
}

/// The value of a bfloat, the upper half of a single. Exact.
#[inline]
pub fn bf16_to_f32(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// The nearest bfloat, ties to even; NaN keeps its upper bits, with bit 6 set.
#[inline]
pub fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded =
        if x.is_nan() { (bits >> 16) | 0x40 } else { (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 };
    u16::try_from(rounded).expect("a u32 shifted by 16")
}

/// The little-endian half at `at`.
#[inline]
pub(super) fn f16_at(block: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// Stores `x` as a little-endian half at `at`, and says what was stored.
#[inline]
pub(super) fn put_f16(block: &mut [u8], at: usize, x: f32) -> f32 {
    let half = f32_to_f16(x);
    block[at..at + 2].copy_from_slice(&half.to_le_bytes());
    f16_to_f32(half)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_halves() {
        for (half, value) in [
            (0x3C00, 1.0),
            (0xBC00, -1.0),
            (0x4000, 2.0),
            (0xC000, -2.0),
            (0x0000, 0.0),
            (0x0001, 2f32.powi(-24)),
            (0x03FF, 1023.0 * 2f32.powi(-24)),
            (0x8001, -(2f32.powi(-24))),
            (0x0400, 2f32.powi(-14)),
            (0x7BFF, 65504.0),
            (0x7C00, f32::INFINITY),
            (0xFC00, f32::NEG_INFINITY),
        ] {
            assert_eq!(f16_to_f32(half).to_bits(), value.to_bits(), "{half:04x}");
            assert_eq!(f32_to_f16(value), half, "{value}");
        }
        assert!(f16_to_f32(0x7E00).is_nan() && f16_to_f32(0xFC01).is_nan());
        assert_eq!(f32_to_f16(f32::NAN), 0x7E00);
        assert_eq!(f32_to_f16(f32::from_bits(0xFF80_0001)), 0xFE00);
        assert_eq!(f32_to_f16(65519.9), 0x7BFF);
        assert_eq!(f32_to_f16(65520.0), 0x7C00);
        assert_eq!(f32_to_f16(2f32.powi(-25)), 0, "a tie goes to even");
        assert_eq!(f32_to_f16(2f32.powi(-25) * 1.0001), 1);
    }

    #[test]
    fn every_half_survives_a_round_trip_and_agrees_with_the_half_crate() {
        for half in 0..=u16::MAX {
            let value = f16_to_f32(half);
            let other = half::f16::from_bits(half).to_f32_const();
            assert!(value.to_bits() == other.to_bits() || value.is_nan() && other.is_nan());
            if !value.is_nan() {
                assert_eq!(f32_to_f16(value), half);
            }
        }
    }

    #[test]
    fn bfloats_round_to_even_and_keep_nan() {
        assert_eq!(f32_to_bf16(1.0), 0x3F80);
        assert_eq!(f32_to_bf16(f32::from_bits(0x3F80_8000)), 0x3F80);
        assert_eq!(f32_to_bf16(f32::from_bits(0x3F81_8000)), 0x3F82);
        assert_eq!(f32_to_bf16(f32::MAX), 0x7F80);
        assert_eq!(f32_to_bf16(f32::from_bits(0xFF80_0001)), 0xFFC0);
        assert_eq!(bf16_to_f32(0xC040).to_bits(), (-3.0f32).to_bits());
    }

    proptest! {
        #[test]
        fn any_single_rounds_like_the_half_crate(bits: u32) {
            let x = f32::from_bits(bits);
            if !x.is_nan() {
                prop_assert_eq!(f32_to_f16(x), half::f16::from_f32_const(x).to_bits());
                prop_assert_eq!(f32_to_bf16(x), half::bf16::from_f32(x).to_bits());
            }
        }
    }
}
