//! Decode attention: one query position of each row, over the row's pages, in spans that are merged
//! (vulkan.md 3.8).
//!
//! ```text
//! q[h], k      = rotate(rms_norm(q or k) * norm weight, pos)     from proj[row], as in module `rope`
//! page[pos]    = quantised k and v
//! s[j]         = q[h] k[j] / 16             j = 0 ..= pos, quantised values throughout
//! y[row][h]    = softmax(s) v * sigmoid(gate[h])
//! ```
//!
//! Two dispatches. `split`: a workgroup takes the keys `s * span .. (s + 1) * span` of a KV head of a row, for all its
//! query heads, and leaves weighted values, the maximum (times log2 e) and the sum of weights; workgroups past the
//! end write nothing. `reduce` merges them in order. [`span`] depends on the row's own length only, hence so do its bits.

use super::control::PAGE_ROWS;
use super::kv::{HEAD_DIM, HEAD_VALUES, KvPlanes, Side};
use super::mode::{AttentionPath as Path, Mode};
use super::registry::Interface;
use super::rope::{AttentionShape, WORKGROUP, subgroup};
use crate::vulkan::{Ability, Binding, Caps, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

/// What `attention/split.comp` declares.
pub const SPLIT: Interface = Interface {
    variant: "attn_split",
    bindings: SPLIT_BINDINGS,
    push_bytes: size_of::<SplitPush>(),
    constants: &["workgroup", "SG", "H", "KV_HEADS", "PAIRS", "K_TYPE", "V_TYPE"],
};

/// What `attention/split_matrix.comp` declares.
pub const SPLIT_MATRIX: Interface = Interface {
    variant: "attn_split_matrix",
    bindings: SPLIT_BINDINGS,
    push_bytes: size_of::<SplitPush>(),
    constants: &["workgroup", "SG", "H", "KV_HEADS", "PAIRS", "K_TYPE", "V_TYPE", "M", "KEYS"],
};

const SPLIT_BINDINGS: &[Binding] = &[
    Binding::read(0),
    Binding::update(1),
    Binding::update(2),
    Binding::read(3),
    Binding::write(4),
    Binding::update(5),
    Binding::update(6),
    Binding::read(7),
    Binding::read(8),
    Binding::read(9),
    Binding::write(10),
];

/// What `attention/reduce.comp` declares.
pub const REDUCE: Interface = Interface {
    variant: "attn_reduce",
    bindings: &[
        Binding::read(0),
        Binding::read(3),
        Binding::write(4),
        Binding::read(5),
        Binding::read(6),
    ],
    push_bytes: size_of::<ReducePush>(),
    constants: &["workgroup", "SG", "H", "KV_HEADS", "SPLITS"],
};

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct SplitPush {
    stride: u32,
    eps: f32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct ReducePush {
    stride: u32,
    y_stride: u32,
}

const _: () = assert!(size_of::<SplitPush>() == 8 && size_of::<ReducePush>() == 8);

/// Specialization constants of [`SPLIT`], and the first ones of [`SPLIT_MATRIX`], in the order of their ids.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
struct SplitConstants {
    workgroup: u32,
    sg: u32,
    /// Query heads of a KV head.
    group: u32,
    kv_heads: u32,
    pairs: u32,
    k_type: u32,
    v_type: u32,
}

/// The other specialization constants of [`SPLIT_MATRIX`].
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
struct MatrixConstants {
    common: SplitConstants,
    /// Rows, columns and depth of a matrix.
    m: u32,
    /// Keys at a time.
    keys: u32,
}

/// Specialization constants of [`REDUCE`], in the order of their ids.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
struct ReduceConstants {
    workgroup: u32,
    sg: u32,
    group: u32,
    kv_heads: u32,
    splits: u32,
}

/// Most splits of a row: beyond that, merging costs more than it gains.
pub const MAX_SPLITS: u32 = 256;

/// The path of a mode on a device.
pub fn path(shape: &AttentionShape, mode: Mode, caps: &Caps) -> Path {
    Path::of(mode, select_matrix(shape, caps).is_ok())
}

/// Keys of a split for a row of `n_kv` keys (the new one included): whole pages, so that short rows have few splits
/// and not tiny ones.
pub fn span(n_kv: u32, splits: u32) -> u32 {
    n_kv.div_ceil(splits).next_multiple_of(PAGE_ROWS).max(PAGE_ROWS)
}

/// Splits on a device: about two workgroups for each compute unit, all KV heads together, when a single row is
/// long.
pub fn splits(kv_heads: u32, caps: &Caps) -> u32 {
    (2 * caps.compute_units.unwrap_or(32)).div_ceil(kv_heads.max(1)).clamp(8, MAX_SPLITS)
}

/// Bytes of the maximum and the sum of a head in a split.
const STATS_BYTES: u64 = 8;

/// Bytes of what all splits of a row leave, where there are so many as [`splits`] says.
pub fn row_bytes(heads: u32, kv_heads: u32, caps: &Caps) -> u64 {
    let each = HEAD_DIM as u64 * 4 + STATS_BYTES;
    u64::from(splits(kv_heads, caps)) * u64::from(heads) * each
}

fn select(shape: &AttentionShape, caps: &Caps) -> Result<SplitConstants, String> {
    Ok(SplitConstants {
        workgroup: WORKGROUP,
        sg: subgroup(caps, 32)?,
        group: shape.group()?,
        kv_heads: shape.kv_heads(),
        pairs: shape.pairs()?,
        k_type: shape.kv.keys as u32,
        v_type: shape.kv.values as u32,
    })
}

/// Matrices of 16, of which the heads are up to eight rows, and a page at a time.
fn select_matrix(shape: &AttentionShape, caps: &Caps) -> Result<MatrixConstants, String> {
    let constants = MatrixConstants { common: select(shape, caps)?, m: 16, keys: 64 };
    if !caps.has(Ability::Matrix) || constants.common.sg != 32 {
        return Err("no matrix units with subgroups of 32".to_owned());
    }
    if !constants.common.pairs.is_multiple_of(32) {
        return Err(format!("{} rotated pairs, not a multiple of 32", constants.common.pairs));
    }
    let (shared, limit) = (constants.shared_bytes(), caps.limits.shared_bytes);
    if shared > limit {
        return Err(format!("{shared} bytes of shared memory, the device allows {limit}"));
    }
    Ok(constants)
}

impl MatrixConstants {
    /// What the shader declares: tile; scores or queries; weights; factors; the new row; slots of the reductions.
    fn shared_bytes(self) -> u32 {
        let (m, keys, row) = (self.m, self.keys, HEAD_VALUES / 8 + 1);
        let scores = m * (2 * (keys / 4 + 1)).max(row);
        16 * (keys * row + scores + m * (keys / 8 + 1) + m * m / 4) + 1088 + 128
    }
}

/// The choice for a shape in words.
pub(super) fn describe(shape: &AttentionShape, caps: &Caps) -> Result<String, String> {
    let common = select(shape, caps)?;
    let (splits, workgroup) = (splits(common.kv_heads, caps), common.workgroup);
    let how = match select_matrix(shape, caps) {
        Ok(c) => format!("matrices of {}, {} keys at a time", c.m, c.keys),
        Err(_) => format!("subgroups of {}, f32", common.sg),
    };
    Ok(format!("{splits} splits, workgroups of {workgroup}, {how}"))
}

/// Both kernels, for one shape.
pub struct Attention {
    split: Arc<Pipeline>,
    reduce: Arc<Pipeline>,
    shape: AttentionShape,
    splits: u32,
}

/// What is shared by the dispatches of a layer.
#[derive(Clone)]
pub struct AttentionIo {
    /// The control block.
    pub control: Slice,
    /// Projections `[rows][stride]` f32.
    pub proj: Slice,
    /// Values of a row of `proj`, a multiple of 4.
    pub stride: u32,
    /// [`Attention::values_bytes`] of scratch.
    pub values: Slice,
    /// [`Attention::stats_bytes`] of scratch.
    pub stats: Slice,
}

/// What `split` reads and writes besides.
pub struct SplitIo {
    /// K of the layer.
    pub keys: KvPlanes,
    /// V of the layer.
    pub values: KvPlanes,
    /// [`super::rope::table`].
    pub rope: Slice,
    /// Weight of the query norm `[256]`.
    pub q_norm: Slice,
    /// Weight of the key norm `[256]`.
    pub k_norm: Slice,
}

impl Attention {
    /// Compiles both kernels. `splits` is [`splits`] unless a test wants another.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the shape is not possible or the device refuses.
    pub fn new(
        device: &Arc<Device>,
        shape: AttentionShape,
        splits: u32,
        path: Path,
    ) -> Result<Self, Error> {
        let caps = device.caps();
        match path {
            Path::F32 => {
                let fail = |why| Error::Pipeline { name: SPLIT.variant, why };
                let constants = select(&shape, caps).map_err(fail)?;
                let words = [constants];
                let split = build(device, &SPLIT, bytemuck::cast_slice(&words), constants.sg)?;
                Self::with(device, shape, splits, (split, constants))
            }
            Path::Matrix => {
                let fail = |why| Error::Pipeline { name: SPLIT_MATRIX.variant, why };
                Self::matrix(device, shape, splits, select_matrix(&shape, caps).map_err(fail)?)
            }
        }
    }

    fn matrix(
        device: &Arc<Device>,
        shape: AttentionShape,
        splits: u32,
        constants: MatrixConstants,
    ) -> Result<Self, Error> {
        let words = [constants];
        let common = constants.common;
        let split = build(device, &SPLIT_MATRIX, bytemuck::cast_slice(&words), common.sg)?;
        Self::with(device, shape, splits, (split, common))
    }

    fn with(
        device: &Arc<Device>,
        shape: AttentionShape,
        splits: u32,
        (split, constants): (Arc<Pipeline>, SplitConstants),
    ) -> Result<Self, Error> {
        if !(1..=MAX_SPLITS).contains(&splits) {
            let why = format!("{splits} splits, at most {MAX_SPLITS}");
            return Err(Error::Pipeline { name: REDUCE.variant, why });
        }
        let SplitConstants { workgroup, sg, group, kv_heads, .. } = constants;
        let merge = [ReduceConstants { workgroup, sg, group, kv_heads, splits }];
        let reduce = build(device, &REDUCE, bytemuck::cast_slice(&merge), sg)?;
        Ok(Self { split, reduce, shape, splits })
    }

    /// Splits of a row, for [`span`].
    pub fn splits(&self) -> u32 {
        self.splits
    }

    /// Bytes of the weighted values of all splits of so many rows.
    pub fn values_bytes(&self, rows: u32) -> u64 {
        self.stats_bytes(rows) / STATS_BYTES * HEAD_DIM as u64 * 4
    }

    /// Bytes of the maxima and sums of all splits of so many rows.
    pub fn stats_bytes(&self, rows: u32) -> u64 {
        u64::from(rows) * u64::from(self.splits) * u64::from(self.shape.heads) * STATS_BYTES
    }

    /// Adds the first dispatch, for `rows` rows of the control block, to the last level of `graph`. Its cost is that
    /// of rows of `keys` keys.
    ///
    /// # Panics
    /// When a slice does not have the size of its operand.
    pub fn record_split(
        &self,
        graph: &mut Graph,
        label: &str,
        (rows, keys): (u32, u32),
        io: &AttentionIo,
        split: SplitIo,
    ) {
        self.check(label, rows, io);
        let kv = self.shape.kv;
        let row = (kv.row_bytes(Side::Keys) + kv.row_bytes(Side::Values)) as u64;
        let each = u64::from(rows) * u64::from(keys);
        let push = SplitPush { stride: io.stride, eps: self.shape.eps };
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.split),
            slices: vec![
                io.control.clone(),
                split.keys.codes,
                split.values.codes,
                io.proj.clone(),
                io.values.clone(),
                split.keys.scales,
                split.values.scales,
                split.rope,
                split.q_norm,
                split.k_norm,
                io.stats.clone(),
            ],
            push: bytemuck::bytes_of(&push).to_vec(),
            grid: [self.splits, self.shape.kv_heads(), rows].into(),
            cost: Cost { bytes: each * row, flops: each * u64::from(self.shape.query_width()) * 4 },
        });
    }

    /// Adds the second dispatch: `y` is `[rows][y_stride]` f32, of which the first `query_width` values are written.
    ///
    /// # Panics
    /// As [`Attention::record_split`].
    pub fn record_reduce(
        &self,
        graph: &mut Graph,
        label: &str,
        rows: u32,
        io: &AttentionIo,
        (y, y_stride): (Slice, u32),
    ) {
        self.check(label, rows, io);
        assert!(y_stride >= self.shape.query_width(), "{label}: output of {y_stride}");
        assert!(y_stride.is_multiple_of(4), "{label}: output of {y_stride}");
        assert_eq!(y.bytes, u64::from(rows) * u64::from(y_stride) * 4, "{label}: output");
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.reduce),
            slices: vec![
                io.control.clone(),
                io.values.clone(),
                y,
                io.stats.clone(),
                io.proj.clone(),
            ],
            push: bytemuck::bytes_of(&ReducePush { stride: io.stride, y_stride }).to_vec(),
            grid: [self.shape.heads * 4, rows, 1].into(),
            cost: Cost::default(),
        });
    }

    fn check(&self, label: &str, rows: u32, io: &AttentionIo) {
        assert!(io.stride >= self.shape.projection_width(), "{label}: stride {}", io.stride);
        assert!(io.stride.is_multiple_of(4), "{label}: stride {}", io.stride);
        let bytes = u64::from(rows) * u64::from(io.stride) * 4;
        assert_eq!(io.proj.bytes, bytes, "{label}: projections");
        assert_eq!(io.values.bytes, self.values_bytes(rows), "{label}: weighted values");
        assert_eq!(io.stats.bytes, self.stats_bytes(rows), "{label}: maxima and sums");
    }
}

fn build(
    device: &Arc<Device>,
    interface: &'static Interface,
    constants: &[u32],
    subgroup: u32,
) -> Result<Arc<Pipeline>, Error> {
    let missing =
        || Error::Pipeline { name: interface.variant, why: "not in this build".to_owned() };
    Pipeline::new(device, interface.program().ok_or_else(missing)?, constants, subgroup)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod timing;
