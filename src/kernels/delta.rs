//! The gated delta rule over a chunk of prompt tokens (model.md 3.3, step 7), token by token:
//!
//! ```text
//! S <- e^g S;  d = beta (v - S^T k);  S <- S + k d^T;  o = S^T q       for t = 0 .. rows[0].tokens
//! ```
//!
//! | operand | shape, f32 |
//! |---|---|
//! | `conv` | `[class][channels]` of [`super::conv`]: normalised queries and keys, values |
//! | `log_decay`, `beta` | `[class][value_heads]` of [`super::gates`] |
//! | `state` | `[slots][value_heads][128 of the key][128 of the value]`, source and target of `rows[0]` |
//! | `o` | `[class][inner]`, for [`super::head_gate`] |
//!
//! Columns of a state are independent: a workgroup takes some of one head. The bits of a token depend neither on the
//! class nor on how the tokens are cut into chunks.

use super::recurrent::{HEAD, Heads, compile};
use super::registry::Interface;
use crate::vulkan::{Binding, Caps, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

/// What `recurrent/delta_seq.comp` declares.
pub const SEQUENTIAL: Interface = Interface {
    variant: "delta_seq",
    bindings: &[
        Binding::read(0),
        Binding::read(3),
        Binding::write(4),
        Binding::update(5),
        Binding::read(6),
        Binding::read(7),
    ],
    push_bytes: 0,
    constants: &["workgroup", "SG", "WORKGROUP", "COLUMNS", "KEY_HEADS", "VALUE_HEADS"],
};

/// Lanes that share a column of the state.
const PARTS: u32 = 8;

/// Specialization constants, in the order of their ids.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
struct Constants {
    workgroup: u32,
    sg: u32,
    /// The workgroup again: array sizes cannot be made of the built-in one.
    width: u32,
    /// Columns of a lane.
    columns: u32,
    key_heads: u32,
    value_heads: u32,
}

impl Constants {
    /// Columns of a workgroup.
    fn group_columns(&self) -> u32 {
        self.workgroup / PARTS * self.columns
    }
}

/// The constants for these heads on a device: 32 columns a workgroup, so four of them for a head.
fn select(heads: Heads, caps: &Caps) -> Result<Constants, String> {
    heads.check()?;
    let sg = caps.subgroup_size(32);
    let limit = caps.workgroup_limit(sg);
    let workgroup = [256, 128].into_iter().find(|&w| w <= limit);
    let workgroup = workgroup.ok_or_else(|| format!("workgroups of {limit}, 128 are needed"))?;
    if sg < PARTS {
        return Err(format!("subgroups of {sg}, at least {PARTS} are needed"));
    }
    let (key_heads, value_heads) = (heads.key, heads.value);
    Ok(Constants { workgroup, sg, width: workgroup, columns: 1, key_heads, value_heads })
}

/// The choice in words.
pub(super) fn describe(heads: Heads, caps: &Caps) -> Result<String, String> {
    let constants = select(heads, caps)?;
    let Constants { workgroup, sg, .. } = constants;
    let columns = constants.group_columns();
    Ok(format!("workgroups of {workgroup}, subgroups of {sg}, {columns} columns a workgroup"))
}

/// The kernel for one layer shape.
pub struct DeltaSeq {
    pipeline: Arc<Pipeline>,
    constants: Constants,
    heads: Heads,
}

/// What a dispatch reads and writes; shapes above.
pub struct DeltaIo {
    /// Control block.
    pub control: Slice,
    /// Queries, keys and values.
    pub conv: Slice,
    /// Log decays.
    pub log_decay: Slice,
    /// Write strengths.
    pub beta: Slice,
    /// States of all slots.
    pub state: Slice,
    /// Results.
    pub o: Slice,
}

impl DeltaSeq {
    /// Compiles the kernel.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the shape is not possible or the device refuses.
    pub fn new(device: &Arc<Device>, heads: Heads) -> Result<Self, Error> {
        let fail = |why| Error::Pipeline { name: SEQUENTIAL.variant, why };
        Self::with(device, select(heads, device.caps()).map_err(fail)?)
    }

    fn with(device: &Arc<Device>, constants: Constants) -> Result<Self, Error> {
        let values = bytemuck::cast_slice(std::slice::from_ref(&constants));
        let pipeline = compile(device, &SEQUENTIAL, values, constants.sg)?;
        let heads = Heads { key: constants.key_heads, value: constants.value_heads };
        Ok(Self { pipeline, constants, heads })
    }

    /// Adds the recurrence over up to `class` tokens to the last level of `graph`.
    ///
    /// # Panics
    /// When a slice does not have the size of its operand.
    pub fn record(&self, graph: &mut Graph, label: &str, class: u32, io: DeltaIo) {
        let (heads, n) = (self.heads, u64::from(class));
        assert_eq!(io.conv.bytes, n * u64::from(heads.channels()) * 4, "{label}: conv");
        assert_eq!(io.log_decay.bytes, n * u64::from(heads.value) * 4, "{label}: log decay");
        assert_eq!(io.beta.bytes, io.log_decay.bytes, "{label}: beta");
        assert!(io.state.bytes.is_multiple_of(heads.state_bytes()), "{label}: state");
        assert_eq!(io.o.bytes, n * u64::from(heads.inner()) * 4, "{label}: o");
        let DeltaIo { control, conv, log_decay, beta, state, o } = io;
        let bytes = conv.bytes + o.bytes + 2 * heads.state_bytes();
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices: vec![control, conv, o, state, log_decay, beta],
            push: Vec::new(),
            grid: [heads.value, HEAD / self.constants.group_columns(), 1].into(),
            cost: Cost { bytes, flops: n * heads.state_bytes() / 4 * 7 },
        });
    }
}

#[cfg(test)]
mod tests;
