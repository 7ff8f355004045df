//! One decode step of the gated DeltaNet mixer between its two projections (model.md 3.3, steps 2 to 8), for `rows`
//! sequences at once. For value head `h` with key head `h mod key_heads`:
//!
//! ```text
//! q, k, v = silu(conv of the ring rows of positions pos-3 to pos);  q, k L2-normalised, q / sqrt(128)
//! S <- decay S;  d = beta (v - S^T k);  S <- S + k d^T;  o = S^T q
//! y = o / sqrt(mean(o^2) + eps) * norm * z
//! ```
//!
//! | operand | shape, f32 |
//! |---|---|
//! | `taps` | `[channels][4]`, oldest tap first |
//! | `norm` | `[128]` |
//! | `ring` | `[slots][4][channels]`, the raw row of position p at p mod 4 |
//! | `state` | `[slots][value_heads][128 of the key][128 of the value]` |
//! | `decay`, `beta` | `[rows][value_heads]`: the factor in (0, 1], and the write strength after its sigmoid |
//! | `z` | `[rows][inner]`, after its SiLU |
//! | `y` | `[rows][y_stride]` |
//!
//! A step reads the source slot of its row and writes the target slot; both may be one. The newest ring row is in the
//! target slot already. Where the slots differ, the two ring rows that the next step needs besides it are copied, so
//! the target is complete. A row's bits depend on the row alone; idle rows write nothing.

use super::registry::Interface;
use crate::vulkan::{Binding, Caps, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

/// What `recurrent/rec_core.comp` declares.
pub const REC_CORE: Interface = Interface {
    variant: "rec_core",
    bindings: &[
        Binding::read(0),
        Binding::read(1),
        Binding::read(2),
        Binding::update(3),
        Binding::write(4),
        Binding::update(5),
        Binding::read(6),
        Binding::read(7),
        Binding::read(8),
    ],
    push_bytes: size_of::<Push>(),
    constants: &["workgroup", "SG", "PARTS", "KEY_HEADS", "VALUE_HEADS", "Y_STRIDE"],
};

/// Channels of a head, of keys and of values.
pub const HEAD: u32 = 128;
/// Rows of the convolution.
pub const TAPS: u32 = 4;

/// The heads of a recurrent layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Query and key heads.
    pub key: u32,
    /// Value heads, a multiple of the key heads.
    pub value: u32,
}

impl Heads {
    /// Channels of the convolution: queries, keys, values.
    pub fn channels(self) -> u32 {
        (2 * self.key + self.value) * HEAD
    }

    /// Width of the values.
    pub fn inner(self) -> u32 {
        self.value * HEAD
    }

    /// Bytes of the state of a slot.
    pub fn state_bytes(self) -> u64 {
        u64::from(self.value) * u64::from(HEAD * HEAD) * 4
    }

    /// Bytes of the ring of a slot.
    pub fn ring_bytes(self) -> u64 {
        u64::from(TAPS * self.channels()) * 4
    }

    pub(super) fn check(self) -> Result<(), String> {
        let Self { key, value } = self;
        if key == 0 || value == 0 || !value.is_multiple_of(key) {
            return Err(format!("{value} value heads for {key} key heads, expected a multiple"));
        }
        Ok(())
    }
}

/// Builds the pipeline of an interface.
pub(super) fn compile(
    device: &Arc<Device>,
    interface: &'static Interface,
    constants: &[u32],
    subgroup: u32,
) -> Result<Arc<Pipeline>, Error> {
    let name = interface.variant;
    let missing = || Error::Pipeline { name, why: "not in this build".to_owned() };
    Pipeline::new(device, interface.program().ok_or_else(missing)?, constants, subgroup)
}

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
    /// Shares of the rows of a column.
    parts: u32,
    key_heads: u32,
    value_heads: u32,
    y_stride: u32,
}

