//! Rotation on the device: the tables, and the prefill kernel that normalises, rotates and stores.
//!
//! Tables: those of [`RopeTable`], so that CPU and GPU rotate by the same numbers. One buffer of (cosine, sine)
//! pairs: 512 rows for the position mod 512, then a row for each multiple of 512.
//!
//! [`RopeKv`], for `n` tokens of one session (`rows[0].tokens`, from `rows[0].pos` on) and their projections `proj[n][stride]`:
//!
//! ```text
//! row of proj   q and gate of head 0, q and gate of head 1, ... (256 values each) | k heads | v heads
//! q[t][h]     = rotate(rms_norm(q) * q_norm, pos + t) / 16       f32, or f16 for matrix units
//! K page      = quantised rotate(rms_norm(k) * k_norm, pos + t)
//! V page      = quantised v
//! ```
//!
//! 1/16 is the scale of the scores, 256^(-1/2); as a power of two it rounds nothing, and in f16 it keeps block sums in
//! range (vulkan.md 3.8).

use super::kv::{HEAD_DIM, HEAD_VALUES, KvLayout, KvPlanes};
use super::mode::AttentionPath as Path;
use super::registry::Interface;
use crate::ops::RopeTable;
use crate::vulkan::{Binding, Caps, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

/// Positions of the low table, and the step of the high one.
const SPLIT: usize = 512;

/// The bytes of the table buffer for positions below `context`.
pub fn table(context: usize, dims: usize, base: f32) -> Vec<[f32; 2]> {
    // A context of whole steps, so that the low table has all of its rows.
    let tables = RopeTable::new(context.next_multiple_of(SPLIT).max(SPLIT), dims, base);
    [tables.low(), tables.high()].concat()
}

/// What `attention/rope_kv.comp` declares.
pub const F32: Interface = interface("rope_kv");
/// The same with queries in f16.
pub const F16: Interface = interface("rope_kv_half");

const fn interface(variant: &'static str) -> Interface {
    Interface { variant, bindings: BINDINGS, push_bytes: size_of::<Push>(), constants: CONSTANTS }
}

const BINDINGS: &[Binding] = &[
    Binding::read(0),
    Binding::write(1),
    Binding::write(2),
    Binding::read(3),
    Binding::write(4),
    Binding::write(5),
    Binding::write(6),
    Binding::read(7),
    Binding::read(8),
    Binding::read(9),
];

const CONSTANTS: &[&str] = &["workgroup", "SG", "HEADS", "KV_HEADS", "PAIRS", "K_TYPE", "V_TYPE"];

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Push {
    stride: u32,
    eps: f32,
}

const _: () = assert!(size_of::<Push>() == 8);

/// Specialization constants, in the order of their ids.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
struct Constants {
    workgroup: u32,
    sg: u32,
    heads: u32,
    kv_heads: u32,
    pairs: u32,
    k_type: u32,
    v_type: u32,
}

/// The attention part of a model's shape.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Query heads.
    pub heads: u32,
    /// Rotated values of a head.
    pub rope_dims: u32,
    /// Epsilon of the norms.
    pub eps: f32,
    /// The cache, with the number of KV heads.
    pub kv: KvLayout,
}

impl AttentionShape {
    pub(super) fn kv_heads(&self) -> u32 {
        u32::try_from(self.kv.kv_heads).expect("a handful of heads")
    }

    /// Values of all queries of a token.
    pub fn query_width(&self) -> u32 {
        self.heads * HEAD_VALUES
    }

    /// Values of a row of the projections: queries with gates, keys, values.
    pub fn projection_width(&self) -> u32 {
        2 * self.query_width() + 2 * self.kv_heads() * HEAD_VALUES
    }

    /// Query heads of a KV head, where the kernels can have so many.
    pub(super) fn group(&self) -> Result<u32, String> {
        let (heads, kv_heads) = (self.heads, self.kv_heads());
        if kv_heads == 0 || heads == 0 || !heads.is_multiple_of(kv_heads) || heads / kv_heads > 8 {
            return Err(format!("{heads} query heads on {kv_heads} KV heads, at most 8 on each"));
        }
        Ok(heads / kv_heads)
    }

    pub(super) fn pairs(&self) -> Result<u32, String> {
        let dims = self.rope_dims;
        if dims == 0 || dims % 2 == 1 || dims as usize > HEAD_DIM {
            return Err(format!("{dims} rotated values of {HEAD_DIM}"));
        }
        Ok(dims / 2)
    }
}

