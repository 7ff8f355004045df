//! Gate and up projections of the chosen experts (model.md 3.8 step 4):
//! `mid[r][s] = silu(G_e x[r]) * (U_e x[r]) * route[r][s]` with `e = ids[r][s]`.
//!
//! `G`, `U`: `[experts][expert_ffn][hidden]` blocks as in the file; `x`: `[rows][hidden]` f32 in unit order (module
//! `expert`); `ids`, `route`: `[rows][used]`; `mid`: `[rows][used][expert_ffn]` f32, in the unit order of the down
//! matrices.
//!
//! Sums are f32. Where x and `mid` are bytes, the products of 16 weights are exact integers. The bits of a row do not depend on the batch: every row of it is a layer of the grid. Idle rows
//! write nothing.
//!
//! A batch can be grouped by expert instead (module `moe_group`): each expert's weights are then read and decoded once
//! for all rows that chose it.

mod packed;

use super::expert::{Layout, Order, Sizes, Values, fits, lanes, matrix_bytes, workgroup};
use super::moe_group::MAX_ROWS;
use super::registry::Interface;
use super::router::control_bytes;
use crate::quant::{IQ2_XXS_GRID, TensorType};
use crate::vulkan::{Binding, Caps, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

pub use packed::PACKED;

/// The forms of `moe/moe_gu.comp` for a format.
pub struct Forms {
    /// Of the matrices.
    pub format: TensorType,
    /// Activations in f32.
    pub f32: Interface,
    /// Activations in bytes.
    pub i8: Interface,
}

/// All of them.
pub const FORMS: [Forms; 6] = [
    forms(TensorType::IQ2_XXS, ["moe_gu_iq2_xxs", "moe_gu_iq2_xxs_i8"]),
    forms(TensorType::Q2_K, ["moe_gu_q2_k", "moe_gu_q2_k_i8"]),
    forms(TensorType::Q4_K, ["moe_gu_q4_k", "moe_gu_q4_k_i8"]),
    forms(TensorType::Q5_K, ["moe_gu_q5_k", "moe_gu_q5_k_i8"]),
    forms(TensorType::Q6_K, ["moe_gu_q6_k", "moe_gu_q6_k_i8"]),
    forms(TensorType::Q8_0, ["moe_gu_q8_0", "moe_gu_q8_0_i8"]),
];

/// Activations in bytes, without integer dot products: the same bits, for tests on devices that lack them.
pub const SOFT: [Interface; 2] = [
    form(TensorType::IQ2_XXS, "moe_gu_iq2_xxs_i8_soft"),
    form(TensorType::Q4_K, "moe_gu_q4_k_i8_soft"),
];

const fn forms(format: TensorType, [f32, i8]: [&'static str; 2]) -> Forms {
    Forms { format, f32: form(format, f32), i8: form(format, i8) }
}

/// One form; only the grid of `IQ2_XXS` is a table.
const fn form(format: TensorType, variant: &'static str) -> Interface {
    let (bindings, constants) = if matches!(format, TensorType::IQ2_XXS) {
        (BINDINGS, CONSTANTS)
    } else {
        (BINDINGS.split_at(7).0, CONSTANTS.split_at(11).0)
    };
    Interface { variant, bindings, push_bytes: 0, constants }
}

const BINDINGS: &[Binding] = &[
    Binding::read(0),
    Binding::read(1),
    Binding::read(2),
    Binding::read(3),
    Binding::write(4),
    Binding::read(5),
    Binding::read(6),
    Binding::read(7),
];

const CONSTANTS: &[&str] = &[
    "workgroup",
    "SG",
    "LANES",
    "R",
    "K",
    "FFN",
    "EXPERTS",
    "USED",
    "ORDER",
    "GROUPED",
    "NT",
    "SHARED_GRID",
];

/// Specialization constants, in the order of their ids.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
struct Constants {
    workgroup: u32,
    sg: u32,
    /// Lanes that share a row.
    lanes: u32,
    /// Pairs of a gate and an up row in flight for each lane.
    r: u32,
    k: u32,
    ffn: u32,
    experts: u32,
    used: u32,
    /// Unit order of `mid`.
    order: u32,
    /// Whether workgroups belong to experts of a batch (0 or 1), and of how many rows.
    grouped: u32,
    nt: u32,
    /// Formats with a table: whether it is copied to shared memory (0 or 1).
    shared_grid: u32,
}

impl Constants {
    /// Pairs of a workgroup.
    fn group_pairs(&self) -> u32 {
        self.workgroup / self.lanes * self.r
    }
}

/// The constants for a device: two pairs, that is four rows, keep four to eight loads of 16 bytes in flight for each
/// lane and share every activation.
fn select(
    sizes: &Sizes,
    layout: Layout,
    rows: Option<u32>,
    caps: &Caps,
) -> Result<Constants, String> {
    let (format, order) = (layout.gate_up, Order::of(layout.down));
    if rows.is_some_and(|n| n == 0 || n > MAX_ROWS) {
        return Err(format!("batches of {rows:?} rows"));
    }
    sizes.check()?;
    fits(format, sizes.hidden)?;
    // The unit order of `mid` has a place for each value only in rows of whole blocks.
    fits(layout.down, sizes.expert_ffn)?;
    let sg = caps.subgroup_size(64);
    Ok(Constants {
        workgroup: workgroup(sg, caps),
        sg,
        lanes: lanes(sizes.hidden, sg),
        // Activations in bytes leave a workgroup sixteen at a time.
        r: 2.max(16 * lanes(sizes.hidden, sg) / workgroup(sg, caps)),
        k: sizes.hidden,
        ffn: sizes.expert_ffn,
        experts: sizes.experts,
        used: sizes.used,
        order: order.constant(),
        grouped: u32::from(rows.is_some()),
        nt: rows.unwrap_or(1),
        shared_grid: 1,
    })
}

/// The choice in words.
pub(super) fn describe(sizes: &Sizes, caps: &Caps) -> Result<String, String> {
    let (gate_up, down) = (TensorType::IQ2_XXS, TensorType::Q2_K);
    let c = select(sizes, Layout { gate_up, down, values: Values::F32 }, None, caps)?;
    Ok(format!(
        "workgroups of {}, subgroups of {}, {} lanes for a row, {} pairs at a time",
        c.workgroup, c.sg, c.lanes, c.r
    ))
}

/// The table that a format's kernel reads, to be uploaded once for all layers.
pub fn table(format: TensorType) -> Option<&'static [u8]> {
    (format == TensorType::IQ2_XXS).then(|| bytemuck::cast_slice(&IQ2_XXS_GRID[..]))
}

/// The kernel for one shape and format.
pub struct MoeGu {
    pipeline: Arc<Pipeline>,
    constants: Constants,
    /// Of the form for packed pairs.
    packed: Option<packed::Constants>,
    format: TensorType,
}

/// What a dispatch reads and writes; shapes at the top of the module.
pub struct MoeGuIo {
    /// The control block.
    pub control: Slice,
    /// Gate matrices of all experts.
    pub gate: Slice,
    /// Up matrices of all experts.
    pub up: Slice,
    /// [`table`], for formats that have one.
    pub table: Option<Slice>,
    /// Normalised rows, in the unit order of the format.
    pub x: Slice,
    /// Chosen experts; where the kernel is grouped, the entries of `moe_group`.
    pub ids: Slice,
    /// The experts' weights; their number says how many rows there are.
    pub route: Slice,
    /// Output.
    pub mid: Slice,
}

impl MoeGu {
    /// Compiles for each row by itself, or with `rows` for a batch of so many, grouped by expert: where experts that
    /// rows share would not come out of a cache the second time. The bits are the same.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when there is no kernel for the format, the shape is not possible, or the device refuses.
    pub fn new(
        device: &Arc<Device>,
        sizes: &Sizes,
        layout: Layout,
        rows: Option<u32>,
    ) -> Result<Self, Error> {
        let (format, fail) = (layout.gate_up, |why| Error::Pipeline { name: "moe_gu", why });
        let none = || fail(format!("no kernel for experts in {}", format.name()));
        let forms = FORMS.iter().find(|f| f.format == format).ok_or_else(none)?;
        let constants = select(sizes, layout, rows, device.caps()).map_err(fail)?;
        let interface = match layout.values {
            Values::F16 if format == TensorType::IQ2_XXS => {
                let packed = packed::select(sizes, layout, rows, device.caps()).map_err(fail)?;
                return Self::packed(device, constants, packed);
            }
            Values::F32 | Values::F16 => &forms.f32,
            Values::I8 => &forms.i8,
        };
        Self::with(device, format, interface, constants)
    }

    fn packed(
        device: &Arc<Device>,
        constants: Constants,
        packed: packed::Constants,
    ) -> Result<Self, Error> {
        let pipeline = PACKED.pipeline(device, &[packed], packed.sg)?;
        Ok(Self { pipeline, constants, packed: Some(packed), format: TensorType::IQ2_XXS })
    }

    fn with(
        device: &Arc<Device>,
        format: TensorType,
        interface: &Interface,
        constants: Constants,
    ) -> Result<Self, Error> {
        let words: [u32; 12] = bytemuck::cast(constants);
        // The last constant exists only where there is a table.
        let pipeline = if interface.constants.len() == words.len() {
            interface.pipeline(device, &[words], constants.sg)?
        } else {
            let (words, _) = words.split_first_chunk::<11>().expect("twelve constants");
            interface.pipeline(device, &[*words], constants.sg)?
        };
        Ok(Self { pipeline, constants, packed: None, format })
    }

    /// Adds the dispatch to the last level of `graph`.
    ///
    /// # Panics
    /// When a slice does not have the size of its operand.
    pub fn record(&self, graph: &mut Graph, label: &str, io: MoeGuIo) {
        let Constants { k, ffn, experts, used, .. } = self.constants;
        let wide = |n: u32| u64::from(n);
        let rows = u32::try_from(io.route.bytes / (4 * wide(used))).expect("few rows");
        assert!(io.control.bytes >= control_bytes(rows), "{label}: control block");
        let all = matrix_bytes(self.format, wide(experts) * wide(ffn), k);
        assert!(io.gate.bytes >= all && io.up.bytes >= all, "{label}: matrices of {all} bytes");
        assert_eq!(io.x.bytes, wide(rows) * wide(k) * 4, "{label}: x");
        let slots = wide(rows) * wide(used);
        let grouped = self.constants.grouped == 1;
        assert!(!grouped || rows == self.constants.nt, "{label}: rows");
        assert_eq!(io.route.bytes, slots * 4, "{label}: route");
        assert_eq!(io.ids.bytes, slots * if grouped { 8 } else { 4 }, "{label}: ids or entries");
        assert_eq!(io.mid.bytes, slots * wide(ffn) * 4, "{label}: mid");
        let mut slices = vec![io.control, io.gate, io.up, io.x, io.mid, io.ids, io.route];
        assert_eq!(io.table.is_some(), table(self.format).is_some(), "{label}: table");
        slices.extend(io.table);
        let groups = ffn.div_ceil(self.constants.group_pairs());
        let grid = match (self.packed, grouped) {
            (Some(packed), true) => [packed.groups(), 1, 1],
            (Some(packed), false) => [packed.groups(), 1, rows],
            (None, true) => [groups, used * rows, 1],
            (None, false) => [groups, used, rows],
        };
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices,
            push: Vec::new(),
            grid: grid.into(),
            cost: Cost {
                bytes: 2 * matrix_bytes(self.format, slots * wide(ffn), k),
                flops: 4 * slots * wide(ffn) * wide(k),
            },
        });
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod timing;
