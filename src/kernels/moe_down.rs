//! Down projections of the chosen experts and of the shared one (model.md 3.8 steps 4 to 6):
//!
//! ```text
//! sum[r]     = D_e0 mid[r][0] + ... + sigma[r] * (S shared_mid[r])     e_s = ids[r][s]
//! h[r]      += sum[r]
//! squares[r][p] = sum of h[r][i]^2 over the i of workgroup p
//! ```
//!
//! `D`: `[experts][hidden][expert_ffn]` blocks as in the file; `S`: `Q8_0` planes `[hidden][shared_ffn]`; `mid`:
//! `[rows][used][expert_ffn]` f32, already times the route weight, in the unit order of the format; `shared_mid`:
//! `[rows][shared_ffn]` f32 in plain unit order; `sigma`: `[rows]`; `h`: `[rows][hidden]` f32; `squares`:
//! `[rows][partials]`, see [`MoeDown::partials`]. With steering `sum` is written and `h` left alone. A batch can be
//! grouped by expert (module `moe_group`): then the parts of the sum are written, and `MoeSum` adds them.
//!
//! Sums are f32. Where `mid` is made of bytes, the products of 16 weights are exact integers. A row's sum is an explicit tree: the lanes of a slot, the slots in selection order (missing ones
//! are zero), then the shared expert; the bits do not depend on the batch. Idle rows write nothing.

