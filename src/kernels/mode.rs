//! Which arithmetic the kernels use.

/// How exact the products are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// f32 everywhere: `--quality`, and devices without 16-bit floats.
    Exact,
    /// 16-bit products with f32 sums, matrix units and whatever else the device is fast at.
    Fast,
}

/// What multiplies in the kernels of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttentionPath {
    /// f32 throughout.
    F32,
    /// f16 products with f32 sums on matrix units; the queries of prompts are f16.
    Matrix,
}

impl AttentionPath {
    /// The path of a mode where `units` says whether the device's matrix units suit the shape.
    pub(super) fn of(mode: Mode, units: bool) -> Self {
        if mode == Mode::Fast && units { Self::Matrix } else { Self::F32 }
    }

    /// Bytes of a value of a prompt's queries.
    pub fn query_bytes(self) -> u64 {
        if self == Self::Matrix { 2 } else { 4 }
    }
}
