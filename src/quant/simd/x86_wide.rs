//! Sixteen lanes: AVX-512 with VNNI on 512 bits.
//!
//! Only panels use them: the formats' own layouts are made of 256 bits, and out of memory those are fast
//! enough.

use std::arch::asm;
#[cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "well-known names"))]
use std::arch::x86_64::*;

use super::lanes::Lanes;
use super::x86::Avx512;

/// Wraps instructions of AVX-512 F, BW and VNNI.
macro_rules! avx512 {
    ($body:expr) => {
        // SAFETY: the token comes from one that exists only where these instructions do; loads and stores go
        // through references to arrays of the size accessed, without alignment.
        unsafe { $body }
    };
}

/// `acc` + sums of two products of shorts. Written out, because compilers that tune for no machine in
/// particular make two instructions of it, for machines on which they are quicker.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) fn dot_shorts(mut acc: __m512i, a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: an instruction on registers that the target features above provide.
    unsafe {
        asm!("vpdpwssd {acc}, {a}, {b}", acc = inout(zmm_reg) acc, a = in(zmm_reg) a,
            b = in(zmm_reg) b, options(pure, nomem, nostack, preserves_flags));
    }
    acc
}

/// AVX-512 with VNNI.
#[derive(Debug, Clone, Copy)]
pub(in crate::quant) struct Wide(());

impl Wide {
    /// The token, out of that of the same instructions on 256 bits.
    #[inline(always)]
    pub(super) fn new<const VBMI: bool>(_: Avx512<VBMI>) -> Self {
        Self(())
    }
}

impl Lanes for Wide {
    const COUNT: usize = 16;
    const ROWS: usize = 4;
    type Words = __m512i;
    type Ints = __m512i;
    type Floats = __m512;
    type Factor = __m512i;

    #[inline(always)]
    fn words(self, from: &[u8]) -> __m512i {
        let from: &[u8; 64] = from.first_chunk().expect("sixteen words");
        avx512!(_mm512_loadu_si512(from.as_ptr().cast()))
    }

    #[inline(always)]
    fn weights(self, four: [u8; 4]) -> __m512i {
        avx512!(_mm512_set1_epi32(i32::from_le_bytes(four)))
    }

    #[inline(always)]
    fn factor(self, twice: u32) -> __m512i {
        avx512!(_mm512_set1_epi32(twice.cast_signed()))
    }

    #[inline(always)]
    fn int(self, i: i32) -> __m512i {
        avx512!(_mm512_set1_epi32(i))
    }

    #[inline(always)]
    fn add_full(self, acc: __m512i, shifted: __m512i, w: __m512i) -> __m512i {
        avx512!(_mm512_dpbusd_epi32(acc, shifted, w))
    }

    #[inline(always)]
    fn add_small(self, acc: __m512i, shifted: __m512i, w: __m512i, factor: __m512i) -> __m512i {
        avx512!(dot_shorts(acc, _mm512_maddubs_epi16(shifted, w), factor))
    }

    #[inline(always)]
    fn add_pairs(self, acc: __m512i, shorts: __m512i, pair: [i16; 2]) -> __m512i {
        let [low, high] = pair.map(i16::cast_unsigned);
        let word = u32::from(low) | u32::from(high) << 16;
        avx512!(dot_shorts(acc, shorts, _mm512_set1_epi32(word.cast_signed())))
    }

    #[inline(always)]
    fn float(self, x: f32) -> __m512 {
        avx512!(_mm512_set1_ps(x))
    }

    #[inline(always)]
    fn floats(self, from: &[f32]) -> __m512 {
        let from: &[f32; 16] = from.first_chunk().expect("sixteen floats");
        avx512!(_mm512_loadu_ps(from.as_ptr()))
    }

    #[inline(always)]
    fn store(self, f: __m512, to: &mut [f32]) {
        let to: &mut [f32; 16] = to.first_chunk_mut().expect("sixteen floats");
        avx512!(_mm512_storeu_ps(to.as_mut_ptr(), f));
    }

    #[inline(always)]
    fn to_floats(self, i: __m512i) -> __m512 {
        avx512!(_mm512_cvtepi32_ps(i))
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_add_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_mul_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        avx512!(_mm512_fmadd_ps(a, b, c))
    }
}
