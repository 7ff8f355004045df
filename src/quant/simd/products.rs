//! Many activations: weight rows are decoded once, a few rows at a time, and multiplied with tiles of
//! activations that stay in the first-level cache meanwhile.

use super::formats::{Format, Visitor, Weights};
use super::machine::{Kernel, Machine, prefetch};
use super::rows::reduce;
use super::tile::{Aligned, Tile, WIDTH};
use crate::quant::activation::Q8Row;
use crate::quant::plain::f16_at;
use crate::quant::q8_0;

/// Rows decoded together.
const BATCH: usize = 8;

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
    /// Products of a decoded row with a tile.
    fn multiply<M: Machine, const T: usize>(
        self,
        m: M,
        row: &[Self::Block],
        tile: &Tile<T>,
    ) -> [f32; T];
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
        let family = self.family;
        let (whole, rest) = self.xs.split_at(self.xs.len() / WIDTH * WIDTH);
        let tiles: Vec<_> =
            whole.chunks_exact(WIDTH).map(|xs| Tile::<WIDTH>::new(m, xs, family)).collect();
        let last = Rest::new(m, rest, family);
        let blocks = self.row_bytes / F::BYTES;
        let mut decoded = vec![F::ZERO; blocks * BATCH];
        let n = self.xs.len();
        for (out, w) in self.out.chunks_mut(BATCH * n).zip(self.w.chunks(BATCH * self.row_bytes)) {
            let rows = out.len() / n;
            for (block, bytes) in decoded.iter_mut().zip(w.chunks_exact(F::BYTES)) {
                prefetch(m, bytes);
                family.decode(m, bytes, block);
            }
            let decoded = &decoded[..rows * blocks];
            for (i, tile) in tiles.iter().enumerate() {
                multiply_rows(m, family, decoded, tile, &mut out[i * WIDTH..], n);
            }
            let out = &mut out[whole.len()..];
            match &last {
                Rest::None => {}
                Rest::Two(tile) => multiply_rows(m, family, decoded, tile, out, n),
                Rest::Four(tile) => multiply_rows(m, family, decoded, tile, out, n),
                Rest::Eight(tile) => multiply_rows(m, family, decoded, tile, out, n),
            }
        }
    }
}

/// The activations beyond the last full tile.
enum Rest {
    None,
    Two(Tile<2>),
    Four(Tile<4>),
    Eight(Tile<WIDTH>),
}

impl Rest {
    #[inline(always)]
    fn new<M: Machine>(m: M, xs: &[&Q8Row], family: impl Family) -> Self {
        match xs.len() {
            0 => Self::None,
            1 | 2 => Self::Two(Tile::new(m, xs, family)),
            3 | 4 => Self::Four(Tile::new(m, xs, family)),
            _ => Self::Eight(Tile::new(m, xs, family)),
        }
    }
}

/// Decoded rows times one tile, stored from `out[0]` on with `stride` results from row to row. Results of
/// a padded tile beyond the end of a row of `out` are dropped.
#[inline(always)]
fn multiply_rows<M: Machine, F: Family, const T: usize>(
    m: M,
    family: F,
    rows: &[F::Block],
    tile: &Tile<T>,
    out: &mut [f32],
    stride: usize,
) {
    let blocks = tile.scales.len();
    let used = tile.used;
    for (r, row) in rows.chunks_exact(blocks).enumerate() {
        let results = family.multiply(m, row, tile);
        out[r * stride..r * stride + used].copy_from_slice(&results[..used]);
    }
}

/// A decoded chunk of `Q8_0`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk {
    weights: Aligned<[u8; 32]>,
    /// What cancels the shift of the quants.
    bias: Aligned<[i32; 8]>,
    d: f32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Q8_0;

impl Family for Q8_0 {
    type Block = Chunk;
    const ZERO: Chunk = Chunk { weights: Aligned([0; 32]), bias: Aligned([0; 8]), d: 0.0 };
    const BYTES: usize = q8_0::BYTES;

    #[inline(always)]
    fn shift<M: Machine>(self, m: M, q: M::Bytes) -> M::Bytes {
        m.shift_full(q)
    }

    #[inline(always)]
    fn decode<M: Machine>(self, m: M, bytes: &[u8], block: &mut Chunk) {
        block.d = f16_at(bytes, 0);
        block.weights.0 = bytes[2..34].try_into().expect("34 - 2 bytes");
        let nothing = m.shift_full(m.bytes(&[0; 32]));
        let shift = m.add_full(m.ints_zero(), nothing, m.bytes(&block.weights.0));
        m.store_ints(shift, &mut block.bias.0);
        block.bias.0 = block.bias.0.map(|sum| -sum);
    }