/// Invocations of every workgroup here: eight heads of 32.
pub(super) const WORKGROUP: u32 = 256;

/// The subgroup size on a device: a head is 32 invocations, whatever the size.
pub(super) fn subgroup(caps: &Caps, wanted: u32) -> Result<u32, String> {
    let sg = caps.subgroup_size(wanted);
    if caps.workgroup_limit(sg) < WORKGROUP || !(8..=64).contains(&sg) {
        let limit = caps.workgroup_limit(sg);
        return Err(format!("subgroups of {sg} and workgroups up to {limit}"));
    }
    Ok(sg)
}

fn select(shape: &AttentionShape, caps: &Caps) -> Result<Constants, String> {
    shape.group()?;
    Ok(Constants {
        workgroup: WORKGROUP,
        sg: subgroup(caps, 32)?,
        heads: shape.heads,
        kv_heads: shape.kv_heads(),
        pairs: shape.pairs()?,
        k_type: shape.kv.keys as u32,
        v_type: shape.kv.values as u32,
    })
}

/// The prefill kernel in front of attention.
pub struct RopeKv {
    pipeline: Arc<Pipeline>,
    shape: AttentionShape,
    query_bytes: u64,
}

/// What a dispatch reads and writes.
pub struct RopeKvIo {
    /// The control block.
    pub control: Slice,
    /// K of the layer.
    pub keys: KvPlanes,
    /// V of the layer.
    pub values: KvPlanes,
    /// Projections `[n][stride]` f32.
    pub proj: Slice,
    /// Values of a row of `proj`, a multiple of 4.
    pub stride: u32,
    /// Queries `[n][query_width]`, of [`Path::query_bytes`] each.
    pub q: Slice,
    /// [`table`].
    pub rope: Slice,
    /// Weight of the query norm `[256]`.
    pub q_norm: Slice,
    /// Weight of the key norm `[256]`.
    pub k_norm: Slice,
}

impl RopeKv {
    /// Compiles the kernel in front of [`super::flash::Flash`] of the same path.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the shape is not possible or the device refuses.
    pub fn new(device: &Arc<Device>, shape: AttentionShape, path: Path) -> Result<Self, Error> {
        let interface = if path == Path::Matrix { &F16 } else { &F32 };
        let fail = |why: String| Error::Pipeline { name: interface.variant, why };
        let constants = [select(&shape, device.caps()).map_err(fail)?];
        let program = interface.program().ok_or_else(|| fail("not in this build".to_owned()))?;
        let words = bytemuck::cast_slice(&constants);
        let pipeline = Pipeline::new(device, program, words, constants[0].sg)?;
        Ok(Self { pipeline, shape, query_bytes: path.query_bytes() })
    }

    /// Adds the dispatch for a chunk of at most `n` tokens to the last level of `graph`.
    ///
    /// # Panics
    /// When a slice does not have the size of its operand.
    pub fn record(&self, graph: &mut Graph, label: &str, n: u32, io: RopeKvIo) {
        let (rows, width) = (u64::from(n), u64::from(self.shape.query_width()));
        let wide = u64::from(io.stride);
        assert!(io.stride >= self.shape.projection_width(), "{label}: stride {}", io.stride);
        assert_eq!(io.proj.bytes, rows * wide * 4, "{label}: projections");
        assert_eq!(io.q.bytes, rows * width * self.query_bytes, "{label}: queries");
        let groups = self.shape.heads.div_ceil(8) + self.shape.kv_heads().div_ceil(4);
        let row = (self.shape.kv.row_bytes(super::kv::Side::Keys)
            + self.shape.kv.row_bytes(super::kv::Side::Values)) as u64;
        let read = 4 * u64::from(self.shape.projection_width()) - 4 * width;
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices: vec![
                io.control,
                io.keys.codes,
                io.values.codes,
                io.proj,
                io.q,
                io.keys.scales,
                io.values.scales,
                io.rope,
                io.q_norm,
                io.k_norm,
            ],
            push: bytemuck::bytes_of(&Push { stride: io.stride, eps: self.shape.eps }).to_vec(),
            grid: [n, groups, 1].into(),
            cost: Cost {
                bytes: rows * (read + width * self.query_bytes + row),
                flops: rows * width * 8,
            },
        });
    }
}
