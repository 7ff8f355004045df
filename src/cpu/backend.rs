//! The backend as its users see it: set up once, then one step after the other.

use super::forward::{Chunk, Pass, Step};
use super::kv::{Kv, check_type};
use super::linear::Precision;
use super::pool::Pool;
use super::scratch::Scratch;
use super::slots::Slots;
use super::{Error, recurrent};
use crate::model::{Mixer, Model, SlotId};
use crate::ops::{RopeTable, Steering};
use crate::quant::TensorType;
use std::sync::Arc;

/// How the backend is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Type of stored keys: `F16`, `Q8_0` or `Q4_0`.
    pub kv_k: TensorType,
    /// Type of stored values: `F16`, `Q8_0` or `Q4_0`.
    pub kv_v: TensorType,
    /// Positions of each session.
    pub ctx: usize,
    /// Recurrent state slots.
    pub slots: usize,
    /// Worker threads.
    pub threads: usize,
    /// Exact products instead of 8-bit ones.
    pub quality: bool,
    /// Largest number of tokens in a step.
    pub chunk: usize,
    /// Directional steering.
    pub steering: Option<Steering>,
}

/// The model on the CPU: weights in place, threads, state slots and working memory.
pub struct Backend {
    model: Arc<Model>,
    options: Options,
    pool: Pool,
    slots: Slots,
    rope: RopeTable,
    /// Convolution weights of each recurrent layer, tap by tap.
    taps: Vec<Vec<f32>>,
    scratch: Scratch,
    /// Rows of the last step that asked for some.
    logits: Vec<f32>,
    /// Tokens of the last step.
    tokens: usize,
}

impl Backend {
    /// Takes a model and sets up everything a step needs. Large memory is mapped when first used.
    pub fn new(model: Arc<Model>, options: Options) -> Result<Self, Error> {
        check_type("K", options.kv_k)?;
        check_type("V", options.kv_v)?;
        let shape = &model.shape;
        let range = |name, found, max: usize| {
            let expected = format!("1 to {max}");
            if (1..=max).contains(&found) {
                Ok(())
            } else {
                Err(Error::Option { name, expected, found })
            }
        };
        range("ctx", options.ctx, u32::MAX as usize)?;
        range("chunk", options.chunk, options.ctx)?;
        range("slots", options.slots, u32::MAX as usize)?;
        let precision = if options.quality { Precision::Exact } else { Precision::Fast };
        let taps = model.weights.layers.iter().filter_map(|layer| match &layer.mixer {
            Mixer::Recurrent(r) => {
                Some(recurrent::taps_by_row(model.f32s(&r.conv), shape.conv_taps))
            }
            Mixer::Attention(_) => None,
        });
        Ok(Self {
            pool: Pool::new(options.threads)?,
            slots: Slots::new(shape, options.slots),
            rope: RopeTable::new(options.ctx, shape.rope_dims, shape.rope_base),
            taps: taps.collect(),
            scratch: Scratch::new(&model, precision, options.chunk, options.threads),
            logits: Vec::new(),
            tokens: 0,
            options,
            model,
        })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// How the backend was set up.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Empty K/V rows for one session.
    pub fn new_kv(&self) -> Kv {
        Kv::new(&self.model.shape, self.options.kv_k, self.options.kv_v, self.options.ctx)
    }

    /// Makes a slot that of an empty sequence.
    pub fn reset_slot(&mut self, slot: SlotId) -> Result<(), Error> {
        self.slots.reset(slot)
    }

    /// The state of one recurrent layer in a slot that stands at position `pos`: the raw convolution rows before `pos`,
    /// oldest first, and S.
    pub fn read_slot(
        &self,
        slot: SlotId,
        index: usize,
        pos: usize,
    ) -> Result<(Vec<&[f32]>, &[f32]), Error> {
        self.slots.read(slot, index, pos)
    }

    /// Sets what [`Backend::read_slot`] gives, the rows one after the other.
    pub fn write_slot(
        &mut self,
        slot: SlotId,
        index: usize,
        pos: usize,
        layer: (&[f32], &[f32]),
    ) -> Result<(), Error> {
        self.slots.write(slot, index, pos, layer)
    }

    /// One recurrent layer of a slot, to write.
    pub(super) fn slot_layer(
        &mut self,
        slot: SlotId,
        index: usize,
    ) -> Result<&mut super::slots::LayerState, Error> {
        self.slots.layer_mut(slot, index)
    }

    /// The logits of the last step: as many rows of the vocabulary as it asked for.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// The rows that the head reads, `[tokens of the last step][hidden]`: after the last norm.
    pub fn hidden(&self) -> &[f32] {
        &self.scratch.y[..self.tokens * self.model.shape.hidden]
    }

    /// Computes a step. After an error the target slot and the K/V rows of the step mean nothing, and neither do
    /// [`Backend::logits`] and [`Backend::hidden`]; everything else is as it was.
    pub fn forward(&mut self, kv: &mut Kv, step: &Step<'_>) -> Result<(), Error> {
        self.check(kv, step)?;
        self.logits.clear();
        self.tokens = 0;
        let (source, target) = self.slots.pair(step.source, step.target)?;
        let precision = if self.options.quality { Precision::Exact } else { Precision::Fast };
        let (model, n) = (&*self.model, step.tokens.len());
        let mut pass = Pass {
            chunk: Chunk { model, shape: &model.shape, precision, pos: step.pos, n },
            rope: &self.rope,
            taps: &self.taps,
            steering: self.options.steering.as_ref(),
            scratch: &mut self.scratch,
            kv,
        };
        let logits = &mut self.logits;
        self.pool.run(|| {
            pass.layers(step, source, target)?;
            pass.head(step, logits)
        })?;
        self.tokens = n;
        Ok(())
    }

    fn check(&self, kv: &Kv, step: &Step<'_>) -> Result<(), Error> {
        let (found, chunk) = (step.tokens.len(), self.options.chunk);
        if !(1..=chunk).contains(&found) {
            return Err(Error::StepLength { chunk, found });
        }
        let (end, ctx) = (step.pos.saturating_add(found), kv.ctx());
        if end > ctx {
            return Err(Error::Context { end, ctx });
        }
        let vocab = self.model.shape.vocab;
        match step.tokens.iter().position(|id| *id as usize >= vocab) {
            Some(i) => Err(Error::Token { id: step.tokens[i], pos: step.pos + i, vocab }),
            None => Ok(()),
        }
    }
}
