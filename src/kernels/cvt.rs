//! Rows for the matrix products of prefill ([`super::gemm`]): each value divided by its token's factor and rounded to
//! f16, or f32 as it is.
//!
//! [`NormCvt`]: `x[t][i] = h[t][i] * w[i] * s[t]`, `s[t] = 1 / sqrt(mean(h[t]^2) + eps)`, which is stored too.
//! [`Cvt`]: rows that need no norm, the outputs of mixers. A factor is the power of two that leaves at most 256 of the
//! row's largest value, so nothing but the last bits of small values is lost (vulkan.md 3.10); [`Cvt`] multiplies it
//! by one more number where it has one, which the product then applies.
//!
//! One workgroup for each token of the size class. Rows past the chunk become zeros with factor 1.

use super::gemm::Path;
use super::registry::Interface;
use crate::vulkan::{Binding, Caps, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

const PUSH: usize = size_of::<Push>();

/// What the variants of `small/norm_cvt.comp` declare: the norm to f16 and to f32, and the conversion alone.
pub const VARIANTS: &[Interface] = &[
    Interface {
        variant: "norm_cvt_f16",
        bindings: &[
            Binding::read(0),
            Binding::read(1),
            Binding::read(3),
            Binding::write(4),
            Binding::write(6),
            Binding::write(5),
        ],
        push_bytes: PUSH,
        constants: &["workgroup", "K"],
    },
    Interface {
        variant: "norm_cvt_f32",
        bindings: &[
            Binding::read(0),
            Binding::read(1),
            Binding::read(3),
            Binding::write(4),
            Binding::write(6),
        ],
        push_bytes: PUSH,
        constants: &["workgroup", "K"],
    },
    Interface {
        variant: "cvt_f16",
        bindings: &[
            Binding::read(0),
            Binding::read(1),
            Binding::read(3),
            Binding::write(4),
            Binding::write(5),
        ],
        push_bytes: PUSH,
        constants: &["workgroup", "K", "MULTIPLY"],
    },
];

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Push {
    stride: u32,
    eps: f32,
}

const _: () = assert!(size_of::<Push>() == 8);

/// Workgroup and subgroup for rows of `k` values.
fn select(k: u32, caps: &Caps) -> Result<(u32, u32), String> {
    if k == 0 || !k.is_multiple_of(4) {
        return Err(format!("rows of {k} values, expected a multiple of 4"));
    }
    let subgroup = caps.subgroup_size(32);
    let useful = (k / 4).next_multiple_of(subgroup);
    Ok((useful.min(256).min(caps.workgroup_limit(subgroup)), subgroup))
}

/// The choice for rows of `k` values in words.
pub(super) fn describe(k: u32, caps: &Caps) -> Result<String, String> {
    let (workgroup, subgroup) = select(k, caps)?;
    Ok(format!("workgroups of {workgroup}, subgroups of {subgroup}"))
}

fn build(
    device: &Arc<Device>,
    declared: &'static Interface,
    k: u32,
    more: &[u32],
) -> Result<Arc<Pipeline>, Error> {
    let fail = |why: String| Error::Pipeline { name: declared.variant, why };
    let (workgroup, subgroup) = select(k, device.caps()).map_err(fail)?;
    let program = declared.program().ok_or_else(|| fail("not in this build".to_owned()))?;
    let constants: Vec<u32> = [workgroup, k].iter().chain(more).copied().collect();
    Pipeline::new(device, program, &constants, subgroup)
}

/// RMSNorm in front of products.
pub struct NormCvt {
    pipeline: Arc<Pipeline>,
    path: Path,
    k: u32,
}

/// What [`NormCvt`] reads and writes, for `tokens` rows of a size class.
pub struct NormOperands {
    /// Control block.
    pub control: Slice,
    /// Weight `[k]`.
    pub weight: Slice,
    /// Input `[tokens][k]`, f32.
    pub h: Slice,
    /// Output `[tokens][k]`, f16 or f32.
    pub x: Slice,
    /// What the rows were multiplied by, `s[tokens]`.
    pub scale: Slice,
    /// Factors `[tokens]` of f16 rows.
    pub factor: Option<Slice>,
}

impl NormCvt {
    /// Compiles the kernel for rows of `k` values.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when `k` is not a multiple of 4, or the device refuses.
    pub fn new(device: &Arc<Device>, k: u32, path: Path) -> Result<Self, Error> {
        let declared = &VARIANTS[usize::from(!path.half())];
        Ok(Self { pipeline: build(device, declared, k, &[])?, path, k })
    }

    /// Adds a dispatch over the rows of a class to the last level of `graph`.
    ///
    /// # Panics
    /// When a slice is smaller than its operand, or factors do not fit the path.
    pub fn record(&self, graph: &mut Graph, label: &str, eps: f32, io: NormOperands) {
        let tokens = io.scale.bytes / 4;
        let values = tokens * u64::from(self.k);
        assert!(io.h.bytes >= values * 4, "{label}: input");
        assert!(io.x.bytes >= values * self.path.bytes(), "{label}: output");
        assert_eq!(io.factor.is_some(), self.path.half(), "{label}: factors");
        let mut slices = vec![io.control, io.weight, io.h, io.x, io.scale];
        slices.extend(io.factor);
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices,
            push: bytemuck::bytes_of(&Push { stride: self.k, eps }).to_vec(),
            grid: [u32::try_from(tokens).expect("a size class"), 1, 1].into(),
            cost: Cost { bytes: values * (4 + self.path.bytes()), flops: 4 * values },
        });
    }
}

