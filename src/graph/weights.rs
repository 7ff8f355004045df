//! Weights as the device holds them: fused where one kernel reads several matrices, split into planes
//! where that makes loads aligned, else as in the file.
//!
//! | on the device | made of |
//! |---|---|
//! | input of a recurrent layer | rows of qkv, gate, alpha, beta, one after the other |
//! | input of an attention layer | rows of q, k, v |
//! | input of the shared expert | rows of gate and up, alternating |
//! | routed experts | blocks as in the file, on some devices those in the file |
//! | a dense type without kernels of its own | f32 rows |

use super::Error;
use super::bound::Blocks;
use super::fill::{Fill, Float};
use crate::kernels::gemm::exponent;
use crate::kernels::largest::{SCALES_PLANE, Scales};
pub(super) use crate::kernels::mv_q8::Matrix as Dense;
use crate::kernels::mv_q8::{Planes, Storage};
use crate::model::{self, Experts, Matrix, Mixer, Shape, Vector, Weights};
use crate::quant::TensorType;
use crate::vulkan::{Arena, Slice};
use std::ops::Range;

/// A dense matrix with its size.
#[derive(Clone)]
pub(super) struct Linear {
    pub(super) rows: u32,
    pub(super) cols: u32,
    pub(super) data: Dense,
    /// A power of two that brings the weights to the range of 16-bit floats (`kernels::gemm::exponent`).
    pub(super) exponent: i32,
    /// Which of the bounds that a load finds choose it.
    bounds: Range<usize>,
}

impl Linear {
    /// How its weights are stored.
    pub(super) fn storage(&self) -> Storage {
        match self.data {
            Dense::Q8(_) => Storage::Q8,
            Dense::F32(_) => Storage::F32,
        }
    }

    /// The planes of weights that are `Q8_0` by [`Loading`]'s choice.
    pub(super) fn planes(&self) -> Planes {
        match &self.data {
            Dense::Q8(planes) => planes.clone(),
            Dense::F32(_) => unreachable!("refused when it was loaded"),
        }
    }
}

/// The routed experts' matrices of one kind.
#[derive(Clone)]
pub(super) struct Bank {
    pub(super) ty: TensorType,
    pub(super) blocks: Slice,
    /// As of [`Linear`]; gate and up of a layer share one.
    pub(super) exponent: i32,
    bounds: Range<usize>,
}

pub(super) struct Recurrent {
    /// Rows of qkv and gate; of alpha and beta too unless they are apart.
    pub(super) input: Linear,
    /// Rows of alpha and beta when their type is not that of the others.
    pub(super) gates: Option<Linear>,
    /// `[channels][taps]`.
    pub(super) conv: Slice,
    pub(super) a: Slice,
    pub(super) dt: Slice,
    pub(super) norm: Slice,
    pub(super) out: Linear,
}

pub(super) struct Attention {
    /// Rows of q (with the gates between its heads), k, v.
    pub(super) input: Linear,
    pub(super) q_norm: Slice,
    pub(super) k_norm: Slice,
    pub(super) out: Linear,
}

pub(super) enum DeviceMixer {
    Recurrent(Recurrent),
    Attention(Attention),
}

pub(super) struct Moe {
    pub(super) router: Linear,
    pub(super) shared_gate: Slice,
    pub(super) gate: Bank,
    pub(super) up: Bank,
    pub(super) down: Bank,
    /// Rows of gate and up of the shared expert, alternating.
    pub(super) shared_in: Linear,
    pub(super) shared_down: Linear,
}

pub(super) struct Layer {
    pub(super) attn_norm: Slice,
    pub(super) post_norm: Slice,
    pub(super) mixer: DeviceMixer,
    pub(super) moe: Moe,
}

/// All weights of the model.
pub(super) struct DeviceWeights {
    pub(super) embedding: Linear,
    pub(super) output_norm: Slice,
    pub(super) output: Linear,
    pub(super) layers: Vec<Layer>,
}

