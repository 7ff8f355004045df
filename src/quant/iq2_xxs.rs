//! `IQ2_XXS`: 256 weights in 66 bytes, eight at a time from a codebook (model.md 5.6, 5.14).
//!
//! ```text
//! 0    f16 d
//! 2    u32 pair[8][2]    per group of 32, 2-byte aligned:
//!                        A: four grid indices, lowest byte first
//!                        B: four 7-bit sign fields from bit 0 on, bits 28..31 the group scale ls
//! ```
//!
//! `x = d (2 ls + 1) / 8 * grid * sign`.

use super::iq2_grid::{GRID, expand_signs};
use super::plain::f16_at;
use super::super_block::SuperBlock;

/// Bytes of a block.
pub(super) const BYTES: usize = 66;

/// Words A and B of group `g`.
pub(super) fn words(block: &[u8], g: usize) -> (u32, u32) {
    let word = |at: usize| {
        u32::from_le_bytes(block[at..at + 4].try_into().expect("a slice of four bytes"))
    };
    (word(2 + 8 * g), word(6 + 8 * g))
}

/// Takes a block apart: integer scales are `2 ls + 1`, and the eighth goes into `d`.
pub(super) fn unpack(block: &[u8]) -> SuperBlock {
    let mut out = SuperBlock::zero();
    out.d = f16_at(block, 0) * 0.125;
    for (g, weights) in out.n.chunks_exact_mut(32).enumerate() {
        let (indices, word) = words(block, g);
        let scale = i16::try_from(2 * (word >> 28) + 1).expect("at most 31");
        out.scale[2 * g..2 * g + 2].fill(scale);
        let signs = expand_signs(word);
        for (l, eight) in weights.chunks_exact_mut(8).enumerate() {
            let levels = GRID[usize::from(indices.to_le_bytes()[l])].to_le_bytes();
            for (j, w) in eight.iter_mut().enumerate() {
                let level = levels[j].cast_signed();
                *w = if (signs >> (8 * l + j)) & 1 == 1 { -level } else { level };
            }
        }
    }
    out
}
