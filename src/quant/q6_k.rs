//! `Q6_K`: 256 weights in 210 bytes; decoded only, for files made elsewhere (model.md 2.6).
//!
//! ```text
//! 0     u8 low[128]    low nibbles
//! 128   u8 high[64]    upper two bits
//! 192   i8 s[16]       scales of groups of 16
//! 208   f16 d          x = d s (n - 32)
//! ```
//!
//! Each half of 128 weights has 64 bytes of `low` and 32 of `high`: weight `32 b + l` (b = 0..3) takes
//! the low (b < 2) or high nibble of `low[32 (b mod 2) + l]` and bits 2b, 2b+1 of `high[l]`.

use super::plain::f16_at;
use super::super_block::SuperBlock;

/// Bytes of a block.
pub(super) const BYTES: usize = 210;

/// Takes a block apart.
pub(super) fn unpack(block: &[u8]) -> SuperBlock {
    let mut out = SuperBlock::zero();
    out.d = f16_at(block, 208);
    for (scale, &s) in out.scale.iter_mut().zip(&block[192..208]) {
        *scale = i16::from(s.cast_signed());
    }
    for half in 0..2 {
        let low = &block[64 * half..];
        let high = &block[128 + 32 * half..];
        for b in 0..4 {
            for l in 0..32 {
                let nibble = (low[32 * (b % 2) + l] >> (4 * (b / 2))) & 15;
                let n = nibble | ((high[l] >> (2 * b)) & 3) << 4;
                out.n[128 * half + 32 * b + l] = n.cast_signed() - 32;
            }
        }
    }
    out
}
