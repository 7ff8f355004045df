//! The published model without its file: for measuring what a device would do with it.

use super::layout::Role;
use super::shape::Shape;
use super::weights::{Attention, Experts, Layer, Matrix, Mixer, Moe, Recurrent, Vector, Weights};
use crate::quant::TensorType;

impl Shape {
    /// The published model's dimensions (model.md 1.1), with so many layers of its 40.
    pub fn published(layers: usize) -> Self {
        Self {
            layers,
            hidden: 2048,
            vocab: 248_320,
            heads: 16,
            kv_heads: 2,
            head_dim: 256,
            rope_dims: 64,
            rope_base: 1e7,
            rms_eps: 1e-6,
            full_interval: 4,
            key_heads: 16,
            value_heads: 32,
            state_dim: 128,
            conv_taps: 4,
            inner: 4096,
            conv_channels: 8192,
            experts: 256,
            experts_used: 8,
            expert_ffn: 512,
            shared_ffn: 512,
            context_length: 262_144,
        }
    }
}

impl Weights {
    /// Handles of the published types and of this shape's sizes, with no place in any file.
    pub fn unplaced(shape: &Shape) -> Self {
        let unplaced = Unplaced(shape);
        Self {
            embedding: unplaced.matrix(Role::Embedding),
            output_norm: unplaced.vector(Role::OutputNorm),
            output: unplaced.matrix(Role::Output),
            layers: (0..shape.layers).map(|i| unplaced.layer(i)).collect(),
        }
    }

    /// Bytes of all weights.
    pub fn bytes(&self) -> u64 {
        let floats = |v: &[Vector]| v.iter().map(|v| v.len as u64 * 4).sum::<u64>();
        let matrices = |m: &[Matrix]| m.iter().map(|m| m.bytes).sum::<u64>();
        let layers = self.layers.iter().map(|layer| {
            let mixer = match &layer.mixer {
                Mixer::Recurrent(r) => {
                    matrices(&[r.qkv, r.gate, r.alpha, r.beta, r.out])
                        + floats(&[r.conv, r.a, r.dt, r.norm])
                }
                Mixer::Attention(a) => {
                    matrices(&[a.q, a.k, a.v, a.output]) + floats(&[a.q_norm, a.k_norm])
                }
            };
            let moe = &layer.moe;
            let experts =
                [&moe.gate, &moe.up, &moe.down].map(|e| (e.expert_bytes * e.count) as u64);
            mixer
                + matrices(&[moe.router, moe.sh_gate, moe.sh_up, moe.sh_down])
                + experts.iter().sum::<u64>()
                + floats(&[layer.attn_norm, layer.post_norm, moe.shared_gate_in])
        });
        matrices(&[self.embedding, self.output]) + floats(&[self.output_norm]) + layers.sum::<u64>()
    }
}

struct Unplaced<'a>(&'a Shape);

impl Unplaced<'_> {
    fn dims(&self, role: Role) -> Vec<usize> {
        let dims = role.dims(self.0).into_iter();
        dims.map(|d| usize::try_from(d).expect("made of a shape's numbers")).collect()
    }

    fn matrix(&self, role: Role) -> Matrix {
        let (ty, dims) = (role.accepted()[0], self.dims(role));
        let (cols, rows) = (dims[0], dims[1]);
        let row_bytes = row_bytes(ty, cols);
        Matrix { ty, rows, cols, row_bytes, offset: 0, bytes: (row_bytes * rows) as u64 }
    }

    fn vector(&self, role: Role) -> Vector {
        Vector { len: self.dims(role).iter().product(), offset: 0 }
    }

    fn experts(&self, role: Role) -> Experts {
        let (ty, dims) = (role.accepted()[0], self.dims(role));
        let (cols, rows, count) = (dims[0], dims[1], dims[2]);
        let row_bytes = row_bytes(ty, cols);
        Experts { ty, count, rows, cols, row_bytes, expert_bytes: row_bytes * rows, offset: 0 }
    }

    fn layer(&self, index: usize) -> Layer {
        let mixer = if self.0.is_full_attention(index) {
            Mixer::Attention(Attention {
                q: self.matrix(Role::Q),
                k: self.matrix(Role::K),
                v: self.matrix(Role::V),
                output: self.matrix(Role::AttnOutput),
                q_norm: self.vector(Role::QNorm),
                k_norm: self.vector(Role::KNorm),
            })
        } else {
            Mixer::Recurrent(Recurrent {
                qkv: self.matrix(Role::Qkv),
                gate: self.matrix(Role::Gate),
                alpha: self.matrix(Role::Alpha),
                beta: self.matrix(Role::Beta),
                conv: self.vector(Role::Conv),
                a: self.vector(Role::A),
                dt: self.vector(Role::Dt),
                norm: self.vector(Role::SsmNorm),
                out: self.matrix(Role::SsmOut),
            })
        };
        Layer {
            attn_norm: self.vector(Role::AttnNorm),
            post_norm: self.vector(Role::PostNorm),
            mixer,
            moe: Moe {
                router: self.matrix(Role::Router),
                shared_gate_in: self.vector(Role::SharedGateIn),
                gate: self.experts(Role::ExpertGate),
                up: self.experts(Role::ExpertUp),
                down: self.experts(Role::ExpertDown),
                sh_gate: self.matrix(Role::SharedGate),
                sh_up: self.matrix(Role::SharedUp),
                sh_down: self.matrix(Role::SharedDown),
            },
        }
    }
}

fn row_bytes(ty: TensorType, cols: usize) -> usize {
    ty.row_bytes(cols).expect("the published types divide the published rows")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_bytes_of_the_published_file() {
        assert_eq!(Weights::unplaced(&Shape::published(40)).bytes(), 11_726_326_272);
    }
}