impl DeviceWeights {
    /// Allocates every weight in `arena` and has it filled.
    pub(super) fn load(
        shape: &Shape,
        weights: &Weights,
        arena: &Arena,
        fill: &mut Fill<'_>,
    ) -> Result<Self, Error> {
        let mut load = Loading { arena, fill, blocks: Vec::new() };
        let embedding = load.linear("token_embd", &[&weights.embedding])?;
        let layers = weights.layers.iter().enumerate();
        let layers = layers.map(|(i, layer)| load.layer(i, layer)).collect::<Result<_, _>>()?;
        let output_norm = load.floats("output_norm", &weights.output_norm, Float::Norm)?;
        let output = load.linear("output", &[&weights.output])?;
        assert_eq!(weights.layers.len(), shape.layers, "weights of every layer");
        let bounds = load.fill.bounds(&load.blocks)?;
        let mut weights = Self { embedding, output_norm, output, layers };
        for (value, range) in weights.exponents_mut() {
            *value = exponent(bounds[range.clone()].iter().copied().fold(0.0, f32::max));
        }
        Ok(weights)
    }

    /// Every exponent, with the bounds that choose it.
    fn exponents_mut(&mut self) -> Vec<(&mut i32, &Range<usize>)> {
        let mut linears = vec![&mut self.embedding, &mut self.output];
        let mut banks = Vec::new();
        for layer in &mut self.layers {
            match &mut layer.mixer {
                DeviceMixer::Recurrent(r) => {
                    linears.extend([&mut r.input, &mut r.out].into_iter().chain(&mut r.gates));
                }
                DeviceMixer::Attention(a) => linears.extend([&mut a.input, &mut a.out]),
            }
            let moe = &mut layer.moe;
            linears.extend([&mut moe.router, &mut moe.shared_in, &mut moe.shared_down]);
            banks.extend([&mut moe.gate, &mut moe.up, &mut moe.down]);
        }
        let linears = linears.into_iter().map(|l| (&mut l.exponent, &l.bounds));
        linears.chain(banks.into_iter().map(|b| (&mut b.exponent, &b.bounds))).collect()
    }

    /// Every slice, for graphs to know as input.
    pub(super) fn slices(&self) -> Vec<&Slice> {
        let mut all = vec![&self.output_norm];
        all.extend(dense(&self.embedding.data));
        all.extend(dense(&self.output.data));
        for layer in &self.layers {
            all.extend([&layer.attn_norm, &layer.post_norm]);
            match &layer.mixer {
                DeviceMixer::Recurrent(r) => {
                    all.extend([&r.conv, &r.a, &r.dt, &r.norm]);
                    let linears = [&r.input, &r.out].into_iter().chain(&r.gates);
                    all.extend(linears.flat_map(|linear| dense(&linear.data)));
                }
                DeviceMixer::Attention(a) => {
                    all.extend([&a.q_norm, &a.k_norm]);
                    all.extend([&a.input, &a.out].iter().flat_map(|linear| dense(&linear.data)));
                }
            }
            let moe = &layer.moe;
            all.extend(dense(&moe.router.data));
            all.extend([&moe.shared_gate, &moe.gate.blocks, &moe.up.blocks, &moe.down.blocks]);
            all.extend([&moe.shared_in, &moe.shared_down].iter().flat_map(|l| dense(&l.data)));
        }
        all
    }
}

#[cfg(test)]
impl DeviceWeights {
    /// Every exponent.
    pub(super) fn exponents(&mut self) -> Vec<i32> {
        self.exponents_mut().into_iter().map(|(value, _)| *value).collect()
    }
}

fn dense(data: &Dense) -> Vec<&Slice> {
    match data {
        Dense::Q8(planes) => vec![&planes.codes, &planes.scales],
        Dense::F32(rows) => vec![rows],
    }
}

