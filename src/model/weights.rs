//! Typed places of a model's tensors. A handle holds numbers, not a borrow: [`super::Model`] turns
//! it into bytes. Whoever has one knows that the tensor exists and has this shape and type.

use super::error::{Error, Invalid};
use super::layout::{Expected, Role};
use super::shape::Shape;
use super::validate::find;
use crate::gguf::{File, Tensor};
use crate::quant::TensorType;

/// A matrix: `rows` rows of `cols` weights each, row after row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrix {
    /// How the weights are stored.
    pub ty: TensorType,
    /// Rows: what it computes.
    pub rows: usize,
    /// Weights in a row: what it reads.
    pub cols: usize,
    /// Bytes of a row.
    pub row_bytes: usize,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes of all rows.
    pub bytes: u64,
}

/// The same matrix for each expert of a layer, expert after expert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Experts {
    /// How the weights are stored.
    pub ty: TensorType,
    /// Number of experts.
    pub count: usize,
    /// Rows of one expert.
    pub rows: usize,
    /// Weights in a row.
    pub cols: usize,
    /// Bytes of a row.
    pub row_bytes: usize,
    /// Bytes of one expert.
    pub expert_bytes: usize,
    /// First byte in the file.
    pub offset: u64,
}

/// `len` floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vector {
    /// Number of floats.
    pub len: usize,
    /// First byte in the file.
    pub offset: u64,
}

/// Mixer of a recurrent (gated DeltaNet) layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recurrent {
    /// Queries, keys, values: `conv_channels` x `hidden`.
    pub qkv: Matrix,
    /// Output gate z: `inner` x `hidden`.
    pub gate: Matrix,
    /// Decay: `value_heads` x `hidden`.
    pub alpha: Matrix,
    /// Write strength: `value_heads` x `hidden`.
    pub beta: Matrix,
    /// Convolution: `conv_taps` floats for each of `conv_channels`, oldest tap first.
    pub conv: Vector,
    /// `-exp(A_log)`: `value_heads`.
    pub a: Vector,
    /// Bias of the decay: `value_heads`.
    pub dt: Vector,
    /// Norm of a value head: `state_dim`.
    pub norm: Vector,
    /// Back to hidden: `hidden` x `inner`.
    pub out: Matrix,
}

/// Mixer of a full-attention layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attention {
    /// For each head `head_dim` query rows, then `head_dim` gate rows; `hidden` columns.
    pub q: Matrix,
    /// Keys: `kv_width` x `hidden`.
    pub k: Matrix,
    /// Values: `kv_width` x `hidden`.
    pub v: Matrix,
    /// Back to hidden: `hidden` x `query_width`.
    pub output: Matrix,
    /// Norm of a query head: `head_dim`.
    pub q_norm: Vector,
    /// Norm of a key head: `head_dim`.
    pub k_norm: Vector,
}

/// What a layer mixes positions with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mixer {
    /// Gated DeltaNet.
    Recurrent(Recurrent),
    /// Full attention.
    Attention(Attention),
}

/// The experts of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moe {
    /// `experts` x `hidden`.
    pub router: Matrix,
    /// Weight of the shared expert: `hidden` floats.
    pub shared_gate_in: Vector,
    /// Each `expert_ffn` x `hidden`.
    pub gate: Experts,
    /// Each `expert_ffn` x `hidden`; of the same type as `gate`.
    pub up: Experts,
    /// Each `hidden` x `expert_ffn`.
    pub down: Experts,
    /// Shared expert: `shared_ffn` x `hidden`.
    pub sh_gate: Matrix,
    /// Shared expert: `shared_ffn` x `hidden`.
    pub sh_up: Matrix,
    /// Shared expert: `hidden` x `shared_ffn`.
    pub sh_down: Matrix,
}

/// One layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layer {
    /// Norm before the mixer: `hidden`.
    pub attn_norm: Vector,
    /// Norm before the experts: `hidden`.
    pub post_norm: Vector,
    /// The mixer.
    pub mixer: Mixer,
    /// The experts.
    pub moe: Moe,
}

/// All weights of a main model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weights {
    /// `vocab` x `hidden`.
    pub embedding: Matrix,
    /// Norm before the head: `hidden`.
    pub output_norm: Vector,
    /// The head: `vocab` x `hidden`.
    pub output: Matrix,
    /// The layers.
    pub layers: Vec<Layer>,
}

impl Weights {
    /// Finds and checks every tensor of a main model file. The first one that is missing or does
    /// not fit is the error.
    pub(super) fn bind(file: &File, shape: &Shape) -> Result<Self, Error> {
        let b = Binder::new(file, shape, Error::model);
        let global = Part { binder: &b, layer: None };
        Ok(Self {
            embedding: global.matrix(Role::Embedding)?,
            output_norm: global.vector(Role::OutputNorm)?,
            output: global.matrix(Role::Output)?,
            layers: (0..shape.layers).map(|i| b.layer(i)).collect::<Result<_, _>>()?,
        })
    }
}

