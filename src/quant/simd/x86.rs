//! AVX2, and two ways to VNNI, on x86-64.
//!
//! Byte products come from `maddubs` (unsigned times signed, summed in pairs to 16 bits) or `dpbusd`
//! (summed in fours to 32 bits). The ranges in the trait keep `maddubs` from saturating; where a signed
//! weight meets a signed quant, either the sign of the weight moves to the quant, or quants are shifted by
//! 128 and the caller subtracts what the shift added.

#[cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "well-known names"))]
use std::arch::x86_64::*;

use super::lanes::{Eight, Lanes};
use super::machine::{Iq2Words, Kernel, Machine};
use super::x86_iq2;
use super::x86_wide::Wide;
use crate::quant::iq2_grid::GRID;

/// Wraps instructions of AVX2, FMA and F16C.
macro_rules! avx2 {
    ($body:expr) => {
        // SAFETY: a token of any of the three machines exists only where these instructions do; loads and
        // stores go through references to arrays of the size accessed, without alignment.
        unsafe { $body }
    };
}

/// What differs between the three.
pub(in crate::quant) trait Variant: Copy {
    /// Whether [`Variant::dot_bytes`] is exact for all unsigned operands.
    const FULL_RANGE: bool;
    /// The widest vectors that pay.
    type Widest: Lanes;
    /// Their token.
    fn widest(self) -> Self::Widest;
    /// Runs a kernel compiled for the instructions of this token.
    fn enter_variant<K: Kernel>(self, kernel: K) -> K::Output;
    /// `acc` + sums of four products of unsigned and signed bytes.
    fn dot_bytes(self, acc: __m256i, unsigned: __m256i, signed: __m256i) -> __m256i;
    /// `acc` + sums of two products of shorts.
    fn dot_shorts(self, acc: __m256i, a: __m256i, b: __m256i) -> __m256i;
    /// Negates the bytes whose bit is set.
    fn flip_bytes(self, b: __m256i, signs: u32) -> __m256i;
    /// As [`Machine::iq2_sums`].
    #[inline(always)]
    fn sums_of_iq2<const T: usize>(
        self,
        _: &[u8; 64],
        _: [&[[u8; 32]; 8]; T],
    ) -> Option<[__m256i; T]> {
        None
    }
}

/// AVX2, FMA and F16C.
#[derive(Debug, Clone, Copy)]
pub(in crate::quant) struct Avx2(());

/// The same with VNNI in its VEX encoding.
#[derive(Debug, Clone, Copy)]
pub(in crate::quant) struct AvxVnni(());

/// The same with VNNI and masks of AVX-512; with `VBMI`, also with permutations of bytes and with GFNI.
#[derive(Debug, Clone, Copy)]
pub(in crate::quant) struct Avx512<const VBMI: bool>(());

/// What every machine with VNNI in AVX-512 has.
pub(in crate::quant) type Avx512Vnni = Avx512<false>;
/// What all but the first of them have.
pub(in crate::quant) type Avx512Vbmi = Avx512<true>;

fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

impl Avx2 {
    /// The token, where the machine has the instructions.
    pub(in crate::quant) fn detect() -> Option<Self> {
        has_avx2().then_some(Self(()))
    }
}

impl AvxVnni {
    /// The token, where the machine has the instructions.
    pub(in crate::quant) fn detect() -> Option<Self> {
        (has_avx2() && is_x86_feature_detected!("avxvnni")).then_some(Self(()))
    }
}

impl<const VBMI: bool> Avx512<VBMI> {
    /// The token, where the machine has the instructions.
    pub(in crate::quant) fn detect() -> Option<Self> {
        let vbmi = || is_x86_feature_detected!("avx512vbmi") && is_x86_feature_detected!("gfni");
        (has_avx2()
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && (!VBMI || vbmi()))
        .then_some(Self(()))
    }
}

/// `acc` + sums of two products of shorts, by AVX2.
#[inline(always)]
fn add_madd(acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
    avx2!(_mm256_add_epi32(acc, _mm256_madd_epi16(a, b)))
}

/// Negation by sign bits, by AVX2: spreads each bit over its byte, then `(b ^ m) - m`.
#[inline(always)]
fn flip_by_compare(b: __m256i, signs: u32) -> __m256i {
    avx2!({
        let which = _mm256_setr_epi64x(
            0,
            0x0101_0101_0101_0101,
            0x0202_0202_0202_0202,
            0x0303_0303_0303_0303,
        );
        let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
        let spread = _mm256_shuffle_epi8(_mm256_set1_epi32(signs.cast_signed()), which);
        let mask = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
        _mm256_sub_epi8(_mm256_xor_si256(b, mask), mask)
    })
}

