//! A block of 256 weights taken apart: what all formats of that size have in common.

use super::{TensorType, iq2_xxs, q2_k, q4_k, q5_k, q6_k};

/// Values in a block.
pub(super) const LEN: usize = 256;

/// `x[i] = d scale[i/16] n[i] - dmin min[i/16]`. Both products are exact in f32 for every format, so
/// the value has one rounding, in whatever order it is computed.
pub(super) struct SuperBlock {
    /// Integer weights.
    pub(super) n: [i8; LEN],
    /// Integer scales of groups of 16; formats with groups of 32 repeat them.
    pub(super) scale: [i16; 16],
    /// Integer minima of groups of 16, zero in formats without.
    pub(super) min: [i16; 16],
    /// Scale of the block.
    pub(super) d: f32,
    /// Scale of the minima; `None` in formats without.
    pub(super) dmin: Option<f32>,
}

impl SuperBlock {
    /// A block of zeros, to be filled by a format.
    pub(super) fn zero() -> Self {
        Self { n: [0; LEN], scale: [0; 16], min: [0; 16], d: 0.0, dmin: None }
    }

    /// The weights.
    pub(super) fn decode(&self, out: &mut [f32; LEN]) {
        for (i, x) in out.iter_mut().enumerate() {
            let g = i / 16;
            let scaled = self.d * f32::from(self.scale[g]) * f32::from(self.n[i]);
            *x = self.dmin.map_or(scaled, |dmin| scaled - dmin * f32::from(self.min[g]));
        }
    }
}

/// How to take a block of `ty` apart, if it is a format of 256 weights.
pub(super) fn unpacker(ty: TensorType) -> Option<fn(&[u8]) -> SuperBlock> {
    match ty {
        TensorType::Q2_K => Some(q2_k::unpack),
        TensorType::Q4_K => Some(q4_k::unpack),
        TensorType::Q5_K => Some(q5_k::unpack),
        TensorType::Q6_K => Some(q6_k::unpack),
        TensorType::IQ2_XXS => Some(iq2_xxs::unpack),
        TensorType::F32
        | TensorType::F16
        | TensorType::BF16
        | TensorType::I32
        | TensorType::Q4_0
        | TensorType::Q8_0
        | TensorType::Q8_K
        | TensorType::IQ2_S
        | TensorType::IQ3_S => None,
    }
}
