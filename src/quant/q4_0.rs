//! `Q4_0`: 32 values in 18 bytes, for the K/V cache (model.md 5.3, 5.10).
//!
//! ```text
//! 0   f16 d
//! 2   u8 b[16]      x[j] = d ((b[j] & 15) - 8), x[j+16] = d ((b[j] >> 4) - 8)
//! ```

use super::plain::{f16_at, put_f16};
use super::round::extreme;

/// Bytes of a block.
pub(super) const BYTES: usize = 18;

/// Decodes one block. Exact: 11 bits times 4 bits.
pub(super) fn decode(block: &[u8; BYTES], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    for (j, &b) in block[2..].iter().enumerate() {
        out[j] = d * (f32::from(b & 15) - 8.0);
        out[j + 16] = d * (f32::from(b >> 4) - 8.0);
    }
}

/// Encodes 32 values. The extreme value maps to 0, that is to `-8 d`, exactly.
pub(super) fn encode(x: &[f32; 32], block: &mut [u8; BYTES]) {
    let d = extreme(x) / -8.0;
    let id = if d == 0.0 { 0.0 } else { 1.0 / d };
    put_f16(block, 0, d);
    for (j, b) in block[2..].iter_mut().enumerate() {
        *b = nibble(x[j] * id) | nibble(x[j + 16] * id) << 4;
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the format truncates; the cast saturates"
)]
fn nibble(scaled: f32) -> u8 {
    ((scaled + 8.5) as u8).min(15)
}