/// Conversion of rows to f16.
pub struct Cvt {
    pipeline: Arc<Pipeline>,
    k: u32,
    multiply: bool,
}

/// What [`Cvt`] reads and writes, for the rows of a size class.
pub struct CvtOperands {
    /// Control block.
    pub control: Slice,
    /// Input, f32: `k` values every `stride`.
    pub y: Slice,
    /// Values from one row of the input to the next, a multiple of 4.
    pub stride: u32,
    /// Output `[tokens][k]`, f16.
    pub x: Slice,
    /// Factors `[tokens]`.
    pub factor: Slice,
    /// What to multiply them by, `[tokens]`.
    pub multiplier: Option<Slice>,
}

impl Cvt {
    /// Compiles the kernel for rows of `k` values, with or without multipliers.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when `k` is not a multiple of 4, or the device refuses.
    pub fn new(device: &Arc<Device>, k: u32, multiply: bool) -> Result<Self, Error> {
        let pipeline = build(device, &VARIANTS[2], k, &[u32::from(multiply)])?;
        Ok(Self { pipeline, k, multiply })
    }

    /// Adds a dispatch over the rows of a class to the last level of `graph`.
    ///
    /// # Panics
    /// When a slice is smaller than its operand, the stride is odd, or a multiplier is missing or not expected.
    pub fn record(&self, graph: &mut Graph, label: &str, io: CvtOperands) {
        let (tokens, k, stride) = (io.factor.bytes / 4, u64::from(self.k), u64::from(io.stride));
        assert!(stride >= k && stride.is_multiple_of(4), "{label}: stride {stride}");
        assert!(io.y.bytes >= ((tokens - 1) * stride + k) * 4, "{label}: input");
        assert!(io.x.bytes >= tokens * k * 2, "{label}: output");
        assert_eq!(io.multiplier.is_some(), self.multiply, "{label}: multipliers");
        // Without multipliers nothing is read there, but a binding has to be something.
        let multiplier = io.multiplier.unwrap_or_else(|| io.y.clone());
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices: vec![io.control, multiplier, io.y, io.x, io.factor],
            push: bytemuck::bytes_of(&Push { stride: io.stride, eps: 0.0 }).to_vec(),
            grid: [u32::try_from(tokens).expect("a size class"), 1, 1].into(),
            cost: Cost { bytes: tokens * k * 6, flops: tokens * k },
        });
    }
}

#[cfg(test)]
mod tests;