/// Looks tensors up and turns them into handles.
pub(super) struct Binder<'a> {
    file: &'a File,
    shape: &'a Shape,
    error: fn(&std::path::Path, Invalid) -> Error,
}

impl<'a> Binder<'a> {
    pub(super) fn new(
        file: &'a File,
        shape: &'a Shape,
        error: fn(&std::path::Path, Invalid) -> Error,
    ) -> Self {
        Self { file, shape, error }
    }

    /// The tensors of one layer, or with `None` those outside the layers.
    pub(super) fn part(&self, layer: Option<usize>) -> Part<'_> {
        Part { binder: self, layer }
    }

    fn layer(&self, layer: usize) -> Result<Layer, Error> {
        let part = self.part(Some(layer));
        let mixer = if self.shape.is_full_attention(layer) {
            Mixer::Attention(part.attention()?)
        } else {
            Mixer::Recurrent(part.recurrent()?)
        };
        Ok(Layer {
            attn_norm: part.vector(Role::AttnNorm)?,
            post_norm: part.vector(Role::PostNorm)?,
            mixer,
            moe: part.moe()?,
        })
    }
}

pub(super) struct Part<'a> {
    binder: &'a Binder<'a>,
    layer: Option<usize>,
}

impl Part<'_> {
    fn tensor(&self, role: Role) -> Result<&Tensor, Error> {
        let b = self.binder;
        let expected = Expected { role, layer: self.layer };
        find(b.file, b.shape, &expected).map_err(|problem| (b.error)(b.file.path(), problem))
    }

    pub(super) fn matrix(&self, role: Role) -> Result<Matrix, Error> {
        let t = self.tensor(role)?;
        let (cols, rows) = (usize_of(t.row_len()), usize_of(t.rows()));
        let row_bytes = usize_of(t.bytes) / rows;
        Ok(Matrix { ty: t.ty, rows, cols, row_bytes, offset: t.offset, bytes: t.bytes })
    }

    pub(super) fn vector(&self, role: Role) -> Result<Vector, Error> {
        let t = self.tensor(role)?;
        assert_eq!(t.ty, TensorType::F32, "vectors are accepted as f32 only");
        Ok(Vector { len: usize_of(t.elements()), offset: t.offset })
    }

    fn experts(&self, role: Role) -> Result<Experts, Error> {
        let t = self.tensor(role)?;
        // Not `dims[2]`: a single expert may be stored without its trailing dimension of one.
        let count = self.binder.shape.experts;
        let (cols, rows) = (usize_of(t.row_len()), usize_of(t.rows()) / count);
        let expert_bytes = usize_of(t.bytes) / count;
        let row_bytes = expert_bytes / rows;
        Ok(Experts { ty: t.ty, count, rows, cols, row_bytes, expert_bytes, offset: t.offset })
    }

    fn recurrent(&self) -> Result<Recurrent, Error> {
        Ok(Recurrent {
            qkv: self.matrix(Role::Qkv)?,
            gate: self.matrix(Role::Gate)?,
            alpha: self.matrix(Role::Alpha)?,
            beta: self.matrix(Role::Beta)?,
            conv: self.vector(Role::Conv)?,
            a: self.vector(Role::A)?,
            dt: self.vector(Role::Dt)?,
            norm: self.vector(Role::SsmNorm)?,
            out: self.matrix(Role::SsmOut)?,
        })
    }

    pub(super) fn attention(&self) -> Result<Attention, Error> {
        Ok(Attention {
            q: self.matrix(Role::Q)?,
            k: self.matrix(Role::K)?,
            v: self.matrix(Role::V)?,
            output: self.matrix(Role::AttnOutput)?,
            q_norm: self.vector(Role::QNorm)?,
            k_norm: self.vector(Role::KNorm)?,
        })
    }

    pub(super) fn moe(&self) -> Result<Moe, Error> {
        let moe = Moe {
            router: self.matrix(Role::Router)?,
            shared_gate_in: self.vector(Role::SharedGateIn)?,
            gate: self.experts(Role::ExpertGate)?,
            up: self.experts(Role::ExpertUp)?,
            down: self.experts(Role::ExpertDown)?,
            sh_gate: self.matrix(Role::SharedGate)?,
            sh_up: self.matrix(Role::SharedUp)?,
            sh_down: self.matrix(Role::SharedDown)?,
        };
        // One kernel reads both.
        if moe.gate.ty != moe.up.ty {
            let name = Expected { role: Role::ExpertUp, layer: self.layer }.name();
            let expected = format!("{}, as the gate of the same layer", moe.gate.ty);
            let problem = Invalid::TensorType { name, found: moe.up.ty.to_string(), expected };
            return Err((self.binder.error)(self.binder.file.path(), problem));
        }
        Ok(moe)
    }
}

fn usize_of(n: u64) -> usize {
    usize::try_from(n).expect("sizes of a mapped file fit the address space")
}
