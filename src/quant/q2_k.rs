//! `Q2_K`: 256 weights in 84 bytes (model.md 5.5, 5.13).
//!
//! ```text
//! 0    u8 s[16]     low nibble: scale, high nibble: minimum, of groups of 16
//! 16   u8 q[64]     weight 128 a + 32 b + l: bits 2b, 2b+1 of q[32 a + l]
//! 80   f16 d
//! 82   f16 dmin
//! ```

use super::fit::{AffineRule, Loss};
use super::k_fit::{Groups, importance_weights, sum_of_squares};
use super::plain::f16_at;
use super::super_block::{LEN, SuperBlock};

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

/// Quantizes a block, with or without importances.
pub(super) fn encode(x: &[f32; LEN], importance: Option<&[f32]>, block: &mut [u8; BYTES]) {
    let (groups, factors) = if let Some(importance) = importance {
        let rule =
            AffineRule { max_level: 3, first: -0.9, step: 0.05, last: 36, loss: Loss::Squared };
        let sigma2 = sum_of_squares(x) / 256.0;
        let groups = Groups::<16, 16>::fit(x, &rule, |g, values| {
            importance_weights(values, &importance[16 * g..], sigma2)
        });
        let factors = groups.weighted_factors(15);
        (groups, factors)
    } else {
        let rule =
            AffineRule { max_level: 3, first: -0.5, step: 0.1, last: 15, loss: Loss::Absolute };
        let groups = Groups::<16, 16>::fit(x, &rule, |_, values| values.map(f32::abs));
        let factors = groups.plain_factors(15);
        (groups, factors)
    };
    for (s, (scale, min)) in block.iter_mut().zip(factors.scales.iter().zip(&factors.mins)) {
        *s = scale | min << 4;
    }
    let levels = groups.levels(x, &factors, 3);
    for (a, bytes) in block[16..80].chunks_exact_mut(32).enumerate() {
        for (l, q) in bytes.iter_mut().enumerate() {
            let level = |b: usize| levels[128 * a + 32 * b + l] << (2 * b);
            *q = level(0) | level(1) | level(2) | level(3);
        }
    }
    block[80..82].copy_from_slice(&factors.d.to_le_bytes());
    block[82..84].copy_from_slice(&factors.dmin.to_le_bytes());
}
