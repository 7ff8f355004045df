//! A step through the whole model (model.md 3.2).

use super::kv::Kv;
use super::linear::{Job, Precision, Rows, multiply};
use super::scratch::Scratch;
use super::slots::LayerState;
use super::{Error, attention, ffn, recurrent};
use crate::model::{Experts, Matrix, Mixer, Model, Shape, SlotId, Vector};
use crate::ops::{self, RopeTable, Steering};
use crate::quant;
use rayon::prelude::*;

/// For which tokens of a step logits are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logits {
    /// None.
    None,
    /// The last one.
    Last,
    /// All, one row each.
    All,
}

/// Called with 0 and the embedded rows, `[tokens][hidden]`, then with `l + 1` and the rows after layer `l`.
pub type Tap<'a> = dyn Fn(usize, &[f32]) + Sync + 'a;

/// Consecutive tokens of one sequence.
#[derive(Clone, Copy)]
pub struct Step<'a> {
    /// Token ids, at most a chunk of them.
    pub tokens: &'a [u32],
    /// Position of the first.
    pub pos: usize,
    /// Slot with the state before the first token. Never written, unless it is the target.
    pub source: SlotId,
    /// Slot for the state after the last token.
    pub target: SlotId,
    /// Which logits are wanted.
    pub logits: Logits,
    /// Asked before every layer; `true` ends the step. Not asked when source and target are one slot: such a step
    /// could not be undone.
    pub cancel: &'a (dyn Fn() -> bool + Sync),
    /// Sees the residual stream.
    pub tap: Option<&'a Tap<'a>>,
}

/// What the parts of a layer need to know of a step.
pub(super) struct Chunk<'a> {
    pub(super) model: &'a Model,
    pub(super) shape: &'a Shape,
    pub(super) precision: Precision,
    /// Position of the first token.
    pub(super) pos: usize,
    /// Number of tokens.
    pub(super) n: usize,
}

impl<'a> Chunk<'a> {
    /// The stored rows of a matrix.
    pub(super) fn rows(&self, matrix: &Matrix) -> Rows<'a> {
        Rows { ty: matrix.ty, bytes: self.model.bytes(matrix), cols: matrix.cols }
    }

    /// The stored rows of one expert's matrix.
    pub(super) fn expert(&self, experts: &Experts, expert: u32) -> Rows<'a> {
        let bytes = self.model.expert(experts, expert as usize);
        Rows { ty: experts.ty, bytes, cols: experts.cols }
    }
}

/// One step on its way through the layers.
pub(super) struct Pass<'a> {
    pub(super) chunk: Chunk<'a>,
    pub(super) rope: &'a RopeTable,
    pub(super) taps: &'a [Vec<f32>],
    pub(super) steering: Option<&'a Steering>,
    pub(super) scratch: &'a mut Scratch,
    pub(super) kv: &'a mut Kv,
}

