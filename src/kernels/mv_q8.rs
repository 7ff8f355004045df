//! Matrix times 1 to 8 vectors, the dense products of decoding: `y[n][i] = sum_k W[i][k] * x[n][k]`.
//!
//! `W`: `rows` x `k` weights. `Q8_0` in two planes of the same total size as in the file, made at load time by
//! [`super::split`]: codes, 32 bytes for each block, rows contiguous, so that every load is 16 aligned bytes; scales,
//! one f16 for each block. Or plain f32. `x`: `[batch][k]` f32, or RMSNorm of such a vector whose sum of squares
//! exists in parts already (the kernel that wrote it made them):
//! `x[k] = h[k] * w[k] / sqrt(sum_p squares[p] / K + eps)`.
//!
//! What becomes of the outputs is the [`Form`]. There are two programs. One is in f32 and suits every device: it is bound
//! by the bytes of the weights, and one vector leaves it instructions to spare (vulkan.md 3.1); eight do not. The other
//! ([`Mode::Fast`], `Q8_0`) multiplies f16 with cooperative matrices eight vectors wide, which one vector and eight cost
//! the same. In both, the bits of a row of the batch depend on nothing but the row: not on the size of the batch, nor on
//! how the work is cut. Idle rows write nothing.

mod choice;
mod matrix;

use super::gemm::power_of_two;
use super::mode::Mode;
use super::registry::Interface;
use crate::vulkan::{Binding, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use choice::Cut;
use std::ops::Range;
use std::sync::Arc;

pub(super) use choice::describe;

/// Defines the interfaces of a form: for `Q8_0`, for f32 weights, and for `Q8_0` with matrices.
macro_rules! form {
    ($q8:literal, $f32:literal, $matrix:literal, $($binding:expr),*) => {
        [
            interface($q8, choice::Constants::NAMES, &[
                Binding::read(0), Binding::read(1), Binding::read(2), Binding::read(3), $($binding),*
            ]),
            interface($f32, choice::Constants::NAMES, &[
                Binding::read(0), Binding::read(1), Binding::read(3), $($binding),*
            ]),
            interface($matrix, matrix::Constants::NAMES, &[
                Binding::read(0), Binding::read(1), Binding::read(2), Binding::read(3), $($binding),*
            ]),
        ]
    };
}

const fn interface(
    variant: &'static str,
    constants: &'static [&'static str],
    bindings: &'static [Binding],
) -> Interface {
    Interface { variant, bindings, push_bytes: size_of::<Push>(), constants }
}

const SQUARES: Binding = Binding::read(5);
const WEIGHT: Binding = Binding::read(6);

/// [`Form::Plain`].
pub const PLAIN: [Interface; 3] = form!("mv_q8", "mv_f32", "mv_matrix", Binding::write(4));
/// [`Form::Norm`].
pub const NORM: [Interface; 3] =
    form!("mv_q8_norm", "mv_f32_norm", "mv_matrix_norm", SQUARES, WEIGHT, Binding::write(4));
/// [`Form::Recurrent`].
pub const RECURRENT: [Interface; 3] = form!(
    "mv_q8_recurrent",
    "mv_f32_recurrent",
    "mv_matrix_recurrent",
    SQUARES,
    WEIGHT,
    Binding::write(4),
    Binding::write(7),
    Binding::write(8),
    Binding::write(9),
    Binding::read(10),
    Binding::read(11)
);
/// [`Form::Mixer`].
pub const MIXER: [Interface; 3] = form!(
    "mv_q8_mixer",
    "mv_f32_mixer",
    "mv_matrix_mixer",
    SQUARES,
    WEIGHT,
    Binding::write(4),
    Binding::write(7)
);
/// [`Form::Gates`].
pub const GATES: [Interface; 3] = form!(
    "mv_q8_gates",
    "mv_f32_gates",
    "mv_matrix_gates",
    SQUARES,
    WEIGHT,
    Binding::write(8),
    Binding::write(9),
    Binding::read(10),
    Binding::read(11)
);
/// [`Form::Residual`].
pub const RESIDUAL: [Interface; 3] = form!(
    "mv_q8_residual",
    "mv_f32_residual",
    "mv_matrix_residual",
    Binding::update(4),
    Binding::write(7)
);
/// [`Form::Head`].
pub const HEAD: [Interface; 3] = form!(
    "mv_q8_head",
    "mv_f32_head",
    "mv_matrix_head",
    SQUARES,
    WEIGHT,
    Binding::write(4),
    Binding::write(7),
    Binding::read(8),
    Binding::read(9)
);

