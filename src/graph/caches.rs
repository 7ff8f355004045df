//! What outlives a step: K and V rows of all sessions, recurrent states of all slots.

use super::Error;
use crate::kernels::kv::{KvLayout, KvPlanes, Side};
use crate::model::{Shape, SlotId};
use crate::vulkan::{Arena, Queue, Slice};

/// Recurrent states: for each recurrent layer a buffer of the rings of convolution rows and one of S, of all slots.
pub(super) struct States {
    pub(super) rings: Vec<Slice>,
    pub(super) matrices: Vec<Slice>,
    slots: usize,
}

impl States {
    pub(super) fn new(shape: &Shape, arena: &Arena, slots: usize) -> Result<Self, Error> {
        let buffers = |name: &str, len: usize| -> Result<Vec<Slice>, Error> {
            let bytes = (len * slots * 4) as u64;
            let buffer = |_| Ok(arena.buffer(name, bytes)?.all());
            (0..shape.recurrent_layers()).map(buffer).collect()
        };
        Ok(Self {
            rings: buffers("convolution rings", shape.conv_rows_len())?,
            matrices: buffers("states", shape.state_len())?,
            slots,
        })
    }

    /// Makes a slot that of an empty sequence.
    pub(super) fn clear(&self, queue: &mut Queue, slot: SlotId) -> Result<(), Error> {
        let parts = self.rings.iter().chain(&self.matrices).map(|all| {
            let bytes = all.bytes / self.slots as u64;
            all.buffer.slice(all.offset + u64::from(slot.0) * bytes, bytes)
        });
        Ok(queue.clear(&parts.collect::<Vec<_>>())?)
    }

    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    pub(super) fn slices(&self) -> impl Iterator<Item = &Slice> {
        self.rings.iter().chain(&self.matrices)
    }
}

/// K and V rows: for each attention layer a buffer of K pages and one of V pages, of all sessions.
pub(super) struct KvCache {
    pub(super) keys: Vec<KvPlanes>,
    pub(super) values: Vec<KvPlanes>,
    pages_each: u32,
}

impl KvCache {
    pub(super) fn new(
        layers: usize,
        arena: &Arena,
        layout: &KvLayout,
        sessions: usize,
        ctx: usize,
    ) -> Result<Self, Error> {
        let each = ctx.div_ceil(crate::kernels::control::PAGE_TOKENS);
        let pages = each * sessions;
        let planes = |side, name: &str| -> Result<Vec<KvPlanes>, Error> {
            let bytes = layout.buffer_bytes(side, pages);
            let layer = |_| Ok(layout.planes(side, &arena.buffer(name, bytes)?.all(), pages));
            (0..layers).map(layer).collect()
        };
        Ok(Self {
            keys: planes(Side::Keys, "K rows")?,
            values: planes(Side::Values, "V rows")?,
            pages_each: u32::try_from(each).expect("contexts are counted in 32 bits"),
        })
    }

    /// First page of a session.
    pub(super) fn page(&self, place: u32) -> u32 {
        place * self.pages_each
    }

    pub(super) fn slices(&self) -> impl Iterator<Item = &Slice> {
        self.keys.iter().chain(&self.values).flat_map(|p| [&p.codes, &p.scales])
    }
}
