//! Advanced SIMD of aarch64: every 256-bit value is two registers, low positions first.
//!
//! Only instructions that every aarch64 has: products of bytes come from `smull`, summed in pairs and
//! again in pairs, which is exact for all operands. Quants need no shift.

#[cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "well-known names"))]
use std::arch::aarch64::*;

use super::lanes::Eight;
use super::machine::{Iq2Words, Kernel, Machine};
use crate::quant::iq2_grid::{GRID, expand_signs};
use crate::quant::plain::f16_to_f32;

/// Wraps instructions of Advanced SIMD.
macro_rules! neon {
    ($body:expr) => {
        // SAFETY: Advanced SIMD is part of every aarch64 target of Rust's std, and the token exists only
        // where it was found; loads and stores go through references to arrays of the size accessed.
        unsafe { $body }
    };
}

/// Advanced SIMD.
#[derive(Debug, Clone, Copy)]
pub(in crate::quant) struct Neon(());

impl Neon {
    /// The token, where the machine has the instructions.
    pub(in crate::quant) fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(()))
    }
}

/// Sums of the four products at positions 4l..4l+3 of 16.
#[inline(always)]
fn dot_16(w: int8x16_t, q: int8x16_t) -> int32x4_t {
    neon!({
        let low = vmull_s8(vget_low_s8(w), vget_low_s8(q));
        let high = vmull_high_s8(w, q);
        // Pairs stay within 2 · 128 · 127 < 2^15.
        vpaddlq_s16(vpaddq_s16(low, high))
    })
}

/// Both halves of something.
#[inline(always)]
fn both<A: Copy, B: Copy, C>(a: [A; 2], b: [B; 2], f: impl Fn(A, B) -> C) -> [C; 2] {
    [f(a[0], b[0]), f(a[1], b[1])]
}

