//! What the sessions are doing, for whoever asks.

use super::floor::Floor;
use super::prefill::rate;
use super::slot::{Slot, Work};
use crate::server::SlotStatus;

impl Floor {
    /// Tells the desk how things are.
    pub(super) fn publish(&self, state: crate::server::State, queued: usize) {
        let slots = self.slots.iter().enumerate().map(|(id, slot)| self.status(id, slot)).collect();
        let active = self.slots.iter().filter(|slot| !slot.is_idle()).count();
        let counters = self.common.desk.counters();
        counters.set_load(queued, active);
        if let Some((files, bytes)) = self.common.saved.sizes() {
            counters.set_disk(files, bytes);
        }
        self.common.desk.announce(state, slots);
    }

    fn status(&self, id: usize, slot: &Slot) -> SlotStatus {
        let tokens = self.engine.tokens(slot.session).len();
        let (state, tokens_per_second) = match &slot.work {
            Work::Idle => ("idle", 0.0),
            Work::Prefill(_) => ("prefill", 0.0),
            Work::Decode(active) => {
                let state = if active.serving.stalled.is_some() { "paused" } else { "decode" };
                (state, rate(active.writing.tokens(), active.started.elapsed()))
            }
        };
        let bound = slot.bindings.last().filter(|binding| binding.tokens == tokens);
        SlotStatus {
            id,
            state,
            tokens,
            last_used: slot.used_at,
            binding: bound.map_or("none", super::bindings::Binding::name),
            request: slot.serving().map(|serving| serving.id.clone()),
            tokens_per_second,
            anchors: self.engine.restarts(slot.session),
        }
    }
}