struct Loading<'a, 'b> {
    arena: &'a Arena,
    fill: &'a mut Fill<'b>,
    /// What bounds are wanted of.
    blocks: Vec<Blocks>,
}

impl Loading<'_, '_> {
    fn layer(&mut self, index: usize, layer: &model::Layer) -> Result<Layer, Error> {
        let name = |what: &str| format!("blk.{index}.{what}");
        let mixer = match &layer.mixer {
            Mixer::Recurrent(r) => DeviceMixer::Recurrent(self.recurrent(&name, r)?),
            Mixer::Attention(a) => DeviceMixer::Attention(Attention {
                input: self.linear(&name("attn_in"), &[&a.q, &a.k, &a.v])?,
                q_norm: self.floats(&name("attn_q_norm"), &a.q_norm, Float::Norm)?,
                k_norm: self.floats(&name("attn_k_norm"), &a.k_norm, Float::Norm)?,
                out: self.linear(&name("attn_output"), &[&a.output])?,
            }),
        };
        Ok(Layer {
            attn_norm: self.floats(&name("attn_norm"), &layer.attn_norm, Float::Norm)?,
            post_norm: self.floats(&name("post_norm"), &layer.post_norm, Float::Norm)?,
            mixer,
            moe: self.moe(&name, &layer.moe)?,
        })
    }

    fn recurrent(
        &mut self,
        name: &dyn Fn(&str) -> String,
        r: &model::Recurrent,
    ) -> Result<Recurrent, Error> {
        let together = [&r.alpha, &r.beta].iter().all(|m| m.ty == r.qkv.ty);
        let (input, gates) = if together {
            (self.linear(&name("attn_in"), &[&r.qkv, &r.gate, &r.alpha, &r.beta])?, None)
        } else {
            let gates = self.plain(&name("ssm_gates"), &[&r.alpha, &r.beta])?;
            (self.linear(&name("attn_in"), &[&r.qkv, &r.gate])?, Some(gates))
        };
        Ok(Recurrent {
            input,
            gates,
            conv: self.floats(&name("ssm_conv1d"), &r.conv, Float::Taps)?,
            a: self.floats(&name("ssm_a"), &r.a, Float::Decay)?,
            dt: self.floats(&name("ssm_dt"), &r.dt, Float::Bias)?,
            norm: self.floats(&name("ssm_norm"), &r.norm, Float::Norm)?,
            out: self.linear(&name("ssm_out"), &[&r.out])?,
        })
    }

    fn moe(&mut self, name: &dyn Fn(&str) -> String, moe: &model::Moe) -> Result<Moe, Error> {
        let router = [&moe.router];
        let gate = self.bank(&name("ffn_gate_exps"), &moe.gate)?;
        let up = self.bank(&name("ffn_up_exps"), &moe.up)?;
        let both = gate.bounds.start..up.bounds.end;
        let down = self.bank(&name("ffn_down_exps"), &moe.down)?;
        Ok(Moe {
            // `linear` decodes what is not `Q8_0`.
            router: self.linear(&name("ffn_gate_inp"), &router)?,
            shared_gate: self.floats(
                &name("ffn_gate_inp_shexp"),
                &moe.shared_gate_in,
                Float::Weight,
            )?,
            gate: Bank { bounds: both.clone(), ..gate },
            up: Bank { bounds: both, ..up },
            down,
            shared_in: self.alternating(&name("ffn_in_shexp"), &moe.sh_gate, &moe.sh_up)?,
            shared_down: self.shared_down(&name("ffn_down_shexp"), &moe.sh_down)?,
        })
    }

    fn floats(&mut self, name: &str, v: &Vector, kind: Float) -> Result<Slice, Error> {
        let slice = self.arena.buffer(name, (v.len * 4) as u64)?.all();
        self.fill.floats(v, kind, &slice)?;
        Ok(slice)
    }

