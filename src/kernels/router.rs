//! The part of the expert block that needs only the residual (model.md 3.8 steps 1 to 3 and 5):
//!
//! ```text
//! x          = h[r] * w / sqrt(sum_p squares[r][p] / hidden + eps)     [rows][hidden], unit order
//! logits     = router x                                                [rows][experts]
//! sigma      = sigmoid(gate . x)                                       [rows]
//! shared_mid = silu(shared_gate x) * (shared_up x)                     [rows][shared_ffn], unit order
//! ids, route = the `used` largest logits, best first, and the softmax over them   [rows][used]
//! ```
//!
//! `h`: `[rows][hidden]` f32; `squares`: `[rows][partials]` f32; router: f32 `[experts][hidden]`, or `Q8_0` planes;
//! gate: f32 `[hidden]`; shared gate and up: `Q8_0` planes with interleaved rows (row 2i is gate row i, 2i + 1 up
//! row i). Everything in f32.
//!
//! With the Vulkan memory model the workgroup that arrives last makes the choice; without it a second dispatch does,
//! one level later ([`Router::record_choice`]).
//!
//! Equal logits go to the lower index; what is not finite is never chosen while enough others are. With fewer than
//! `used` finite logits the route is NaN, so that the step fails where logits are checked; ids are distinct experts
//! in any case.
//!
//! The bits of a row depend neither on the number of rows nor on the other rows: one source, a constant number of
//! rows, sums as explicit chains and trees. Idle rows write nothing.

use super::control::Row;
use super::expert::{Layout, Order, Sizes, Values};
use super::mv_q8::{Norm, Planes};
use super::registry::Interface;
use crate::vulkan::{Ability, Binding, Caps, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

const PUSH_BYTES: usize = size_of::<Push>();

/// The forms of `moe/router_shared.comp`: an f32 router, a `Q8_0` router, and both with the choice in the same dispatch.
pub const FORMS: [Interface; 4] = [
    form("router_shared", F32, CONSTANTS),
    form("router_shared_q8", Q8, CONSTANTS),
    form("router_shared_choose", F32_CHOOSE, CHOOSE_CONSTANTS),
    form("router_shared_q8_choose", Q8_CHOOSE, CHOOSE_CONSTANTS),
];

const fn form(
    variant: &'static str,
    bindings: &'static [Binding],
    constants: &'static [&'static str],
) -> Interface {
    Interface { variant, bindings, push_bytes: PUSH_BYTES, constants }
}

const CHOOSE_CONSTANTS: &[&str] = &[
    "workgroup",
    "SG",
    "NT",
    "K",
    "EXPERTS",
    "SHARED",
    "BLOCK",
    "X_ORDER",
    "X_I8",
    "AHEAD",
    "USED",
];
const CONSTANTS: &[&str] = CHOOSE_CONSTANTS.split_at(10).0;

/// Bindings 0 to 11; with the choice, logits are read as well.
const fn common(logits: Binding) -> [Binding; 12] {
    [
        Binding::read(0),
        Binding::read(1),
        Binding::read(2),
        Binding::read(3),
        logits,
        Binding::read(5),
        Binding::read(6),
        Binding::read(7),
        Binding::read(8),
        Binding::write(9),
        Binding::write(10),
        Binding::write(11),
    ]
}

const F32: &[Binding] = &common(Binding::write(4));
const Q8: &[Binding] = &joined::<13>(common(Binding::write(4)), &[Binding::read(12)]);
const F32_CHOOSE: &[Binding] = &joined::<15>(
    common(Binding::update(4)),
    &[Binding::update(13), Binding::write(14), Binding::write(15)],
);
const Q8_CHOOSE: &[Binding] = &joined::<16>(
    common(Binding::update(4)),
    &[Binding::read(12), Binding::update(13), Binding::write(14), Binding::write(15)],
);

const fn joined<const N: usize>(first: [Binding; 12], rest: &[Binding]) -> [Binding; N] {
    let mut all = [Binding::read(0); N];
    let mut i = 0;
    while i < N {
        all[i] = if i < first.len() { first[i] } else { rest[i - first.len()] };
        i += 1;
    }
    all
}

/// `moe/top_k.comp`.
pub const TOP_K: Interface = Interface {
    variant: "top_k",
    bindings: &[Binding::read(0), Binding::read(3), Binding::write(4), Binding::write(5)],
    push_bytes: 0,
    constants: &["workgroup", "SG", "EXPERTS", "USED"],
};

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Push {
    partials: u32,
    eps: f32,
    router_groups: u32,
}

const _: () = assert!(PUSH_BYTES == 12);

/// Specialization constants, in the order of their ids.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
struct Constants {
    workgroup: u32,
    sg: u32,
    /// Rows of the batch.
    nt: u32,
    k: u32,
    experts: u32,
    shared: u32,
    /// Values of each row that are in shared memory at a time.
    block: u32,
    x_order: u32,
    /// Whether x is made of bytes (0 or 1).
    x_i8: u32,
    /// Rounds of 16 weights a lane that are under way together.
    ahead: u32,
    used: u32,
}