    #[inline(always)]
    fn multiply<M: Machine, const T: usize>(self, m: M, row: &[Chunk], tile: &Tile<T>) -> [f32; T] {
        let mut lanes = [m.splat(0.0); T];
        for ((chunk, quants), scales) in row.iter().zip(&tile.quants).zip(&tile.scales) {
            let mut products = [0.0; WIDTH];
            m.store_floats(m.mul(m.splat(chunk.d), m.floats(&scales.0)), &mut products);
            let (weights, bias) = (m.bytes(&chunk.weights.0), m.ints(&chunk.bias.0));
            for t in 0..T {
                let sums = m.add_full(bias, m.bytes(&quants[t].0), weights);
                lanes[t] = m.fma(m.to_floats(sums), m.splat(products[t]), lanes[t]);
            }
        }
        lanes.map(|lanes| reduce(m, lanes))
    }
}

/// A decoded super-block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    weights: [Aligned<[u8; 32]>; 8],
    /// Group scales of each chunk, as the machine stores them.
    factors: [Aligned<[i16; 16]>; 8],
    /// What cancels the shift of the quants.
    bias: Aligned<[i32; 8]>,
    mins: [i16; 16],
    /// Scales of the block and of its minima, in all lanes.
    d: Aligned<[f32; 8]>,
    dmin: Aligned<[f32; 8]>,
}

/// Stores the weights of a block and sums what shifted zeros give.
struct Store<'a, M: Machine> {
    m: M,
    weights: &'a mut [Aligned<[u8; 32]>; 8],
    factors: &'a mut [Aligned<[i16; 16]>; 8],
    nothing: M::Bytes,
    shift: M::Ints,
}

impl<M: Machine> Visitor<M> for Store<'_, M> {
    #[inline(always)]
    fn chunk(&mut self, j: usize, weights: Weights<M>, factor: M::Factor) {
        let weights = weights.signed(self.m);
        self.m.store_bytes(weights, &mut self.weights[j].0);
        self.m.store_factor(factor, &mut self.factors[j].0);
        self.shift = self.m.add_small(self.shift, self.nothing, weights, factor);
    }
}

/// A super-block format.
#[derive(Debug, Clone, Copy)]
pub(super) struct Super<F>(pub(super) F);

impl<F: Format> Family for Super<F> {
    type Block = Block;
    const ZERO: Block = Block {
        weights: [Aligned([0; 32]); 8],
        factors: [Aligned([0; 16]); 8],
        bias: Aligned([0; 8]),
        mins: [0; 16],
        d: Aligned([0.0; 8]),
        dmin: Aligned([0.0; 8]),
    };
    const BYTES: usize = F::BYTES;

    #[inline(always)]
    fn shift<M: Machine>(self, m: M, q: M::Bytes) -> M::Bytes {
        m.shift_small(q)
    }

    #[inline(always)]
    fn decode<M: Machine>(self, m: M, bytes: &[u8], block: &mut Block) {
        let nothing = m.shift_small(m.bytes(&[0; 32]));
        let (weights, factors) = (&mut block.weights, &mut block.factors);
        let mut store = Store { m, weights, factors, nothing, shift: m.ints_zero() };
        let header = self.0.visit(m, bytes, &mut store);
        m.store_ints(store.shift, &mut block.bias.0);
        block.bias.0 = block.bias.0.map(|sum| -sum);
        m.store_shorts(header.mins, &mut block.mins);
        m.store_floats(header.d, &mut block.d.0);
        m.store_floats(header.dmin, &mut block.dmin.0);
    }

    #[inline(always)]
    fn multiply<M: Machine, const T: usize>(self, m: M, row: &[Block], tile: &Tile<T>) -> [f32; T] {
        let mut lanes = [m.splat(0.0); T];
        let mut minima = m.splat(0.0);
        let quants = tile.quants.as_chunks::<8>().0;
        for (b, ((block, quants), scales)) in row.iter().zip(quants).zip(&tile.scales).enumerate() {
            let mut sums = [m.ints(&block.bias.0); T];
            let chunks = block.weights.iter().zip(&block.factors);
            for ((weights, factor), quants) in chunks.zip(quants) {
                let (weights, factor) = (m.bytes(&weights.0), m.load_factor(&factor.0));
                for t in 0..T {
                    sums[t] = m.add_small(sums[t], m.bytes(&quants[t].0), weights, factor);
                }
            }
            let scales = m.floats(&scales.0);
            let mut products = [0.0; WIDTH];
            m.store_floats(m.mul(m.floats(&block.d.0), scales), &mut products);
            for t in 0..T {
                lanes[t] = m.fma(m.to_floats(sums[t]), m.splat(products[t]), lanes[t]);
            }
            if F::MINIMA {
                let mut sum = m.ints_zero();
                for (pair, sums) in block.mins.as_chunks::<2>().0.iter().zip(&tile.sums[b]) {
                    sum = m.add_pairs(sum, m.pair(*pair), m.shorts(&sums.0));
                }
                minima = m.fma(m.to_floats(sum), m.mul(m.floats(&block.dmin.0), scales), minima);
            }
        }
        let mut subtract = [0.0; WIDTH];
        m.store_floats(minima, &mut subtract);
        std::array::from_fn(|t| reduce(m, lanes[t]) - subtract[t])
    }
}
