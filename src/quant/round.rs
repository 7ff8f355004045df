//! The two roundings of the quantizers (model.md 5.8). All quantizer arithmetic is f32, left to
//! right, without fused multiply-add: the stored bytes are promised.

/// Half to even, to an integer; NaN gives 0, and anything beyond four million that much.
///
/// Done by adding and subtracting 1.5·2^23, which vectorizes everywhere; instructions that round are not
/// part of the base x86-64.
#[inline]
pub(super) fn rne(x: f32) -> i32 {
    const MAGIC: f32 = 12_582_912.0;
    let x = if x.is_nan() { 0.0 } else { x.clamp(-4_000_000.0, 4_000_000.0) };
    (x + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits()).cast_signed()
}

/// Half away from zero, to an integer; NaN gives 0 and anything too large the nearest `i32`.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the cast saturates, as documented")]
pub(super) fn rha(x: f32) -> i32 {
    x.round() as i32
}

/// The largest magnitude as a bit pattern, in which NaN counts above infinity: a row with a NaN must
/// not quantize to harmless numbers.
#[inline]
pub(super) fn max_magnitude(x: &[f32]) -> f32 {
    f32::from_bits(x.iter().map(|v| v.to_bits() & 0x7FFF_FFFF).max().unwrap_or(0))
}

/// The value of largest magnitude with its sign, the first one on ties; 0 for an empty slice.
#[inline]
pub(super) fn extreme(x: &[f32]) -> f32 {
    let largest = max_magnitude(x);
    x.iter().copied().find(|v| v.to_bits() & 0x7FFF_FFFF == largest.to_bits()).unwrap_or(0.0)
}

/// `q` as a signed byte, after clamping to ±127.
#[inline]
pub(super) fn signed_byte(q: i32) -> i8 {
    i8::try_from(q.clamp(-127, 127)).expect("clamped")
}

/// `q` clamped to 0..=`max` as a byte.
#[inline]
pub(super) fn clamped(q: i32, max: u8) -> u8 {
    u8::try_from(q.clamp(0, i32::from(max))).expect("clamped")
}