use super::expert::{Layout, MAX_USED, Sizes, Values, fits, lanes, matrix_bytes};
use super::moe_group::MAX_ROWS;
use super::mv_q8::Planes;
use super::registry::Interface;
use super::router::control_bytes;
use crate::quant::TensorType;
use crate::vulkan::{Binding, Caps, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

/// The forms of `moe/moe_down.comp` for a format.
pub struct Forms {
    /// Of the down matrices.
    pub format: TensorType,
    /// Activations in f32; adds to the residual.
    pub f32: Interface,
    /// Writes the sum.
    pub f32_plain: Interface,
    /// Activations in bytes; adds to the residual.
    pub i8: Interface,
    /// Writes the sum.
    pub i8_plain: Interface,
}

/// All of them.
pub const FORMS: [Forms; 5] = [
    forms(
        TensorType::Q2_K,
        ["moe_down_q2_k", "moe_down_q2_k_plain", "moe_down_q2_k_i8", "moe_down_q2_k_i8_plain"],
    ),
    forms(
        TensorType::Q4_K,
        ["moe_down_q4_k", "moe_down_q4_k_plain", "moe_down_q4_k_i8", "moe_down_q4_k_i8_plain"],
    ),
    forms(
        TensorType::Q5_K,
        ["moe_down_q5_k", "moe_down_q5_k_plain", "moe_down_q5_k_i8", "moe_down_q5_k_i8_plain"],
    ),
    forms(
        TensorType::Q6_K,
        ["moe_down_q6_k", "moe_down_q6_k_plain", "moe_down_q6_k_i8", "moe_down_q6_k_i8_plain"],
    ),
    forms(
        TensorType::Q8_0,
        ["moe_down_q8_0", "moe_down_q8_0_plain", "moe_down_q8_0_i8", "moe_down_q8_0_i8_plain"],
    ),
];

/// Activations in bytes, without integer dot products: the same bits, for tests on devices that lack them.
pub const SOFT: Interface = form("moe_down_q2_k_i8_soft", RESIDUAL);

/// `Q2_K`, activations multiplied as packed pairs of f16 ([`Values::F16`]): adds to the residual, or writes the sum.
pub const PACKED: [Interface; 2] =
    [form("moe_down_q2_k_pk", RESIDUAL), form("moe_down_q2_k_pk_plain", PLAIN)];

const fn forms(format: TensorType, [f32, f32_plain, i8, i8_plain]: [&'static str; 4]) -> Forms {
    Forms {
        format,
        f32: form(f32, RESIDUAL),
        f32_plain: form(f32_plain, PLAIN),
        i8: form(i8, RESIDUAL),
        i8_plain: form(i8_plain, PLAIN),
    }
}

const fn form(variant: &'static str, bindings: &'static [Binding]) -> Interface {
    Interface { variant, bindings, push_bytes: 0, constants: CONSTANTS }
}

const RESIDUAL: &[Binding] = &[
    Binding::read(0),
    Binding::read(1),
    Binding::read(2),
    Binding::read(3),
    Binding::update(4),
    Binding::read(5),
    Binding::read(6),
    Binding::read(7),
    Binding::read(8),
    Binding::write(9),
];

const PLAIN: &[Binding] = &[
    Binding::read(0),
    Binding::read(1),
    Binding::read(2),
    Binding::read(3),
    Binding::write(4),
    Binding::read(5),
    Binding::read(6),
    Binding::read(7),
    Binding::read(8),
];

const CONSTANTS: &[&str] = &[
    "workgroup",
    "SG",
    "ROWS",
    "LANES",
    "SHARED_LANES",
    "HIDDEN",
    "FFN",
    "SHARED",
    "EXPERTS",
    "USED",
    "GROUPED",
    "NT",
];

/// Specialization constants, in the order of their ids.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub(super) struct Constants {
    workgroup: u32,
    pub(super) sg: u32,
    /// Rows of a workgroup.
    pub(super) rows: u32,
    /// Lanes that share a row of an expert.
    lanes: u32,
    /// Lanes that share a row of the shared expert.
    shared_lanes: u32,
    hidden: u32,
    ffn: u32,
    shared: u32,
    experts: u32,
    used: u32,
    /// Whether subgroups belong to experts of a batch (0 or 1), and of how many rows.
    grouped: u32,
    nt: u32,
}

impl Constants {
    /// Rows beside each other in a subgroup, of experts or of the shared one, whichever has more: `rows` is a multiple.
    fn beside(&self) -> u32 {
        self.sg / self.lanes.min(self.shared_lanes)
    }
}

/// Whether there is a kernel of packed pairs, and it is asked for.
fn is_packed(layout: Layout) -> bool {
    layout.values == Values::F16 && layout.down == TensorType::Q2_K
}

/// The constants for a device: a subgroup for each slot and one for the shared expert, two rows in flight for each
/// lane; four where a lane converts activations, which they share, unless rows of a batch take the registers.
/// Independent of the format: every layer leaves as many partial sums as its neighbours.
pub(super) fn select(
    sizes: &Sizes,
    layout: Layout,
    rows: Option<u32>,
    caps: &Caps,
) -> Result<Constants, String> {
    sizes.check()?;
    if rows.is_some_and(|n| n == 0 || n > MAX_ROWS) {
        return Err(format!("batches of {rows:?} rows"));
    }
    fits(layout.down, sizes.expert_ffn)?;
    let pairs = layout.values == Values::F16;
    let sg = caps.subgroup_size(if pairs { 32 } else { 64 });
    let each = if pairs && rows.is_none() { 4 } else { 2 };
    let subgroups = (sizes.used + 1).min(caps.workgroup_limit(sg) / sg);
    let (lanes, shared_lanes) = (lanes(sizes.expert_ffn, sg), lanes(sizes.shared_ffn, sg));
    let mut constants = Constants {
        workgroup: subgroups * sg,
        sg,
        rows: 0,
        lanes,
        shared_lanes,
        hidden: sizes.hidden,
        ffn: sizes.expert_ffn,
        shared: sizes.shared_ffn,
        experts: sizes.experts,
        used: sizes.used,
        grouped: u32::from(rows.is_some()),
        nt: rows.unwrap_or(1),
    };
    constants.rows = (each * constants.beside()).min(sg);
    Ok(constants)
}

/// The choice in words.
pub(super) fn describe(sizes: &Sizes, caps: &Caps) -> Result<String, String> {
    let (gate_up, down) = (TensorType::IQ2_XXS, TensorType::Q2_K);
    let c = select(sizes, Layout { gate_up, down, values: Values::F32 }, None, caps)?;
    Ok(format!(
        "workgroups of {}, subgroups of {}, {} lanes for a row, {} rows",
        c.workgroup, c.sg, c.lanes, c.rows
    ))
}

/// The kernel for one shape and format.
pub struct MoeDown {
    pipeline: Arc<Pipeline>,
    constants: Constants,
    format: TensorType,
    output: Output,
}

/// What becomes of the sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Added to the residual, each row by itself.
    Residual,
    /// Written by itself, for steering; each row by itself.
    Plain,
    /// Its parts are written, for a batch of so many rows grouped by expert.
    Parts(u32),
}

/// Where the sum goes.
pub enum Target {
    /// Added to the residual.
    Residual {
        /// The residual.
        h: Slice,
        /// Partial sums of its squares.
        squares: Slice,
    },
    /// Written by itself, for steering: `[rows][hidden]`.
    Plain(Slice),
    /// The parts of each row, the shared expert's last: `[rows][used + 1][hidden]`.
    Parts(Slice),
}

/// What a dispatch reads and writes; shapes at the top of the module.
pub struct MoeDownIo {
    /// The control block.
    pub control: Slice,
    /// Down matrices of all experts.
    pub down: Slice,
    /// The shared expert's down matrix.
    pub shared: Planes,
    /// Gated products of the chosen experts.
    pub mid: Slice,
    /// Gated product of the shared expert.
    pub shared_mid: Slice,
    /// Weight of the shared expert; their number says how many rows there are.
    pub sigma: Slice,
    /// Chosen experts; where the kernel is grouped, the entries of `moe_group`.
    pub ids: Slice,
    /// Output.
    pub target: Target,
}

