//! The form for devices that are fast at packed pairs of f16 and have nothing better, such as a BC-250: `IQ2_XXS`,
//! activations and results in f32 between the kernels, products in f16 (vulkan.md 3.2).
//!
//! Chains of eight products in f16 are added in f32. Instructions and shared memory decide there, so the tables are halves,
//! several copies of them, and a workgroup is as large as a compute unit takes.

use super::{BINDINGS, Interface, Order, Sizes, fits, lanes};
use crate::kernels::expert::Layout;
use crate::vulkan::Caps;
use bytemuck::{Pod, Zeroable};

/// What `moe/moe_gu_pk.comp` declares.
pub const PACKED: Interface = Interface {
    variant: "moe_gu_iq2_xxs_pk",
    bindings: BINDINGS,
    push_bytes: 0,
    constants: &[
        "workgroup",
        "SG",
        "LANES",
        "R",
        "T",
        "K",
        "FFN",
        "EXPERTS",
        "USED",
        "ORDER",
        "GROUPED",
        "NT",
        "COPIES",
    ],
};

/// Specialization constants, in the order of their ids.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub(super) struct Constants {
    pub(super) workgroup: u32,
    pub(super) sg: u32,
    /// Lanes that share a row.
    pub(super) lanes: u32,
    /// Pairs of a gate and an up row of a subgroup's lanes at a time.
    pub(super) r: u32,
    /// How many times.
    pub(super) t: u32,
    pub(super) k: u32,
    pub(super) ffn: u32,
    pub(super) experts: u32,
    pub(super) used: u32,
    /// Unit order of `mid`.
    pub(super) order: u32,
    /// Whether slots are the entries of a batch (0 or 1), and of how many rows.
    pub(super) grouped: u32,
    pub(super) nt: u32,
    /// Copies of the tables.
    pub(super) copies: u32,
}

/// Bytes of one copy of both tables, of the activations of a row for each value.
const TABLE_BYTES: u32 = (256 + 128) * 16;

impl Constants {
    /// Workgroups for all pairs of a row, or of a batch.
    pub(super) fn groups(&self) -> u32 {
        let turn = self.workgroup / self.lanes * self.r * self.t;
        (self.used * self.nt * self.ffn).div_ceil(turn)
    }
}

/// The constants for a device: for one row a workgroup for each compute unit, as many subgroups as it takes to give each
/// `R` pairs, once or several times. Batches have more to do and less room in shared memory.
pub(super) fn select(
    sizes: &Sizes,
    layout: Layout,
    rows: Option<u32>,
    caps: &Caps,
) -> Result<Constants, String> {
    sizes.check()?;
    fits(layout.gate_up, sizes.hidden)?;
    let sg = caps.subgroup_size(32);
    // A lane for each group of 32 weights, two for a unit.
    let lanes = (2 * lanes(sizes.hidden, sg)).min(sg);
    let (side, nt) = (sg / lanes, rows.unwrap_or(1));
    let r = 2;
    if !sizes.expert_ffn.is_multiple_of(side * r) {
        return Err(format!("{} rows of an expert, {side} side by side", sizes.expert_ffn));
    }
    let pairs = sizes.used * nt * sizes.expert_ffn;
    let limit = (caps.workgroup_limit(sg) / sg).clamp(1, if rows.is_some() { 16 } else { 32 });
    let (waves, t) = if rows.is_some() {
        (limit, 4)
    } else {
        let each = pairs.div_ceil(side * r * caps.compute_units.unwrap_or(32));
        let t = each.div_ceil(limit);
        (each.div_ceil(t), t)
    };
    let acts = nt * (2 * sizes.hidden + sizes.hidden / 8);
    let room = caps.limits.shared_bytes.saturating_sub(acts) / TABLE_BYTES;
    let copies = [8, 4, 2].into_iter().find(|&n| n <= room).unwrap_or(1);
    Ok(Constants {
        workgroup: waves * sg,
        sg,
        lanes,
        r,
        t,
        k: sizes.hidden,
        ffn: sizes.expert_ffn,
        experts: sizes.experts,
        used: sizes.used,
        order: Order::of(layout.down).constant(),
        grouped: u32::from(rows.is_some()),
        nt,
        copies,
    })
}