/// How the router's matrix is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// f32.
    F32,
    /// `Q8_0` planes.
    Q8,
}

/// The router's matrix.
pub enum Matrix {
    /// `[experts][hidden]` f32.
    F32(Slice),
    /// `Q8_0` planes of the same shape.
    Q8(Planes),
}

/// The constants for a device. A row takes a subgroup; there are few rows, so workgroups are small: four
/// subgroups, twice as many where they are large and each has to bring in many rows of the batch. Rows of the batch
/// share 16 KiB of shared memory, or 32 where there is plenty: every block costs a wait for memory.
fn select(
    sizes: &Sizes,
    rows: u32,
    (x_order, values): (Order, Values),
    caps: &Caps,
) -> Result<Constants, String> {
    sizes.check()?;
    let sg = caps.subgroup_size(32);
    if !matches!(rows, 1 | 2 | 4 | 8) || rows > sg {
        return Err(format!("batches of {rows} rows"));
    }
    let (subgroups, most) = if rows > 2 && sg >= 32 { (8, 256) } else { (4, 128) };
    let workgroup = (subgroups * sg).clamp(sg, most.max(sg)).min(caps.workgroup_limit(sg));
    let round = 16 * sg;
    let whole = sizes.hidden.next_multiple_of(round);
    let staged = if caps.limits.shared_bytes > 40 << 10 { 8192 } else { 4096 };
    let block = (staged / rows / round * round).clamp(round, whole);
    Ok(Constants {
        workgroup,
        sg,
        nt: rows,
        k: sizes.hidden,
        experts: sizes.experts,
        shared: sizes.shared_ffn,
        block,
        x_order: x_order.constant(),
        x_i8: u32::from(values == Values::I8),
        // Everything at once where that is a short program.
        ahead: match rows {
            1 | 2 => (whole / round).min(if sg < 32 { 2 } else { 4 }),
            _ => 1,
        },
        used: sizes.used,
    })
}

/// The choice in words.
pub(super) fn describe(sizes: &Sizes, caps: &Caps) -> Result<String, String> {
    let Constants { workgroup, sg, block, .. } =
        select(sizes, 1, (Order::Plain, Values::F32), caps)?;
    Ok(format!("workgroups of {workgroup}, subgroups of {sg}, {block} values staged at a time"))
}

/// The kernels for one shape and batch size.
pub struct Router {
    pipeline: Arc<Pipeline>,
    /// The choice as a dispatch of its own.
    top_k: Option<Arc<Pipeline>>,
    constants: Constants,
    form: Form,
}

/// What the first dispatch reads and writes; shapes at the top of the module.
pub struct RouterIo {
    /// The control block.
    pub control: Slice,
    /// The router's matrix, in the form given to [`Router::new`].
    pub router: Matrix,
    /// The shared expert's gate.
    pub gate: Slice,
    /// Gate and up rows of the shared expert, interleaved.
    pub shared: Planes,
    /// The norm in front.
    pub norm: Norm,
    /// The residual.
    pub h: Slice,
    /// The normalised rows.
    pub x: Slice,
    /// Router logits.
    pub logits: Slice,
    /// Gated product of the shared expert.
    pub shared_mid: Slice,
    /// Weight of the shared expert.
    pub sigma: Slice,
}

/// Where the choice goes.
#[derive(Clone)]
pub struct Choice {
    /// Chosen experts `[rows][used]`, u32.
    pub ids: Slice,
    /// Their weights `[rows][used]`.
    pub route: Slice,
    /// One word that is zero before and after every dispatch. All routers may share it. Its owner clears it once,
    /// and again after a lost device.
    pub counter: Slice,
}

impl Router {
    /// Compiles for batches of `rows`: 1, 2, 4 or 8.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the shape is not possible or the device refuses.
    pub fn new(
        device: &Arc<Device>,
        sizes: &Sizes,
        layout: Layout,
        form: Form,
        rows: u32,
    ) -> Result<Self, Error> {
        let fail = |why: String| Error::Pipeline { name: "router_shared", why };
        let x = (Order::of(layout.gate_up), layout.values);
        let constants = select(sizes, rows, x, device.caps()).map_err(fail)?;
        Self::with(device, form, device.caps().has(Ability::MemoryModel), constants)
    }

    fn with(
        device: &Arc<Device>,
        form: Form,
        fused: bool,
        constants: Constants,
    ) -> Result<Self, Error> {
        let interface = &FORMS[usize::from(form == Form::Q8) + 2 * usize::from(fused)];
        let Constants { sg, experts, used, .. } = constants;
        if fused {
            let pipeline = interface.pipeline(device, &[constants], sg)?;
            return Ok(Self { pipeline, top_k: None, constants, form });
        }
        let words: [u32; 11] = bytemuck::cast(constants);
        let (words, _) = words.split_first_chunk::<10>().expect("eleven constants");
        let pipeline = interface.pipeline(device, &[*words], sg)?;
        let top_k = TOP_K.pipeline(device, &[[sg, sg, experts, used]], sg)?;
        Ok(Self { pipeline, top_k: Some(top_k), constants, form })
    }