impl Pass<'_> {
    /// Through all layers: K/V rows and the target slot are written, the residual stream is left in the scratch.
    pub(super) fn layers(
        &mut self,
        step: &Step<'_>,
        source: Option<&[LayerState]>,
        target: &mut [LayerState],
    ) -> Result<(), Error> {
        let (model, shape) = (self.chunk.model, self.chunk.shape);
        let values = self.chunk.n * shape.hidden;
        let tap = |depth, x: &[f32]| {
            if let Some(tap) = step.tap {
                tap(depth, &x[..values]);
            }
        };
        self.embed(step.tokens);
        tap(0, &self.scratch.x);
        for (i, layer) in model.weights.layers.iter().enumerate() {
            if source.is_some() && (step.cancel)() {
                return Err(Error::Cancelled { layer: i });
            }
            self.norm(&layer.attn_norm, Reader::Mixer);
            match &layer.mixer {
                Mixer::Recurrent(r) => {
                    let index = shape.recurrent_index(i).expect("a recurrent layer");
                    let states = (source.map(|s| &s[index]), &mut target[index]);
                    recurrent::mix(&self.chunk, r, &self.taps[index], self.scratch, states);
                }
                Mixer::Attention(a) => {
                    let index = shape.attention_index(i).expect("an attention layer");
                    let rows = (&mut self.kv.keys[index], &mut self.kv.values[index]);
                    attention::mix(&self.chunk, a, self.rope, self.scratch, rows);
                }
            }
            self.add(i, |steering| steering.attention);
            self.norm(&layer.post_norm, Reader::Experts);
            ffn::run(&self.chunk, i, &layer.moe, self.scratch)?;
            self.add(i, |steering| steering.ffn);
            tap(i + 1, &self.scratch.x);
        }
        Ok(())
    }

    /// Puts the embedding rows of the tokens into the residual stream.
    fn embed(&mut self, tokens: &[u32]) {
        let table = self.chunk.rows(&self.chunk.model.weights.embedding);
        let rows = self.scratch.x.par_chunks_exact_mut(self.chunk.shape.hidden);
        rows.zip(tokens).for_each(|(row, id)| {
            quant::dequantize(table.ty, table.slice(*id as usize, 1).bytes, row);
        });
    }

    /// Adds the output of a mixer or of the experts to the residual stream, after the steering edit.
    fn add(&mut self, layer: usize, scale: impl Fn(&Steering) -> f32) {
        let edit = self.steering.and_then(|s| Some((s.direction(layer)?, scale(s))));
        let edit = edit.filter(|(_, scale)| *scale != 0.0);
        let (hidden, n) = (self.chunk.shape.hidden, self.chunk.n);
        let (x, y) = (&mut self.scratch.x[..n * hidden], &mut self.scratch.y[..n * hidden]);
        let rows = x.par_chunks_exact_mut(hidden).zip(y.par_chunks_exact_mut(hidden));
        rows.for_each(|(x, y)| {
            if let Some((direction, scale)) = edit {
                ops::steer(y, direction, scale);
            }
            for (x, y) in x.iter_mut().zip(y) {
                *x += *y;
            }
        });
    }

    /// Normalises the residual stream into `y` and prepares the rows for whoever reads them.
    fn norm(&mut self, weight: &Vector, reader: Reader) {
        let (weight, shape) = (self.chunk.model.f32s(weight), self.chunk.shape);
        let n = self.chunk.n;
        let Scratch { x, y, mixer_in, moe_in, .. } = &mut *self.scratch;
        let rows = x[..n * shape.hidden].par_chunks_exact(shape.hidden);
        let rows = rows.zip(y.par_chunks_exact_mut(shape.hidden));
        let normalise = |x: &[f32], y: &mut [f32]| ops::rms_norm(x, weight, shape.rms_eps, y);
        let activations = match reader {
            Reader::Mixer => mixer_in,
            Reader::Experts => moe_in,
            Reader::Nobody => return rows.for_each(|(x, y)| normalise(x, y)),
        };
        rows.zip(activations).for_each(|((x, y), activation)| {
            normalise(x, y);
            activation.set(y);
        });
    }

    /// The last norm of all rows, and the logits of those asked for.
    pub(super) fn head(&mut self, step: &Step<'_>, logits: &mut Vec<f32>) -> Result<(), Error> {
        let (model, shape, n) = (self.chunk.model, self.chunk.shape, self.chunk.n);
        self.norm(&model.weights.output_norm, Reader::Nobody);
        let first = match step.logits {
            Logits::None => return Ok(()),
            Logits::Last => n - 1,
            Logits::All => 0,
        };
        let rows = self.scratch.y.chunks_exact(shape.hidden).skip(first);
        let inputs = &mut self.scratch.mixer_in[first..n];
        for (row, activation) in rows.zip(&mut *inputs) {
            activation.set(row);
        }
        logits.resize((n - first) * shape.vocab, 0.0);
        let jobs = [Job { weights: self.chunk.rows(&model.weights.output), out: &mut *logits }];
        multiply(self.chunk.precision, inputs, jobs);
        let bad = logits.par_chunks_exact(shape.vocab).position_first(|row| !all_finite(row));
        match bad {
            Some(row) => Err(Error::NonFinite { pos: self.chunk.pos + first + row }),
            None => Ok(()),
        }
    }
}

/// Who reads the rows of a norm.
#[derive(Clone, Copy)]
enum Reader {
    Mixer,
    Experts,
    Nobody,
}

/// No NaN and no infinity. Without an early exit, so that it is vector code.
fn all_finite(row: &[f32]) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    row.iter().fold(0, |max, v| max.max(v.to_bits() & EXPONENT)) < EXPONENT
}
