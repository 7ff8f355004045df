//! RMSNorm of rows: `y[r][i] = x[r][i] * w[i] / sqrt(mean(x[r]^2) + eps)`.
//!
//! `x`, `y`: rows of `k` f32 values; `w`: `k` values. One workgroup takes one row: each invocation sums the
//! squares of every 256th group of four, subgroups and then the workgroup add up in a fixed order.

use super::registry::Interface;
use crate::vulkan::{Binding, Caps, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

/// What `small/rms_norm.comp` declares.
pub const RMS_NORM: Interface = Interface {
    variant: "rms_norm",
    bindings: &[Binding::read(1), Binding::read(3), Binding::write(4)],
    push_bytes: size_of::<Push>(),
    constants: &["workgroup", "K"],
};

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Push {
    eps: f32,
}

const _: () = assert!(size_of::<Push>() == 4);

/// Specialization constants, in the order of their ids.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
struct Constants {
    workgroup: u32,
    k: u32,
}

/// The constants and the subgroup size for rows of `k` values on a device.
fn select(k: u32, caps: &Caps) -> Result<(Constants, u32), String> {
    if k == 0 || !k.is_multiple_of(4) {
        return Err(format!("rows of {k} values, expected a multiple of 4"));
    }
    let subgroup = caps.subgroup_size(64);
    // Short rows need fewer invocations; whole subgroups always.
    let useful = (k / 4).next_multiple_of(subgroup);
    let workgroup = useful.min(256).min(caps.workgroup_limit(subgroup));
    Ok((Constants { workgroup, k }, subgroup))
}

/// The choice for rows of `k` values in words.
pub(super) fn describe(k: u32, caps: &Caps) -> Result<String, String> {
    let (constants, subgroup) = select(k, caps)?;
    Ok(format!("workgroups of {}, subgroups of {subgroup}", constants.workgroup))
}

/// RMSNorm for one row length.
pub struct RmsNorm {
    pipeline: Arc<Pipeline>,
    k: u32,
}

/// What a dispatch reads and writes: weight `[k]`, input `[rows][k]`, output `[rows][k]`, all f32.
pub struct Operands {
    /// Weight.
    pub weight: Slice,
    /// Input.
    pub x: Slice,
    /// Output.
    pub y: Slice,
}

impl RmsNorm {
    /// Compiles the kernel for rows of `k` values.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when `k` is not a multiple of 4, or the device refuses.
    pub fn new(device: &Arc<Device>, k: u32) -> Result<Self, Error> {
        let name = RMS_NORM.variant;
        let fail = |why: String| Error::Pipeline { name, why };
        let (constants, subgroup) = select(k, device.caps()).map_err(fail)?;
        let program = RMS_NORM.program().ok_or_else(|| fail("not in this build".to_owned()))?;
        let constants = [constants];
        let pipeline = Pipeline::new(device, program, bytemuck::cast_slice(&constants), subgroup)?;
        Ok(Self { pipeline, k })
    }

    /// Adds a dispatch over `rows` rows to the last level of `graph`.
    pub fn record(&self, graph: &mut Graph, label: &str, rows: u32, eps: f32, io: Operands) {
        let bytes = u64::from(rows) * u64::from(self.k) * 4;
        assert!(io.x.bytes == bytes && io.y.bytes == bytes, "{label}: {rows} rows of {}", self.k);
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices: vec![io.weight, io.x, io.y],
            push: bytemuck::bytes_of(&Push { eps }).to_vec(),
            grid: [rows, 1, 1].into(),
            cost: Cost::default(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{self, Gpu};
    use crate::ops::rms_norm;
    use crate::vulkan::lavapipe;

    /// Each row by itself.
    fn reference(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
        let mut y = vec![0.0; x.len()];
        rms_norm(x, weight, eps, &mut y);
        y
    }

    /// A sum of n squares is off by at most about log2(n) + n / 1024 rounding errors of 6e-8, in either
    /// order; the root halves that, and three more roundings follow.
    const BOUND: f32 = 4e-6;

    fn run(gpu: &mut Gpu, rows: usize, k: usize, x: &[f32], weight: &[f32]) -> Vec<f32> {
        let (eps, label) = (1e-6, format!("rms_norm {rows}x{k}"));
        let kernel = RmsNorm::new(gpu.device(), u32::try_from(k).unwrap()).unwrap();
        let (wb, xb) = (gpu.input("weight", weight), gpu.input("x", x));
        let y = gpu.output("y", rows * k * 4);
        let mut graph = Graph::new(&label);
        graph.input(&wb);
        graph.input(&xb);
        graph.level();
        let io = Operands { weight: wb, x: xb, y: y.slice() };
        kernel.record(&mut graph, &label, u32::try_from(rows).unwrap(), eps, io);
        gpu.run(graph);
        gpu.read(&y)
    }

    #[test]
    fn awkward_and_real_shapes() {
        let Some(mut gpu) = check::gpu() else { return };
        let shapes = [
            (1, 4),
            (1, 32),
            (3, 60),
            (2, 252),
            (5, 256),
            (1, 1020),
            (2, 1024),
            (1, 1028),
            (7, 2048),
            (33, 128),
            (300, 256),
            (2, 4096),
        ];
        for (seed, (rows, k)) in (1..).zip(shapes) {
            println!("seed {seed}: {rows}x{k}");
            let mut draw = check::Draw::new(seed);
            let (x, weight) = (draw.activations(rows * k), draw.normals(k));
            let y = run(&mut gpu, rows, k, &x, &weight);
            for (r, (x, y)) in x.chunks(k).zip(y.chunks(k)).enumerate() {
                let expected = reference(x, &weight, 1e-6);
                for (i, (&y, e)) in y.iter().zip(expected).enumerate() {
                    let off = (y - e).abs();
                    assert!(off <= BOUND * e.abs() + 1e-37, "row {r} value {i}: {y} for {e}");
                }
            }
        }
    }

    #[test]
    fn zeros_stay_zeros_and_extremes_stay_finite() {
        let Some(mut gpu) = check::gpu() else { return };
        let k = 256;
        let mut x = vec![0.0_f32; 3 * k];
        x[k..2 * k].fill(1e18);
        x[2 * k] = -3e-20;
        let weight = vec![1.0; k];
        let y = run(&mut gpu, 3, k, &x, &weight);
        assert!(y[..k].iter().all(|&v| v == 0.0));
        assert!(y[k..2 * k].iter().all(|&v| (v - 1.0).abs() < 1e-5), "{:?}", &y[k..k + 4]);
        assert!((f64::from(y[2 * k]) + 3e-17).abs() < 1e-21, "epsilon rules a tiny row");
    }

    #[test]
    fn constants_follow_the_device() {
        let caps = lavapipe();
        assert_eq!(select(2048, &caps), Ok((Constants { workgroup: 256, k: 2048 }, 8)));
        assert_eq!(select(36, &caps), Ok((Constants { workgroup: 16, k: 36 }, 8)));
        assert!(select(30, &caps).is_err() && select(0, &caps).is_err());
    }
}