impl Variant for Avx2 {
    const FULL_RANGE: bool = false;
    type Widest = Eight<Self>;

    #[inline(always)]
    fn widest(self) -> Self::Widest {
        Eight(self)
    }

    fn enter_variant<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn compiled<K: Kernel>(token: Avx2, kernel: K) -> K::Output {
            kernel.run(token)
        }
        // SAFETY: the token exists only where these instructions do.
        unsafe { compiled(self, kernel) }
    }

    #[inline(always)]
    fn dot_bytes(self, acc: __m256i, unsigned: __m256i, signed: __m256i) -> __m256i {
        let ones = avx2!(_mm256_set1_epi16(1));
        add_madd(acc, avx2!(_mm256_maddubs_epi16(unsigned, signed)), ones)
    }

    #[inline(always)]
    fn dot_shorts(self, acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        add_madd(acc, a, b)
    }

    #[inline(always)]
    fn flip_bytes(self, b: __m256i, signs: u32) -> __m256i {
        flip_by_compare(b, signs)
    }
}

impl Variant for AvxVnni {
    const FULL_RANGE: bool = true;
    type Widest = Eight<Self>;

    #[inline(always)]
    fn widest(self) -> Self::Widest {
        Eight(self)
    }

    fn enter_variant<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
        fn compiled<K: Kernel>(token: AvxVnni, kernel: K) -> K::Output {
            kernel.run(token)
        }
        // SAFETY: the token exists only where these instructions do.
        unsafe { compiled(self, kernel) }
    }

    #[inline(always)]
    fn dot_bytes(self, acc: __m256i, unsigned: __m256i, signed: __m256i) -> __m256i {
        // SAFETY: the token exists only where AVX-VNNI does.
        unsafe { _mm256_dpbusd_avx_epi32(acc, unsigned, signed) }
    }

    #[inline(always)]
    fn dot_shorts(self, acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the token exists only where AVX-VNNI does.
        unsafe { _mm256_dpwssd_avx_epi32(acc, a, b) }
    }

    #[inline(always)]
    fn flip_bytes(self, b: __m256i, signs: u32) -> __m256i {
        flip_by_compare(b, signs)
    }
}

impl<const VBMI: bool> Variant for Avx512<VBMI> {
    const FULL_RANGE: bool = true;
    type Widest = Wide;

    #[inline(always)]
    fn widest(self) -> Self::Widest {
        Wide::new(self)
    }

    fn enter_variant<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
        fn compiled<K: Kernel, const VBMI: bool>(token: Avx512<VBMI>, kernel: K) -> K::Output {
            kernel.run(token)
        }
        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
        #[target_feature(enable = "avx512vbmi,gfni")]
        fn compiled_vbmi<K: Kernel, const VBMI: bool>(token: Avx512<VBMI>, kernel: K) -> K::Output {
            kernel.run(token)
        }
        if VBMI {
            // SAFETY: this token exists only where these instructions do.
            unsafe { compiled_vbmi(self, kernel) }
        } else {
            // SAFETY: this token exists only where these instructions do.
            unsafe { compiled(self, kernel) }
        }
    }

    #[inline(always)]
    fn dot_bytes(self, acc: __m256i, unsigned: __m256i, signed: __m256i) -> __m256i {
        // SAFETY: the token exists only where AVX-512 VNNI and VL do.
        unsafe { _mm256_dpbusd_epi32(acc, unsigned, signed) }
    }

    #[inline(always)]
    fn dot_shorts(self, acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the token exists only where AVX-512 VNNI and VL do.
        unsafe { _mm256_dpwssd_epi32(acc, a, b) }
    }

    #[inline(always)]
    fn flip_bytes(self, b: __m256i, signs: u32) -> __m256i {
        // SAFETY: the token exists only where AVX-512 BW and VL do.
        unsafe { _mm256_mask_sub_epi8(b, signs, _mm256_setzero_si256(), b) }
    }

    #[inline(always)]
    fn sums_of_iq2<const T: usize>(
        self,
        pairs: &[u8; 64],
        quants: [&[[u8; 32]; 8]; T],
    ) -> Option<[__m256i; T]> {
        if VBMI { Some(x86_iq2::sums(Avx512(()), pairs, quants)) } else { None }
    }
}

