//! Super-block formats in registers: how each yields its 32-weight chunks, group scales and minima.
//!
//! The counterpart of the `unpack` functions, which stay the definition.

use std::hint::black_box;

use super::machine::Machine;
use crate::quant::{iq2_xxs, q2_k, q4_k, q5_k, q6_k};

/// What a block says beside its weights.
pub(super) struct Header<M: Machine> {
    /// Scale of the block, in all lanes.
    pub(super) d: M::Floats,
    /// Scale of the minima, in all lanes.
    pub(super) dmin: M::Floats,
    /// Minima of groups of 16, in order.
    pub(super) mins: M::Shorts,
}

impl<M: Machine> Header<M> {
    #[inline(always)]
    fn without_minima(m: M, d: M::Floats) -> Self {
        Self { d, dmin: m.splat(0.0), mins: m.shorts_zero() }
    }
}

/// 32 integer weights.
#[derive(Clone, Copy)]
pub(super) enum Weights<M: Machine> {
    /// At least 0.
    Unsigned(M::Bytes),
    /// Of either sign.
    Signed(M::Bytes),
    /// Magnitudes and sign bits.
    Flipped(M::Bytes, u32),
}

impl<M: Machine> Weights<M> {
    /// `acc` + lane sums of products with quants, times the factor.
    #[inline(always)]
    pub(super) fn add_to(self, m: M, acc: M::Ints, q: M::Bytes, factor: M::Factor) -> M::Ints {
        match self {
            Self::Unsigned(n) => m.add_unsigned(acc, n, q, factor),
            Self::Signed(w) => m.add_signed(acc, w, q, factor),
            Self::Flipped(n, signs) => m.add_unsigned(acc, n, m.flip(q, signs), factor),
        }
    }

    /// The weights as signed bytes.
    #[inline(always)]
    pub(super) fn signed(self, m: M) -> M::Bytes {
        match self {
            Self::Unsigned(w) | Self::Signed(w) => w,
            Self::Flipped(n, signs) => m.flip(n, signs),
        }
    }
}

/// What is done with the chunks of a block. Not a closure, because only methods can be told to be inlined.
pub(super) trait Visitor<M: Machine> {
    /// Takes chunk `j` and the scales of its groups.
    fn chunk(&mut self, j: usize, weights: Weights<M>, factor: M::Factor);
}

/// [`Format::sums`] by way of the chunks that a format shows.
#[inline(always)]
fn sums_of_chunks<M: Machine, const T: usize>(
    format: impl Format,
    m: M,
    block: &[u8],
    quants: [&[[u8; 32]; 8]; T],
) -> (Header<M>, [M::Ints; T]) {
    let mut sums = Sums { m, quants, totals: [m.ints_zero(); T] };
    let header = format.visit(m, block, &mut sums);
    (header, sums.totals)
}

/// A format of 256-weight blocks.
pub(super) trait Format: Copy {
    /// Bytes of a block.
    const BYTES: usize;
    /// Whether there are minima.
    const MINIMA: bool;
    /// Shows chunks 0..8 to the visitor, then returns the rest.
    fn visit<M: Machine>(self, m: M, block: &[u8], visitor: &mut impl Visitor<M>) -> Header<M>;
    /// The lane sums of a block with each of some activations, group scales included, and the rest.
    #[inline(always)]
    fn sums<M: Machine, const T: usize>(
        self,
        m: M,
        block: &[u8],
        quants: [&[[u8; 32]; 8]; T],
    ) -> (Header<M>, [M::Ints; T]) {
        sums_of_chunks(self, m, block, quants)
    }
}

/// The sums over a block.
struct Sums<'a, M: Machine, const T: usize> {
    m: M,
    quants: [&'a [[u8; 32]; 8]; T],
    totals: [M::Ints; T],
}

impl<M: Machine, const T: usize> Visitor<M> for Sums<'_, M, T> {
    #[inline(always)]
    fn chunk(&mut self, j: usize, weights: Weights<M>, factor: M::Factor) {
        for t in 0..T {
            let q = self.m.bytes(&self.quants[t][j]);
            self.totals[t] = weights.add_to(self.m, self.totals[t], q, factor);
        }
    }
}

/// `N` bytes of a block from `at` on.
#[inline(always)]
fn part<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block[at..at + N].try_into().expect("a slice of N bytes")
}

