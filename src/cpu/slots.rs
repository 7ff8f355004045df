//! The arena of recurrent state slots (design decision 16).
//!
//! A slot holds, for every recurrent layer, the state `S` (`[value head][key channel][value channel]`) and a ring of the
//! last `conv_taps` raw convolution rows, the row of position `p` at place `p mod conv_taps`. Rows of positions
//! before 0 are zero. All f32; memory is mapped when first written.

use super::Error;
use crate::model::{Shape, SlotId};

/// One recurrent layer's part of a slot.
#[derive(Debug)]
pub(super) struct LayerState {
    /// Ring of raw convolution rows.
    pub(super) conv: Vec<f32>,
    /// The delta-rule state of all value heads.
    pub(super) state: Vec<f32>,
}

#[derive(Debug)]
struct Slot {
    layers: Vec<LayerState>,
    /// Written since it was last all zero.
    dirty: bool,
}

/// All slots of a process; their number is fixed when the backend is made.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    taps: usize,
}

impl Slots {
    pub(super) fn new(shape: &Shape, count: usize) -> Self {
        let layer = || LayerState {
            conv: vec![0.0; shape.conv_rows_len()],
            state: vec![0.0; shape.state_len()],
        };
        let slot = || Slot {
            layers: (0..shape.recurrent_layers()).map(|_| layer()).collect(),
            dirty: false,
        };
        Self { slots: (0..count).map(|_| slot()).collect(), taps: shape.conv_taps }
    }

    fn place(&self, id: SlotId) -> Result<usize, Error> {
        let place = id.0 as usize;
        let slots = self.slots.len();
        if place < slots { Ok(place) } else { Err(Error::Slot { slot: id.0, slots }) }
    }

    /// Makes a slot that of an empty sequence.
    pub(super) fn reset(&mut self, id: SlotId) -> Result<(), Error> {
        let place = self.place(id)?;
        let slot = &mut self.slots[place];
        if slot.dirty {
            for layer in &mut slot.layers {
                layer.conv.fill(0.0);
                layer.state.fill(0.0);
            }
            slot.dirty = false;
        }
        Ok(())
    }

    /// The layers of the slot a step reads and of the one it writes; no source where they are the same.
    pub(super) fn pair(
        &mut self,
        source: SlotId,
        target: SlotId,
    ) -> Result<(Option<&[LayerState]>, &mut [LayerState]), Error> {
        let (from, to) = (self.place(source)?, self.place(target)?);
        self.slots[to].dirty = true;
        if from == to {
            return Ok((None, &mut self.slots[to].layers));
        }
        let [from, to] =
            self.slots.get_disjoint_mut([from, to]).expect("two different places of the arena");
        Ok((Some(&from.layers), &mut to.layers))
    }

    /// The raw convolution rows of the `conv_taps - 1` positions before `pos`, oldest first, and the state of one
    /// recurrent layer.
    pub(super) fn read(
        &self,
        id: SlotId,
        index: usize,
        pos: usize,
    ) -> Result<(Vec<&[f32]>, &[f32]), Error> {
        let layer = &self.slots[self.place(id)?].layers[index];
        let channels = layer.conv.len() / self.taps;
        let row = |back: usize| {
            let place = (pos + self.taps - back) % self.taps;
            &layer.conv[place * channels..][..channels]
        };
        Ok(((1..self.taps).rev().map(row).collect(), &layer.state))
    }

    /// One recurrent layer of a slot, to write.
    pub(super) fn layer_mut(&mut self, id: SlotId, index: usize) -> Result<&mut LayerState, Error> {
        let place = self.place(id)?;
        let slot = &mut self.slots[place];
        slot.dirty = true;
        Ok(&mut slot.layers[index])
    }

    /// Sets what [`Slots::read`] gives, the rows one after the other.
    pub(super) fn write(
        &mut self,
        id: SlotId,
        index: usize,
        pos: usize,
        (rows, state): (&[f32], &[f32]),
    ) -> Result<(), Error> {
        let (place, taps) = (self.place(id)?, self.taps);
        let slot = &mut self.slots[place];
        slot.dirty = true;
        let layer = &mut slot.layers[index];
        let channels = layer.conv.len() / taps;
        assert!(rows.len() == (taps - 1) * channels, "{} values of history", rows.len());
        for (row, back) in rows.chunks_exact(channels).zip((1..taps).rev()) {
            let place = (pos + taps - back) % taps;
            layer.conv[place * channels..][..channels].copy_from_slice(row);
        }
        layer.state.copy_from_slice(state);
        Ok(())
    }
}
