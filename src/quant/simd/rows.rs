//! One activation: weight rows times one vector, reading the weights once and writing nothing else.

use super::formats::{Format, Visitor, Weights};
use super::machine::{Kernel, Machine, prefetch};
use crate::quant::activation::Q8Row;
use crate::quant::{q8_0, scalar};

/// `Q8_0` rows times a `Q8_0` activation.
pub(super) struct Q8_0Rows<'a> {
    /// `out.len()` rows.
    pub(super) w: &'a [u8],
    pub(super) row_bytes: usize,
    pub(super) x: &'a Q8Row,
    pub(super) out: &'a mut [f32],
}

impl Kernel for Q8_0Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<M: Machine>(self, m: M) {
        for (out, row) in self.out.iter_mut().zip(self.w.chunks_exact(self.row_bytes)) {
            *out = q8_0_row(m, row, self.x);
        }
    }
}

/// One `Q8_0` row times one activation.
#[inline(always)]
fn q8_0_row<M: Machine>(m: M, row: &[u8], x: &Q8Row) -> f32 {
    let mut lanes = m.splat(0.0);
    let blocks = row.as_chunks::<{ q8_0::BYTES }>().0;
    let quants = bytemuck::cast_slice::<i8, u8>(&x.quants).as_chunks::<32>().0;
    for ((block, q), scale) in blocks.iter().zip(quants).zip(&x.scales) {
        prefetch(m, block);
        let weights = m.bytes(block[2..].try_into().expect("34 - 2 bytes"));
        let sums = m.to_floats(m.dot(weights, m.bytes(q)));
        lanes = m.fma(sums, m.mul(m.splat_half([block[0], block[1]]), m.splat(*scale)), lanes);
    }
    reduce(m, lanes)
}

/// Rows of super-blocks times a `Q8_K` activation.
pub(super) struct SuperRows<'a, F> {
    pub(super) format: F,
    /// `out.len()` rows.
    pub(super) w: &'a [u8],
    pub(super) row_bytes: usize,
    pub(super) x: &'a Q8Row,
    pub(super) out: &'a mut [f32],
}

impl<F: Format> Kernel for SuperRows<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<M: Machine>(self, m: M) {
        for (out, row) in self.out.iter_mut().zip(self.w.chunks_exact(self.row_bytes)) {
            *out = super_row(m, self.format, row, self.x);
        }
    }
}

/// The sum over a block.
struct Products<'a, M: Machine> {
    m: M,
    quants: &'a [[u8; 32]; 8],
    sum: M::Ints,
}

impl<M: Machine> Visitor<M> for Products<'_, M> {
    #[inline(always)]
    fn chunk(&mut self, j: usize, weights: Weights<M>, factor: M::Factor) {
        let q = self.m.bytes(&self.quants[j]);
        self.sum = weights.add_to(self.m, self.sum, q, factor);
    }
}

/// One row of super-blocks times one activation.
#[inline(always)]
fn super_row<M: Machine, F: Format>(m: M, format: F, row: &[u8], x: &Q8Row) -> f32 {
    let mut lanes = m.splat(0.0);
    let mut minima = m.splat(0.0);
    let quants = bytemuck::cast_slice::<i8, u8>(&x.quants).as_chunks::<256>().0;
    let sums = x.sums.as_chunks::<16>().0;
    let blocks = row.chunks_exact(F::BYTES);
    for (((block, q), group_sums), &scale) in blocks.zip(quants).zip(sums).zip(&x.scales) {
        let q = q.as_chunks::<32>().0.try_into().expect("256 / 32");
        prefetch(m, block);
        let scale = m.splat(scale);
        let mut products = Products { m, quants: q, sum: m.ints_zero() };
        let header = format.visit(m, block, &mut products);
        lanes = m.fma(m.to_floats(products.sum), m.mul(header.d, scale), lanes);
        if F::MINIMA {
            let sum = m.add_pairs(m.ints_zero(), header.mins, m.shorts(group_sums));
            minima = m.fma(m.to_floats(m.sum(sum)), m.mul(header.dmin, scale), minima);
        }
    }
    let mut subtract = [0.0; 8];
    m.store_floats(minima, &mut subtract);
    reduce(m, lanes) - subtract[0]
}

/// The fixed tree over the eight lanes.
#[inline(always)]
pub(super) fn reduce<M: Machine>(m: M, lanes: M::Floats) -> f32 {
    let mut eight = [0.0; 8];
    m.store_floats(lanes, &mut eight);
    scalar::reduce(&eight)
}
