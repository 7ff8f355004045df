//! Which arithmetic the kernels use.

/// How exact the products are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// f32 everywhere: `--quality`, and devices without 16-bit floats.
    Exact,
    /// 16-bit products with f32 sums, matrix units and whatever else the device is fast at.
    Fast,
}
