//! Up to eight activations, interleaved for kernels that multiply one weight row with all of them.

use super::machine::Machine;
use super::products::Family;
use crate::quant::activation::Q8Row;

/// Activations in a full tile.
pub(super) const WIDTH: usize = 8;

/// Aligned like a vector, so that no load crosses a cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct Aligned<T>(pub(super) T);

/// `T` activations, or fewer and zeros.
pub(super) struct Tile<const T: usize> {
    /// Shifted quants of 32 positions, by (chunk, activation).
    pub(super) quants: Vec<[Aligned<[u8; 32]>; T]>,
    /// Scales by (block, activation); unused ones are 0.
    pub(super) scales: Vec<Aligned<[f32; WIDTH]>>,
    /// Sums of 16 quants by (block, pair of groups, activation, group): what a vector of pairs needs.
    pub(super) sums: Vec<[Aligned<[i16; 2 * WIDTH]>; 8]>,
    /// Activations that are not padding.
    pub(super) used: usize,
}

impl<const T: usize> Tile<T> {
    /// Interleaves at most `T` rows of equal length; in the form that `family` wants.
    #[inline(always)]
    pub(super) fn new<M: Machine>(m: M, rows: &[&Q8Row], family: impl Family) -> Self {
        let first = rows[0];
        let nothing = family.shift(m, m.bytes(&[0; 32]));
        let mut tile = Self {
            quants: vec![[Aligned([0; 32]); T]; first.quants.len() / 32],
            scales: vec![Aligned([0.0; WIDTH]); first.scales.len()],
            sums: vec![[Aligned([0; 2 * WIDTH]); 8]; first.sums.len() / 16],
            used: rows.len(),
        };
        for t in 0..T {
            let Some(row) = rows.get(t) else {
                tile.quants.iter_mut().for_each(|chunk| m.store_bytes(nothing, &mut chunk[t].0));
                continue;
            };
            let chunks = bytemuck::cast_slice::<i8, u8>(&row.quants).as_chunks::<32>().0;
            for (to, from) in tile.quants.iter_mut().zip(chunks) {
                m.store_bytes(family.shift(m, m.bytes(from)), &mut to[t].0);
            }
            for (to, &from) in tile.scales.iter_mut().zip(&row.scales) {
                to.0[t] = from;
            }
            for (to, from) in tile.sums.iter_mut().zip(row.sums.as_chunks::<16>().0) {
                for (to, from) in to.iter_mut().zip(from.as_chunks::<2>().0) {
                    to.0[2 * t..2 * t + 2].copy_from_slice(from);
                }
            }
        }
        tile
    }
}
