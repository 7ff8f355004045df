//! Matrix products of prefill: `out[t][r] = factor[t] * sum_k x[t][k] W[r][k]` for the tokens `t` of a chunk.
//!
//! `W`: `rows` x `k` weights, [`Weights::Q8`] in the planes of [`super::mv_q8`] or plain f32. `x`: `[tokens][k]`,
//! f16 or f32 by [`Path::half`]; `factor`: one f32 for each token, what f16 rows were divided by and, where a
//! caller folds something in, more. The sums are stored (`out[t * stride + r]`), added to what is there (the
//! residual stream), or, with rows `2i` and `2i + 1` of `W` being row i of gate and up, become
//! `silu(gate) * up` of half as many columns. [`Form::Logits`] is for the router: `x[t][k] * norm[k]` in f32.
//!
//! `tokens` is the size class of a chunk; how many there are is `rows[0].tokens` of the control block, and
//! nothing beyond is read or written.
//!
//! One main loop for all weights (vulkan.md 3.10): each step decodes a tile of weights into shared memory. A
//! sum's order depends on the path and on `k` alone, so equal chunks give equal bits.

use super::mode::Mode;
use super::mv_q8::Planes;
use super::registry::Interface;
use crate::vulkan::{Binding, Caps, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

mod tile;

pub(super) use self::tile::edge;
use self::tile::select_logits;
pub use self::tile::{Path, Tile, select};

/// What a product makes of its sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// Stores them.
    Store,
    /// Adds them to the output.
    Add,
    /// `silu(row 2i) * row 2i + 1`.
    SwiGlu,
    /// Stores products of the normalised stream but for its scale, as exact as f32: on [`Path::Matrix`] both factors
    /// are split into two halves each, and three of the four products are taken. Not on [`Path::Pk16`].
    Logits,
}

/// What a product is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Rows of `W`.
    pub rows: u32,
    /// Columns of `W`.
    pub k: u32,
    /// Size class of a chunk.
    pub tokens: u32,
}

/// A weight matrix on the device.
#[derive(Clone)]
pub enum Weights {
    /// `Q8_0`.
    Q8(Planes),
    /// f32, row-major.
    F32(Slice),
}

const PUSH: usize = size_of::<Push>();
const MATRIX_CONSTANTS: &[&str] =
    &["workgroup", "BM", "BN", "BK", "WM", "WN", "GROUP", "PARTS", "PAIRS", "K", "FACTOR", "EDGE"];
const CONSTANTS: &[&str] = MATRIX_CONSTANTS.split_at(11).0;
const READ: [Binding; 8] = [
    Binding::read(0),
    Binding::read(1),
    Binding::read(2),
    Binding::read(3),
    Binding::read(4),
    Binding::read(5),
    Binding::read(6),
    Binding::read(7),
];
const STORE_Q8: &[Binding] = &[READ[0], READ[3], Binding::write(4), READ[5], READ[1], READ[2]];
const ADD_Q8: &[Binding] = &[READ[0], READ[3], Binding::update(4), READ[5], READ[1], READ[2]];
const STORE_F32: &[Binding] = &[READ[0], READ[3], Binding::write(4), READ[5], READ[1]];
const ADD_F32: &[Binding] = &[READ[0], READ[3], Binding::update(4), READ[5], READ[1]];
const LOGITS_Q8: &[Binding] =
    &[READ[0], READ[3], Binding::write(4), READ[5], READ[6], READ[1], READ[2]];
const LOGITS_F32: &[Binding] = &[READ[0], READ[3], Binding::write(4), READ[5], READ[6], READ[1]];
const LOGITS_MATRIX_Q8: &[Binding] =
    &[READ[0], READ[3], Binding::write(4), READ[5], READ[6], READ[7], READ[1], READ[2]];
const LOGITS_MATRIX_F32: &[Binding] =
    &[READ[0], READ[3], Binding::write(4), READ[5], READ[6], READ[7], READ[1]];

const fn interface(variant: &'static str, bindings: &'static [Binding]) -> Interface {
    Interface { variant, bindings, push_bytes: PUSH, constants: CONSTANTS }
}

const fn matrix(variant: &'static str, bindings: &'static [Binding]) -> Interface {
    Interface { variant, bindings, push_bytes: PUSH, constants: MATRIX_CONSTANTS }
}