impl Output {
    /// Rows of a batch that is grouped.
    fn rows(self) -> Option<u32> {
        match self {
            Self::Residual | Self::Plain => None,
            Self::Parts(rows) => Some(rows),
        }
    }
}

impl MoeDown {
    /// Compiles for what `output` says.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when there is no kernel for the format, the shape is not possible, or the device refuses.
    pub fn new(
        device: &Arc<Device>,
        sizes: &Sizes,
        layout: Layout,
        output: Output,
    ) -> Result<Self, Error> {
        let (format, fail) = (layout.down, |why| Error::Pipeline { name: "moe_down", why });
        let none = || fail(format!("no kernel for experts in {}", format.name()));
        let forms = FORMS.iter().find(|f| f.format == format).ok_or_else(none)?;
        let interface = match (layout.values, output) {
            (Values::F16, Output::Residual) if is_packed(layout) => &PACKED[0],
            (Values::F16, _) if is_packed(layout) => &PACKED[1],
            (Values::F32 | Values::F16, Output::Residual) => &forms.f32,
            (Values::F32 | Values::F16, Output::Plain | Output::Parts(_)) => &forms.f32_plain,
            (Values::I8, Output::Residual) => &forms.i8,
            (Values::I8, Output::Plain | Output::Parts(_)) => &forms.i8_plain,
        };
        let constants = select(sizes, layout, output.rows(), device.caps()).map_err(fail)?;
        let pipeline = interface.pipeline(device, &[constants], constants.sg)?;
        Ok(Self { pipeline, constants, format, output })
    }

    /// Partial sums of squares of each row.
    pub fn partials(&self) -> u32 {
        self.constants.hidden / self.constants.rows
    }

    /// Adds the dispatch to the last level of `graph`.
    ///
    /// # Panics
    /// When a slice does not have the size of its operand, or the target is not what [`Self::new`] was told.
    pub fn record(&self, graph: &mut Graph, label: &str, io: MoeDownIo) {
        let Constants { hidden, ffn, shared, experts, used, .. } = self.constants;
        assert!(used <= MAX_USED, "checked by select");
        let wide = |n: u32| u64::from(n);
        let rows = u32::try_from(io.sigma.bytes / 4).expect("few rows");
        assert!(io.control.bytes >= control_bytes(rows), "{label}: control block");
        let sized = |what: &str, slice: &Slice, bytes: u64| {
            assert_eq!(slice.bytes, bytes, "{label}: bytes of {what}");
        };
        let all = matrix_bytes(self.format, wide(experts) * wide(hidden), ffn);
        assert!(io.down.bytes >= all, "{label}: matrices of {all} bytes");
        let slots = wide(rows) * wide(used);
        sized("shared codes", &io.shared.codes, wide(hidden) * wide(shared));
        sized("shared scales", &io.shared.scales, wide(hidden) * wide(shared) / 16);
        sized("mid", &io.mid, slots * wide(ffn) * 4);
        sized("shared_mid", &io.shared_mid, wide(rows) * wide(shared) * 4);
        let planes = io.shared;
        let mut slices = vec![io.control, io.down, planes.codes, io.mid];
        let (parts, grid) = match self.output {
            Output::Residual | Output::Plain => (1, [self.partials(), rows, 1]),
            Output::Parts(batch) => {
                assert_eq!(rows, batch, "{label}: rows");
                let subgroups = self.constants.workgroup / self.constants.sg;
                (wide(used) + 1, [self.partials(), (batch * used + 1).div_ceil(subgroups), 1])
            }
        };
        sized("ids or entries", &io.ids, slots * if parts > 1 { 8 } else { 4 });
        let (target, squares) = match (io.target, self.output) {
            (Target::Residual { h, squares }, Output::Residual) => (h, Some(squares)),
            (Target::Plain(sum), Output::Plain) | (Target::Parts(sum), Output::Parts(_)) => {
                (sum, None)
            }
            _ => panic!("{label}: the target is not what the kernel was made for"),
        };
        sized("target", &target, wide(rows) * parts * wide(hidden) * 4);
        slices.extend([target, io.ids, planes.scales, io.shared_mid, io.sigma]);
        if let Some(squares) = squares {
            sized("squares", &squares, wide(rows) * wide(self.partials()) * 4);
            slices.push(squares);
        }
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices,
            push: Vec::new(),
            grid: grid.into(),
            cost: Cost {
                bytes: matrix_bytes(self.format, slots * wide(hidden), ffn)
                    + wide(hidden) * wide(shared) * 34 / 32,
                flops: 2 * wide(hidden) * (slots * wide(ffn) + wide(rows) * wide(shared)),
            },
        });
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod timing;
