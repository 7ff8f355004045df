//! Prefill attention: the queries of a chunk over the pages of its session, causal, with the output gate
//! (vulkan.md 3.9).
//!
//! ```text
//! s[j]      = q[t][h] k[j]                 j = 0 ..= pos + t; q from module `rope`, which has the scale 1/16 in it
//! y[t][h]   = softmax(s) v * sigmoid(gate[t][h])
//! ```
//!
//! `rows[0].query_first` and `query_tokens` say which tokens of the chunk a run computes: long contexts are too much for one
//! submission. Bits of a token do not depend on that, nor on the chunk.

use super::kv::{HEAD_DIM, HEAD_VALUES, KvPlanes};
use super::mode::{AttentionPath as Path, Mode};
use super::registry::Interface;
use super::rope::{AttentionShape, WORKGROUP, subgroup};
use crate::vulkan::{Ability, Binding, Caps, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

/// What `attention/flash.comp` declares.
pub const F32: Interface = Interface {
    variant: "flash",
    bindings: BINDINGS,
    push_bytes: size_of::<Push>(),
    constants: &["workgroup", "H", "KV_HEADS", "K_TYPE", "V_TYPE"],
};

/// What `attention/flash_matrix.comp` declares.
pub const MATRIX: Interface = Interface {
    variant: "flash_matrix",
    bindings: BINDINGS,
    push_bytes: size_of::<Push>(),
    constants: &["workgroup", "SG", "H", "KV_HEADS", "K_TYPE", "V_TYPE", "M", "TILE", "GROUPS"],
};

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

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Push {
    n: u32,
    stride: u32,
    y_stride: u32,
}

const _: () = assert!(size_of::<Push>() == 12);

/// The path of a mode on a device.
pub fn path(shape: &AttentionShape, mode: Mode, caps: &Caps) -> Path {
    Path::of(mode, select_matrix(shape, caps).is_ok())
}

/// Specialization constants of [`F32`], in the order of their ids.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
struct Constants {
    workgroup: u32,
    /// Query heads of a KV head.
    group: u32,
    kv_heads: u32,
    k_type: u32,
    v_type: u32,
}

/// Rows (a token with a head) of a workgroup.
const ROWS: u32 = 64;

fn select(shape: &AttentionShape, caps: &Caps) -> Result<(Constants, u32), String> {
    let constants = Constants {
        workgroup: WORKGROUP,
        group: shape.group()?,
        kv_heads: shape.kv_heads(),
        k_type: shape.kv.keys as u32,
        v_type: shape.kv.values as u32,
    };
    Ok((constants, subgroup(caps, 32)?))
}

/// Specialization constants of [`MATRIX`], in the order of their ids.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
struct MatrixConstants {
    workgroup: u32,
    sg: u32,
    group: u32,
    kv_heads: u32,
    k_type: u32,
    v_type: u32,
    /// Rows, columns and depth of a matrix.
    m: u32,
    /// Keys of a tile.
    tile: u32,
    /// Matrices of tokens of a workgroup.
    groups: u32,
}

impl MatrixConstants {
    /// Eight subgroups, each one query head with `m` tokens. Tiles of 32 keys keep K and V within 34 KiB.
    fn new(shape: &AttentionShape, sg: u32, m: u32, tile: u32) -> Result<Self, String> {
        let group = shape.group()?;
        let groups = 8 / group;
        Ok(Self {
            workgroup: sg * group * groups,
            sg,
            group,
            kv_heads: shape.kv_heads(),
            k_type: shape.kv.keys as u32,
            v_type: shape.kv.values as u32,
            m,
            tile,
            groups,
        })
    }

    /// Whether the device can have workgroups like this.
    fn fits(self, caps: &Caps) -> Result<Self, String> {
        let rows = self.m * (self.m / 4 + 1).max(self.tile / 8 + 1);
        let stage = self.group * self.groups * rows;
        let shared = 16 * (2 * self.tile * (HEAD_VALUES / 8 + 1) + stage);
        let (limit, width) = (caps.limits.shared_bytes, caps.workgroup_limit(self.sg));
        if shared > limit || self.workgroup > width {
            let workgroup = self.workgroup;
            return Err(format!(
                "{shared} bytes of shared memory for {workgroup} invocations, the device allows {limit} and {width}"
            ));
        }
        Ok(self)
    }
}

/// Matrices of 16, whose rows are two invocations of a subgroup of 32.
fn select_matrix(shape: &AttentionShape, caps: &Caps) -> Result<MatrixConstants, String> {
    if !caps.has(Ability::Matrix) || caps.subgroup_size(32) != 32 {
        return Err("no matrix units with subgroups of 32".to_owned());
    }
    MatrixConstants::new(shape, 32, 16, 32)?.fits(caps)
}

/// The choice for a shape in words.
pub(super) fn describe(shape: &AttentionShape, caps: &Caps) -> Result<String, String> {
    if let Ok(c) = select_matrix(shape, caps) {
        return Ok(format!(
            "workgroups of {}, matrices of {}, tiles of {} keys",
            c.workgroup, c.m, c.tile
        ));
    }
    let (constants, subgroup) = select(shape, caps)?;
    Ok(format!("workgroups of {}, subgroups of {subgroup}, f32", constants.workgroup))
}

/// The kernel for one shape.
pub struct Flash {
    pipeline: Arc<Pipeline>,
    shape: AttentionShape,
    path: Path,
    /// Tokens of a workgroup.
    tokens: u32,
    /// Fewest tokens that the buffers must have room for.
    least: u32,
}

/// What a dispatch reads and writes.
pub struct FlashIo {
    /// The control block.
    pub control: Slice,
    /// K of the layer.
    pub keys: KvPlanes,
    /// V of the layer.
    pub values: KvPlanes,
    /// Queries `[n][query_width]`, written by [`super::rope::RopeKv`].
    pub q: Slice,
    /// Projections `[n][stride]` f32, for the gates.
    pub proj: Slice,
    /// Values of a row of `proj`, a multiple of 4.
    pub stride: u32,
    /// Output `[n][y_stride]`, of which the first `query_width` values of a row are written.
    pub y: Slice,
    /// Values of a row of the output, a multiple of 4.
    pub y_stride: u32,
}

impl Flash {
    /// Compiles the kernel.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the shape is not possible or the device refuses.
    pub fn new(device: &Arc<Device>, shape: AttentionShape, path: Path) -> Result<Self, Error> {
        let caps = device.caps();
        match path {
            Path::F32 => {
                let fail = |why| Error::Pipeline { name: F32.variant, why };
                let (constants, subgroup) = select(&shape, caps).map_err(fail)?;
                let tokens = ROWS / constants.group;
                let constants = [constants];
                let words = bytemuck::cast_slice(&constants);
                let pipeline = build(device, &F32, words, subgroup)?;
                Ok(Self { pipeline, shape, path, tokens, least: 1 })
            }
            Path::Matrix => {
                let fail = |why| Error::Pipeline { name: MATRIX.variant, why };
                Self::matrix(device, shape, select_matrix(&shape, caps).map_err(fail)?)
            }
        }
    }

    fn matrix(
        device: &Arc<Device>,
        shape: AttentionShape,
        constants: MatrixConstants,
    ) -> Result<Self, Error> {
        let words = [constants];
        let pipeline = build(device, &MATRIX, bytemuck::cast_slice(&words), constants.sg)?;
        let tokens = constants.m * constants.groups;
        Ok(Self { pipeline, shape, path: Path::Matrix, tokens, least: constants.m })
    }

    /// Adds the dispatch for a chunk of at most `n` tokens to the last level of `graph`. Its cost is that of `n` tokens that
    /// see `keys` keys on average.
    ///
    /// # Panics
    /// When a slice does not have the size of its operand.
    pub fn record(&self, graph: &mut Graph, label: &str, (n, keys): (u32, u32), io: FlashIo) {
        let (rows, width) = (u64::from(n), self.shape.query_width());
        let strides = [io.stride, io.y_stride];
        assert!(strides.iter().all(|s| s.is_multiple_of(4)), "{label}: strides {strides:?}");
        assert!(io.stride >= self.shape.projection_width(), "{label}: stride {}", io.stride);
        assert!(io.y_stride >= width, "{label}: output of {}", io.y_stride);
        assert_eq!(io.proj.bytes, rows * u64::from(io.stride) * 4, "{label}: projections");
        assert_eq!(
            io.q.bytes,
            rows * u64::from(width) * self.path.query_bytes(),
            "{label}: queries"
        );
        assert!(n >= self.least, "{label}: {n} tokens, at least {}", self.least);
        assert_eq!(io.y.bytes, rows * u64::from(io.y_stride) * 4, "{label}: output");
        let push = Push { n, stride: io.stride, y_stride: io.y_stride };
        let products = rows * u64::from(keys) * u64::from(self.shape.heads) * HEAD_DIM as u64;
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices: vec![
                io.control,
                io.keys.codes,
                io.values.codes,
                io.q,
                io.y,
                io.keys.scales,
                io.values.scales,
                io.proj,
            ],
            push: bytemuck::bytes_of(&push).to_vec(),
            grid: [n.div_ceil(self.tokens), self.shape.kv_heads(), 1].into(),
            cost: Cost { bytes: rows * u64::from(width) * 12, flops: products * 4 },
        });
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