/// The number of rows is no specialization constant: tensors of one width, and the slabs of a tensor
/// that is larger than a binding, share a pipeline.
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
struct Push {
    height: u32,
    partials: u32,
    eps: f32,
    conv: u32,
    inner: u32,
    heads: u32,
    first_row: u32,
    first_group: u32,
    groups: u32,
    vocab: u32,
    scale: f32,
    unscale: f32,
}

const _: () = assert!(size_of::<Push>() == 48);

/// How weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Storage {
    /// `Q8_0` in planes.
    Q8,
    /// f32, row by row.
    F32,
}

/// What goes in and what becomes of the outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// `x` as it is; outputs as they are.
    Plain,
    /// Normalised; outputs as they are.
    Norm,
    /// Normalised; rows `[qkv; gate; alpha; beta]` of a recurrent layer: qkv to the row of the convolution ring
    /// of the target slot and the position, `silu(gate)`, `exp(a * softplus(alpha + dt))`, `sigmoid(beta)`.
    Recurrent,
    /// Only the rows `[qkv; gate]` of that.
    Mixer,
    /// Only the rows `[alpha; beta]` of that.
    Gates,
    /// `x` as it is; outputs are added to the residual, and sums of squares of the new residual made.
    Residual,
    /// Normalised; logits, and the best of each workgroup as sampling sees them (`head.rs`).
    Head,
}

impl Form {
    /// Every form.
    pub const ALL: [Self; 7] = [
        Self::Plain,
        Self::Norm,
        Self::Recurrent,
        Self::Mixer,
        Self::Gates,
        Self::Residual,
        Self::Head,
    ];

    fn interface(self, storage: Storage, cut: &Cut) -> &'static Interface {
        const TABLE: [&[Interface; 3]; 7] =
            [&PLAIN, &NORM, &RECURRENT, &MIXER, &GATES, &RESIDUAL, &HEAD];
        let program = match (cut, storage) {
            (Cut::Lanes(_), Storage::Q8) => 0,
            (Cut::Lanes(_), Storage::F32) => 1,
            (Cut::Matrix(_), _) => 2,
        };
        &TABLE[self as usize][program]
    }
}

/// What a kernel is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// How the weights are stored.
    pub storage: Storage,
    /// Rows of the matrix; of the whole matrix where it is used in slabs.
    pub rows: u32,
    /// Values of a row.
    pub k: u32,
    /// Vectors: 1, 2, 4 or 8.
    pub batch: u32,
}

/// Splits `Q8_0` blocks as they are in the file (f16 scale, 32 codes) into the two planes: what `split` does on a device.
///
/// # Panics
/// When the lengths do not belong together.
#[cfg(test)]
pub(super) fn repack(blocks: &[u8], codes: &mut [u8], scales: &mut [u8]) {
    const BLOCK: usize = 34;
    assert_eq!(crate::quant::TensorType::Q8_0.block_bytes(), BLOCK);
    let (blocks, rest) = blocks.as_chunks::<BLOCK>();
    assert!(rest.is_empty(), "whole blocks");
    assert_eq!(codes.len(), blocks.len() * 32, "32 codes a block");
    assert_eq!(scales.len(), blocks.len() * 2, "one scale a block");
    let planes = codes.chunks_exact_mut(32).zip(scales.chunks_exact_mut(2));
    for (block, (codes, scale)) in blocks.iter().zip(planes) {
        scale.copy_from_slice(&block[..2]);
        codes.copy_from_slice(&block[2..]);
    }
}