impl Machine for Neon {
    type Bytes = [int8x16_t; 2];
    type Shorts = [int16x8_t; 2];
    type Ints = [int32x4_t; 2];
    type Floats = [float32x4_t; 2];
    type Scales = [[i16; 8]; 2];
    type Factor = [i32; 2];
    type Wide = Eight<Self>;

    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        // Nothing to switch on: the target has these instructions everywhere.
        kernel.run(self)
    }

    #[inline(always)]
    fn wide(self) -> Eight<Self> {
        Eight(self)
    }

    #[inline(always)]
    fn prefetch(self, _from: &[u8], _ahead: usize) {
        // The intrinsic is not stable; the hardware's prefetchers have to do.
    }

    #[inline(always)]
    fn bytes(self, from: &[u8; 32]) -> Self::Bytes {
        let from = from.as_ptr().cast::<i8>();
        neon!([vld1q_s8(from), vld1q_s8(from.add(16))])
    }

    #[inline(always)]
    fn word(self, four: [u8; 4]) -> Self::Bytes {
        neon!([vreinterpretq_s8_s32(vdupq_n_s32(i32::from_le_bytes(four))); 2])
    }

    #[inline(always)]
    fn store_bytes(self, b: Self::Bytes, to: &mut [u8; 32]) {
        let to = to.as_mut_ptr().cast::<i8>();
        neon!({
            vst1q_s8(to, b[0]);
            vst1q_s8(to.add(16), b[1]);
        });
    }

    #[inline(always)]
    fn field<const SHIFT: i32>(self, b: Self::Bytes, mask: u8) -> Self::Bytes {
        neon!(b.map(|b| {
            let shifted = vshlq_u8(vreinterpretq_u8_s8(b), vdupq_n_s8(-(SHIFT as i8)));
            vreinterpretq_s8_u8(vandq_u8(shifted, vdupq_n_u8(mask)))
        }))
    }

    #[inline(always)]
    fn raise<const SHIFT: i32>(self, b: Self::Bytes, mask: u8) -> Self::Bytes {
        neon!(b.map(|b| {
            let shifted = vshlq_u8(vreinterpretq_u8_s8(b), vdupq_n_s8(SHIFT as i8));
            vreinterpretq_s8_u8(vandq_u8(shifted, vdupq_n_u8(mask)))
        }))
    }

    #[inline(always)]
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        both(a, b, |a, b| neon!(vorrq_s8(a, b)))
    }

    #[inline(always)]
    fn nibbles(self, from: &[u8; 16]) -> Self::Bytes {
        neon!({
            let b = vld1q_u8(from.as_ptr());
            let low = vandq_u8(b, vdupq_n_u8(15));
            [vreinterpretq_s8_u8(low), vreinterpretq_s8_u8(vshrq_n_u8::<4>(b))]
        })
    }

    #[inline(always)]
    fn minus(self, b: Self::Bytes, k: i8) -> Self::Bytes {
        b.map(|b| neon!(vsubq_s8(b, vdupq_n_s8(k))))
    }

    #[inline(always)]
    fn flip(self, b: Self::Bytes, signs: u32) -> Self::Bytes {
        const BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
        let [s0, s1, s2, s3] = signs.to_le_bytes();
        both(b, [[s0, s1], [s2, s3]], |b, [low, high]| {
            neon!({
                let spread = vcombine_u8(vdup_n_u8(low), vdup_n_u8(high));
                let mask = vreinterpretq_s8_u8(vtstq_u8(spread, vld1q_u8(BITS.as_ptr())));
                vsubq_s8(veorq_s8(b, mask), mask)
            })
        })
    }

    #[inline(always)]
    fn grid(self, indices: [u8; 4]) -> Self::Bytes {
        let [a, b, c, d] = indices.map(|i| GRID[usize::from(i)]);
        neon!([
            vcombine_s8(vcreate_s8(a), vcreate_s8(b)),
            vcombine_s8(vcreate_s8(c), vcreate_s8(d)),
        ])
    }

    #[inline(always)]
    fn iq2_sums<const T: usize>(
        self,
        _: &[u8; 64],
        _: [&[[u8; 32]; 8]; T],
    ) -> Option<[Self::Ints; T]> {
        None
    }

    #[inline(always)]
    fn as_shorts(self, b: Self::Bytes) -> Self::Shorts {
        neon!(b.map(|half| vreinterpretq_s16_s8(half)))
    }

    #[inline(always)]
    fn shorts(self, from: &[i16; 16]) -> Self::Shorts {
        neon!([vld1q_s16(from.as_ptr()), vld1q_s16(from.as_ptr().add(8))])
    }

    #[inline(always)]
    fn store_shorts(self, s: Self::Shorts, to: &mut [i16; 16]) {
        neon!({
            vst1q_s16(to.as_mut_ptr(), s[0]);
            vst1q_s16(to.as_mut_ptr().add(8), s[1]);
        });
    }

    #[inline(always)]
    fn shorts_zero(self) -> Self::Shorts {
        neon!([vdupq_n_s16(0); 2])
    }

    #[inline(always)]
    fn nibble_shorts(self, from: &[u8; 16]) -> (Self::Shorts, Self::Shorts) {
        let [low, high] = self.nibbles(from);
        neon!((
            [
                vmovl_s8(vget_low_s8(vuzp1q_s8(low, low))),
                vmovl_s8(vget_low_s8(vuzp2q_s8(low, low))),
            ],
            [vmovl_s8(vget_low_s8(high)), vmovl_high_s8(high)],
        ))
    }

    #[inline(always)]
    fn even_then_odd(self, from: &[u8; 16]) -> Self::Shorts {
        neon!({
            let b = vld1q_s8(from.as_ptr().cast());
            [vmovl_s8(vget_low_s8(vuzp1q_s8(b, b))), vmovl_s8(vget_low_s8(vuzp2q_s8(b, b)))]
        })
    }

    #[inline(always)]
    fn repeated(self, from: u64) -> Self::Shorts {
        neon!([vreinterpretq_s16_u16(vmovl_u8(vcreate_u8(from))); 2])
    }

    #[inline(always)]
    fn doubled(self, from: u64) -> Self::Shorts {
        neon!({
            let shorts = vreinterpretq_s16_u16(vmovl_u8(vcreate_u8(from)));
            [vzip1q_s16(shorts, shorts), vzip2q_s16(shorts, shorts)]
        })
    }

    #[inline(always)]
    fn pair(self, pair: [i16; 2]) -> Self::Shorts {
        let [low, high] = pair.map(i16::cast_unsigned);
        let word = u32::from(low) | u32::from(high) << 16;
        neon!([vreinterpretq_s16_u32(vdupq_n_u32(word)); 2])
    }

    #[inline(always)]
    fn scales(self, shorts: Self::Shorts) -> Self::Scales {
        let mut out = [[0; 8]; 2];
        for (to, from) in out.iter_mut().zip(shorts) {
            neon!(vst1q_s16(to.as_mut_ptr(), from));
        }
        out
    }

    #[inline(always)]
    fn factor(self, scales: Self::Scales, j: usize) -> Self::Factor {
        [i32::from(scales[0][j]), i32::from(scales[1][j])]
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "scales are shorts")]
    fn factor_words(self, factor: Self::Factor) -> [u32; 2] {
        factor.map(|scale| u32::from((scale as i16).cast_unsigned()))
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the low short is meant")]
    fn uniform_factor(self, twice: u32) -> Self::Factor {
        [i32::from((twice as u16).cast_signed()); 2]
    }

    #[inline(always)]
    fn iq2_words(self, pairs: &[u8; 64]) -> Iq2Words {
        let mut out = Iq2Words { signs: [0; 8], scales: [0; 8] };
        for (g, pair) in pairs.as_chunks::<8>().0.iter().enumerate() {
            let word = u32::from_le_bytes([pair[4], pair[5], pair[6], pair[7]]);
            out.signs[g] = expand_signs(word);
            out.scales[g] = (2 * (word >> 28) + 1) * 0x1_0001;
        }
        out
    }

    #[inline(always)]
    fn int(self, i: i32) -> Self::Ints {
        neon!([vdupq_n_s32(i); 2])
    }

    #[inline(always)]
    fn ints_zero(self) -> Self::Ints {
        neon!([vdupq_n_s32(0); 2])
    }

    #[inline(always)]
    fn store_ints(self, i: Self::Ints, to: &mut [i32; 8]) {
        neon!({
            vst1q_s32(to.as_mut_ptr(), i[0]);
            vst1q_s32(to.as_mut_ptr().add(4), i[1]);
        });
    }

    #[inline(always)]
    fn sum(self, i: Self::Ints) -> Self::Ints {
        neon!([vdupq_n_s32(vaddvq_s32(vaddq_s32(i[0], i[1]))); 2])
    }

    #[inline(always)]
    fn add_pairs(self, acc: Self::Ints, a: Self::Shorts, b: Self::Shorts) -> Self::Ints {
        let products = both(a, b, |a, b| {
            neon!({
                let low = vmull_s16(vget_low_s16(a), vget_low_s16(b));
                vpaddq_s32(low, vmull_high_s16(a, b))
            })
        });
        both(acc, products, |acc, products| neon!(vaddq_s32(acc, products)))
    }

    #[inline(always)]
    fn dot(self, w: Self::Bytes, q: Self::Bytes) -> Self::Ints {
        both(w, q, dot_16)
    }

    #[inline(always)]
    fn add_unsigned(
        self,
        acc: Self::Ints,
        n: Self::Bytes,
        q: Self::Bytes,
        factor: Self::Factor,
    ) -> Self::Ints {
        self.add_signed(acc, n, q, factor)
    }

    #[inline(always)]
    fn add_signed(
        self,
        acc: Self::Ints,
        w: Self::Bytes,
        q: Self::Bytes,
        factor: Self::Factor,
    ) -> Self::Ints {
        let sums = both(self.dot(w, q), factor, |sums, factor| neon!(vmulq_n_s32(sums, factor)));
        both(acc, sums, |acc, sums| neon!(vaddq_s32(acc, sums)))
    }

    #[inline(always)]
    fn shift_full(self, q: Self::Bytes) -> Self::Bytes {
        q
    }

    #[inline(always)]
    fn add_full(self, acc: Self::Ints, shifted: Self::Bytes, w: Self::Bytes) -> Self::Ints {
        both(acc, self.dot(w, shifted), |acc, sums| neon!(vaddq_s32(acc, sums)))
    }

    #[inline(always)]
    fn shift_small(self, q: Self::Bytes) -> Self::Bytes {
        q
    }

    #[inline(always)]
    fn add_small(
        self,
        acc: Self::Ints,
        shifted: Self::Bytes,
        w: Self::Bytes,
        factor: Self::Factor,
    ) -> Self::Ints {
        self.add_signed(acc, w, shifted, factor)
    }

    #[inline(always)]
    fn splat_half(self, from: [u8; 2]) -> Self::Floats {
        self.splat(f16_to_f32(u16::from_le_bytes(from)))
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::Floats {
        neon!([vdupq_n_f32(x); 2])
    }

    #[inline(always)]
    fn floats(self, from: &[f32; 8]) -> Self::Floats {
        neon!([vld1q_f32(from.as_ptr()), vld1q_f32(from.as_ptr().add(4))])
    }

    #[inline(always)]
    fn store_floats(self, f: Self::Floats, to: &mut [f32; 8]) {
        neon!({
            vst1q_f32(to.as_mut_ptr(), f[0]);
            vst1q_f32(to.as_mut_ptr().add(4), f[1]);
        });
    }

    #[inline(always)]
    fn floats_le(self, from: &[u8; 32]) -> Self::Floats {
        self.bytes(from).map(|b| neon!(vreinterpretq_f32_s8(b)))
    }

    #[inline(always)]
    fn halves(self, from: &[u8; 16]) -> Self::Floats {
        // As `plain::f16_to_f32`: conversion instructions work on a type that is not stable.
        neon!({
            let halves = vreinterpretq_u16_u8(vld1q_u8(from.as_ptr()));
            [vmovl_u16(vget_low_u16(halves)), vmovl_high_u16(halves)].map(|halves| {
                let sign = vshlq_n_u32::<16>(vandq_u32(halves, vdupq_n_u32(0x8000)));
                let magnitude = vshlq_n_u32::<13>(vandq_u32(halves, vdupq_n_u32(0x7FFF)));
                let rebias = vdupq_n_f32(f32::from_bits(0x7780_0000));
                let rebased = vmulq_f32(vreinterpretq_f32_u32(magnitude), rebias);
                let special = vcgeq_u32(magnitude, vdupq_n_u32(0x7C00 << 13));
                let special = vandq_u32(special, vdupq_n_u32(0x7F80_0000));
                let bits = vorrq_u32(vreinterpretq_u32_f32(rebased), special);
                vreinterpretq_f32_u32(vorrq_u32(sign, bits))
            })
        })
    }

    #[inline(always)]
    fn bfloats(self, from: &[u8; 16]) -> Self::Floats {
        neon!({
            let halves = vreinterpretq_u16_u8(vld1q_u8(from.as_ptr()));
            [
                vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_low_u16(halves))),
                vreinterpretq_f32_u32(vshll_high_n_u16::<16>(halves)),
            ]
        })
    }

    #[inline(always)]
    fn bytes_to_floats(self, b: Self::Bytes) -> [Self::Floats; 4] {
        neon!({
            let [a, b] = b;
            let shorts = [
                vmovl_s8(vget_low_s8(a)),
                vmovl_high_s8(a),
                vmovl_s8(vget_low_s8(b)),
                vmovl_high_s8(b),
            ];
            shorts.map(|s| {
                [vcvtq_f32_s32(vmovl_s16(vget_low_s16(s))), vcvtq_f32_s32(vmovl_high_s16(s))]
            })
        })
    }

    #[inline(always)]
    fn to_floats(self, i: Self::Ints) -> Self::Floats {
        i.map(|i| neon!(vcvtq_f32_s32(i)))
    }

    #[inline(always)]
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        both(a, b, |a, b| neon!(vaddq_f32(a, b)))
    }

    #[inline(always)]
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        both(a, b, |a, b| neon!(vmulq_f32(a, b)))
    }

    #[inline(always)]
    fn fma(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        neon!([vfmaq_f32(c[0], a[0], b[0]), vfmaq_f32(c[1], a[1], b[1])])
    }
}