/// The half at `at`, in all lanes.
#[inline(always)]
fn half<M: Machine>(m: M, block: &[u8], at: usize) -> M::Floats {
    m.splat_half(*part(block, at))
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Q2K;

impl Format for Q2K {
    const BYTES: usize = q2_k::BYTES;
    const MINIMA: bool = true;

    #[inline(always)]
    fn visit<M: Machine>(self, m: M, block: &[u8], visitor: &mut impl Visitor<M>) -> Header<M> {
        let (scales, mins) = m.nibble_shorts(part(block, 0));
        let scales = m.scales(scales);
        for a in 0..2 {
            let q = m.bytes(part(block, 16 + 32 * a));
            let fields =
                [m.field::<0>(q, 3), m.field::<2>(q, 3), m.field::<4>(q, 3), m.field::<6>(q, 3)];
            for (b, n) in fields.into_iter().enumerate() {
                visitor.chunk(4 * a + b, Weights::Unsigned(n), m.factor(scales, 4 * a + b));
            }
        }
        Header { d: half(m, block, 80), dmin: half(m, block, 82), mins }
    }
}

/// Header of `Q4_K` and `Q5_K`, from the twelve packed bytes (see [`q4_k::scale_and_min`]).
#[inline(always)]
fn six_bit_header<M: Machine>(m: M, block: &[u8]) -> (M::Scales, Header<M>) {
    let word = |at| u64::from(u32::from_le_bytes(*part(block, at)));
    let (s0, s1, s2) = (word(4), word(8), word(12));
    let top = |s: u64| (s >> 2) & 0x3030_3030;
    let scales = (s0 & 0x3F3F_3F3F) | ((s2 & 0x0F0F_0F0F) | top(s0)) << 32;
    let mins = (s1 & 0x3F3F_3F3F) | (((s2 >> 4) & 0x0F0F_0F0F) | top(s1)) << 32;
    let header = Header { d: half(m, block, 0), dmin: half(m, block, 2), mins: m.doubled(mins) };
    (m.scales(m.repeated(scales)), header)
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Q4K;

impl Format for Q4K {
    const BYTES: usize = q4_k::BYTES;
    const MINIMA: bool = true;

    #[inline(always)]
    fn visit<M: Machine>(self, m: M, block: &[u8], visitor: &mut impl Visitor<M>) -> Header<M> {
        let (scales, header) = six_bit_header(m, block);
        for c in 0..4 {
            let q = m.bytes(part(block, 16 + 32 * c));
            let (low, upper) = (m.field::<0>(q, 15), m.field::<4>(q, 15));
            visitor.chunk(2 * c, Weights::Unsigned(low), m.factor(scales, 2 * c));
            visitor.chunk(2 * c + 1, Weights::Unsigned(upper), m.factor(scales, 2 * c + 1));
        }
        header
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Q5K;

impl Format for Q5K {
    const BYTES: usize = q5_k::BYTES;
    const MINIMA: bool = true;

    #[inline(always)]
    fn visit<M: Machine>(self, m: M, block: &[u8], visitor: &mut impl Visitor<M>) -> Header<M> {
        let (scales, header) = six_bit_header(m, block);
        let fifth = m.bytes(part(block, 16));
        // Bit j of a byte, moved to bit 4.
        let high = [
            m.raise::<4>(fifth, 16),
            m.raise::<3>(fifth, 16),
            m.raise::<2>(fifth, 16),
            m.raise::<1>(fifth, 16),
            m.field::<0>(fifth, 16),
            m.field::<1>(fifth, 16),
            m.field::<2>(fifth, 16),
            m.field::<3>(fifth, 16),
        ];
        for c in 0..4 {
            let q = m.bytes(part(block, 48 + 32 * c));
            let (low, upper) = (m.field::<0>(q, 15), m.field::<4>(q, 15));
            for (j, four) in [(2 * c, low), (2 * c + 1, upper)] {
                visitor.chunk(j, Weights::Unsigned(m.or(four, high[j])), m.factor(scales, j));
            }
        }
        header
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Q6K;

impl Format for Q6K {
    const BYTES: usize = q6_k::BYTES;
    const MINIMA: bool = false;

    #[inline(always)]
    fn visit<M: Machine>(self, m: M, block: &[u8], visitor: &mut impl Visitor<M>) -> Header<M> {
        let scales = m.scales(m.even_then_odd(part(block, 192)));
        for h in 0..2 {
            let low = m.bytes(part(block, 64 * h));
            let next = m.bytes(part(block, 64 * h + 32));
            let high = m.bytes(part(block, 128 + 32 * h));
            let six_bits = [
                m.or(m.field::<0>(low, 15), m.raise::<4>(high, 0x30)),
                m.or(m.field::<0>(next, 15), m.raise::<2>(high, 0x30)),
                m.or(m.field::<4>(low, 15), m.field::<0>(high, 0x30)),
                m.or(m.field::<4>(next, 15), m.field::<2>(high, 0x30)),
            ];
            for (b, n) in six_bits.into_iter().enumerate() {
                let j = 4 * h + b;
                visitor.chunk(j, Weights::Signed(m.minus(n, 32)), m.factor(scales, j));
            }
        }
        Header::without_minima(m, half(m, block, 208))
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Iq2Xxs;

impl Format for Iq2Xxs {
    const BYTES: usize = iq2_xxs::BYTES;
    const MINIMA: bool = false;

    #[inline(always)]
    fn visit<M: Machine>(self, m: M, block: &[u8], visitor: &mut impl Visitor<M>) -> Header<M> {
        let words = m.iq2_words(part(block, 2));
        // The compiler must not see where the loop starts: unrolled, it runs out of registers.
        for g in black_box(0)..8 {
            let magnitudes = m.grid(*part(block, 2 + 8 * g));
            let factor = m.uniform_factor(words.scales[g]);
            visitor.chunk(g, Weights::Flipped(magnitudes, words.signs[g]), factor);
        }
        iq2_header(m, block)
    }

    #[inline(always)]
    fn sums<M: Machine, const T: usize>(
        self,
        m: M,
        block: &[u8],
        quants: [&[[u8; 32]; 8]; T],
    ) -> (Header<M>, [M::Ints; T]) {
        if let Some(sums) = m.iq2_sums(part(block, 2), quants) {
            return (iq2_header(m, block), sums);
        }
        sums_of_chunks(self, m, block, quants)
    }
}

/// An eighth of the half in front is the scale.
#[inline(always)]
fn iq2_header<M: Machine>(m: M, block: &[u8]) -> Header<M> {
    Header::without_minima(m, m.mul(half(m, block, 0), m.splat(0.125)))
}