/// As `iq2_grid::expand_signs`, by AVX2.
#[inline(always)]
fn expand_by_shifts(words: __m256i) -> __m256i {
    avx2!({
        let fields = _mm256_or_si256(
            _mm256_or_si256(
                mask_ints(words, 0x7F),
                mask_ints(_mm256_slli_epi32::<1>(words), 0x7F00),
            ),
            _mm256_or_si256(
                mask_ints(_mm256_slli_epi32::<2>(words), 0x7F_0000),
                mask_ints(_mm256_slli_epi32::<3>(words), 0x7F00_0000),
            ),
        );
        let fold = _mm256_xor_si256(fields, _mm256_srli_epi32::<4>(fields));
        let fold = _mm256_xor_si256(fold, _mm256_srli_epi32::<2>(fold));
        let fold = _mm256_xor_si256(fold, _mm256_srli_epi32::<1>(fold));
        let parity = _mm256_slli_epi32::<7>(mask_ints(fold, 0x0101_0101));
        _mm256_or_si256(fields, parity)
    })
}

#[inline(always)]
fn mask_ints(i: __m256i, mask: i32) -> __m256i {
    avx2!(_mm256_and_si256(i, _mm256_set1_epi32(mask)))
}

/// A shuffle that sorts bytes by the parity of their place.
static EVEN_THEN_ODD: [u8; 16] = [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15];

#[inline(always)]
fn load(from: &[u8; 32]) -> __m256i {
    avx2!(_mm256_loadu_si256(from.as_ptr().cast()))
}

#[inline(always)]
fn load_half(from: &[u8; 16]) -> __m128i {
    avx2!(_mm_loadu_si128(from.as_ptr().cast()))
}

