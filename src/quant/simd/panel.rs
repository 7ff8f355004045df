//! Activations side by side, for kernels that multiply a weight with all of them at once.

use super::lanes::Lanes;
use super::machine::Machine;
use super::products::Family;
use crate::quant::activation::Q8Row;

/// Aligned like the widest vector, so that no load crosses a cache line.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Aligned memory, all bits zero.
fn lines(bytes: usize) -> Vec<Line> {
    vec![Line([0; 64]); bytes.div_ceil(64)]
}

/// As many activations as a vector has lanes, or fewer and zeros.
pub(super) struct Panel {
    quants: Vec<Line>,
    scales: Vec<Line>,
    sums: Vec<Line>,
    /// Activations that are not padding.
    pub(super) used: usize,
}

impl Panel {
    /// Lays out at most [`Lanes::COUNT`] rows of equal length, in the form that `family` wants.
    #[inline(always)]
    pub(super) fn new<M: Machine, L: Lanes>(
        m: M,
        _: L,
        rows: &[&Q8Row],
        family: impl Family,
    ) -> Self {
        let first = rows[0];
        let mut panel = Self {
            quants: lines(first.quants.len() * L::COUNT),
            scales: lines(4 * first.scales.len() * L::COUNT),
            sums: lines(2 * first.sums.len() * L::COUNT),
            used: rows.len(),
        };
        let quants: &mut [u32] = bytemuck::cast_slice_mut(&mut panel.quants);
        let scales: &mut [f32] = bytemuck::cast_slice_mut(&mut panel.scales);
        let sums: &mut [u32] = bytemuck::cast_slice_mut(&mut panel.sums);
        // Padding needs no shift: whatever its quants are, its results are dropped.
        for (t, row) in rows.iter().enumerate() {
            let chunks = bytemuck::cast_slice::<i8, u8>(&row.quants).as_chunks::<32>().0;
            for (from, to) in chunks.iter().zip(quants.chunks_exact_mut(8 * L::COUNT)) {
                let mut shifted = [0; 32];
                m.store_bytes(family.shift(m, m.bytes(from)), &mut shifted);
                for (l, word) in shifted.as_chunks::<4>().0.iter().enumerate() {
                    to[l * L::COUNT + t] = u32::from_ne_bytes(*word);
                }
            }
            for (from, to) in row.scales.iter().zip(scales.chunks_exact_mut(L::COUNT)) {
                to[t] = *from;
            }
            let pairs = bytemuck::cast_slice::<i16, [i16; 2]>(&row.sums).iter();
            for (pair, to) in pairs.zip(sums.chunks_exact_mut(L::COUNT)) {
                to[t] = bytemuck::cast(*pair);
            }
        }
        panel
    }

    /// Shifted quants of four positions at a time, by (position, activation).
    pub(super) fn quants(&self) -> &[u8] {
        bytemuck::cast_slice(&self.quants)
    }

    /// Scales by (block, activation).
    pub(super) fn scales(&self) -> &[f32] {
        bytemuck::cast_slice(&self.scales)
    }

    /// Sums of 16 quants by (block, pair of groups, activation, group).
    pub(super) fn sums(&self) -> &[u8] {
        bytemuck::cast_slice(&self.sums)
    }
}