/// Rows of the parts in which a matrix of `rows` x `k` must be bound where a binding sees no more than
/// `storage_bytes`: cut where planes start aligned and no workgroup of [`Form::Head`] is split.
pub fn slabs(storage: Storage, rows: u32, k: u32, storage_bytes: u64) -> Vec<Range<u32>> {
    let row_bytes = u64::from(k) * if storage == Storage::Q8 { 1 } else { 4 };
    let most = (storage_bytes / row_bytes / SLAB_ROWS * SLAB_ROWS).max(SLAB_ROWS);
    let most = u32::try_from(most.min(u64::from(rows))).expect("no more than the rows");
    (0..rows).step_by(most as usize).map(|first| first..rows.min(first + most)).collect()
}

/// A multiple of any workgroup's rows.
const SLAB_ROWS: u64 = 1024;

/// A matrix in planes: codes `[rows][k]` i8, scales `[rows][k / 32]` f16.
#[derive(Clone)]
pub struct Planes {
    /// Codes.
    pub codes: Slice,
    /// Scales.
    pub scales: Slice,
}

/// A matrix, or a slab of one.
#[derive(Clone)]
pub enum Matrix {
    /// [`Storage::Q8`].
    Q8(Planes),
    /// [`Storage::F32`]: `[rows][k]`.
    F32(Slice),
}

impl Matrix {
    /// Its rows, if they are `k` values long.
    fn rows(&self, label: &str, k: u64) -> u64 {
        match self {
            Self::Q8(planes) => {
                let blocks = planes.codes.bytes / 32;
                assert_eq!(planes.scales.bytes, blocks * 2, "{label}: scales");
                planes.codes.bytes / k
            }
            Self::F32(weights) => weights.bytes / (4 * k),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Q8(planes) => planes.codes.bytes + planes.scales.bytes,
            Self::F32(weights) => weights.bytes,
        }
    }
}

/// The norm in front of the product.
#[derive(Clone)]
pub struct Norm {
    /// Partial sums of squares of the input, `[batch][parts]`.
    pub squares: Slice,
    /// Weight `[k]`.
    pub weight: Slice,
    /// Added to the mean.
    pub eps: f32,
}

/// Gate operands of a recurrent layer with `heads` value heads.
#[derive(Clone)]
pub struct Gates {
    /// Output `[batch][heads]`: the decay factor.
    pub decay: Slice,
    /// Output `[batch][heads]`: the strength of the update.
    pub beta: Slice,
    /// `ssm_a [heads]`.
    pub a: Slice,
    /// `ssm_dt [heads]`.
    pub dt: Slice,
}

/// Operands of the head. Slabs of one matrix are recorded in levels of their own, since the rows of a batch lie
/// between each other.
#[derive(Clone)]
pub struct Head {
    /// Output `[any][vocab]`, as they come, those of row `n` of the batch in row `rows[n].logits`.
    pub logits: Slice,
    /// Output `[batch][groups]` of (bits of the best logit, id), [`MatVec::groups`] of them: the best of the
    /// allowed ids with their addends, the lower id among equals; the id is `u32::MAX` where a logit was NaN or
    /// plus infinity.
    pub pairs: Slice,
    /// Bit masks over the vocabulary, at `rows[n].mask` words; a set bit allows the id.
    pub mask: Slice,
    /// Pairs (id u32, addend f32), `rows[n].bias_len` from `rows[n].bias`, ids ascending.
    pub bias: Slice,
    /// Number of the first row of this slab.
    pub first_row: u32,
}