impl<V: Variant> Machine for V {
    type Bytes = __m256i;
    type Shorts = __m256i;
    type Ints = __m256i;
    type Floats = __m256;
    type Scales = [__m256i; 2];
    type Factor = __m256i;
    type Wide = V::Widest;

    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        self.enter_variant(kernel)
    }

    #[inline(always)]
    fn wide(self) -> V::Widest {
        self.widest()
    }

    #[inline(always)]
    fn prefetch(self, from: &[u8], ahead: usize) {
        // A prefetch of any address is harmless, and the address is never dereferenced.
        avx2!(_mm_prefetch::<_MM_HINT_T0>(from.as_ptr().wrapping_add(ahead).cast()));
    }

    #[inline(always)]
    fn bytes(self, from: &[u8; 32]) -> __m256i {
        load(from)
    }

    #[inline(always)]
    fn word(self, four: [u8; 4]) -> __m256i {
        avx2!(_mm256_set1_epi32(i32::from_le_bytes(four)))
    }

    #[inline(always)]
    fn store_bytes(self, b: __m256i, to: &mut [u8; 32]) {
        avx2!(_mm256_storeu_si256(to.as_mut_ptr().cast(), b));
    }

    #[inline(always)]
    fn field<const SHIFT: i32>(self, b: __m256i, mask: u8) -> __m256i {
        avx2!(_mm256_and_si256(_mm256_srli_epi16::<SHIFT>(b), _mm256_set1_epi8(mask.cast_signed())))
    }

    #[inline(always)]
    fn raise<const SHIFT: i32>(self, b: __m256i, mask: u8) -> __m256i {
        avx2!(_mm256_and_si256(_mm256_slli_epi16::<SHIFT>(b), _mm256_set1_epi8(mask.cast_signed())))
    }

    #[inline(always)]
    fn or(self, a: __m256i, b: __m256i) -> __m256i {
        avx2!(_mm256_or_si256(a, b))
    }

    #[inline(always)]
    fn nibbles(self, from: &[u8; 16]) -> __m256i {
        avx2!({
            let b = load_half(from);
            let both = _mm256_set_m128i(_mm_srli_epi16::<4>(b), b);
            _mm256_and_si256(both, _mm256_set1_epi8(15))
        })
    }

    #[inline(always)]
    fn minus(self, b: __m256i, k: i8) -> __m256i {
        avx2!(_mm256_sub_epi8(b, _mm256_set1_epi8(k)))
    }

    #[inline(always)]
    fn flip(self, b: __m256i, signs: u32) -> __m256i {
        self.flip_bytes(b, signs)
    }

    #[inline(always)]
    fn grid(self, indices: [u8; 4]) -> __m256i {
        let [a, b, c, d] = indices.map(|i| GRID[usize::from(i)].cast_signed());
        avx2!(_mm256_setr_epi64x(a, b, c, d))
    }

    #[inline(always)]
    fn iq2_sums<const T: usize>(
        self,
        pairs: &[u8; 64],
        quants: [&[[u8; 32]; 8]; T],
    ) -> Option<[__m256i; T]> {
        self.sums_of_iq2(pairs, quants)
    }

    #[inline(always)]
    fn as_shorts(self, b: __m256i) -> __m256i {
        b
    }

    #[inline(always)]
    fn shorts(self, from: &[i16; 16]) -> __m256i {
        avx2!(_mm256_loadu_si256(from.as_ptr().cast()))
    }

    #[inline(always)]
    fn store_shorts(self, s: __m256i, to: &mut [i16; 16]) {
        avx2!(_mm256_storeu_si256(to.as_mut_ptr().cast(), s));
    }

    #[inline(always)]
    fn shorts_zero(self) -> __m256i {
        avx2!(_mm256_setzero_si256())
    }

    #[inline(always)]
    fn nibble_shorts(self, from: &[u8; 16]) -> (__m256i, __m256i) {
        avx2!({
            let (bytes, mask) = (load_half(from), _mm_set1_epi8(15));
            let low = _mm_shuffle_epi8(_mm_and_si128(bytes, mask), load_half(&EVEN_THEN_ODD));
            let high = _mm_and_si128(_mm_srli_epi16::<4>(bytes), mask);
            (_mm256_cvtepu8_epi16(low), _mm256_cvtepu8_epi16(high))
        })
    }

    #[inline(always)]
    fn even_then_odd(self, from: &[u8; 16]) -> __m256i {
        avx2!(_mm256_cvtepi8_epi16(_mm_shuffle_epi8(load_half(from), load_half(&EVEN_THEN_ODD))))
    }

    #[inline(always)]
    fn repeated(self, from: u64) -> __m256i {
        avx2!(_mm256_cvtepu8_epi16(_mm_set1_epi64x(from.cast_signed())))
    }

    #[inline(always)]
    fn doubled(self, from: u64) -> __m256i {
        avx2!({
            let bytes = _mm_cvtsi64_si128(from.cast_signed());
            _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(bytes, bytes))
        })
    }

    #[inline(always)]
    fn pair(self, pair: [i16; 2]) -> __m256i {
        let [low, high] = pair.map(i16::cast_unsigned);
        let word = u32::from(low) | u32::from(high) << 16;
        avx2!(_mm256_set1_epi32(word.cast_signed()))
    }

    #[inline(always)]
    fn scales(self, shorts: __m256i) -> [__m256i; 2] {
        avx2!([_mm256_unpacklo_epi16(shorts, shorts), _mm256_unpackhi_epi16(shorts, shorts)])
    }

    #[inline(always)]
    fn factor(self, scales: [__m256i; 2], j: usize) -> __m256i {
        let four = scales[j / 4];
        avx2!(match j % 4 {
            0 => _mm256_shuffle_epi32::<0b00_00_00_00>(four),
            1 => _mm256_shuffle_epi32::<0b01_01_01_01>(four),
            2 => _mm256_shuffle_epi32::<0b10_10_10_10>(four),
            _ => _mm256_shuffle_epi32::<0b11_11_11_11>(four),
        })
    }

    #[inline(always)]
    fn factor_words(self, factor: __m256i) -> [u32; 2] {
        let words = avx2!([_mm256_extract_epi32::<0>(factor), _mm256_extract_epi32::<4>(factor)]);
        words.map(i32::cast_unsigned)
    }

    #[inline(always)]
    fn uniform_factor(self, twice: u32) -> __m256i {
        avx2!(_mm256_set1_epi32(twice.cast_signed()))
    }

    #[inline(always)]
    fn iq2_words(self, pairs: &[u8; 64]) -> Iq2Words {
        let [first, last] = pairs.as_chunks::<32>().0 else { unreachable!("64 bytes") };
        avx2!({
            let (first, last) = (_mm256_castsi256_ps(load(first)), _mm256_castsi256_ps(load(last)));
            // Words B, in the order 0 1 4 5 | 2 3 6 7, then in order.
            let words = _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(first, last));
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
            let mut out = Iq2Words { signs: [0; 8], scales: [0; 8] };
            let signs = expand_by_shifts(words);
            _mm256_storeu_si256(out.signs.as_mut_ptr().cast(), signs);
            // 2 ls + 1: bit 0 belongs to the sign field above, and is set anyway.
            let scales = _mm256_or_si256(_mm256_srli_epi32::<27>(words), _mm256_set1_epi32(1));
            let scales = _mm256_or_si256(scales, _mm256_slli_epi32::<16>(scales));
            _mm256_storeu_si256(out.scales.as_mut_ptr().cast(), scales);
            out
        })
    }

    #[inline(always)]
    fn int(self, i: i32) -> __m256i {
        avx2!(_mm256_set1_epi32(i))
    }

    #[inline(always)]
    fn ints_zero(self) -> __m256i {
        avx2!(_mm256_setzero_si256())
    }

    #[inline(always)]
    fn store_ints(self, i: __m256i, to: &mut [i32; 8]) {
        avx2!(_mm256_storeu_si256(to.as_mut_ptr().cast(), i));
    }

    #[inline(always)]
    fn sum(self, i: __m256i) -> __m256i {
        avx2!({
            let four = _mm256_add_epi32(i, _mm256_permute2x128_si256::<0x01>(i, i));
            let two = _mm256_add_epi32(four, _mm256_shuffle_epi32::<0b01_00_11_10>(four));
            _mm256_add_epi32(two, _mm256_shuffle_epi32::<0b10_11_00_01>(two))
        })
    }

    #[inline(always)]
    fn add_pairs(self, acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        self.dot_shorts(acc, a, b)
    }

    #[inline(always)]
    fn dot(self, w: __m256i, q: __m256i) -> __m256i {
        let (magnitude, signed) = avx2!((_mm256_abs_epi8(w), _mm256_sign_epi8(q, w)));
        self.dot_bytes(self.ints_zero(), magnitude, signed)
    }

    #[inline(always)]
    fn add_unsigned(self, acc: __m256i, n: __m256i, q: __m256i, factor: __m256i) -> __m256i {
        self.dot_shorts(acc, avx2!(_mm256_maddubs_epi16(n, q)), factor)
    }

    #[inline(always)]
    fn add_signed(self, acc: __m256i, w: __m256i, q: __m256i, factor: __m256i) -> __m256i {
        let (magnitude, signed) = avx2!((_mm256_abs_epi8(w), _mm256_sign_epi8(q, w)));
        self.add_unsigned(acc, magnitude, signed, factor)
    }

    #[inline(always)]
    fn shift_full(self, q: __m256i) -> __m256i {
        if V::FULL_RANGE { self.shift_small(q) } else { q }
    }

    #[inline(always)]
    fn add_full(self, acc: __m256i, shifted: __m256i, w: __m256i) -> __m256i {
        if V::FULL_RANGE {
            self.dot_bytes(acc, shifted, w)
        } else {
            // Sums of two shifted products would leave 16 bits.
            let (magnitude, signed) = avx2!((_mm256_abs_epi8(w), _mm256_sign_epi8(shifted, w)));
            self.dot_bytes(acc, magnitude, signed)
        }
    }

    #[inline(always)]
    fn shift_small(self, q: __m256i) -> __m256i {
        avx2!(_mm256_xor_si256(q, _mm256_set1_epi8(-128)))
    }

    #[inline(always)]
    fn add_small(self, acc: __m256i, shifted: __m256i, w: __m256i, factor: __m256i) -> __m256i {
        self.dot_shorts(acc, avx2!(_mm256_maddubs_epi16(shifted, w)), factor)
    }

    #[inline(always)]
    fn splat_half(self, from: [u8; 2]) -> __m256 {
        avx2!(_mm256_cvtph_ps(_mm_set1_epi16(i16::from_le_bytes(from))))
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        avx2!(_mm256_set1_ps(x))
    }

    #[inline(always)]
    fn floats(self, from: &[f32; 8]) -> __m256 {
        avx2!(_mm256_loadu_ps(from.as_ptr()))
    }

    #[inline(always)]
    fn store_floats(self, f: __m256, to: &mut [f32; 8]) {
        avx2!(_mm256_storeu_ps(to.as_mut_ptr(), f));
    }

    #[inline(always)]
    fn floats_le(self, from: &[u8; 32]) -> __m256 {
        avx2!(_mm256_castsi256_ps(load(from)))
    }

    #[inline(always)]
    fn halves(self, from: &[u8; 16]) -> __m256 {
        avx2!(_mm256_cvtph_ps(load_half(from)))
    }

    #[inline(always)]
    fn bfloats(self, from: &[u8; 16]) -> __m256 {
        avx2!(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(load_half(from)))))
    }

    #[inline(always)]
    fn bytes_to_floats(self, b: __m256i) -> [__m256; 4] {
        avx2!({
            let (low, high) = (_mm256_castsi256_si128(b), _mm256_extracti128_si256::<1>(b));
            [low, _mm_srli_si128::<8>(low), high, _mm_srli_si128::<8>(high)]
                .map(|eight| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)))
        })
    }

    #[inline(always)]
    fn to_floats(self, i: __m256i) -> __m256 {
        avx2!(_mm256_cvtepi32_ps(i))
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        avx2!(_mm256_add_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        avx2!(_mm256_mul_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        avx2!(_mm256_fmadd_ps(a, b, c))
    }
}
