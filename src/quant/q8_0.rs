//! `Q8_0`: 32 values in 34 bytes (model.md 5.2, 5.9).
//!
//! ```text
//! 0   f16 d
//! 2   i8 q[32]      x[i] = d q[i]
//! ```

use super::plain::{f16_at, put_f16};
use super::round::{max_magnitude, rha, rne, signed_byte};

/// Bytes of a block.
pub(super) const BYTES: usize = 34;

/// Decodes one block. Exact: 11 bits times 8 bits.
pub(super) fn decode(block: &[u8; BYTES], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    for (x, &q) in out.iter_mut().zip(&block[2..]) {
        *x = d * f32::from(q.cast_signed());
    }
}

/// Encodes 32 weights: half away from zero, by the reciprocal of the unrounded scale.
pub(super) fn encode(x: &[f32; 32], block: &mut [u8; BYTES]) {
    encode_by(x, block, rha);
}

/// Encodes 32 run-time values (activations, keys, values): half to even. A NaN or infinity makes the
/// scale non-finite, so it is never lost.
pub(super) fn encode_run_time(x: &[f32; 32], block: &mut [u8; BYTES]) {
    encode_by(x, block, rne);
}

fn encode_by(x: &[f32; 32], block: &mut [u8; BYTES], round: fn(f32) -> i32) {
    let d = max_magnitude(x) / 127.0;
    let id = if d == 0.0 { 0.0 } else { 1.0 / d };
    put_f16(block, 0, d);
    for (q, &v) in block[2..].iter_mut().zip(x) {
        *q = signed_byte(round(v * id)).cast_unsigned();
    }
}
