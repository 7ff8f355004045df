//! `Q8_0` matrix times vector: `y[n] = sum_k W[n][k] * x[k]`, and the same of the normalised vector,
//! `x[k] = h[k] * w[k] / sqrt(sum_p squares[p] / K + eps)`, for callers that have the sum of squares in
//! parts already (the kernel that wrote `h` made them).
//!
//! `W`: `rows` x `k` weights in two planes of the same total size as in the file, made at load time by
//! [`repack`]: codes, 32 bytes for each block, rows contiguous, so that every load is 16 aligned bytes;
//! scales, one f16 for each block. `x`, `y`, `h`, `w`, `squares`: f32.
//!
//! Activations stay f32 and sums are f32: the kernel is bound by the bytes of the weights, and has
//! instructions to spare (vulkan.md 3.1).

use super::registry::Interface;
use crate::quant::TensorType;
use crate::vulkan::{Binding, Caps, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

/// What `matmul/mv_q8.comp` declares.
pub const PLAIN: Interface = Interface {
    variant: "mv_q8",
    bindings: &[Binding::read(1), Binding::read(2), Binding::read(3), Binding::write(4)],
    push_bytes: size_of::<Push>(),
    constants: CONSTANTS,
};

/// The same with the norm in front.
pub const NORM: Interface = Interface {
    variant: "mv_q8_norm",
    bindings: &[
        Binding::read(1),
        Binding::read(2),
        Binding::read(3),
        Binding::write(4),
        Binding::read(5),
        Binding::read(6),
    ],
    push_bytes: size_of::<Push>(),
    constants: CONSTANTS,
};

const CONSTANTS: &[&str] = &["workgroup", "SG", "R", "T", "K", "X_IN_REGS"];

/// The number of rows is no specialization constant: tensors of one width, and the slabs of a tensor
/// that is larger than a binding, share a pipeline.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Push {
    rows: u32,
    partials: u32,
    eps: f32,
}

const _: () = assert!(size_of::<Push>() == 12);

/// Specialization constants, in the order of their ids.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
struct Constants {
    workgroup: u32,
    /// Subgroup size.
    sg: u32,
    /// Rows of a subgroup at a time.
    r: u32,
    /// How many times.
    t: u32,
    k: u32,
    /// Whether a lane's share of x fits registers (0 or 1).
    x_in_regs: u32,
}

impl Constants {
    /// Rows of a workgroup.
    fn group_rows(&self) -> u32 {
        self.workgroup / self.sg * self.r * self.t
    }
}

/// The constants for a matrix on a device.
///
/// Four rows at a time keep four independent sums and 64 bytes of weights in flight for each lane at 48
/// registers; more passes spare the prologue, as long as there are about three workgroups for each compute
/// unit.
fn select(rows: u32, k: u32, caps: &Caps) -> Result<Constants, String> {
    if rows == 0 || k == 0 || !k.is_multiple_of(32) {
        return Err(format!("{rows} rows of {k} values, expected whole blocks of 32"));
    }
    let shared = u64::from(k) * 4 + SHARED_BESIDES_X;
    if shared > u64::from(caps.limits.shared_bytes) {
        let limit = caps.limits.shared_bytes;
        return Err(format!("{shared} bytes of shared memory, the device allows {limit}"));
    }
    let sg = caps.subgroup_size(64);
    let subgroups = (caps.workgroup_limit(sg) / sg).clamp(1, 4);
    let wanted = 3 * caps.compute_units.unwrap_or(32);
    let (r, t) = [(4, 4), (4, 2), (4, 1), (2, 1)]
        .into_iter()
        .find(|(r, t)| rows.div_ceil(subgroups * r * t) >= wanted)
        .unwrap_or((1, 1));
    let x_in_regs = u32::from(k * 4 / sg <= 128);
    Ok(Constants { workgroup: sg * subgroups, sg, r, t, k, x_in_regs })
}

/// The choice for a matrix in words.
pub(super) fn describe(rows: u32, k: u32, caps: &Caps) -> Result<String, String> {
    let Constants { workgroup, sg, r, t, x_in_regs, .. } = select(rows, k, caps)?;
    let place = if x_in_regs == 1 { "registers" } else { "shared memory" };
    Ok(format!(
        "workgroups of {workgroup}, subgroups of {sg}, {r} rows at a time, {t} times, input in {place}"
    ))
}

/// The slots of `reduce.glsl`.
const SHARED_BESIDES_X: u64 = 256;

