//! Head norm and output gate of a chunk of prompt tokens (model.md 3.3, step 8), for each value head of a token:
//!
//! ```text
//! y[j] = o[j] * norm[j] / sqrt(mean(o^2) + eps) * silu(z[j])
//! ```
//!
//! | operand | shape |
//! |---|---|
//! | `o` | f32 `[class][inner]` |
//! | `norm` | f32 `[128]` |
//! | `z` | f32 `[class][z_stride]`, before its SiLU or after ([`Gate`]), the first `inner` columns count |
//! | `y` | `[class][y_stride]`, f32, or f16 of which every token has a factor |
//! | `factors` | f32 `[class]`: powers of two that leave 256 at most of the largest value of a token |
//!
//! For `rows[0].tokens` tokens; rows past the chunk become zeros.

use super::recurrent::{HEAD, compile};
use super::registry::Interface;
use crate::vulkan::{Binding, Caps, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

/// What `recurrent/head_gate.comp` declares.
pub const F32: Interface = Interface {
    variant: "head_gate",
    bindings: &[
        Binding::read(0),
        Binding::read(1),
        Binding::read(3),
        Binding::write(4),
        Binding::read(5),
    ],
    push_bytes: size_of::<Push>(),
    constants: CONSTANTS,
};

/// The same with 16-bit results.
pub const F16: Interface = Interface {
    variant: "head_gate_f16",
    bindings: &[
        Binding::read(0),
        Binding::read(1),
        Binding::read(3),
        Binding::write(4),
        Binding::read(5),
        Binding::write(6),
    ],
    push_bytes: size_of::<Push>(),
    constants: CONSTANTS,
};

const CONSTANTS: &[&str] =
    &["workgroup", "SG", "WORKGROUP", "HEADS", "Z_STRIDE", "Y_STRIDE", "RAW"];

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
    sg: u32,
    /// The workgroup again: array sizes cannot be made of the built-in one.
    width: u32,
    heads: u32,
    z_stride: u32,
    y_stride: u32,
    raw: u32,
}

/// The state of `z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// As projected.
    Raw,
    /// After its SiLU.
    Activated,
}

/// Values between the rows of `z` and of `y`, multiples of 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strides {
    /// Of `z`.
    pub z: u32,
    /// Of `y`.
    pub y: u32,
}

/// The form of the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// f32.
    F32,
    /// f16 with factors; the device has 16-bit floats.
    F16,
}

/// The kernel for one number of heads.
pub struct HeadGate {
    pipeline: Arc<Pipeline>,
    constants: Constants,
    form: Form,
}

/// What a dispatch reads and writes; shapes above.
pub struct HeadGateIo {
    /// Control block.
    pub control: Slice,
    /// Head norm weight.
    pub norm: Slice,
    /// What the heads read from their states.
    pub o: Slice,
    /// Output gate.
    pub z: Slice,
    /// Output.
    pub y: Slice,
    /// Factors of [`Form::F16`].
    pub factors: Option<Slice>,
}

fn select(heads: u32, gate: Gate, strides: Strides, caps: &Caps) -> Result<Constants, String> {
    let fits = |stride: u32| stride >= heads * HEAD && stride.is_multiple_of(4);
    if heads == 0 || !fits(strides.z) || !fits(strides.y) {
        return Err(format!("{heads} heads in rows of {} and {}", strides.z, strides.y));
    }
    let sg = caps.subgroup_size(32);
    // A quad for each invocation is enough for few heads.
    let useful = (heads * HEAD / 4).next_multiple_of(sg);
    let workgroup = useful.min(256).min(caps.workgroup_limit(sg));
    let raw = u32::from(gate == Gate::Raw);
    let (z_stride, y_stride) = (strides.z, strides.y);
    Ok(Constants { workgroup, sg, width: workgroup, heads, z_stride, y_stride, raw })
}

impl HeadGate {
    /// Compiles the kernel for `heads` value heads.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when a stride is not possible or the device refuses.
    pub fn new(
        device: &Arc<Device>,
        form: Form,
        heads: u32,
        gate: Gate,
        strides: Strides,
    ) -> Result<Self, Error> {
        let interface = match form {
            Form::F32 => &F32,
            Form::F16 => &F16,
        };
        let fail = |why| Error::Pipeline { name: interface.variant, why };
        let constants = select(heads, gate, strides, device.caps()).map_err(fail)?;
        let values = bytemuck::cast_slice(std::slice::from_ref(&constants));
        let pipeline = compile(device, interface, values, constants.sg)?;
        Ok(Self { pipeline, constants, form })
    }

    /// Adds the norm and gate of `class` tokens to the last level of `graph`.
    ///
    /// # Panics
    /// When a slice does not have the size of its operand, or the factors do not belong to the form.
    pub fn record(&self, graph: &mut Graph, label: &str, class: u32, eps: f32, io: HeadGateIo) {
        let Constants { heads, z_stride, y_stride, .. } = self.constants;
        let inner = heads * HEAD;
        let words = |n: u32| u64::from(n) * 4;
        let result = if self.form == Form::F16 { 2 } else { 4 };
        assert_eq!(io.norm.bytes, words(HEAD), "{label}: norm");
        assert_eq!(io.o.bytes, words(class * inner), "{label}: o");
        assert!(io.z.bytes >= words((class - 1) * z_stride + inner), "{label}: z");
        assert_eq!(io.y.bytes, u64::from(class * y_stride) * result, "{label}: y");
        let factors = io.factors.as_ref().map(|f| f.bytes);
        let expected = (self.form == Form::F16).then_some(words(class));
        assert_eq!(factors, expected, "{label}: factors");
        let HeadGateIo { control, norm, o, z, y, factors } = io;
        let values = u64::from(class * inner);
        let mut slices = vec![control, norm, o, y, z];
        slices.extend(factors);
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices,
            push: bytemuck::bytes_of(&Push { eps }).to_vec(),
            grid: [class, 1, 1].into(),
            cost: Cost { bytes: values * (8 + result), flops: values * 10 },
        });
    }
}

#[cfg(test)]
mod tests;
