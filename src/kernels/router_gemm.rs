//! The router of a prefill chunk (model.md 3.8 steps 1 to 3 and 5), in two dispatches:
//!
//! ```text
//! logits[t][e] = sum_k h[t][k] * norm[k] * W[e][k]                                    (logits)
//! s[t]         = 1 / sqrt(mean(h[t]^2) + eps)
//! ids, route   = the `used` largest of s[t] * logits[t], best first, and the softmax over them      (choice)
//! sigma[t]     = sigmoid(s[t] * sum_k h[t][k] * norm[k] * gate[k])
//! counts[b][e] = slots of block b of 32 tokens that chose expert e
//! ```
//!
//! `h`: `[tokens][hidden]` f32; `W`: f32 or `Q8_0` planes, `[experts][hidden]`; gate, norm: f32 `[hidden]`. All of it
//! as exact as f32 on every path: products with f16 rows would change choices that are nearly ties. The norm's scale is
//! the same for all experts of a token, so the logits do without it and the choice applies it.
//!
//! Equal logits go to the lower index; what is not finite is never chosen while enough others are. With fewer than
//! `used` finite logits the weights are NaN, so that the chunk fails where logits are checked; ids are distinct
//! experts in any case.

use super::expert::Sizes;
use super::gemm::{Form, Gemm, Kind, Norm, Operands, Path, Shape, Weights};
use super::moe_plan::BLOCK;
use super::registry::Interface;
use crate::vulkan::{Binding, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

/// What `moe/router_pick.comp` declares.
pub const PICK: Interface = Interface {
    variant: "router_pick",
    bindings: &[
        Binding::read(0),
        Binding::read(1),
        Binding::read(2),
        Binding::read(3),
        Binding::read(8),
        Binding::write(4),
        Binding::write(5),
        Binding::write(6),
        Binding::write(7),
    ],
    push_bytes: size_of::<Push>(),
    constants: &["workgroup", "SG", "K", "EXPERTS", "USED"],
};

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Push {
    eps: f32,
}

const _: () = assert!(size_of::<Push>() == 4);

/// Specialization constants, in the order of their ids.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Constants {
    workgroup: u32,
    sg: u32,
    k: u32,
    experts: u32,
    used: u32,
}

/// Leaves room for weights up to 1,000 where they are split into halves.
const EXPONENT: i32 = -6;

/// The two kernels for one expert block and size class.
pub struct RouterGemm {
    logits: Gemm,
    pick: Arc<Pipeline>,
    sizes: Sizes,
    tokens: u32,
}

/// What the logits are made of.
pub struct LogitsOperands {
    /// Control block.
    pub control: Slice,
    /// Router.
    pub weights: Weights,
    /// Residual stream.
    pub h: Slice,
    /// Norm, with the scales that [`super::cvt::NormCvt`] stored.
    pub norm: Norm,
    /// Output `[tokens][experts]`, f32.
    pub logits: Slice,
}

/// What the choice reads and writes.
pub struct PickOperands {
    /// Control block.
    pub control: Slice,
    /// Weight of the norm.
    pub norm: Slice,
    /// Row of the shared expert's gate.
    pub gate: Slice,
    /// Logits.
    pub logits: Slice,
    /// Residual stream.
    pub h: Slice,
    /// Chosen experts `[tokens][used]`, u32.
    pub ids: Slice,
    /// Their weights `[tokens][used]`, f32.
    pub route: Slice,
    /// The shared expert's factor `[tokens]`, f32.
    pub sigma: Slice,
    /// Slots of each block and expert ([`super::moe_plan::PlanSlices::counts`]).
    pub counts: Slice,
    /// Added to the mean of squares.
    pub eps: f32,
}

impl RouterGemm {
    /// Compiles the kernels for chunks of up to `tokens`, for a router that is `Q8_0` planes or f32. With
    /// [`Path::Matrix`] the products are of split halves, else f32.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the sizes are not possible or the device refuses.
    pub fn new(
        device: &Arc<Device>,
        sizes: &Sizes,
        tokens: u32,
        q8: bool,
        path: Path,
    ) -> Result<Self, Error> {
        let fail = |why: String| Error::Pipeline { name: PICK.variant, why };
        let Sizes { hidden, experts, used, .. } = *sizes;
        let subgroup = device.caps().subgroup_size(32);
        if used == 0 || used > subgroup.min(experts) || !hidden.is_multiple_of(4) {
            return Err(fail(format!("{used} of {experts} experts in subgroups of {subgroup}")));
        }
        let shape = Shape { rows: experts, k: hidden, tokens };
        let path = if path == Path::Matrix { path } else { Path::F32 };
        let kind = Kind { path, form: Form::Logits, q8, factor: false };
        let logits = Gemm::new(device, shape, kind)?;
        let workgroup = device.caps().workgroup_limit(subgroup).min(256) / subgroup * subgroup;
        let constants = [Constants { workgroup, sg: subgroup, k: hidden, experts, used }];
        let pick = PICK.pipeline(device, &constants, subgroup)?;
        Ok(Self { logits, pick, sizes: *sizes, tokens })
    }

    /// Adds the logits to the last level of `graph`.
    ///
    /// # Panics
    /// When a slice is too small.
    pub fn record_logits(&self, graph: &mut Graph, label: &str, io: LogitsOperands) {
        let operands = Operands {
            control: io.control,
            weights: io.weights,
            exponent: EXPONENT,
            x: io.h,
            factor: None,
            norm: Some(io.norm),
            out: io.logits,
            stride: self.sizes.experts,
        };
        self.logits.record(graph, label, operands);
    }

    /// Adds the choice to the last level of `graph`, one after that of the logits.
    ///
    /// # Panics
    /// When a slice is too small.
    pub fn record_pick(&self, graph: &mut Graph, label: &str, io: PickOperands) {
        let (tokens, hidden) = (u64::from(self.tokens), u64::from(self.sizes.hidden));
        let (experts, used) = (u64::from(self.sizes.experts), u64::from(self.sizes.used));
        let blocks = self.tokens.div_ceil(BLOCK);
        assert!(io.norm.bytes == hidden * 4 && io.gate.bytes == hidden * 4, "{label}: rows");
        assert!(io.logits.bytes >= tokens * experts * 4, "{label}: logits");
        assert!(io.h.bytes >= tokens * hidden * 4, "{label}: stream");
        let slots = tokens * used * 4;
        assert!(io.ids.bytes >= slots && io.route.bytes >= slots, "{label}: choice");
        assert!(io.sigma.bytes >= tokens * 4, "{label}: sigma");
        assert!(io.counts.bytes >= u64::from(blocks) * experts * 4, "{label}: counts");
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pick),
            slices: vec![
                io.control, io.norm, io.gate, io.logits, io.h, io.ids, io.route, io.sigma,
                io.counts,
            ],
            push: bytemuck::bytes_of(&Push { eps: io.eps }).to_vec(),
            grid: [blocks, 1, 1].into(),
            cost: Cost { bytes: tokens * (hidden + experts) * 4, flops: 4 * tokens * hidden },
        });
    }
}

#[cfg(test)]
mod tests;
