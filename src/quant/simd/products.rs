//! Many activations: weight rows are decoded once, a few rows at a time, and multiplied with panels of
//! activations that stay in the nearest caches meanwhile.

use std::hint::black_box;

use super::formats::{Format, Visitor, Weights};
use super::lanes::{Eight, Lanes};
use super::machine::{Kernel, Machine, prefetch};
use super::panel::Panel;
use crate::quant::activation::Q8Row;
use crate::quant::q8_0;

/// Rows decoded together.
const BATCH: usize = 8;
/// Most lanes of a vector.
const MOST: usize = 16;

/// A weight format whose rows can be decoded for [`Products`].
pub(super) trait Family: Copy {
    /// What is kept of a chunk of 32 or a block of 256 weights.
    type Block: Copy;
    /// A block of zeros.
    const ZERO: Self::Block;
    /// Bytes of a block.
    const BYTES: usize;
    /// The quants' form that the products need.
    fn shift<M: Machine>(self, m: M, q: M::Bytes) -> M::Bytes;
    /// Decodes one block.
    fn decode<M: Machine>(self, m: M, bytes: &[u8], block: &mut Self::Block);
    /// Lanes 4h..4h+3 of the products of `R` decoded rows with a panel.
    fn half<L: Lanes, const R: usize>(
        self,
        lanes: L,
        rows: [&[Self::Block]; R],
        panel: &Panel,
        h: usize,
    ) -> [[L::Floats; 4]; R];
    /// What is to be subtracted from the sums of the lanes.
    fn minima<L: Lanes, const R: usize>(
        self,
        lanes: L,
        rows: [&[Self::Block]; R],
        panel: &Panel,
    ) -> [L::Floats; R];
}

/// `out[r * xs.len() + t]` for rows `r` and activations `t`.
pub(super) struct Products<'a, F> {
    pub(super) family: F,
    pub(super) w: &'a [u8],
    pub(super) row_bytes: usize,
    pub(super) xs: &'a [&'a Q8Row],
    pub(super) out: &'a mut [f32],
}

impl<F: Family> Kernel for Products<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<M: Machine>(self, m: M) {
        let (family, n) = (self.family, self.xs.len());
        let (wide, eight) = (m.wide(), Eight(m));
        let width = M::Wide::COUNT;
        // Up to eight at the end take the narrower vectors, if there is a difference.
        let rest = if n % width <= Eight::<M>::COUNT { n % width } else { 0 };
        let (whole, rest) = self.xs.split_at(n - rest);
        let mut panels = Vec::with_capacity(whole.len().div_ceil(width));
        for xs in whole.chunks(width) {
            panels.push(Panel::new(m, wide, xs, family));
        }
        let last = if rest.is_empty() { None } else { Some(Panel::new(m, eight, rest, family)) };
        let blocks = self.row_bytes / F::BYTES;
        let mut decoded = vec![F::ZERO; blocks * BATCH];
        for (out, w) in self.out.chunks_mut(BATCH * n).zip(self.w.chunks(BATCH * self.row_bytes)) {
            for (block, bytes) in decoded.iter_mut().zip(w.chunks_exact(F::BYTES)) {
                prefetch(m, bytes);
                family.decode(m, bytes, block);
            }
            let decoded = &decoded[..out.len() / n * blocks];
            for (i, panel) in panels.iter().enumerate() {
                multiply_rows(wide, family, (decoded, blocks), panel, &mut out[i * width..], n);
            }
            if let Some(panel) = &last {
                multiply_rows(eight, family, (decoded, blocks), panel, &mut out[whole.len()..], n);
            }
        }
    }
}

/// Decoded rows of so many blocks times one panel, stored from `out[0]` on with `stride` results from row to
/// row.
#[inline(always)]
fn multiply_rows<L: Lanes, F: Family>(
    l: L,
    family: F,
    (decoded, blocks): (&[F::Block], usize),
    panel: &Panel,
    out: &mut [f32],
    stride: usize,
) {
    let rows = decoded.len() / blocks;
    let row = |r: usize| &decoded[r * blocks..(r + 1) * blocks];
    let mut r = 0;
    if L::ROWS == 4 {
        while r + 4 <= rows {
            let rows = [row(r), row(r + 1), row(r + 2), row(r + 3)];
            some_rows(l, family, rows, panel, &mut out[r * stride..], stride);
            r += 4;
        }
    }
    while r + 2 <= rows {
        some_rows(l, family, [row(r), row(r + 1)], panel, &mut out[r * stride..], stride);
        r += 2;
    }
    if r < rows {
        some_rows(l, family, [row(r)], panel, &mut out[r * stride..], stride);
    }
}