/// What the variants of `matmul/gemm.comp` declare: for each path storing and adding `Q8_0`, then f32; then the
/// router's.
pub const VARIANTS: &[Interface] = &[
    interface("gemm_f32", STORE_Q8),
    interface("gemm_f32_add", ADD_Q8),
    interface("gemm_f32_plain", STORE_F32),
    interface("gemm_f32_plain_add", ADD_F32),
    interface("gemm_pk16", STORE_Q8),
    interface("gemm_pk16_add", ADD_Q8),
    interface("gemm_pk16_plain", STORE_F32),
    interface("gemm_pk16_plain_add", ADD_F32),
    matrix("gemm_matrix", STORE_Q8),
    matrix("gemm_matrix_add", ADD_Q8),
    matrix("gemm_matrix_plain", STORE_F32),
    matrix("gemm_matrix_plain_add", ADD_F32),
    interface("gemm_logits", LOGITS_Q8),
    interface("gemm_logits_plain", LOGITS_F32),
    matrix("gemm_logits_matrix", LOGITS_MATRIX_Q8),
    matrix("gemm_logits_matrix_plain", LOGITS_MATRIX_F32),
];

fn variant(path: Path, form: Form, q8: bool) -> &'static Interface {
    let plain = usize::from(!q8);
    if form == Form::Logits {
        return &VARIANTS[12 + plain + 2 * usize::from(path == Path::Matrix)];
    }
    let path = match path {
        Path::F32 => 0,
        Path::Pk16 => 4,
        Path::Matrix => 8,
    };
    &VARIANTS[path + 2 * plain + usize::from(form == Form::Add)]
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Push {
    rows: u32,
    stride: u32,
    scale: f32,
    unscale: f32,
}

const _: () = assert!(size_of::<Push>() == 16);

/// Specialization constants, in the order of their ids.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Constants {
    tile: Tile,
    pairs: u32,
    k: u32,
    factor: u32,
    /// Only on [`Path::Matrix`].
    edge: u32,
}

/// The exponent `e` with which the largest of some weights is between 1/2 and 1 after multiplication by `2^e`: f16
/// then neither overflows nor loses bits that matter.
pub fn exponent(largest: f32) -> i32 {
    if !largest.is_normal() {
        return 0;
    }
    let exponent = ((largest.to_bits() >> 23) & 0xff).cast_signed() - 126;
    (-exponent).clamp(-100, 100)
}

/// `2^e`.
pub(super) fn power_of_two(e: i32) -> f32 {
    f32::from_bits(u32::try_from(e + 127).expect("a small exponent") << 23)
}

/// The choice for a product of a fast chunk in words.
pub(super) fn describe(shape: Shape, caps: &Caps) -> Result<String, String> {
    let path = Path::choose(Mode::Fast, caps);
    let tile = select(path, shape, caps);
    tile.check(path, shape.k, 0, caps)?;
    Ok(format!("{}, {}", path.words(), tile.words()))
}

/// The kernel for one shape, form and kind of weights.
pub struct Gemm {
    pipeline: Arc<Pipeline>,
    shape: Shape,
    path: Path,
    form: Form,
    tile: Tile,
    factor: bool,
}

/// What a product is computed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Arithmetic.
    pub path: Path,
    /// What becomes of the sums.
    pub form: Form,
    /// Whether the weights are [`Weights::Q8`].
    pub q8: bool,
    /// Whether tokens have factors.
    pub factor: bool,
}

/// The norm of [`Form::Logits`].
pub struct Norm {
    /// Weight `[k]`.
    pub weight: Slice,
    /// What rows of the stream are multiplied by to have a mean square of 1, `[tokens]`: read on [`Path::Matrix`], to
    /// bring them to the range of f16.
    pub scale: Slice,
}

/// What a dispatch reads and writes. The first row of `out` may start anywhere; rows are `stride` values apart.
pub struct Operands {
    /// Control block.
    pub control: Slice,
    /// `W`.
    pub weights: Weights,
    /// Exponent of a power of two that brings `W` to the range of f16: [`exponent`].
    pub exponent: i32,
    /// `x`, at least `[tokens][k]`.
    pub x: Slice,
    /// Factors `[tokens]`, where [`Kind::factor`] is set.
    pub factor: Option<Slice>,
    /// For [`Form::Logits`].
    pub norm: Option<Norm>,
    /// Output.
    pub out: Slice,
    /// Values from one of its rows to the next.
    pub stride: u32,
}

impl Gemm {
    /// Compiles the kernel with the tile of [`select`].
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the shape is not possible or the device refuses.
    pub fn new(device: &Arc<Device>, shape: Shape, kind: Kind) -> Result<Self, Error> {
        let caps = device.caps();
        let tile = match kind.form {
            Form::Logits => select_logits(kind.path, shape, caps),
            Form::Store | Form::Add | Form::SwiGlu => select(kind.path, shape, caps),
        };
        Self::with_tile(device, shape, kind, tile)
    }

