//! The two gates of every value head from their raw projections (model.md 3.3, step 6), where the projection's own
//! kernel does not apply them:
//!
//! ```text
//! log decay = a * softplus(alpha + dt)    (never positive; `a` is stored as -exp(A_log))
//! beta      = sigmoid(raw)
//! ```
//!
//! `a`, `dt`: f32 `[heads]`; `alpha`, `raw`: f32 `[n][stride]`, the first `heads` columns count (a slice may start
//! anywhere in a wider row); results f32 `[n][heads]`. A chunk ([`Form::Chunk`]) gets log decays for `rows[0].tokens`
//! tokens, a decode step ([`Form::Step`]) the factors `e^(log decay)` for every row that is not idle.

use super::recurrent::compile;
use super::registry::Interface;
use crate::vulkan::{Binding, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

/// What `recurrent/gates.comp` declares.
pub const GATES: Interface = Interface {
    variant: "gates",
    bindings: &[
        Binding::read(0),
        Binding::read(1),
        Binding::read(2),
        Binding::read(3),
        Binding::write(4),
        Binding::read(5),
        Binding::write(6),
    ],
    push_bytes: size_of::<Push>(),
    constants: &["workgroup", "HEADS", "ALPHA_STRIDE", "BETA_STRIDE", "STEP"],
};

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Push {
    count: u32,
}

const _: () = assert!(size_of::<Push>() == 4);

/// Specialization constants, in the order of their ids.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
struct Constants {
    workgroup: u32,
    heads: u32,
    alpha_stride: u32,
    beta_stride: u32,
    step: u32,
}

/// What the rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Tokens of one chunk; results are log decays.
    Chunk,
    /// Rows of a decode step; results are decay factors.
    Step,
}

/// Values between the rows of the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strides {
    /// Of `alpha`.
    pub alpha: u32,
    /// Of `raw`.
    pub beta: u32,
}

/// The kernel for one number of heads.
pub struct Gates {
    pipeline: Arc<Pipeline>,
    constants: Constants,
}

/// What a dispatch reads and writes; shapes above.
pub struct GatesIo {
    /// Control block.
    pub control: Slice,
    /// `ssm_a`.
    pub a: Slice,
    /// `ssm_dt`.
    pub dt: Slice,
    /// Projected steps.
    pub alpha: Slice,
    /// Projected write strengths.
    pub raw: Slice,
    /// Log decays, or decay factors.
    pub decay: Slice,
    /// Write strengths.
    pub beta: Slice,
}

impl Gates {
    /// Compiles the kernel for `heads` value heads.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the device refuses.
    pub fn new(
        device: &Arc<Device>,
        form: Form,
        heads: u32,
        strides: Strides,
    ) -> Result<Self, Error> {
        if heads == 0 || strides.alpha < heads || strides.beta < heads {
            let why = format!("{heads} heads in rows of {} and {}", strides.alpha, strides.beta);
            return Err(Error::Pipeline { name: GATES.variant, why });
        }
        let sg = device.caps().subgroup_size(32);
        let workgroup = 128.min(device.caps().workgroup_limit(sg));
        let step = u32::from(form == Form::Step);
        let (alpha_stride, beta_stride) = (strides.alpha, strides.beta);
        let constants = Constants { workgroup, heads, alpha_stride, beta_stride, step };
        let values = bytemuck::cast_slice(std::slice::from_ref(&constants));
        Ok(Self { pipeline: compile(device, &GATES, values, sg)?, constants })
    }

    /// Adds the gates of `count` rows (the class of a chunk) to the last level of `graph`.
    ///
    /// # Panics
    /// When a slice does not have the size of its operand.
    pub fn record(&self, graph: &mut Graph, label: &str, count: u32, io: GatesIo) {
        let Constants { workgroup, heads, alpha_stride, beta_stride, .. } = self.constants;
        let words = |n: u32| u64::from(n) * 4;
        // The last row of a wider matrix need not be whole.
        let input = |stride: u32| words((count - 1) * stride + heads);
        assert_eq!((io.a.bytes, io.dt.bytes), (words(heads), words(heads)), "{label}: a, dt");
        assert!(io.alpha.bytes >= input(alpha_stride), "{label}: alpha");
        assert!(io.raw.bytes >= input(beta_stride), "{label}: raw");
        let output = words(count * heads);
        assert_eq!((io.decay.bytes, io.beta.bytes), (output, output), "{label}: results");
        let GatesIo { control, a, dt, alpha, raw, decay, beta } = io;
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices: vec![control, a, dt, alpha, decay, raw, beta],
            push: bytemuck::bytes_of(&Push { count }).to_vec(),
            grid: [(count * heads).div_ceil(workgroup), 1, 1].into(),
            cost: Cost { bytes: 4 * output, flops: u64::from(count * heads) * 40 },
        });
    }
}

#[cfg(test)]
mod tests;
