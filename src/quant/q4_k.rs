//! `Q4_K`: 256 weights in 144 bytes (model.md 5.4, 5.13).
//!
//! ```text
//! 0    f16 d
//! 2    f16 dmin
//! 4    u8 s[12]     eight 6-bit scales and eight 6-bit minima, packed
//! 16   u8 q[128]    32 bytes per pair of groups: low nibbles group 2c, high nibbles group 2c+1
//! ```

use super::fit::{AffineRule, Loss};
use super::k_fit::{Groups, importance_weights, sum_of_squares};
use super::plain::f16_at;
use super::super_block::{LEN, SuperBlock};

/// Bytes of a block.
pub(super) const BYTES: usize = 144;

/// Scale and minimum of group `j` of 32, from the twelve packed bytes.
pub(super) fn scale_and_min(s: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (s[j] & 63, s[j + 4] & 63)
    } else {
        ((s[j + 4] & 15) | (s[j - 4] >> 6) << 4, (s[j + 4] >> 4) | (s[j] >> 6) << 4)
    }
}

/// Packs eight 6-bit scales and minima into twelve bytes.
pub(super) fn pack_scales(scales: [u8; 8], mins: [u8; 8]) -> [u8; 12] {
    let mut s = [0; 12];
    for j in 0..4 {
        s[j] = scales[j] | (scales[j + 4] >> 4) << 6;
        s[j + 4] = mins[j] | (mins[j + 4] >> 4) << 6;
        s[j + 8] = (scales[j + 4] & 15) | (mins[j + 4] & 15) << 4;
    }
    s
}

/// Scales, minima and the two f16 factors, which `Q5_K` lays out the same way.
pub(super) fn unpack_scales(block: &[u8]) -> SuperBlock {
    let mut out = SuperBlock::zero();
    out.d = f16_at(block, 0);
    out.dmin = Some(f16_at(block, 2));
    for g in 0..16 {
        let (scale, min) = scale_and_min(&block[4..16], g / 2);
        out.scale[g] = i16::from(scale);
        out.min[g] = i16::from(min);
    }
    out
}

/// Takes a block apart.
pub(super) fn unpack(block: &[u8]) -> SuperBlock {
    let mut out = unpack_scales(block);
    for (c, bytes) in block[16..BYTES].chunks_exact(32).enumerate() {
        for (l, &b) in bytes.iter().enumerate() {
            out.n[64 * c + l] = (b & 15).cast_signed();
            out.n[64 * c + 32 + l] = (b >> 4).cast_signed();
        }
    }
    out
}

/// Quantizes a block, with or without importances.
pub(super) fn encode(x: &[f32; LEN], importance: Option<&[f32]>, block: &mut [u8; BYTES]) {
    let rule =
        |first, step, last| AffineRule { max_level: 15, first, step, last, loss: Loss::Squared };
    let (groups, factors) = if let Some(importance) = importance {
        let sigma2 = 2.0 * sum_of_squares(x) / 256.0;
        let groups = Groups::<8, 32>::fit(x, &rule(-0.9, 0.05, 36), |g, values| {
            importance_weights(values, &importance[32 * g..], sigma2)
        });
        let factors = groups.weighted_factors(63);
        (groups, factors)
    } else {
        let groups = Groups::<8, 32>::fit(x, &rule(-1.0, 0.1, 20), |_, values| {
            let mean = (sum_of_squares(values) / 32.0).sqrt();
            values.map(|v| mean + v.abs())
        });
        let factors = groups.plain_factors(63);
        (groups, factors)
    };
    block[0..2].copy_from_slice(&factors.d.to_le_bytes());
    block[2..4].copy_from_slice(&factors.dmin.to_le_bytes());
    block[4..16].copy_from_slice(&pack_scales(factors.scales, factors.mins));
    let levels = groups.levels(x, &factors, 15);
    for (c, bytes) in block[16..].chunks_exact_mut(32).enumerate() {
        for (l, b) in bytes.iter_mut().enumerate() {
            *b = levels[64 * c + l] | levels[64 * c + 32 + l] << 4;
        }
    }
}
