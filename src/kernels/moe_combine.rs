//! The end of a prefill chunk's expert block: `h[t] += sum_j down[t * used + j]`, the slots of a token in the order of
//! choice. Slots carry their weights. `h`: `[tokens][hidden]` f32; `down`: `[tokens * used][hidden]`, f16 times 2^-4
//! or f32.

use super::expert::Sizes;
use super::gemm::Path;
use super::registry::Interface;
use crate::vulkan::{Binding, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

const BINDINGS: &[Binding] = &[Binding::read(0), Binding::read(3), Binding::update(4)];
const CONSTANTS: &[&str] = &["workgroup", "K", "USED"];

/// What the variants of `moe/moe_combine.comp` declare: f32 and f16.
pub const VARIANTS: &[Interface] = &[
    Interface {
        variant: "moe_combine_f32",
        bindings: BINDINGS,
        push_bytes: 0,
        constants: CONSTANTS,
    },
    Interface {
        variant: "moe_combine_f16",
        bindings: BINDINGS,
        push_bytes: 0,
        constants: CONSTANTS,
    },
];

/// Specialization constants, in the order of their ids.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Constants {
    workgroup: u32,
    k: u32,
    used: u32,
}

/// The kernel for one expert block.
pub struct MoeCombine {
    pipeline: Arc<Pipeline>,
    sizes: Sizes,
    path: Path,
    workgroup: u32,
}

impl MoeCombine {
    /// Compiles the kernel.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the device refuses.
    pub fn new(device: &Arc<Device>, sizes: &Sizes, path: Path) -> Result<Self, Error> {
        let declared = &VARIANTS[usize::from(path.half())];
        if !sizes.hidden.is_multiple_of(4) {
            let why = format!("rows of {} values, expected a multiple of 4", sizes.hidden);
            return Err(Error::Pipeline { name: declared.variant, why });
        }
        let subgroup = device.caps().subgroup_size(32);
        let useful = (sizes.hidden / 4).next_multiple_of(subgroup);
        let workgroup = useful.min(256).min(device.caps().workgroup_limit(subgroup));
        let constants = [Constants { workgroup, k: sizes.hidden, used: sizes.used }];
        let pipeline = declared.pipeline(device, &constants, subgroup)?;
        Ok(Self { pipeline, sizes: *sizes, path, workgroup })
    }

    /// Adds the sum over a class of `tokens` to the last level of `graph`.
    ///
    /// # Panics
    /// When a slice is too small.
    pub fn record(&self, graph: &mut Graph, label: &str, tokens: u32, io: CombineOperands) {
        let values = u64::from(tokens) * u64::from(self.sizes.hidden);
        let down = values * u64::from(self.sizes.used);
        assert!(io.down.bytes >= down * self.path.bytes(), "{label}: slots");
        assert!(io.h.bytes >= values * 4, "{label}: stream");
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices: vec![io.control, io.down, io.h],
            push: Vec::new(),
            grid: [(self.sizes.hidden / 4).div_ceil(self.workgroup), tokens, 1].into(),
            cost: Cost { bytes: down * self.path.bytes() + values * 8, flops: down },
        });
    }
}

/// What a dispatch reads and writes.
pub struct CombineOperands {
    /// Control block.
    pub control: Slice,
    /// Outputs of the slots.
    pub down: Slice,
    /// Residual stream.
    pub h: Slice,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{self, Draw};
    use crate::kernels::control::Row;
    use crate::ops::add_weighted;
    use crate::vulkan::Ability;
    use half::f16;

    #[test]
    fn slots_are_added_in_their_order() {
        let Some(mut gpu) = check::gpu() else { return };
        let half = gpu.device().caps().has(Ability::Float16);
        let paths: &[Path] = if half { &[Path::F32, Path::Pk16] } else { &[Path::F32] };
        let shapes = [(32, 31, 2048, 8), (1, 1, 4, 1), (5, 3, 60, 3), (64, 64, 256, 8)];
        for &path in paths {
            for (seed, (class, n, hidden, used)) in (1..).zip(shapes) {
                println!("seed {seed}: {path:?} {n} of {class} tokens of {hidden}, {used} slots");
                let sizes = Sizes { hidden, experts: 8, used, expert_ffn: 64, shared_ffn: 64 };
                let mut draw = Draw::new(seed);
                let width = hidden as usize;
                let mut down = draw.activations((class * used) as usize * width);
                if path.half() {
                    for v in &mut down {
                        *v = f16::from_f32(*v / 16.0).to_f32() * 16.0;
                    }
                }
                let h = draw.normals(class as usize * width);
                let mut graph = Graph::new("moe_combine");
                let control = gpu.input("control", &[Row { tokens: n, ..Row::default() }]);
                let slots = if path.half() {
                    let halves: Vec<u16> =
                        down.iter().map(|v| f16::from_f32(v / 16.0).to_bits()).collect();
                    gpu.input("down", &halves)
                } else {
                    gpu.input("down", &down)
                };
                let stream = gpu.update("h", &h);
                for slice in [&control, &slots, &stream.slice()] {
                    graph.input(slice);
                }
                graph.level();
                let kernel = MoeCombine::new(gpu.device(), &sizes, path).unwrap();
                let io = CombineOperands { control, down: slots, h: stream.slice() };
                kernel.record(&mut graph, "moe_combine", class, io);
                gpu.run(graph);
                let found = gpu.read(&stream);
                let rows = down.chunks(width * used as usize);
                for (t, (slots, before)) in rows.zip(h.chunks(width)).enumerate() {
                    let mut sum = vec![0.0; width];
                    if t < n as usize {
                        slots.chunks(width).for_each(|slot| add_weighted(&mut sum, 1.0, slot));
                    }
                    for (i, (s, b)) in sum.iter().zip(before).enumerate() {
                        // The same additions in the same order.
                        assert_eq!(found[t * width + i].to_bits(), (b + s).to_bits(), "{t} {i}");
                    }
                }
            }
        }
    }
}