/// What is written.
#[derive(Clone)]
pub enum Output {
    /// [`Form::Plain`], [`Form::Norm`]: `[batch][rows]`.
    Rows(Slice),
    /// [`Form::Recurrent`]: rows of the matrix are `conv`, `inner`, `heads`, `heads`.
    Recurrent {
        /// Raw rows of the convolution, `[slot][4][conv]`.
        ring: Slice,
        /// `[batch][inner]`.
        z: Slice,
        /// The gates.
        gates: Gates,
    },
    /// [`Form::Mixer`].
    Mixer {
        /// As above.
        ring: Slice,
        /// As above.
        z: Slice,
    },
    /// [`Form::Gates`].
    Gates(Gates),
    /// [`Form::Residual`].
    Residual {
        /// Residual `[batch][rows]`, updated.
        h: Slice,
        /// Partial sums of its squares, `[batch][partials]`, [`MatVec::partials`] of them.
        squares: Slice,
    },
    /// [`Form::Head`].
    Head(Head),
}

/// What a dispatch reads and writes.
#[derive(Clone)]
pub struct Operands {
    /// Control block, `batch` records.
    pub control: Slice,
    /// The matrix.
    pub matrix: Matrix,
    /// Input `[batch][k]`.
    pub x: Slice,
    /// Exponent of a power of two that brings the largest weight between 1/2 and 1 ([`super::gemm::exponent`]).
    pub exponent: i32,
    /// The norm in front of it, in the forms that have one.
    pub norm: Option<Norm>,
    /// Output.
    pub output: Output,
}

/// The kernel for one shape and form.
pub struct MatVec {
    pipeline: Arc<Pipeline>,
    cut: Cut,
    form: Form,
    shape: Shape,
    grid_width: u32,
}

impl MatVec {
    /// Compiles a form for a shape.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the shape is not possible or the device refuses.
    pub fn new(device: &Arc<Device>, form: Form, shape: Shape, mode: Mode) -> Result<Self, Error> {
        let fail = |why: String| Error::Pipeline { name: "mat-vec", why };
        let cut = choice::choose(form, shape, mode, device.caps()).map_err(fail)?;
        Self::with(device, form, shape, cut)
    }

    fn with(device: &Arc<Device>, form: Form, shape: Shape, cut: Cut) -> Result<Self, Error> {
        let interface = form.interface(shape.storage, &cut);
        let pipeline = match cut {
            Cut::Lanes(constants) => interface.pipeline(device, &[constants], constants.sg),
            Cut::Matrix(constants) => interface.pipeline(device, &[constants], constants.sg),
        }?;
        let grid_width = device.caps().limits.grid[0];
        Ok(Self { pipeline, cut, form, shape, grid_width })
    }

    /// Partial sums of squares that [`Form::Residual`] makes for each row of the batch. They cover eight values
    /// each, whatever the batch and the device.
    pub fn partials(&self) -> u32 {
        self.shape.rows.div_ceil(PART_ROWS)
    }

    /// Workgroups of all slabs: pairs of [`Form::Head`] for each row of the batch.
    pub fn groups(&self) -> u32 {
        self.shape.rows.div_ceil(self.cut.group_rows())
    }

