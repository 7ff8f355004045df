//! Few activations: weight rows times up to three vectors, straight from the registers in which they are
//! taken apart.

use super::formats::Format;
use super::machine::{Kernel, Machine, prefetch};
use crate::quant::activation::Q8Row;
use crate::quant::{q8_0, scalar};

/// A weight format that can be multiplied row by row.
pub(super) trait RowFormat: Copy {
    /// Products of one row with `T` activations.
    fn multiply<M: Machine, const T: usize>(self, m: M, row: &[u8], xs: [&Q8Row; T]) -> [f32; T];
}

/// `out[r * T + t]` for rows `r` and activations `t`.
pub(super) struct Rows<'a, F, const T: usize> {
    pub(super) format: F,
    pub(super) w: &'a [u8],
    pub(super) row_bytes: usize,
    pub(super) xs: [&'a Q8Row; T],
    pub(super) out: &'a mut [f32],
}

impl<F: RowFormat, const T: usize> Kernel for Rows<'_, F, T> {
    type Output = ();

    #[inline(always)]
    fn run<M: Machine>(self, m: M) {
        let rows = self.w.chunks_exact(self.row_bytes);
        for (out, row) in self.out.as_chunks_mut::<T>().0.iter_mut().zip(rows) {
            *out = self.format.multiply(m, row, self.xs);
        }
    }
}

/// Blocks of `N` quants.
#[inline(always)]
fn blocks<const N: usize>(x: &Q8Row) -> &[[u8; N]] {
    bytemuck::cast_slice::<i8, u8>(&x.quants).as_chunks::<N>().0
}

/// `Q8_0` weights, with `Q8_0` activations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Q8_0;

impl RowFormat for Q8_0 {
    #[inline(always)]
    fn multiply<M: Machine, const T: usize>(self, m: M, row: &[u8], xs: [&Q8Row; T]) -> [f32; T] {
        let mut lanes = [m.splat(0.0); T];
        let row = row.as_chunks::<{ q8_0::BYTES }>().0;
        let quants = xs.map(|x| &blocks::<32>(x)[..row.len()]);
        let scales = xs.map(|x| &x.scales[..row.len()]);
        for (b, block) in row.iter().enumerate() {
            prefetch(m, block);
            let d = m.splat_half([block[0], block[1]]);
            let weights = m.bytes(block[2..].try_into().expect("34 - 2 bytes"));
            for t in 0..T {
                let sums = m.to_floats(m.dot(weights, m.bytes(&quants[t][b])));
                lanes[t] = m.fma(sums, m.mul(d, m.splat(scales[t][b])), lanes[t]);
            }
        }
        let mut out = [0.0; T];
        for t in 0..T {
            out[t] = reduce(m, lanes[t]);
        }
        out
    }
}

/// A super-block format, with `Q8_K` activations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Super<F>(pub(super) F);

impl<F: Format> RowFormat for Super<F> {
    #[inline(always)]
    fn multiply<M: Machine, const T: usize>(self, m: M, row: &[u8], xs: [&Q8Row; T]) -> [f32; T] {
        let mut lanes = [m.splat(0.0); T];
        let mut minima = [m.splat(0.0); T];
        let n = row.len() / F::BYTES;
        let quants = xs.map(|x| &blocks::<256>(x)[..n]);
        let group_sums = xs.map(|x| &x.sums.as_chunks::<16>().0[..n]);
        let scales = xs.map(|x| &x.scales[..n]);
        for (b, block) in row.chunks_exact(F::BYTES).enumerate() {
            prefetch(m, block);
            let quants = quants.map(|q| q[b].as_chunks::<32>().0.try_into().expect("256 / 32"));
            let (header, sums) = self.0.sums(m, block, quants);
            for t in 0..T {
                let scale = m.splat(scales[t][b]);
                lanes[t] = m.fma(m.to_floats(sums[t]), m.mul(header.d, scale), lanes[t]);
                if F::MINIMA {
                    let group_sums = m.shorts(&group_sums[t][b]);
                    let sum = m.sum(m.add_pairs(m.ints_zero(), header.mins, group_sums));
                    minima[t] = m.fma(m.to_floats(sum), m.mul(header.dmin, scale), minima[t]);
                }
            }
        }
        let mut out = [0.0; T];
        for t in 0..T {
            let mut subtract = [0.0; 8];
            m.store_floats(minima[t], &mut subtract);
            out[t] = reduce(m, lanes[t]) - subtract[0];
        }
        out
    }
}

/// The fixed tree over the eight lanes.
#[inline(always)]
pub(super) fn reduce<M: Machine>(m: M, lanes: M::Floats) -> f32 {
    let mut eight = [0.0; 8];
    m.store_floats(lanes, &mut eight);
    scalar::reduce(&eight)
}