/// A grid of at least `groups` workgroups, the y dimension used only where x is not enough.
fn grid(groups: u32, caps: &Caps) -> [u32; 3] {
    let y = groups.div_ceil(caps.limits.grid[0]);
    [groups.div_ceil(y), y, 1]
}

/// Splits `Q8_0` blocks as they are in the file (f16 scale, 32 codes) into the two planes.
///
/// # Panics
/// When the lengths do not belong together.
pub fn repack(blocks: &[u8], codes: &mut [u8], scales: &mut [u8]) {
    const BLOCK: usize = 34;
    assert_eq!(TensorType::Q8_0.block_bytes(), BLOCK);
    let (blocks, rest) = blocks.as_chunks::<BLOCK>();
    assert!(rest.is_empty(), "whole blocks");
    assert_eq!(codes.len(), blocks.len() * 32, "32 codes a block");
    assert_eq!(scales.len(), blocks.len() * 2, "one scale a block");
    let planes = codes.chunks_exact_mut(32).zip(scales.chunks_exact_mut(2));
    for (block, (codes, scale)) in blocks.iter().zip(planes) {
        scale.copy_from_slice(&block[..2]);
        codes.copy_from_slice(&block[2..]);
    }
}

/// A matrix in planes: codes `[rows][k]` i8, scales `[rows][k / 32]` f16.
#[derive(Clone)]
pub struct Planes {
    /// Codes.
    pub codes: Slice,
    /// Scales.
    pub scales: Slice,
}

/// The norm in front of the product.
pub struct Norm {
    /// Partial sums of squares of the input.
    pub squares: Slice,
    /// Weight `[k]`.
    pub weight: Slice,
    /// Added to the mean.
    pub eps: f32,
}

/// The kernel for one shape and form.
pub struct MvQ8 {
    pipeline: Arc<Pipeline>,
    constants: Constants,
    rows: u32,
}

impl MvQ8 {
    /// Compiles [`PLAIN`] or [`NORM`] for `rows` x `k` weights.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the shape is not possible or the device refuses.
    pub fn new(
        device: &Arc<Device>,
        form: &'static Interface,
        rows: u32,
        k: u32,
    ) -> Result<Self, Error> {
        let fail = |why: String| Error::Pipeline { name: form.variant, why };
        let constants = select(rows, k, device.caps()).map_err(fail)?;
        Self::with(device, form, rows, constants)
    }

    fn with(
        device: &Arc<Device>,
        form: &'static Interface,
        rows: u32,
        constants: Constants,
    ) -> Result<Self, Error> {
        let missing =
            || Error::Pipeline { name: form.variant, why: "not in this build".to_owned() };
        let program = form.program().ok_or_else(missing)?;
        let values = [constants];
        let pipeline = Pipeline::new(device, program, bytemuck::cast_slice(&values), constants.sg)?;
        Ok(Self { pipeline, constants, rows })
    }

    /// Adds `y = W x` to the last level of `graph`; `caps` are the device's. `norm` belongs to [`NORM`].
    ///
    /// # Panics
    /// When a slice does not have the size of its operand, or `norm` does not fit the form.
    pub fn record(&self, graph: &mut Graph, label: &str, io: Operands, caps: &Caps) {
        let (rows, k) = (u64::from(self.rows), u64::from(self.constants.k));
        assert_eq!(io.matrix.codes.bytes, rows * k, "{label}: codes");
        assert_eq!(io.matrix.scales.bytes, rows * k / 16, "{label}: scales");
        assert_eq!((io.x.bytes, io.y.bytes), (k * 4, rows * 4), "{label}: vectors");
        let mut push = Push { rows: self.rows, partials: 0, eps: 0.0 };
        let mut slices = vec![io.matrix.codes, io.matrix.scales, io.x, io.y];
        if let Some(norm) = io.norm {
            assert_eq!(norm.weight.bytes, k * 4, "{label}: norm weight");
            push.partials = u32::try_from(norm.squares.bytes / 4).expect("partial sums are few");
            push.eps = norm.eps;
            slices.extend([norm.squares, norm.weight]);
        }
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices,
            push: bytemuck::bytes_of(&push).to_vec(),
            grid: grid(self.rows.div_ceil(self.constants.group_rows()), caps),
        });
    }
}

/// What a dispatch reads and writes.
pub struct Operands {
    /// The matrix.
    pub matrix: Planes,
    /// Input `[k]`.
    pub x: Slice,
    /// Output `[rows]`.
    pub y: Slice,
    /// The norm in front of it.
    pub norm: Option<Norm>,
}

#[cfg(test)]
mod tests;