    /// The same with another tile, to compare.
    ///
    /// # Errors
    /// As [`Gemm::new`].
    pub fn with_tile(
        device: &Arc<Device>,
        shape: Shape,
        kind: Kind,
        tile: Tile,
    ) -> Result<Self, Error> {
        let Kind { path, form, q8, factor } = kind;
        let declared = variant(path, form, q8);
        let fail = |why: String| Error::Pipeline { name: declared.variant, why };
        let pairs = form == Form::SwiGlu;
        let split = form == Form::Logits && path == Path::Matrix;
        let besides = if split { tile.shared_bytes(path) } else { 0 };
        tile.check(path, shape.k, besides, device.caps()).map_err(fail)?;
        if form == Form::Logits && path == Path::Pk16 {
            return Err(fail("too coarse for logits".to_owned()));
        }
        let turn = if path == Path::Matrix { edge(device.caps()) } else { 1 };
        if pairs && (!shape.rows.is_multiple_of(2) || !tile.wm.is_multiple_of(2 * turn)) {
            return Err(fail(format!("{} rows are no pairs in {tile:?}", shape.rows)));
        }
        let program = declared.program().ok_or_else(|| fail("not in this build".to_owned()))?;
        let constants = [Constants {
            tile,
            pairs: u32::from(pairs),
            k: shape.k,
            factor: u32::from(factor),
            edge: edge(device.caps()),
        }];
        let constants = &bytemuck::cast_slice(&constants)[..declared.constants.len()];
        let subgroup = device.caps().subgroup_size(32);
        let pipeline = Pipeline::new(device, program, constants, subgroup)?;
        Ok(Self { pipeline, shape, path, form, tile, factor })
    }

    /// Adds the product to the last level of `graph`.
    ///
    /// # Panics
    /// When a slice is smaller than its operand, or an operand does not fit the kind.
    pub fn record(&self, graph: &mut Graph, label: &str, io: Operands) {
        let Shape { rows, k, tokens } = self.shape;
        let (rows64, k64, tokens64) = (u64::from(rows), u64::from(k), u64::from(tokens));
        let columns = if self.form == Form::SwiGlu { rows / 2 } else { rows };
        let out = (tokens64 - 1) * u64::from(io.stride) + u64::from(columns);
        let x_bytes = if self.form == Form::Logits { 4 } else { self.path.bytes() };
        assert!(io.x.bytes >= tokens64 * k64 * x_bytes, "{label}: x");
        assert_eq!(io.norm.is_some(), self.form == Form::Logits, "{label}: norm");
        assert!(io.stride >= columns && io.out.bytes >= out * 4, "{label}: output");
        assert_eq!(io.factor.is_some(), self.factor, "{label}: factors");
        // Without factors nothing is read there, but a binding has to be something.
        let factor = io.factor.unwrap_or_else(|| io.x.clone());
        let mut slices = vec![io.control, io.x, io.out, factor];
        if let Some(norm) = io.norm {
            assert_eq!(norm.weight.bytes, k64 * 4, "{label}: norm");
            slices.push(norm.weight);
            if self.path == Path::Matrix {
                assert!(norm.scale.bytes >= tokens64 * 4, "{label}: scales");
                slices.push(norm.scale);
            }
        }
        let weight_bytes = match io.weights {
            Weights::Q8(planes) => {
                assert_eq!(planes.codes.bytes, rows64 * k64, "{label}: codes");
                assert_eq!(planes.scales.bytes, rows64 * k64 / 16, "{label}: scales");
                slices.extend([planes.codes, planes.scales]);
                rows64 * k64 / 32 * 34
            }
            Weights::F32(values) => {
                assert_eq!(values.bytes, rows64 * k64 * 4, "{label}: weights");
                slices.push(values);
                rows64 * k64 * 4
            }
        };
        let exponent = self.path.weight_exponent(io.exponent);
        let scale = power_of_two(exponent);
        let push = Push { rows, stride: io.stride, scale, unscale: power_of_two(-exponent) };
        let activations = tokens64 * (k64 * x_bytes + u64::from(columns) * 4);
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices,
            push: bytemuck::bytes_of(&push).to_vec(),
            grid: [rows.div_ceil(self.tile.bm), tokens.div_ceil(self.tile.bn), 1].into(),
            cost: Cost { bytes: weight_bytes + activations, flops: 2 * rows64 * k64 * tokens64 },
        });
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod timing;
