//! Whole slots of a buffer of equal slots: the source slot of every row of the control block copied to its target
//! slot, or the target slot cleared. For the states and rings of recurrent layers, when a session starts, is saved or
//! is split. Idle rows, and rows whose slots are one, leave the buffer as it is.

use super::recurrent::compile;
use super::registry::Interface;
use crate::vulkan::{Binding, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

/// What `small/copy.comp` declares.
pub const COPY: Interface = Interface {
    variant: "copy",
    bindings: &[Binding::read(0), Binding::update(4)],
    push_bytes: size_of::<Push>(),
    constants: &["workgroup", "CLEAR"],
};

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Push {
    quads: u32,
}

const _: () = assert!(size_of::<Push>() == 4);

/// What happens to the target slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// It becomes a copy of the source slot.
    Copy,
    /// It becomes zero.
    Zero,
}

/// The kernel.
pub struct CopySlots {
    pipeline: Arc<Pipeline>,
    workgroup: u32,
}

/// Most workgroups of a slot; each invocation goes on until the slot ends.
const GROUPS: u32 = 256;

impl CopySlots {
    /// Compiles the kernel.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the device refuses.
    pub fn new(device: &Arc<Device>, fill: Fill) -> Result<Self, Error> {
        let sg = device.caps().subgroup_size(32);
        let workgroup = 256.min(device.caps().workgroup_limit(sg));
        let pipeline = compile(device, &COPY, &[workgroup, u32::from(fill == Fill::Zero)], sg)?;
        Ok(Self { pipeline, workgroup })
    }

    /// Adds the copies of `rows` rows to the last level of `graph`; the buffer has slots of `slot_bytes`.
    ///
    /// # Panics
    /// When the buffer is not made of such slots, or these not of 16 bytes.
    pub fn record(&self, graph: &mut Graph, label: &str, rows: u32, slot_bytes: u64, io: CopyIo) {
        assert!(slot_bytes.is_multiple_of(16), "{label}: slots of {slot_bytes} bytes");
        assert!(io.slots.bytes.is_multiple_of(slot_bytes), "{label}: {} bytes", io.slots.bytes);
        let quads = u32::try_from(slot_bytes / 16).expect("a slot is smaller than a binding");
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices: vec![io.control, io.slots],
            push: bytemuck::bytes_of(&Push { quads }).to_vec(),
            grid: [quads.div_ceil(self.workgroup).min(GROUPS), rows, 1].into(),
            cost: Cost { bytes: u64::from(rows) * slot_bytes * 2, flops: 0 },
        });
    }
}

/// What a dispatch reads and writes.
pub struct CopyIo {
    /// Control block.
    pub control: Slice,
    /// All slots.
    pub slots: Slice,
}

#[cfg(test)]
mod tests;
