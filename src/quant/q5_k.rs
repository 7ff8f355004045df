//! `Q5_K`: 256 weights in 176 bytes; decoded only, for files made elsewhere (model.md 2.6).
//!
//! ```text
//! 0    f16 d
//! 2    f16 dmin
//! 4    u8 s[12]     as Q4_K
//! 16   u8 h[32]     fifth bits: bit j of byte l belongs to weight l of group j
//! 48   u8 q[128]    as Q4_K
//! ```

use super::q4_k;
use super::super_block::SuperBlock;

/// Bytes of a block.
pub(super) const BYTES: usize = 176;

/// Takes a block apart.
pub(super) fn unpack(block: &[u8]) -> SuperBlock {
    let mut out = q4_k::unpack_scales(block);
    let high = &block[16..48];
    for (c, bytes) in block[48..BYTES].chunks_exact(32).enumerate() {
        for (l, &b) in bytes.iter().enumerate() {
            let fifth = |j: usize| ((high[l] >> j) & 1) << 4;
            out.n[64 * c + l] = ((b & 15) | fifth(2 * c)).cast_signed();
            out.n[64 * c + 32 + l] = ((b >> 4) | fifth(2 * c + 1)).cast_signed();
        }
    }
    out
}
