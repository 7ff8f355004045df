//! `Q2_K`: 256 weights in 84 bytes (model.md 5.5, 5.13).
//!
//! ```text
//! 0    u8 s[16]     low nibble: scale, high nibble: minimum, of groups of 16
//! 16   u8 q[64]     weight 128 a + 32 b + l: bits 2b, 2b+1 of q[32 a + l]
//! 80   f16 d
//! 82   f16 dmin
//! ```

use super::plain::f16_at;
use super::super_block::SuperBlock;

/// Bytes of a block.
pub(super) const BYTES: usize = 84;

/// Takes a block apart.
pub(super) fn unpack(block: &[u8]) -> SuperBlock {
    let mut out = SuperBlock::zero();
    out.d = f16_at(block, 80);
    out.dmin = Some(f16_at(block, 82));
    for (g, &s) in block[..16].iter().enumerate() {
        out.scale[g] = i16::from(s & 15);
        out.min[g] = i16::from(s >> 4);
    }
    for (a, bytes) in block[16..80].chunks_exact(32).enumerate() {
        for b in 0..4 {
            for (l, &q) in bytes.iter().enumerate() {
                out.n[128 * a + 32 * b + l] = ((q >> (2 * b)) & 3).cast_signed();
            }
        }
    }
    out
}