    /// Adds the product to the last level of `graph`.
    ///
    /// # Panics
    /// When a slice does not have the size of its operand, or the operands are not those of the form.
    pub fn record(&self, graph: &mut Graph, label: &str, io: Operands) {
        let (k, batch) = (u64::from(self.shape.k), u64::from(self.shape.batch));
        let height = io.matrix.rows(label, k);
        let cost = Cost { bytes: io.matrix.bytes(), flops: 2 * batch * height * k };
        assert_eq!(io.x.bytes, batch * k * 4, "{label}: input");
        let height = u32::try_from(height).expect("rows are counted in 32 bits");
        let slab = matches!(io.output, Output::Head(_));
        assert!(height == self.shape.rows || slab, "{label}: {height} rows");
        // Codes have seven bits and a sign, and f16 ends at 2^16.
        let exponent = io.exponent + 14;
        let (scale, unscale) = (power_of_two(exponent), power_of_two(-exponent));
        let mut push = Push { height, scale, unscale, ..Push::default() };
        let mut slices = vec![io.control];
        match (io.matrix, self.shape.storage) {
            (Matrix::Q8(planes), Storage::Q8) => slices.extend([planes.codes, planes.scales]),
            (Matrix::F32(weights), Storage::F32) => slices.push(weights),
            _ => panic!("{label}: weights of another kind"),
        }
        slices.push(io.x);
        if let Some(norm) = io.norm {
            assert_eq!(norm.weight.bytes, k * 4, "{label}: norm weight");
            push.partials = words(&norm.squares) / self.shape.batch;
            push.eps = norm.eps;
            slices.extend([norm.squares, norm.weight]);
        }
        self.outputs(label, io.output, &mut push, &mut slices);
        let groups = height.div_ceil(self.cut.group_rows());
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices,
            push: bytemuck::bytes_of(&push).to_vec(),
            grid: choice::grid(groups, self.grid_width).into(),
            cost,
        });
    }

    fn outputs(&self, label: &str, output: Output, push: &mut Push, slices: &mut Vec<Slice>) {
        let (rows, batch) = (self.shape.rows, self.shape.batch);
        match (self.form, output) {
            (Form::Plain | Form::Norm, Output::Rows(y)) => {
                assert_eq!(words(&y), batch * rows, "{label}: output");
                slices.push(y);
            }
            (Form::Recurrent, Output::Recurrent { ring, z, gates }) => {
                push.heads = gates.heads(label, batch);
                push.inner = words(&z) / batch;
                push.conv = rows - push.inner - 2 * push.heads;
                assert!(words(&ring).is_multiple_of(4 * push.conv), "{label}: ring");
                slices.extend([ring, z]);
                slices.extend(gates.slices());
            }
            (Form::Mixer, Output::Mixer { ring, z }) => {
                push.inner = words(&z) / batch;
                push.conv = rows - push.inner;
                assert!(words(&ring).is_multiple_of(4 * push.conv), "{label}: ring");
                slices.extend([ring, z]);
            }
            (Form::Gates, Output::Gates(gates)) => {
                push.heads = gates.heads(label, batch);
                assert_eq!(rows, 2 * push.heads, "{label}: gates");
                slices.extend(gates.slices());
            }
            (Form::Residual, Output::Residual { h, squares }) => {
                assert_eq!(words(&h), batch * rows, "{label}: residual");
                assert_eq!(words(&squares), batch * self.partials(), "{label}: squares");
                slices.extend([h, squares]);
            }
            (Form::Head, Output::Head(head)) => {
                let held = words(&head.logits);
                assert!(held >= batch * rows && held.is_multiple_of(rows), "{label}: logits");
                assert_eq!(words(&head.pairs), 2 * batch * self.groups(), "{label}: pairs");
                let group_rows = self.cut.group_rows();
                assert!(head.first_row.is_multiple_of(group_rows), "{label}: slab");
                push.first_row = head.first_row;
                push.first_group = head.first_row / group_rows;
                push.groups = self.groups();
                push.vocab = rows;
                slices.extend([head.logits, head.pairs, head.mask, head.bias]);
            }
            (form, _) => panic!("{label}: outputs of another form than {form:?}"),
        }
    }
}

impl Gates {
    fn heads(&self, label: &str, batch: u32) -> u32 {
        let heads = words(&self.a);
        assert_eq!(words(&self.dt), heads, "{label}: dt");
        let outputs = (words(&self.decay), words(&self.beta));
        assert_eq!(outputs, (batch * heads, batch * heads), "{label}: gates");
        heads
    }

    fn slices(self) -> [Slice; 4] {
        [self.decay, self.beta, self.a, self.dt]
    }
}

/// Values of a partial sum of squares; `PART` in the shader.
const PART_ROWS: u32 = 8;

fn words(slice: &Slice) -> u32 {
    u32::try_from(slice.bytes / 4).expect("counted in 32 bits")
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod timing;
