//! Convolution of a chunk of prompt tokens (model.md 3.4), with SiLU and the L2 norms of queries and keys:
//!
//! ```text
//! conv[t][c] = silu(sum over j of taps[c][j] * u[t - 3 + j][c]),  rows before the chunk from the ring
//! heads of q and k: / sqrt(sum of squares + 1e-6), q also / sqrt(128)
//! ```
//!
//! | operand | shape |
//! |---|---|
//! | `taps` | f32 `[channels][4]`, oldest tap first |
//! | `u` | f32 `[class][u_stride]`, of which the first `channels` columns count |
//! | `ring` | f32 `[slots][4][channels]`, the raw row of position p at p mod 4; zero before position 0 |
//! | `conv` | f32 or f16 `[class][channels]`: query heads, key heads, value heads |
//!
//! The chunk has `rows[0].tokens` tokens from position `rows[0].pos` on. The raw rows of its last four positions go to
//! the ring of the target slot, those older than the chunk from the source slot.

use super::recurrent::{HEAD, Heads, TAPS, compile};
use super::registry::Interface;
use crate::vulkan::{Binding, Caps, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

/// What `recurrent/conv_l2.comp` declares.
pub const F32: Interface = interface("conv_l2");
/// The same with 16-bit results.
pub const F16: Interface = interface("conv_l2_f16");

const fn interface(variant: &'static str) -> Interface {
    const BINDINGS: &[Binding] = &[
        Binding::read(0),
        Binding::read(1),
        Binding::read(3),
        Binding::write(4),
        Binding::update(5),
    ];
    const CONSTANTS: &[&str] =
        &["workgroup", "SG", "RUN", "KEY_HEADS", "VALUE_HEADS", "U_STRIDE", "PAD"];
    Interface { variant, bindings: BINDINGS, push_bytes: 0, constants: CONSTANTS }
}

/// Specialization constants, in the order of their ids.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
struct Constants {
    workgroup: u32,
    sg: u32,
    /// Tokens of a team.
    run: u32,
    key_heads: u32,
    value_heads: u32,
    u_stride: u32,
    pad: u32,
}

impl Constants {
    /// Teams of a workgroup: up to 32 lanes on one head.
    fn teams(&self) -> u32 {
        self.workgroup / self.sg.min(HEAD / 4)
    }
}

/// The type of the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// f32.
    F32,
    /// f16, for matrix units.
    F16,
}

impl Form {
    /// Bytes of a result.
    pub fn bytes(self) -> u32 {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }
}

/// The rows of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// Values between the rows of `u`.
    pub u_stride: u32,
    /// Rows of the result past the chunk are zero up to a multiple of this, which divides the class.
    pub pad: u32,
}

/// Eight tokens a team: three rows are read twice, and a chunk of 128 still makes a thousand teams.
const RUN: u32 = 8;

fn select(heads: Heads, rows: Rows, caps: &Caps) -> Result<Constants, String> {
    heads.check()?;
    let Rows { u_stride, pad } = rows;
    if pad == 0 {
        return Err("rows in multiples of 0".to_owned());
    }
    if u_stride < heads.channels() || !u_stride.is_multiple_of(4) {
        let channels = heads.channels();
        return Err(format!(
            "rows of {u_stride} values, expected a multiple of 4 from {channels} on"
        ));
    }
    let sg = caps.subgroup_size(32);
    let workgroup = 256.min(caps.workgroup_limit(sg));
    let (key_heads, value_heads) = (heads.key, heads.value);
    Ok(Constants { workgroup, sg, run: RUN, key_heads, value_heads, u_stride, pad })
}

/// The kernel for one layer shape.
pub struct ConvL2 {
    pipeline: Arc<Pipeline>,
    constants: Constants,
    heads: Heads,
    form: Form,
}

/// What a dispatch reads and writes; shapes above.
pub struct ConvIo {
    /// Control block.
    pub control: Slice,
    /// Convolution weights.
    pub taps: Slice,
    /// Raw rows of the chunk.
    pub u: Slice,
    /// Results.
    pub conv: Slice,
    /// Raw rows of all slots.
    pub ring: Slice,
}

impl ConvL2 {
    /// Compiles the kernel.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the shape is not possible or the device refuses.
    pub fn new(device: &Arc<Device>, form: Form, heads: Heads, rows: Rows) -> Result<Self, Error> {
        let interface = match form {
            Form::F32 => &F32,
            Form::F16 => &F16,
        };
        let fail = |why| Error::Pipeline { name: interface.variant, why };
        let constants = select(heads, rows, device.caps()).map_err(fail)?;
        let values = bytemuck::cast_slice(std::slice::from_ref(&constants));
        let pipeline = compile(device, interface, values, constants.sg)?;
        Ok(Self { pipeline, constants, heads, form })
    }

    /// Adds the convolution of up to `class` tokens to the last level of `graph`.
    ///
    /// # Panics
    /// When a slice does not have the size of its operand.
    pub fn record(&self, graph: &mut Graph, label: &str, class: u32, io: ConvIo) {
        let (channels, n) = (u64::from(self.heads.channels()), u64::from(class));
        let result = u64::from(self.form.bytes());
        assert!(class.is_multiple_of(self.constants.pad), "{label}: a class of {class}");
        assert_eq!(io.taps.bytes, channels * u64::from(TAPS) * 4, "{label}: taps");
        assert_eq!(io.u.bytes, n * u64::from(self.constants.u_stride) * 4, "{label}: u");
        assert_eq!(io.conv.bytes, n * channels * result, "{label}: conv");
        assert!(io.ring.bytes.is_multiple_of(self.heads.ring_bytes()), "{label}: ring");
        let teams = self.heads.channels() / HEAD * class.div_ceil(self.constants.run);
        let ConvIo { control, taps, u, conv, ring } = io;
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices: vec![control, taps, u, conv, ring],
            push: Vec::new(),
            grid: [teams.div_ceil(self.constants.teams()), 1, 1].into(),
            cost: Cost { bytes: n * channels * (4 + result), flops: n * channels * 12 },
        });
    }
}

#[cfg(test)]
mod tests;