    /// Whether [`Self::record`] makes the choice too. Otherwise [`Self::record_choice`] does, one level later.
    pub fn is_fused(&self) -> bool {
        self.top_k.is_none()
    }

    /// Adds the dispatch to the last level of `graph`. The counter has to be an input of the graph.
    ///
    /// # Panics
    /// When a slice does not have the size of its operand.
    pub fn record(&self, graph: &mut Graph, label: &str, io: RouterIo, choice: &Choice) {
        let Constants { nt, k, experts, shared, workgroup, sg, .. } = self.constants;
        let subgroups = workgroup / sg;
        let wide = |n: u32| u64::from(n);
        let (rows, width) = (wide(nt), wide(k));
        let sized = |what: &str, slice: &Slice, bytes: u64| {
            assert_eq!(slice.bytes, bytes, "{label}: bytes of {what}");
        };
        assert!(io.control.bytes >= control_bytes(nt), "{label}: control block");
        sized("gate", &io.gate, width * 4);
        sized("norm weight", &io.norm.weight, width * 4);
        sized("shared codes", &io.shared.codes, 2 * wide(shared) * width);
        sized("shared scales", &io.shared.scales, 2 * wide(shared) * width / 16);
        sized("h", &io.h, rows * width * 4);
        sized("x", &io.x, rows * width * 4);
        sized("logits", &io.logits, rows * wide(experts) * 4);
        sized("shared_mid", &io.shared_mid, rows * wide(shared) * 4);
        sized("sigma", &io.sigma, rows * 4);
        let (matrix, scales, router_bytes) = match (io.router, self.form) {
            (Matrix::F32(matrix), Form::F32) => (matrix, None, wide(experts) * width * 4),
            (Matrix::Q8(planes), Form::Q8) => {
                sized("router scales", &planes.scales, wide(experts) * width / 16);
                (planes.codes, Some(planes.scales), wide(experts) * width)
            }
            _ => panic!("{label}: the router's matrix is in another form"),
        };
        sized("router", &matrix, router_bytes);
        // The shared gate is one row more, or has a workgroup of its own.
        let router_groups = match self.form {
            Form::F32 => (experts + 1).div_ceil(subgroups),
            Form::Q8 => experts.div_ceil(subgroups) + 1,
        };
        let partials = u32::try_from(io.norm.squares.bytes / 4 / rows).expect("few partial sums");
        let push = Push { partials, eps: io.norm.eps, router_groups };
        let mut slices = vec![
            io.control,
            matrix,
            io.gate,
            io.h,
            io.logits,
            io.norm.squares,
            io.norm.weight,
            io.shared.codes,
            io.shared.scales,
            io.x,
            io.shared_mid,
            io.sigma,
        ];
        slices.extend(scales);
        if self.is_fused() {
            self.check_choice(label, choice);
            // What the last workgroup reads of the logits is what this dispatch wrote.
            graph.input(&slices[4]);
            slices.extend([&choice.counter, &choice.ids, &choice.route].map(Slice::clone));
        }
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices,
            push: bytemuck::bytes_of(&push).to_vec(),
            grid: [router_groups + shared.div_ceil(subgroups), 1, 1].into(),
            cost: Cost {
                bytes: router_bytes + 2 * wide(shared) * width * 34 / 32,
                flops: 2 * rows * width * wide(experts + 1 + 2 * shared),
            },
        });
    }

    /// Where [`Self::is_fused`] says no: adds the choice to the last level of `graph`, which comes after
    /// [`Self::record`]'s.
    ///
    /// # Panics
    /// When the choice is fused, or a slice does not have the size of its operand.
    pub fn record_choice(
        &self,
        graph: &mut Graph,
        label: &str,
        (control, logits): (Slice, Slice),
        choice: &Choice,
    ) {
        self.check_choice(label, choice);
        let Constants { nt, experts, .. } = self.constants;
        assert_eq!(logits.bytes, u64::from(nt) * u64::from(experts) * 4, "{label}: logits");
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(self.top_k.as_ref().expect("the caller asked is_fused")),
            slices: vec![control, logits, choice.ids.clone(), choice.route.clone()],
            push: Vec::new(),
            grid: [nt, 1, 1].into(),
            cost: Cost::default(),
        });
    }

    fn check_choice(&self, label: &str, choice: &Choice) {
        let bytes = u64::from(self.constants.nt) * u64::from(self.constants.used) * 4;
        assert_eq!((choice.ids.bytes, choice.route.bytes), (bytes, bytes), "{label}: choice");
        assert_eq!(choice.counter.bytes, 4, "{label}: counter");
    }
}

/// Bytes of a control block.
pub(super) fn control_bytes(rows: u32) -> u64 {
    u64::from(rows) * size_of::<Row>() as u64
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod timing;
