//! Which expert products a prefill chunk needs. A *slot* is a token and a place among its experts, number
//! `token * used + place`; the plan sorts the slots by expert and cuts each expert's into tiles:
//!
//! ```text
//! slots[position]  = slot, by expert, then by token
//! tiles[i]         = expert, first position, slots of the tile, 0
//! grids            = words 0, 1, 2: the grid of the first product, one layer for each tile; 64, 65, 66: the second's
//! ```
//!
//! A tile has at most `bn` slots; an expert's tiles have nearly equal sizes. The counts come by blocks of 32 tokens
//! from the kernel that chose ([`super::router_gemm`]), so there is nothing to clear and no order that depends on
//! timing.

use super::expert::Sizes;
use super::registry::Interface;
use crate::vulkan::{Binding, Cost, Device, Error, Graph, Grid, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

/// What `moe/moe_plan.comp` declares.
pub const PLAN: Interface = Interface {
    variant: "moe_plan",
    bindings: &[
        Binding::read(0),
        Binding::read(1),
        Binding::read(2),
        Binding::write(4),
        Binding::write(5),
        Binding::write(6),
    ],
    push_bytes: size_of::<Push>(),
    constants: &["workgroup", "EXPERTS", "USED", "BN"],
};

/// Tokens whose choices are counted together.
pub const BLOCK: u32 = 32;
/// Byte at which the second grid starts: a multiple of every device's alignment.
const SECOND_GRID: u64 = 256;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Push {
    first_grid_x: u32,
    second_grid_x: u32,
}

const _: () = assert!(size_of::<Push>() == 8);

/// Specialization constants, in the order of their ids.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Constants {
    workgroup: u32,
    experts: u32,
    used: u32,
    bn: u32,
}

/// Bytes of the buffers of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanBytes {
    /// Of [`PlanSlices::counts`].
    pub counts: u64,
    /// Of [`PlanSlices::grids`].
    pub grids: u64,
    /// Of [`PlanSlices::tiles`].
    pub tiles: u64,
    /// Of [`PlanSlices::slots`].
    pub slots: u64,
}

impl PlanBytes {
    /// For a size class of chunks and tiles of `bn` slots.
    pub fn new(sizes: &Sizes, tokens: u32, bn: u32) -> Self {
        let slots = u64::from(tokens) * u64::from(sizes.used);
        let experts = u64::from(sizes.experts);
        // Each expert that is used at all has at most one tile that is not full.
        let tiles = slots / u64::from(bn) + experts.min(slots);
        Self {
            counts: u64::from(tokens.div_ceil(BLOCK)) * experts * 4,
            grids: SECOND_GRID + 12,
            tiles: tiles * 16,
            slots: slots * 4,
        }
    }
}

/// The buffers of a plan, with at least the bytes of [`PlanBytes`].
#[derive(Clone)]
pub struct PlanSlices {
    /// How many slots of each block of tokens chose each expert.
    pub counts: Slice,
    /// Grids of the products.
    pub grids: Slice,
    /// Tiles.
    pub tiles: Slice,
    /// Slots by position.
    pub slots: Slice,
}

impl PlanSlices {
    /// The grid of the first product.
    pub fn first_grid(&self) -> Grid {
        self.grid(0)
    }

    /// The grid of the second product.
    pub fn second_grid(&self) -> Grid {
        self.grid(SECOND_GRID)
    }

    fn grid(&self, at: u64) -> Grid {
        let buffer = Arc::clone(&self.grids.buffer);
        Grid::Indirect(Slice { buffer, offset: self.grids.offset + at, bytes: 12 })
    }
}

/// The kernel for one expert block and tile size.
pub struct MoePlan {
    pipeline: Arc<Pipeline>,
    sizes: Sizes,
    bn: u32,
}

/// Workgroups of each tile in the two products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowTiles {
    /// Gate and up.
    pub first: u32,
    /// Down.
    pub second: u32,
}

impl MoePlan {
    /// Compiles the kernel for tiles of up to `bn` slots, a multiple of 16.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when there are more experts than invocations of a workgroup, or the device refuses.
    pub fn new(device: &Arc<Device>, sizes: &Sizes, bn: u32) -> Result<Self, Error> {
        let fail = |why: String| Error::Pipeline { name: PLAN.variant, why };
        let subgroup = device.caps().subgroup_size(32);
        let most = device.caps().workgroup_limit(subgroup);
        let workgroup = sizes.experts.next_multiple_of(subgroup).max(256.min(most));
        if workgroup > most {
            return Err(fail(format!("{} experts, the device allows {most}", sizes.experts)));
        }
        if workgroup / subgroup > 64 {
            return Err(fail(format!("{} experts in subgroups of {subgroup}", sizes.experts)));
        }
        assert!(bn > 0 && bn.is_multiple_of(16), "tiles of {bn} slots");
        let constants = [Constants { workgroup, experts: sizes.experts, used: sizes.used, bn }];
        let pipeline = PLAN.pipeline(device, &constants, subgroup)?;
        Ok(Self { pipeline, sizes: *sizes, bn })
    }

    /// Adds the plan of a class of `tokens` to the last level of `graph`; `ids` and the counts are the router's.
    ///
    /// # Panics
    /// When a slice is too small.
    pub fn record(
        &self,
        graph: &mut Graph,
        label: &str,
        tokens: u32,
        row_tiles: RowTiles,
        io: PlanOperands,
    ) {
        let bytes = PlanBytes::new(&self.sizes, tokens, self.bn);
        let plan = io.plan;
        assert!(io.ids.bytes >= bytes.slots, "{label}: ids");
        assert!(plan.counts.bytes >= bytes.counts, "{label}: counts");
        assert!(plan.grids.bytes >= bytes.grids, "{label}: grids");
        assert!(plan.tiles.bytes >= bytes.tiles, "{label}: tiles");
        assert!(plan.slots.bytes >= bytes.slots, "{label}: slots");
        let push = Push { first_grid_x: row_tiles.first, second_grid_x: row_tiles.second };
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices: vec![io.control, io.ids, plan.counts, plan.grids, plan.tiles, plan.slots],
            push: bytemuck::bytes_of(&push).to_vec(),
            grid: [tokens.div_ceil(BLOCK), 1, 1].into(),
            cost: Cost { bytes: 2 * bytes.slots, flops: 0 },
        });
    }
}

/// What a plan reads and writes.
pub struct PlanOperands {
    /// Control block.
    pub control: Slice,
    /// Chosen experts `[tokens][used]`.
    pub ids: Slice,
    /// Counts, read, and the plan, written.
    pub plan: PlanSlices,
}

#[cfg(test)]
pub(super) mod tests;
