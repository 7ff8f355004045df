//! Bulk saving, the reverse of `stage`: copies from the device into a ring of buffers that the host reads. A copy is
//! submitted without waiting for it, so it runs behind the step before it and beside the host's work; what has
//! arrived may be read by another thread, and its buffer is used again once that thread has let go of it.

use super::buffer::{Buffer, Slice};
use super::device::Device;
use super::error::Error;
use super::memory::{Arena, Residence};
use super::record::{Commands, barrier};
use super::submit::{Patience, Queue, Ticket, Waited};
use ash::vk::{self, AccessFlags2 as A, PipelineStageFlags2 as S};
use std::sync::Arc;

/// One readback buffer with the commands that fill it.
struct Slot {
    commands: Commands,
    buffer: Arc<Buffer>,
    /// The copy into it that was last submitted, and where from.
    busy: Option<(Ticket, Vec<Arc<Buffer>>)>,
}

/// A ring of readback buffers. Dropping it waits for what it has under way.
pub struct Fetch {
    slots: Vec<Slot>,
    piece_bytes: u64,
}

/// A copy under way. Its buffer is kept for it, also when this is dropped before the copy has run.
pub struct Fetching {
    ticket: Ticket,
    buffer: Arc<Buffer>,
}

/// Bytes that have arrived, the slices of [`Fetch::start`] one after the other. For any thread.
pub struct Fetched {
    buffer: Arc<Buffer>,
}

impl Fetch {
    /// `slots` buffers of `piece_bytes` each.
    pub fn new(device: &Arc<Device>, slots: usize, piece_bytes: usize) -> Result<Self, Error> {
        let piece_bytes = piece_bytes as u64;
        let arena = Arena::new(device, "fetching", Residence::Readback, slots as u64 * piece_bytes);
        let slot = |_| {
            Ok(Slot {
                commands: Commands::new(device)?,
                buffer: arena.buffer("fetching", piece_bytes)?,
                busy: None,
            })
        };
        let slots = (0..slots).map(slot).collect::<Result<_, Error>>()?;
        Ok(Self { slots, piece_bytes })
    }

    /// Submits copies of some slices behind everything submitted before. `None` when every buffer of the ring is
    /// being filled or read.
    ///
    /// # Panics
    /// When the slices together are larger than a piece, leave their buffers, or are not made of whole words.
    pub fn start(&mut self, queue: &mut Queue, from: &[Slice]) -> Result<Option<Fetching>, Error> {
        let bytes: u64 = from.iter().map(|slice| slice.bytes).sum();
        assert!(bytes <= self.piece_bytes, "{bytes} bytes, a piece has {}", self.piece_bytes);
        for slice in from {
            queue.check(slice, usize::try_from(slice.bytes).unwrap_or(usize::MAX));
        }
        let mut free = None;
        for slot in &mut self.slots {
            if slot.is_free(queue)? {
                free = Some(slot);
                break;
            }
        }
        let Some(slot) = free else { return Ok(None) };
        slot.record(from)?;
        let ticket = queue.submit_raw(slot.commands.buffer, "save")?;
        slot.busy = Some((ticket, from.iter().map(|slice| Arc::clone(&slice.buffer)).collect()));
        Ok(Some(Fetching { ticket, buffer: Arc::clone(&slot.buffer) }))
    }
}

impl Fetching {
    /// Waits for the copy.
    pub fn finish(self, queue: &mut Queue) -> Result<Fetched, Error> {
        let waited = queue.wait(self.ticket, &Patience::default())?;
        assert_eq!(waited, Waited::Done, "the default patience never gives up");
        Ok(Fetched { buffer: self.buffer })
    }
}

impl Fetched {
    /// Copies out what stands from byte `offset` on.
    ///
    /// # Panics
    /// Past the end.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        self.buffer.read(offset, out);
    }
}

impl Slot {
    /// Whether neither the device nor a reader uses the buffer.
    fn is_free(&mut self, queue: &mut Queue) -> Result<bool, Error> {
        if let Some((ticket, _)) = &self.busy {
            if !queue.is_done(*ticket)? {
                return Ok(false);
            }
            self.busy = None;
        }
        Ok(Arc::strong_count(&self.buffer) == 1)
    }

    fn record(&self, from: &[Slice]) -> Result<(), Error> {
        self.commands.record(|vk, commands| {
            let written = A::SHADER_STORAGE_WRITE | A::TRANSFER_WRITE;
            let before = S::COMPUTE_SHADER | S::COPY | S::CLEAR;
            barrier(
                vk,
                commands,
                (before, written),
                (S::COPY, A::TRANSFER_READ | A::TRANSFER_WRITE),
            );
            let mut at = 0;
            for slice in from {
                let region = [vk::BufferCopy::default()
                    .src_offset(slice.offset)
                    .dst_offset(at)
                    .size(slice.bytes)];
                let (source, target) = (slice.buffer.raw(), self.buffer.raw());
                // SAFETY: Both buffers are held until the copy has run, and the ranges were checked.
                unsafe { vk.cmd_copy_buffer(commands, source, target, &region) };
                at += slice.bytes;
            }
            barrier(vk, commands, (S::COPY, A::TRANSFER_WRITE), (S::HOST, A::HOST_READ));
        })
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        for slot in &self.slots {
            if slot.busy.is_some() {
                slot.commands.wait_idle();
            }
        }
    }
}

/// Readers are other threads.
const fn crosses_threads<T: Send + Sync>() {}
const _: () = crosses_threads::<Fetched>();
