//! Batches grouped by expert: rows that chose the same expert share its weights.
//!
//! ```text
//! entries[i] = (i-th smallest distinct expert, slots)       [rows * used] pairs of u32; what is left over is zero
//! slots      = for each row r four bits from bit 4r: one more than the slot in which the row has the expert, or 0
//! ```
//!
//! [`MoeGroup`] makes the entries from the choice `ids` `[rows][used]`, one level before the gate and up projection;
//! [`MoeSum`] adds the parts that the down projection leaves, `[rows][used + 1][hidden]`, one level after it:
//! `h += slots as a tree in selection order + sigma * shared`, with the partial sums of squares, in the order and so with
//! the bits of `moe_down`. Idle rows have no entries and write nothing.
//!
//! Worth two more dispatches where an expert that two rows share would come from memory twice. Devices whose caches
//! hold a layer's experts do without.

use super::expert::{Layout, Sizes, workgroup};
use super::moe_down::{self, Target};
use super::registry::Interface;
use super::router::control_bytes;
use crate::vulkan::{Binding, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use std::sync::Arc;

/// Most rows of a batch: four bits each in a word.
pub const MAX_ROWS: u32 = 8;

/// `moe/moe_group.comp`.
pub const GROUP: Interface = Interface {
    variant: "moe_group",
    bindings: &[Binding::read(0), Binding::read(3), Binding::write(4)],
    push_bytes: 0,
    constants: &["workgroup", "NT", "USED"],
};

/// `moe/moe_sum.comp`, added to the residual.
pub const SUM: Interface = Interface {
    variant: "moe_sum",
    bindings: &[
        Binding::read(0),
        Binding::read(3),
        Binding::update(4),
        Binding::read(5),
        Binding::write(6),
    ],
    push_bytes: 0,
    constants: SUM_CONSTANTS,
};

/// The same, written by itself.
pub const SUM_PLAIN: Interface = Interface {
    variant: "moe_sum_plain",
    bindings: &[Binding::read(0), Binding::read(3), Binding::write(4), Binding::read(5)],
    push_bytes: 0,
    constants: SUM_CONSTANTS.split_at(3).0,
};

const SUM_CONSTANTS: &[&str] = &["workgroup", "HIDDEN", "USED", "ROWS"];

/// Makes the entries.
pub struct MoeGroup {
    pipeline: Arc<Pipeline>,
    slots: u32,
    rows: u32,
}

impl MoeGroup {
    /// Compiles for batches of `rows`.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when there are too many rows or the device refuses.
    pub fn new(device: &Arc<Device>, sizes: &Sizes, rows: u32) -> Result<Self, Error> {
        let fail = |why: String| Error::Pipeline { name: GROUP.variant, why };
        sizes.check().map_err(fail)?;
        if rows == 0 || rows > MAX_ROWS {
            return Err(fail(format!("batches of {rows} rows")));
        }
        let (slots, sg) = (rows * sizes.used, device.caps().subgroup_size(32));
        let constants = [slots.next_multiple_of(sg), rows, sizes.used];
        Ok(Self { pipeline: GROUP.pipeline(device, &[constants], sg)?, slots, rows })
    }

    /// Bytes of the entries.
    pub fn bytes(&self) -> u64 {
        u64::from(self.slots) * 8
    }

    /// Adds the dispatch to the last level of `graph`.
    ///
    /// # Panics
    /// When a slice does not have the size of its operand.
    pub fn record(
        &self,
        graph: &mut Graph,
        label: &str,
        control: Slice,
        ids: Slice,
        entries: Slice,
    ) {
        assert!(control.bytes >= control_bytes(self.rows), "{label}: control block");
        assert_eq!(ids.bytes, u64::from(self.slots) * 4, "{label}: ids");
        assert_eq!(entries.bytes, self.bytes(), "{label}: entries");
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices: vec![control, ids, entries],
            push: Vec::new(),
            grid: [1, 1, 1].into(),
            cost: Cost::default(),
        });
    }
}

/// Adds the parts.
pub struct MoeSum {
    pipeline: Arc<Pipeline>,
    sizes: Sizes,
    rows: u32,
    workgroup: u32,
    partials: u32,
    steered: bool,
}

/// What a sum reads and writes; shapes at the top of the module.
pub struct MoeSumIo {
    /// The control block.
    pub control: Slice,
    /// What the down projection left.
    pub parts: Slice,
    /// Weight of the shared expert `[rows]`.
    pub sigma: Slice,
    /// The residual, or with steering the plain sum.
    pub target: Target,
}

impl MoeSum {
    /// Compiles for batches of `rows` whose expert block has this layout; with `steered`, for [`Target::Plain`].
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the shape is not possible or the device refuses.
    pub fn new(
        device: &Arc<Device>,
        sizes: &Sizes,
        layout: Layout,
        rows: u32,
        steered: bool,
    ) -> Result<Self, Error> {
        let interface = if steered { &SUM_PLAIN } else { &SUM };
        let fail = |why: String| Error::Pipeline { name: interface.variant, why };
        let caps = device.caps();
        // The partial sums are those of the kernel for rows by themselves.
        let down = moe_down::select(sizes, layout, None, caps).map_err(fail)?;
        let workgroup = workgroup(down.sg, caps);
        let constants = [workgroup, sizes.hidden, sizes.used, down.rows];
        let pipeline = if steered {
            interface.pipeline(device, &[[workgroup, sizes.hidden, sizes.used]], down.sg)?
        } else {
            interface.pipeline(device, &[constants], down.sg)?
        };
        Ok(Self {
            pipeline,
            sizes: *sizes,
            rows,
            workgroup,
            partials: sizes.hidden / down.rows,
            steered,
        })
    }

    /// Partial sums of squares that it leaves for each row.
    pub fn partials(&self) -> u32 {
        self.partials
    }

    /// Adds the dispatch to the last level of `graph`.
    ///
    /// # Panics
    /// When a slice does not have the size of its operand, or the target is not what [`Self::new`] was told.
    pub fn record(&self, graph: &mut Graph, label: &str, io: MoeSumIo) {
        let (rows, hidden) = (u64::from(self.rows), u64::from(self.sizes.hidden));
        let sized = |what: &str, slice: &Slice, bytes: u64| {
            assert_eq!(slice.bytes, bytes, "{label}: bytes of {what}");
        };
        assert!(io.control.bytes >= control_bytes(self.rows), "{label}: control block");
        sized("parts", &io.parts, rows * u64::from(self.sizes.used + 1) * hidden * 4);
        sized("sigma", &io.sigma, rows * 4);
        let (target, squares) = match io.target {
            Target::Residual { h, squares } if !self.steered => (h, Some(squares)),
            Target::Plain(sum) if self.steered => (sum, None),
            Target::Residual { .. } | Target::Plain(_) | Target::Parts(_) => {
                panic!("{label}: the target is not what the kernel was made for")
            }
        };
        sized("target", &target, rows * hidden * 4);
        let mut slices = vec![io.control, io.parts, target, io.sigma];
        if let Some(squares) = squares {
            sized("squares", &squares, rows * u64::from(self.partials) * 4);
            slices.push(squares);
        }
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices,
            push: Vec::new(),
            grid: [self.sizes.hidden.div_ceil(self.workgroup), self.rows, 1].into(),
            cost: Cost::default(),
        });
    }
}

#[cfg(test)]
mod tests;