/// The constants for these heads on a device.
///
/// Four parts keep 32 loads of each of 512 invocations in flight, the whole state of a head; the limit of some
/// devices is 256 invocations.
fn select(heads: Heads, y_stride: u32, caps: &Caps) -> Result<Constants, String> {
    heads.check()?;
    if y_stride < heads.inner() {
        return Err(format!("rows of {y_stride} values for {} of y", heads.inner()));
    }
    let sg = caps.subgroup_size(32);
    let limit = caps.workgroup_limit(sg);
    let parts = [4, 2, 1].into_iter().find(|p| p * HEAD <= limit);
    let parts = parts.ok_or_else(|| format!("workgroups of {limit}, {HEAD} are needed"))?;
    if sg > HEAD {
        return Err(format!("subgroups of {sg}, at most {HEAD} are possible"));
    }
    let (key_heads, value_heads) = (heads.key, heads.value);
    Ok(Constants { workgroup: parts * HEAD, sg, parts, key_heads, value_heads, y_stride })
}

/// The choice in words.
pub(super) fn describe(heads: Heads, caps: &Caps) -> Result<String, String> {
    let Constants { workgroup, sg, parts, .. } = select(heads, heads.inner(), caps)?;
    Ok(format!("workgroups of {workgroup}, subgroups of {sg}, columns in {parts} parts"))
}

/// The kernel for one layer shape.
pub struct RecCore {
    pipeline: Arc<Pipeline>,
    heads: Heads,
    y_stride: u32,
}

/// What a dispatch reads and writes; shapes above.
pub struct RecCoreIo {
    /// Control block, a record for each row.
    pub control: Slice,
    /// Convolution weights.
    pub taps: Slice,
    /// Head norm weight.
    pub norm: Slice,
    /// Raw convolution rows of all slots.
    pub ring: Slice,
    /// States of all slots.
    pub state: Slice,
    /// Output gate.
    pub z: Slice,
    /// Decay factors.
    pub decay: Slice,
    /// Write strengths.
    pub beta: Slice,
    /// Output.
    pub y: Slice,
}

impl RecCore {
    /// Compiles the kernel; `y_stride` values lie between the rows of `y`.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the shape is not possible or the device refuses.
    pub fn new(device: &Arc<Device>, heads: Heads, y_stride: u32) -> Result<Self, Error> {
        let name = REC_CORE.variant;
        let fail = |why| Error::Pipeline { name, why };
        let constants = select(heads, y_stride, device.caps()).map_err(fail)?;
        Self::with(device, constants)
    }

    fn with(device: &Arc<Device>, constants: Constants) -> Result<Self, Error> {
        let values = bytemuck::cast_slice(std::slice::from_ref(&constants));
        let pipeline = compile(device, &REC_CORE, values, constants.sg)?;
        let heads = Heads { key: constants.key_heads, value: constants.value_heads };
        Ok(Self { pipeline, heads, y_stride: constants.y_stride })
    }

    /// Adds the step of `rows` rows to the last level of `graph`; `eps` is the head norm's.
    ///
    /// # Panics
    /// When a slice does not have the size of its operand.
    pub fn record(&self, graph: &mut Graph, label: &str, rows: u32, eps: f32, io: RecCoreIo) {
        let (heads, n) = (self.heads, u64::from(rows));
        assert_eq!(io.taps.bytes, heads.ring_bytes(), "{label}: taps");
        assert_eq!(io.norm.bytes, u64::from(HEAD) * 4, "{label}: norm");
        assert!(io.ring.bytes.is_multiple_of(heads.ring_bytes()), "{label}: ring");
        assert!(io.state.bytes.is_multiple_of(heads.state_bytes()), "{label}: state");
        assert_eq!(io.z.bytes, n * u64::from(heads.inner()) * 4, "{label}: z");
        assert_eq!(io.decay.bytes, n * u64::from(heads.value) * 4, "{label}: decay");
        assert_eq!(io.beta.bytes, io.decay.bytes, "{label}: beta");
        assert_eq!(io.y.bytes, n * u64::from(self.y_stride) * 4, "{label}: y");
        let RecCoreIo { control, taps, norm, ring, state, z, decay, beta, y } = io;
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices: vec![control, taps, norm, ring, y, state, z, decay, beta],
            push: bytemuck::bytes_of(&Push { eps }).to_vec(),
            grid: [heads.value, rows, 1].into(),
            // The state is read and written; an element takes a product and three multiply-adds.
            cost: Cost {
                bytes: n * 2 * heads.state_bytes(),
                flops: n * heads.state_bytes() / 4 * 7,
            },
        });
    }
}

#[cfg(test)]
pub(super) mod fixture;
#[cfg(test)]
mod tests;