    /// Rows of the matrices one after the other.
    fn linear(&mut self, name: &str, parts: &[&Matrix]) -> Result<Linear, Error> {
        if parts.iter().any(|m| m.ty != TensorType::Q8_0) {
            return self.plain(name, parts);
        }
        let (rows, cols) = size_of_all(parts);
        let planes = self.planes(name, rows, cols)?;
        let mut first = 0;
        for part in parts {
            self.fill.planes(&[part], &planes, first)?;
            first += part.rows;
        }
        Ok(self.quantized(rows, cols, planes))
    }

    /// Rows of two matrices in turn.
    fn alternating(&mut self, name: &str, a: &Matrix, b: &Matrix) -> Result<Linear, Error> {
        if [a, b].iter().any(|m| m.ty != TensorType::Q8_0) {
            return Err(Error::Storage { what: "the shared experts' gate and up projections" });
        }
        let (rows, cols) = size_of_all(&[a, b]);
        let planes = self.planes(name, rows, cols)?;
        self.fill.planes(&[a, b], &planes, 0)?;
        Ok(self.quantized(rows, cols, planes))
    }

    fn shared_down(&mut self, name: &str, matrix: &Matrix) -> Result<Linear, Error> {
        if matrix.ty != TensorType::Q8_0 {
            return Err(Error::Storage { what: "the shared experts' down projections" });
        }
        self.linear(name, &[matrix])
    }

    /// As [`Loading::linear`], decoded to f32.
    fn plain(&mut self, name: &str, parts: &[&Matrix]) -> Result<Linear, Error> {
        let (rows, cols) = size_of_all(parts);
        let slice = self.arena.buffer(name, (rows * cols * 4) as u64)?.all();
        let mut first = 0;
        for part in parts {
            self.fill.rows(part, &slice, first)?;
            first += part.rows;
        }
        let bounds = self.bounded(Scales::of(TensorType::F32), &slice);
        let data = Dense::F32(slice);
        Ok(Linear { rows: int(rows), cols: int(cols), data, exponent: 0, bounds })
    }

    fn quantized(&mut self, rows: usize, cols: usize, planes: Planes) -> Linear {
        let bounds = self.bounded(SCALES_PLANE, &planes.scales);
        let data = Dense::Q8(planes);
        Linear { rows: int(rows), cols: int(cols), data, exponent: 0, bounds }
    }

    /// Notes that a bound is wanted.
    fn bounded(&mut self, scales: Scales, data: &Slice) -> Range<usize> {
        self.blocks.push(Blocks { scales, data: data.clone() });
        self.blocks.len() - 1..self.blocks.len()
    }

    fn planes(&mut self, name: &str, rows: usize, cols: usize) -> Result<Planes, Error> {
        let values = (rows * cols) as u64;
        let codes = self.arena.buffer(&format!("{name} codes"), values)?.all();
        let scales = self.arena.buffer(&format!("{name} scales"), values / 16)?;
        let scales = scales.slice(0, values / 16);
        Ok(Planes { codes, scales })
    }

    fn bank(&mut self, name: &str, experts: &Experts) -> Result<Bank, Error> {
        let blocks = if let Some(blocks) = self.fill.in_place(experts)? {
            blocks
        } else {
            let bytes = (experts.expert_bytes * experts.count) as u64;
            let blocks = self.arena.buffer(name, bytes)?.all();
            self.fill.blocks(experts, &blocks)?;
            blocks
        };
        let bounds = self.bounded(Scales::of(experts.ty), &blocks);
        Ok(Bank { ty: experts.ty, blocks, exponent: 0, bounds })
    }
}

/// Rows of all, and their common width.
fn size_of_all(parts: &[&Matrix]) -> (usize, usize) {
    let cols = parts[0].cols;
    assert!(parts.iter().all(|m| m.cols == cols), "fused matrices are equally wide");
    (parts.iter().map(|m| m.rows).sum(), cols)
}

fn int(n: usize) -> u32 {
    u32::try_from(n).expect("dimensions were checked")
}