/// [`multiply_rows`] of `R` rows.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "an iterator would show where it starts")]
fn some_rows<L: Lanes, F: Family, const R: usize>(
    l: L,
    family: F,
    rows: [&[F::Block]; R],
    panel: &Panel,
    out: &mut [f32],
    stride: usize,
) {
    let mut halves = [[[l.float(0.0); 4]; R]; 2];
    // The compiler must not see where the loop starts: it would compute both halves in one, for which there
    // are too few registers.
    for h in black_box(0)..2 {
        halves[h] = family.half(l, rows, panel, h);
    }
    let subtract = family.minima(l, rows, panel);
    for r in 0..R {
        // As `scalar::reduce`.
        let (a, b) = (halves[0][r], halves[1][r]);
        let even = l.add(l.add(a[0], b[0]), l.add(a[2], b[2]));
        let odd = l.add(l.add(a[1], b[1]), l.add(a[3], b[3]));
        let (mut sums, mut minima) = ([0.0; MOST], [0.0; MOST]);
        l.store(l.add(even, odd), &mut sums);
        l.store(subtract[r], &mut minima);
        for (out, (sum, minima)) in
            out[r * stride..][..panel.used].iter_mut().zip(sums.iter().zip(&minima))
        {
            *out = sum - minima;
        }
    }
}

/// A decoded chunk of `Q8_0`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk {
    weights: [u8; 32],
    /// What cancels the shift of the quants.
    bias: [i32; 8],
    d: f32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Q8_0;

impl Family for Q8_0 {
    type Block = Chunk;
    const ZERO: Chunk = Chunk { weights: [0; 32], bias: [0; 8], d: 0.0 };
    const BYTES: usize = q8_0::BYTES;

    #[inline(always)]
    fn shift<M: Machine>(self, m: M, q: M::Bytes) -> M::Bytes {
        m.shift_full(q)
    }

    #[inline(always)]
    fn decode<M: Machine>(self, m: M, bytes: &[u8], block: &mut Chunk) {
        block.d = first(m, m.splat_half([bytes[0], bytes[1]]));
        block.weights = bytes[2..34].try_into().expect("34 - 2 bytes");
        let nothing = m.shift_full(m.bytes(&[0; 32]));
        let shift = m.add_full(m.ints_zero(), nothing, m.bytes(&block.weights));
        m.store_ints(shift, &mut block.bias);
        block.bias = block.bias.map(|sum| -sum);
    }

    #[expect(clippy::needless_range_loop, reason = "several arrays by the same indices")]
    #[inline(always)]
    fn half<L: Lanes, const R: usize>(
        self,
        l: L,
        rows: [&[Chunk]; R],
        panel: &Panel,
        h: usize,
    ) -> [[L::Floats; 4]; R] {
        let mut lanes = [[l.float(0.0); 4]; R];
        let quants = panel.quants().chunks_exact(32 * L::COUNT);
        let scales = panel.scales().chunks_exact(L::COUNT);
        for (b, (quants, scales)) in quants.zip(scales).enumerate().take(rows[0].len()) {
            let scales = l.floats(scales);
            let mut products = [l.float(0.0); R];
            for r in 0..R {
                products[r] = l.mul(l.float(rows[r][b].d), scales);
            }
            for k in 0..4 {
                let i = 4 * h + k;
                let q = l.words(&quants[4 * i * L::COUNT..][..4 * L::COUNT]);
                for r in 0..R {
                    let chunk = &rows[r][b];
                    let sums =
                        l.add_full(l.int(chunk.bias[i]), q, l.weights(word(&chunk.weights, i)));
                    lanes[r][k] = l.fma(l.to_floats(sums), products[r], lanes[r][k]);
                }
            }
        }
        lanes
    }

    #[inline(always)]
    fn minima<L: Lanes, const R: usize>(self, l: L, _: [&[Chunk]; R], _: &Panel) -> [L::Floats; R] {
        [l.float(0.0); R]
    }
}

/// Bytes 4i..4i+3.
#[inline(always)]
fn word(bytes: &[u8; 32], i: usize) -> [u8; 4] {
    bytes.as_chunks().0[i]
}

/// A decoded super-block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    weights: [[u8; 32]; 8],
    /// Scales of both groups of each chunk, as words with two copies.
    factors: [[u32; 2]; 8],
    /// What cancels the shift of the quants.
    bias: [i32; 8],
    mins: [i16; 16],
    /// Scales of the block and of its minima.
    d: f32,
    dmin: f32,
}

/// Stores the weights of a block and sums what shifted zeros give.
struct Store<'a, M: Machine> {
    m: M,
    block: &'a mut Block,
    nothing: M::Bytes,
    shift: M::Ints,
}

