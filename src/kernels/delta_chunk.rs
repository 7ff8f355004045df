//! The gated delta rule over a chunk of prompt tokens in its WY form (model.md 3.5), blocks of 64 tokens: products of
//! tiles instead of one token after the other. For a block with tokens t, state S before it, and
//! the sum G of its log decays g up to a token:
//!
//! ```text
//! prep, all blocks at once:  M_ts = beta_t e^(G_t - G_s) (k_t . k_s), s < t        T = (I + M)^-1 diag(beta)
//!                            A_ts = e^(G_t - G_s) (q_t . k_s), s <= t
//! scan, block after block:   R = T (V - e^G K S)                                   row t is the d of token t
//!                            O = e^G Q S + A R
//!                            S <- e^(G_64) S + (e^(G_64 - G) K)^T R
//! ```
//!
//! Every exponent is at most 0. T is applied to the difference, so U and W of the usual form are never made: what
//! passes from `prep` to `scan` is two triangles and scaled copies of keys and queries. The inverse is in f32, by tiles:
//! forward substitution on the diagonal, products below.
//!
//! | operand | shape; "el" is f16 with matrix units, else f32 |
//! |---|---|
//! | `conv` | el `[class][channels]` of [`super::conv`], zero rows from the last token to a multiple of 64 |
//! | `log_decay`, `beta` | f32 `[class][value_heads]` of [`super::gates`] |
//! | `scratch`, `tails` | [`DeltaChunk::scratch_bytes`] and [`DeltaChunk::tail_bytes`], from `prep` to `scan` |
//! | `state` | f32 `[slots][value_heads][128][128]`, source and target of `rows[0]` |
//! | `o` | f32 `[class][inner]`; rows up to a multiple of 64 are written |
//!
//! The class is a multiple of 64. States and sums stay f32; with f16 operands results are off by about 1e-3 of the
//! largest value of their head.

