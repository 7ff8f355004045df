//! Bulk loading: a ring of upload buffers. The host fills one while the device copies from the others, or has dispatches
//! read them where they are, so a load runs at the speed of the slower of the two. Who fills by many threads can have the
//! piece before submitted meanwhile: recording takes as long as filling some megabytes.

use super::buffer::{Buffer, Slice};
use super::device::Device;
use super::error::Error;
use super::memory::{Arena, Residence};
use super::record::{Commands, Graph, barrier};
use super::submit::{Patience, Queue, Ticket, Waited};
use ash::vk::{self, AccessFlags2 as A, PipelineStageFlags2 as S};
use rayon::prelude::*;
use std::sync::Arc;

/// One upload buffer with the commands that empty it.
struct Slot {
    commands: Commands,
    buffer: Arc<Buffer>,
    /// What was last submitted that reads it, and where its bytes go if the commands are ours.
    busy: Option<(Ticket, Vec<Arc<Buffer>>)>,
}

/// A ring of upload buffers. Dropping it waits for what it has under way.
pub struct Stage {
    slots: Vec<Slot>,
    next: usize,
    piece_bytes: usize,
    /// The slot that is filled and not submitted yet.
    filled: Option<(usize, Work)>,
}

/// What empties a slot.
enum Work {
    /// A copy to these slices, one after the other.
    Copy(Vec<Slice>),
    /// Dispatches that read it.
    Dispatch(Graph),
}

impl Stage {
    /// `slots` buffers of `piece_bytes` each.
    pub fn new(device: &Arc<Device>, slots: usize, piece_bytes: usize) -> Result<Self, Error> {
        // By several threads, each with its own arena: drivers take milliseconds to pin a buffer's pages.
        let slot = |_| {
            let arena = Arena::new(device, "staging", Residence::Upload, piece_bytes as u64);
            Ok(Slot {
                commands: Commands::new(device)?,
                buffer: arena.buffer("staging", piece_bytes as u64)?,
                busy: None,
            })
        };
        let slots = (0..slots).into_par_iter().map(slot).collect::<Result<_, Error>>()?;
        Ok(Self { slots, next: 0, piece_bytes, filled: None })
    }

    /// The most bytes of one [`Stage::put`].
    pub fn piece_bytes(&self) -> usize {
        self.piece_bytes
    }