impl<M: Machine> Visitor<M> for Store<'_, M> {
    #[inline(always)]
    fn chunk(&mut self, j: usize, weights: Weights<M>, factor: M::Factor) {
        let weights = weights.signed(self.m);
        self.m.store_bytes(weights, &mut self.block.weights[j]);
        self.block.factors[j] = self.m.factor_words(factor);
        self.shift = self.m.add_small(self.shift, self.nothing, weights, factor);
    }
}

/// A super-block format.
#[derive(Debug, Clone, Copy)]
pub(super) struct Super<F>(pub(super) F);

impl<F: Format> Family for Super<F> {
    type Block = Block;
    const ZERO: Block = Block {
        weights: [[0; 32]; 8],
        factors: [[0; 2]; 8],
        bias: [0; 8],
        mins: [0; 16],
        d: 0.0,
        dmin: 0.0,
    };
    const BYTES: usize = F::BYTES;

    #[inline(always)]
    fn shift<M: Machine>(self, m: M, q: M::Bytes) -> M::Bytes {
        m.shift_small(q)
    }

    #[inline(always)]
    fn decode<M: Machine>(self, m: M, bytes: &[u8], block: &mut Block) {
        let nothing = m.shift_small(m.bytes(&[0; 32]));
        let mut store = Store { m, block, nothing, shift: m.ints_zero() };
        let header = self.0.visit(m, bytes, &mut store);
        let Store { block, shift, .. } = store;
        m.store_ints(shift, &mut block.bias);
        block.bias = block.bias.map(|sum| -sum);
        m.store_shorts(header.mins, &mut block.mins);
        block.d = first(m, header.d);
        block.dmin = first(m, header.dmin);
    }

    #[expect(clippy::needless_range_loop, reason = "several arrays by the same indices")]
    #[inline(always)]
    fn half<L: Lanes, const R: usize>(
        self,
        l: L,
        rows: [&[Block]; R],
        panel: &Panel,
        h: usize,
    ) -> [[L::Floats; 4]; R] {
        let mut lanes = [[l.float(0.0); 4]; R];
        let quants = panel.quants().chunks_exact(256 * L::COUNT);
        let scales = panel.scales().chunks_exact(L::COUNT);
        for (b, (quants, scales)) in quants.zip(scales).enumerate().take(rows[0].len()) {
            let mut sums = [[l.int(0); 4]; R];
            for r in 0..R {
                for k in 0..4 {
                    sums[r][k] = l.int(rows[r][b].bias[4 * h + k]);
                }
            }
            for (j, quants) in quants.chunks_exact(32 * L::COUNT).enumerate() {
                let mut factors = [l.factor(0); R];
                for r in 0..R {
                    factors[r] = l.factor(rows[r][b].factors[j][h]);
                }
                for k in 0..4 {
                    let i = 4 * h + k;
                    let q = l.words(&quants[4 * i * L::COUNT..][..4 * L::COUNT]);
                    for r in 0..R {
                        let weights = l.weights(word(&rows[r][b].weights[j], i));
                        sums[r][k] = l.add_small(sums[r][k], q, weights, factors[r]);
                    }
                }
            }
            let scales = l.floats(scales);
            for r in 0..R {
                let product = l.mul(l.float(rows[r][b].d), scales);
                for k in 0..4 {
                    lanes[r][k] = l.fma(l.to_floats(sums[r][k]), product, lanes[r][k]);
                }
            }
        }
        lanes
    }

    #[inline(always)]
    fn minima<L: Lanes, const R: usize>(
        self,
        l: L,
        rows: [&[Block]; R],
        panel: &Panel,
    ) -> [L::Floats; R] {
        let mut minima = [l.float(0.0); R];
        if !F::MINIMA {
            return minima;
        }
        let sums = panel.sums().chunks_exact(32 * L::COUNT);
        let scales = panel.scales().chunks_exact(L::COUNT);
        for (b, (sums, scales)) in sums.zip(scales).enumerate().take(rows[0].len()) {
            let mut pairs = [l.int(0); R];
            for (p, sums) in sums.chunks_exact(4 * L::COUNT).enumerate() {
                let sums = l.words(sums);
                for r in 0..R {
                    pairs[r] = l.add_pairs(pairs[r], sums, rows[r][b].mins.as_chunks().0[p]);
                }
            }
            let scales = l.floats(scales);
            for r in 0..R {
                let product = l.mul(l.float(rows[r][b].dmin), scales);
                minima[r] = l.fma(l.to_floats(pairs[r]), product, minima[r]);
            }
        }
        minima
    }
}

/// The first of eight equal floats.
#[inline(always)]
fn first<M: Machine>(m: M, f: M::Floats) -> f32 {
    let mut eight = [0.0; 8];
    m.store_floats(f, &mut eight);
    eight[0]
}
