//! A sequence on the CPU backend, and the comparison of its logits.

use q36::cpu::{Backend, Error, Kv, Logits, Options, Step};
use q36::model::{Model, SlotId};
use q36::quant::TensorType;
use std::sync::Arc;

/// The setup of most tests: f16 rows, two threads, three slots.
pub(crate) fn options(quality: bool) -> Options {
    Options {
        kv_k: TensorType::F16,
        kv_v: TensorType::F16,
        ctx: 6000,
        slots: 3,
        threads: 2,
        quality,
        chunk: 512,
        steering: None,
    }
}

/// One sequence. Its steps go from one of two slots to the other, as prefill does.
pub(crate) struct Run {
    pub(crate) backend: Backend,
    pub(crate) kv: Kv,
    pub(crate) pos: usize,
    pub(crate) slot: SlotId,
}

impl Run {
    pub(crate) fn new(model: &Arc<Model>, options: Options) -> Self {
        let backend = Backend::new(Arc::clone(model), options).expect("valid options");
        let kv = backend.new_kv();
        Self { backend, kv, pos: 0, slot: SlotId(0) }
    }

    /// Starts over.
    pub(crate) fn restart(&mut self) {
        self.backend.reset_slot(self.slot).expect("the slot exists");
        self.pos = 0;
    }

    /// One step to any slot; after an error nothing has moved.
    pub(crate) fn try_step(
        &mut self,
        tokens: &[u32],
        target: SlotId,
        logits: Logits,
        cancel: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), Error> {
        let (pos, source) = (self.pos, self.slot);
        let step = Step { tokens, pos, source, target, logits, cancel, tap: None };
        self.backend.forward(&mut self.kv, &step)?;
        self.pos += tokens.len();
        self.slot = target;
        Ok(())
    }

    /// One step to a slot.
    pub(crate) fn step(&mut self, tokens: &[u32], target: SlotId, logits: Logits) -> &[f32] {
        self.try_step(tokens, target, logits, &|| false).expect("a valid step");
        self.backend.logits()
    }

    /// Tokens in chunks; the logits of the last one.
    pub(crate) fn feed(&mut self, tokens: &[u32], chunk: usize) -> &[f32] {
        let mut left = tokens.len();
        for part in tokens.chunks(chunk) {
            left -= part.len();
            let logits = if left == 0 { Logits::Last } else { Logits::None };
            self.step(part, SlotId(1 - self.slot.0), logits);
        }
        self.backend.logits()
    }

    /// Convolution rows and states of all recurrent layers in a slot that stands at `pos`.
    pub(crate) fn slot_bits(&self, slot: SlotId, pos: usize) -> Vec<u32> {
        let layers = 0..self.backend.model().shape.recurrent_layers();
        let read = |index| self.backend.read_slot(slot, index, pos).expect("the slot exists");
        let values = layers.map(read).map(|(rows, state)| [rows.concat(), state.to_vec()].concat());
        bits(&values.collect::<Vec<_>>().concat())
    }
}

/// The bits of a row, which are compared where equal means equal.
pub(crate) fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|v| v.to_bits()).collect()
}

/// Log-probabilities of a row of logits.
pub(crate) fn log_probabilities(logits: &[f32]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = logits.iter().map(|v| f64::from(v - max).exp()).sum();
    logits.iter().map(|v| f64::from(v - max) - sum.ln()).collect()
}

/// The index of the largest logit, the first of equal ones.
pub(crate) fn argmax(logits: &[f32]) -> usize {
    let better = |best: usize, i: usize| if logits[i] > logits[best] { i } else { best };
    (1..logits.len()).fold(0, better)
}