    /// Fills the slices with what `fill` writes into the memory that it is given, of their bytes one after the other.
    /// Returns when the copy is submitted: what is submitted later sees it.
    ///
    /// # Panics
    /// When the slices are larger than a piece, leave their buffers, or are not made of whole words.
    pub fn put(
        &mut self,
        queue: &mut Queue,
        to: &[Slice],
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Error> {
        self.prepare(queue, to, |out, _| fill(out))?;
        self.submit(queue)
    }

    /// As [`Stage::put`], but the copy is submitted with the next piece, by [`Stage::submit`] or by [`Stage::finish`].
    /// `fill` also gets what submits the piece before, to be called on this thread while others write.
    ///
    /// # Panics
    /// As [`Stage::put`].
    pub fn prepare(
        &mut self,
        queue: &mut Queue,
        to: &[Slice],
        fill: impl FnOnce(&mut [u8], &mut dyn FnMut()),
    ) -> Result<(), Error> {
        let size = |slice: &Slice| usize::try_from(slice.bytes).unwrap_or(usize::MAX);
        let bytes = to.iter().map(size).fold(0, usize::saturating_add);
        assert!(bytes <= self.piece_bytes, "{bytes} bytes, a piece has {}", self.piece_bytes);
        for slice in to {
            queue.check(slice, size(slice));
        }
        let at = self.next_slot(queue)?;
        self.fill(queue, (at, bytes), fill)?;
        self.filled = Some((at, Work::Copy(to.to_vec())));
        Ok(())
    }

    /// Submits what is filled, if anything is.
    ///
    /// # Errors
    /// As [`Graph::record`], and when the device is lost.
    pub fn submit(&mut self, queue: &mut Queue) -> Result<(), Error> {
        match self.filled.take() {
            None => Ok(()),
            Some((at, Work::Copy(to))) => self.copy(queue, at, &to),
            Some((at, Work::Dispatch(graph))) => {
                let recorded = graph.record(queue.device())?;
                // The queue holds what it uses until it has run.
                self.slots[at].busy = Some((queue.submit(&recorded)?, Vec::new()));
                Ok(())
            }
        }
    }

    fn copy(&mut self, queue: &mut Queue, at: usize, to: &[Slice]) -> Result<(), Error> {
        let slot = &mut self.slots[at];
        let source = slot.buffer.raw();
        slot.commands.record(|vk, buffer| {
            let mut from = 0;
            for slice in to.iter().filter(|slice| slice.bytes > 0) {
                let region = [vk::BufferCopy::default()
                    .src_offset(from)
                    .dst_offset(slice.offset)
                    .size(slice.bytes)];
                // SAFETY: The buffers are held by the slot until the copy has run, and the ranges were checked.
                unsafe { vk.cmd_copy_buffer(buffer, source, slice.buffer.raw(), &region) };
                from += slice.bytes;
            }
            let after = A::SHADER_STORAGE_READ | A::SHADER_STORAGE_WRITE | A::TRANSFER_READ;
            let users = S::COMPUTE_SHADER | S::COPY;
            barrier(vk, buffer, (S::COPY, A::TRANSFER_WRITE), (users, after));
        })?;
        let ticket = queue.submit_raw(slot.commands.buffer, "load")?;
        slot.busy = Some((ticket, to.iter().map(|slice| Arc::clone(&slice.buffer)).collect()));
        Ok(())
    }

    /// Has dispatches read `bytes` bytes that `fill` writes, where they lie: `graph` adds them to a level that has
    /// begun, and gets whole words. Submitted, and with what else for `fill`, as by [`Stage::prepare`].
    ///
    /// # Errors
    /// As [`Stage::submit`].
    ///
    /// # Panics
    /// When the bytes are more than a piece.
    pub fn dispatch(
        &mut self,
        queue: &mut Queue,
        bytes: usize,
        fill: impl FnOnce(&mut [u8], &mut dyn FnMut()),
        graph: impl FnOnce(&mut Graph, Slice),
    ) -> Result<(), Error> {
        let whole = bytes.next_multiple_of(4);
        assert!(whole <= self.piece_bytes, "{bytes} bytes, a piece has {}", self.piece_bytes);
        let at = self.next_slot(queue)?;
        self.fill(queue, (at, bytes), fill)?;
        let slice = self.slots[at].buffer.slice(0, whole as u64);
        let mut dispatches = Graph::new("load");
        dispatches.input(&slice);
        dispatches.level();
        graph(&mut dispatches, slice);
        self.filled = Some((at, Work::Dispatch(dispatches)));
        Ok(())
    }

    /// Has a slot filled, and what was filled before submitted.
    fn fill(
        &mut self,
        queue: &mut Queue,
        (at, bytes): (usize, usize),
        fill: impl FnOnce(&mut [u8], &mut dyn FnMut()),
    ) -> Result<(), Error> {
        let buffer = Arc::clone(&self.slots[at].buffer);
        let mut sent = Ok(());
        let mut submit = || {
            if sent.is_ok() {
                sent = self.submit(queue);
            }
        };
        buffer.fill(0, bytes, |out| {
            fill(out, &mut submit);
            // Where that did not.
            submit();
        });
        sent
    }

    /// The slot whose turn it is, once the device has let go of it.
    fn next_slot(&mut self, queue: &mut Queue) -> Result<usize, Error> {
        let at = self.next;
        self.next = (at + 1) % self.slots.len();
        if self.filled.as_ref().is_some_and(|&(filled, _)| filled == at) {
            self.submit(queue)?;
        }
        self.slots[at].wait(queue)?;
        Ok(at)
    }

    /// Submits what is filled and waits until everything has arrived.
    pub fn finish(&mut self, queue: &mut Queue) -> Result<(), Error> {
        self.submit(queue)?;
        self.slots.iter_mut().try_for_each(|slot| slot.wait(queue))
    }
}

impl Slot {
    fn wait(&mut self, queue: &mut Queue) -> Result<(), Error> {
        let Some((ticket, _)) = &self.busy else { return Ok(()) };
        // Never given up: the buffer is filled again next.
        let waited = queue.wait(*ticket, &Patience::default())?;
        assert_eq!(waited, Waited::Done, "the default patience never gives up");
        self.busy = None;
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for slot in &self.slots {
            if slot.busy.is_some() {
                slot.commands.wait_idle();
            }
        }
    }
}
