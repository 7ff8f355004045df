//! `IQ2_XXS` by permutations of bytes: the grid as codes in registers, the signs by a matrix over GF(2).
//!
//! A table of 256 eight-byte entries would take a load for each eight weights; its codes of 16 bits fit
//! into eight registers, out of which 32 are looked up at a time.

#[cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "well-known names"))]
use std::arch::x86_64::*;

use super::x86::Avx512Vbmi;
use super::x86_wide::dot_shorts;
use crate::quant::iq2_grid::{CODES, LEVELS};

/// Wraps instructions of AVX-512 F, BW, VL and VBMI, and of GFNI.
macro_rules! vbmi {
    ($body:expr) => {
        // SAFETY: functions take a token that exists only where these instructions do; loads and stores go
        // through references to arrays of the size accessed, without alignment.
        unsafe { $body }
    };
}

/// Constants as vectors are loaded.
#[repr(align(64))]
struct Vector<T>(T);

/// Where the 32 indices of a block are among its bytes, at even places.
#[expect(clippy::cast_possible_truncation, reason = "places among 64")]
static INDICES: Vector<[u8; 64]> = {
    let mut places = [0; 64];
    let mut i = 0;
    while i < 32 {
        places[2 * i] = (8 * (i / 4) + i % 4) as u8;
        i += 1;
    }
    Vector(places)
};

/// The codes, 32 to a vector.
static TABLE: Vector<[[u16; 32]; 8]> = {
    let mut table = [[0; 32]; 8];
    let mut i = 0;
    while i < 256 {
        table[i / 32][i % 32] = CODES[i];
        i += 1;
    }
    Vector(table)
};

/// For each eight codes, the quadruples in which they are.
static FOURS: Vector<[[u64; 8]; 4]> = Vector([
    [0, 0, 0, 0, 1, 1, 1, 1],
    [2, 2, 2, 2, 3, 3, 3, 3],
    [4, 4, 4, 4, 5, 5, 5, 5],
    [6, 6, 6, 6, 7, 7, 7, 7],
]);

/// Where digit i of the code in its place among four starts.
#[expect(clippy::cast_possible_truncation, reason = "places among 64")]
static DIGITS: Vector<[u8; 64]> = {
    let mut bits = [0; 64];
    let mut i = 0;
    while i < 64 {
        bits[i] = (16 * (i / 8 % 4) + 2 * (i % 8)) as u8;
        i += 1;
    }
    Vector(bits)
};

/// The level of a digit, whatever the bits above it.
static DIGIT_LEVELS: Vector<[u8; 64]> = {
    let mut levels = [0; 64];
    let mut i = 0;
    while i < 64 {
        if i % 4 < 3 {
            levels[i] = LEVELS[i % 4];
        }
        i += 1;
    }
    Vector(levels)
};

/// Where the scales of two groups are among eight pairs of words, twice for every lane. Bytes 5 and 6 of a pair
/// are 0.
static SCALES: [Vector<[u8; 64]>; 4] = [scales(0), scales(1), scales(2), scales(3)];

#[expect(clippy::cast_possible_truncation, reason = "places among 64")]
const fn scales(z: usize) -> Vector<[u8; 64]> {
    let mut places = [0; 64];
    let mut i = 0;
    while i < 64 {
        places[i] = (16 * z + 8 * (i / 32) + 4 + i % 2) as u8;
        i += 1;
    }
    Vector(places)
}

#[inline(always)]
fn load<T>(from: &Vector<[T; 64]>) -> __m512i {
    const { assert!(size_of::<T>() == 1) };
    vbmi!(_mm512_load_si512(from.0.as_ptr().cast()))
}

/// The levels that the grid has for 32 indices at even places.
#[inline(always)]
fn magnitudes(index: __m512i) -> [__m512i; 4] {
    vbmi!({
        let table = |i: usize| _mm512_load_si512(TABLE.0[i].as_ptr().cast());
        // Each lookup sees six of the eight bits.
        let bit6 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(0x40));
        let bit7 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(0x80));
        let of = |i: usize| _mm512_permutex2var_epi16(table(i), index, table(i + 1));
        let low = _mm512_mask_blend_epi16(bit6, of(0), of(2));
        let high = _mm512_mask_blend_epi16(bit6, of(4), of(6));
        let codes = _mm512_mask_blend_epi16(bit7, low, high);
        let mut levels = [codes; 4];
        for (level, four) in levels.iter_mut().zip(&FOURS.0) {
            let four = _mm512_load_si512(four.as_ptr().cast());
            let own = _mm512_permutexvar_epi64(four, codes);
            let digits = _mm512_multishift_epi64_epi8(load(&DIGITS), own);
            *level = _mm512_permutexvar_epi8(digits, load(&DIGIT_LEVELS));
        }
        levels
    })
}

/// As [`super::machine::Machine::iq2_sums`]. Two groups to a vector, of which the halves are added in the end.
#[inline(always)]
pub(super) fn sums<const T: usize>(
    _: Avx512Vbmi,
    pairs: &[u8; 64],
    quants: [&[[u8; 32]; 8]; T],
) -> [__m256i; T] {
    vbmi!({
        let pairs = _mm512_loadu_si512(pairs.as_ptr().cast());
        let even = 0x5555_5555_5555_5555;
        let levels = magnitudes(_mm512_maskz_permutexvar_epi8(even, load(&INDICES), pairs));
        // Fields of 7 bits start here in a word B.
        let starts = i64::from_le_bytes([32, 39, 46, 53, 32, 39, 46, 53]);
        let fields = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(starts), pairs);
        // Rows of the matrix: bits 0 to 6 as they are, and their sum as bit 7, which comes first.
        let matrix = i64::from_le_bytes([0x7F, 64, 32, 16, 8, 4, 2, 1]);
        let signs = _mm512_gf2p8affine_epi64_epi8::<0>(fields, _mm512_set1_epi64(matrix));
        let mut masks = [0; 8];
        _mm256_storeu_si256(masks.as_mut_ptr().cast(), _mm512_cvtepi64_epi32(signs));
        let masks: [u64; 4] = bytemuck::cast::<[u32; 8], _>(masks);
        // 2 ls + 1 in the upper words: bit 0 belongs to the sign field below, and is set anyway.
        let scales = _mm512_or_si512(_mm512_srli_epi32::<27>(pairs), _mm512_set1_epi32(1));
        let mut sums = [_mm512_setzero_si512(); T];
        for z in 0..4 {
            let scale = _mm512_permutexvar_epi8(load(&SCALES[z]), scales);
            for t in 0..T {
                let q = _mm512_loadu_si512(quants[t][2 * z..2 * z + 2].as_ptr().cast());
                let q = _mm512_mask_sub_epi8(q, masks[z], _mm512_setzero_si512(), q);
                sums[t] = dot_shorts(sums[t], _mm512_maddubs_epi16(levels[z], q), scale);
            }
        }
        let mut out = [_mm256_setzero_si256(); T];
        for t in 0..T {
            let high = _mm512_extracti64x4_epi64::<1>(sums[t]);
            out[t] = _mm256_add_epi32(_mm512_castsi512_si256(sums[t]), high);
        }
        out
    })
}
