//! A session's state, part by part, for files. Rows of K and V lie in memory as they do in a file, so this copies;
//! convolution rows are put in order.

use super::backend::Backend;
use super::kv::Kv;
use super::{Error, slots::LayerState};
use crate::model::{SlotId, StatePart};
use std::ops::Range;

impl Backend {
    /// Appends the bytes of a part of the state after `pos` tokens, as files hold it: rows from `kv`, the rest
    /// from `slot`.
    ///
    /// # Errors
    /// When there is no such slot.
    ///
    /// # Panics
    /// When the model has no such part.
    pub fn read_state(
        &self,
        (kv, slot, pos): (&Kv, SlotId, usize),
        part: &StatePart,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        match part {
            StatePart::Keys { index, rows } => out.extend(kv.keys(*index, rows.clone())),
            StatePart::Values { index, rows } => out.extend(kv.values(*index, rows.clone())),
            StatePart::Conv { index } => {
                let (rows, _) = self.read_slot(slot, *index, pos)?;
                for row in rows {
                    out.extend_from_slice(bytemuck::cast_slice(row));
                }
            }
            StatePart::Matrix { index, heads } => {
                let (_, state) = self.read_slot(slot, *index, pos)?;
                let range = self.head_values(heads);
                out.extend_from_slice(bytemuck::cast_slice(&state[range]));
            }
        }
        Ok(())
    }

    /// Sets what [`Backend::read_state`] gives.
    ///
    /// # Errors
    /// As that.
    ///
    /// # Panics
    /// As that, and when the bytes are not as many as the part has.
    pub fn write_state(
        &mut self,
        (kv, slot, pos): (&mut Kv, SlotId, usize),
        part: &StatePart,
        bytes: &[u8],
    ) -> Result<(), Error> {
        match part {
            StatePart::Keys { index, rows } => kv.keys[*index].put(rows.clone(), bytes),
            StatePart::Values { index, rows } => kv.values[*index].put(rows.clone(), bytes),
            StatePart::Conv { index } => {
                let taps = self.model().shape.conv_taps;
                put_conv(self.slot_layer(slot, *index)?, taps, pos, bytes);
            }
            StatePart::Matrix { index, heads } => {
                let range = self.head_values(heads);
                let layer = self.slot_layer(slot, *index)?;
                bytemuck::cast_slice_mut(&mut layer.state[range]).copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    /// Where S of some value heads is among those of all.
    fn head_values(&self, heads: &Range<usize>) -> Range<usize> {
        let each = self.model().shape.state_dim.pow(2);
        heads.start * each..heads.end * each
    }
}

/// Puts the rows before `pos`, oldest first, into their places of the ring.
fn put_conv(layer: &mut LayerState, taps: usize, pos: usize, bytes: &[u8]) {
    let channels = layer.conv.len() / taps;
    let row_bytes = channels * size_of::<f32>();
    assert_eq!(bytes.len(), (taps - 1) * row_bytes, "bytes of convolution rows");
    for (row, back) in bytes.chunks_exact(row_bytes).zip((1..taps).rev()) {
        let place = (pos + taps - back) % taps;
        let place = &mut layer.conv[place * channels..][..channels];
        bytemuck::cast_slice_mut(place).copy_from_slice(row);
    }
}