use super::mode::Mode;
use super::recurrent::{HEAD, Heads, compile};
use super::registry::Interface;
use crate::vulkan::{Ability, Binding, Caps, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

/// `recurrent/delta_prep.comp` in f32.
pub const PREP_F32: Interface = prep("delta_prep");
/// The same for matrix units.
pub const PREP_MATRIX: Interface = prep("delta_prep_matrix");
/// `recurrent/delta_scan.comp` in f32.
pub const SCAN_F32: Interface = scan("delta_scan", CONSTANTS);
/// The same for matrix units.
pub const SCAN_MATRIX: Interface = scan("delta_scan_matrix", CONSTANTS.split_at(3).0);

/// A subgroup's size is of no concern where all it does is products of matrices: the last one is left out there.
const CONSTANTS: &[&str] = &["workgroup", "KEY_HEADS", "VALUE_HEADS", "SG"];

const fn prep(variant: &'static str) -> Interface {
    const BINDINGS: &[Binding] = &[
        Binding::read(0),
        Binding::read(3),
        Binding::write(4),
        Binding::write(5),
        Binding::read(6),
        Binding::read(7),
    ];
    Interface { variant, bindings: BINDINGS, push_bytes: 0, constants: CONSTANTS }
}

const fn scan(variant: &'static str, constants: &'static [&'static str]) -> Interface {
    const BINDINGS: &[Binding] = &[
        Binding::read(0),
        Binding::read(3),
        Binding::write(4),
        Binding::read(5),
        Binding::read(6),
        Binding::update(7),
    ];
    Interface { variant, bindings: BINDINGS, push_bytes: 0, constants }
}

/// Tokens of a block.
pub const BLOCK: u32 = 64;
/// Columns of the state of a workgroup of `scan`.
const COLUMNS: u32 = 32;
/// Subgroups of a workgroup: one for each tile row of a state.
const SUBGROUPS: u32 = 8;
/// Values that `prep` hands over for a block and head: three matrices, and two triangles of ten tiles.
const UNIT: u32 = 3 * BLOCK * HEAD + 2 * 10 * 256;

/// Specialization constants, in the order of their ids.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
struct Constants {
    workgroup: u32,
    key_heads: u32,
    value_heads: u32,
    sg: u32,
}

/// The type of the operands of products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operands {
    /// f32, without matrix units: for tests and comparisons, [`super::delta`] is faster.
    F32,
    /// f16 on matrix units.
    Matrix,
}

impl Operands {
    /// What a device should use; `None` is [`super::delta`].
    pub fn preferred(caps: &Caps, mode: Mode) -> Option<Self> {
        let able = caps.has(Ability::Matrix) && caps.has(Ability::MemoryModel);
        (mode == Mode::Fast && able).then_some(Self::Matrix)
    }

    /// Bytes of an operand.
    pub fn bytes(self) -> u32 {
        match self {
            Self::F32 => 4,
            Self::Matrix => 2,
        }
    }
}

fn select(heads: Heads, caps: &Caps) -> Result<Constants, String> {
    heads.check()?;
    let sg = caps.subgroup_size(32);
    if !(8..=64).contains(&sg) {
        return Err(format!("subgroups of {sg}, 8 to 64 are possible"));
    }
    let (key_heads, value_heads) = (heads.key, heads.value);
    Ok(Constants { workgroup: SUBGROUPS * sg, key_heads, value_heads, sg })
}

/// Both kernels for one layer shape.
pub struct DeltaChunk {
    prep: Arc<Pipeline>,
    scan: Arc<Pipeline>,
    heads: Heads,
    operands: Operands,
}

/// What `prep` reads and writes; shapes above.
pub struct PrepIo {
    /// Control block.
    pub control: Slice,
    /// Queries, keys and values.
    pub conv: Slice,
    /// Log decays.
    pub log_decay: Slice,
    /// Write strengths.
    pub beta: Slice,
    /// For `scan`.
    pub scratch: Slice,
    /// For `scan`.
    pub tails: Slice,
}

/// What `scan` reads and writes; shapes above.
pub struct ScanIo {
    /// Control block.
    pub control: Slice,
    /// Queries, keys and values.
    pub conv: Slice,
    /// Of `prep`.
    pub scratch: Slice,
    /// Of `prep`.
    pub tails: Slice,
    /// States of all slots.
    pub state: Slice,
    /// Results.
    pub o: Slice,
}

impl DeltaChunk {
    /// Compiles both kernels.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the shape is not possible or the device refuses.
    pub fn new(device: &Arc<Device>, heads: Heads, operands: Operands) -> Result<Self, Error> {
        let (prep, scan) = match operands {
            Operands::F32 => (&PREP_F32, &SCAN_F32),
            Operands::Matrix => (&PREP_MATRIX, &SCAN_MATRIX),
        };
        let fail = |why| Error::Pipeline { name: scan.variant, why };
        let constants = select(heads, device.caps()).map_err(fail)?;
        let values = bytemuck::cast_slice(std::slice::from_ref(&constants));
        let prep = compile(device, prep, values, constants.sg)?;
        let scan = compile(device, scan, values, constants.sg)?;
        Ok(Self { prep, scan, heads, operands })
    }

    /// Bytes of `scratch` for a class.
    pub fn scratch_bytes(&self, class: u32) -> u64 {
        self.units(class) * u64::from(UNIT * self.operands.bytes())
    }

    /// Bytes of `tails` for a class.
    pub fn tail_bytes(&self, class: u32) -> u64 {
        self.units(class) * 4
    }

    /// Blocks of all heads.
    fn units(&self, class: u32) -> u64 {
        u64::from(class.div_ceil(BLOCK)) * u64::from(self.heads.value)
    }

    /// Multiplications and additions of products over `depth` for every token and head, whole tiles counted.
    fn flops(&self, class: u32, depth: u32) -> u64 {
        2 * self.units(class) * u64::from(BLOCK) * u64::from(depth)
    }

    fn check(&self, label: &str, class: u32, conv: &Slice, scratch: &Slice, tails: &Slice) {
        assert!(class.is_multiple_of(BLOCK), "{label}: a class of {class}");
        let rows = u64::from(class) * u64::from(self.heads.channels());
        assert_eq!(conv.bytes, rows * u64::from(self.operands.bytes()), "{label}: conv");
        assert_eq!(scratch.bytes, self.scratch_bytes(class), "{label}: scratch");
        assert_eq!(tails.bytes, self.tail_bytes(class), "{label}: tails");
    }

    /// Adds the first half for up to `class` tokens to the last level of `graph`.
    ///
    /// # Panics
    /// When a slice does not have the size of its operand.
    pub fn record_prep(&self, graph: &mut Graph, label: &str, class: u32, io: PrepIo) {
        self.check(label, class, &io.conv, &io.scratch, &io.tails);
        let gates = u64::from(class * self.heads.value) * 4;
        assert_eq!((io.log_decay.bytes, io.beta.bytes), (gates, gates), "{label}: gates");
        let PrepIo { control, conv, log_decay, beta, scratch, tails } = io;
        let bytes = conv.bytes + 2 * gates + scratch.bytes;
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.prep),
            slices: vec![control, conv, scratch, tails, log_decay, beta],
            push: Vec::new(),
            grid: [class / BLOCK, self.heads.value, 1].into(),
            // Two triangles of products, 40 of 64 columns on average.
            cost: Cost { bytes, flops: self.flops(class, 2 * 40 * HEAD) },
        });
    }

    /// Adds the second half, which needs a level of its own after the first.
    ///
    /// # Panics
    /// When a slice does not have the size of its operand.
    pub fn record_scan(&self, graph: &mut Graph, label: &str, class: u32, io: ScanIo) {
        self.check(label, class, &io.conv, &io.scratch, &io.tails);
        let heads = self.heads;
        assert!(io.state.bytes.is_multiple_of(heads.state_bytes()), "{label}: state");
        let ScanIo { control, conv, scratch, tails, state, o } = io;
        assert_eq!(o.bytes, u64::from(class * heads.inner()) * 4, "{label}: o");
        let bytes = scratch.bytes + conv.bytes / 2 + o.bytes + 2 * heads.state_bytes();
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.scan),
            slices: vec![control, conv, o, tails, scratch, state],
            push: Vec::new(),
            grid: [heads.value, HEAD / COLUMNS, 1].into(),
            // K S, Q S and the update, and two triangles.
            cost: Cost { bytes, flops: self.flops(class, 3 * HEAD * HEAD + 2 * 40 * HEAD) },
        });
    }
}

#[cfg(test)]
mod tests;
