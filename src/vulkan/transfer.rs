//! Copies between host memory and device buffers, through staging, one piece after the other. For
//! loading, tests and snapshots; the token path comes here only with rules of a draw that have changed.

use super::buffer::{Buffer, Slice};
use super::error::Error;
use super::memory::{Arena, Residence};
use super::record::{Commands, barrier};
use super::submit::{Patience, Queue, Waited};
use ash::vk::{self, AccessFlags2 as A, PipelineStageFlags2 as S};
use std::sync::Arc;

/// Size of a piece.
const PIECE: usize = 16 << 20;

/// Staging for both directions, made at the first copy.
pub(super) struct Transfer {
    commands: Commands,
    up: Arc<Buffer>,
    down: Arc<Buffer>,
}

impl Queue {
    /// Copies `bytes` to the start of `to`, and waits. Lengths are whole words.
    ///
    /// # Panics
    /// When the bytes do not fit the slice, or the slice its buffer.
    pub fn upload(&mut self, to: &Slice, bytes: &[u8]) -> Result<(), Error> {
        self.check(to, bytes.len());
        let mut at = to.offset;
        for piece in bytes.chunks(PIECE) {
            let staging = Arc::clone(&self.staging()?.up);
            staging.write(0, piece);
            self.copy(&staging.slice(0, piece.len() as u64), &to.buffer.slice(at, 0))?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Copies the start of `from` to `out`, and waits. Lengths are whole words.
    ///
    /// # Panics
    /// As [`Queue::upload`].
    pub fn download(&mut self, from: &Slice, out: &mut [u8]) -> Result<(), Error> {
        self.check(from, out.len());
        let mut at = from.offset;
        for piece in out.chunks_mut(PIECE) {
            let staging = Arc::clone(&self.staging()?.down);
            let bytes = piece.len() as u64;
            self.copy(&from.buffer.slice(at, bytes), &staging.slice(0, bytes))?;
            staging.read(0, piece);
            at += bytes;
        }
        Ok(())
    }

    fn staging(&mut self) -> Result<&Transfer, Error> {
        if self.transfer.is_none() {
            let buffer = |name, residence| {
                Arena::new(&self.device, name, residence, PIECE as u64).buffer(name, PIECE as u64)
            };
            let up = buffer("staging up", Residence::Upload)?;
            let down = buffer("staging down", Residence::Readback)?;
            self.transfer = Some(Transfer { commands: Commands::new(&self.device)?, up, down });
        }
        Ok(self.transfer.as_ref().expect("made above"))
    }

    /// Fills slices with zeros, behind everything submitted and before everything after, and waits.
    ///
    /// # Panics
    /// When a slice leaves its buffer or is not made of whole words.
    pub fn clear(&mut self, slices: &[Slice]) -> Result<(), Error> {
        for slice in slices {
            self.check(slice, usize::try_from(slice.bytes).unwrap_or(usize::MAX));
        }
        self.transfer(|vk, commands| {
            for slice in slices {
                // SAFETY: The buffer is alive until the wait in `transfer`, and the range was checked.
                unsafe {
                    vk.cmd_fill_buffer(commands, slice.buffer.raw(), slice.offset, slice.bytes, 0);
                }
            }
        })
    }

    /// Fills `to` with repetitions of `pattern`, the last one cut short, and waits.
    ///
    /// # Panics
    /// As [`Queue::clear`], and when the two overlap.
    pub fn replicate(&mut self, pattern: &Slice, to: &Slice) -> Result<(), Error> {
        for slice in [pattern, to] {
            self.check(slice, usize::try_from(slice.bytes).unwrap_or(usize::MAX));
        }
        let apart = !Arc::ptr_eq(&pattern.buffer, &to.buffer);
        assert!(apart && pattern.bytes > 0, "a pattern is repeated into another buffer");
        let starts = (0..to.bytes).step_by(usize::try_from(pattern.bytes).unwrap_or(usize::MAX));
        let regions: Vec<_> = starts
            .map(|at| {
                vk::BufferCopy::default()
                    .src_offset(pattern.offset)
                    .dst_offset(to.offset + at)
                    .size(pattern.bytes.min(to.bytes - at))
            })
            .collect();
        let (source, target) = (pattern.buffer.raw(), to.buffer.raw());
        self.transfer(|vk, commands| {
            // SAFETY: Both buffers are alive until the wait in `transfer`, and the ranges were checked.
            unsafe { vk.cmd_copy_buffer(commands, source, target, &regions) };
        })
    }

    /// Copies `from.bytes` to the start of `to`, behind everything submitted and visible to everything
    /// after, and waits.
    fn copy(&mut self, from: &Slice, to: &Slice) -> Result<(), Error> {
        let region = [vk::BufferCopy::default()
            .src_offset(from.offset)
            .dst_offset(to.offset)
            .size(from.bytes)];
        let (source, target) = (from.buffer.raw(), to.buffer.raw());
        self.transfer(|vk, commands| {
            // SAFETY: Both buffers are alive until the wait in `transfer`, and the caller checked the range.
            unsafe { vk.cmd_copy_buffer(commands, source, target, &region) };
        })
    }

    /// Records transfer commands between barriers, submits them and waits.
    fn transfer(
        &mut self,
        body: impl FnOnce(&ash::Device, vk::CommandBuffer),
    ) -> Result<(), Error> {
        let transfer = self.staging()?;
        transfer.commands.record(|vk, buffer| {
            let writes = A::TRANSFER_READ | A::TRANSFER_WRITE;
            let before = S::COMPUTE_SHADER | S::COPY | S::CLEAR;
            let written = A::SHADER_STORAGE_WRITE | A::TRANSFER_WRITE;
            barrier(vk, buffer, (before, written), (S::COPY | S::CLEAR, writes));
            body(vk, buffer);
            let after = A::SHADER_STORAGE_READ | A::SHADER_STORAGE_WRITE | A::HOST_READ;
            let users = S::COMPUTE_SHADER | S::HOST;
            barrier(vk, buffer, (S::COPY | S::CLEAR, A::TRANSFER_WRITE), (users, after));
        })?;
        let commands = transfer.commands.buffer;
        let ticket = self.submit_raw(commands, "copy")?;
        // Never given up: the commands and the staging buffer are used again for the next piece.
        let waited = self.wait(ticket, &Patience::default())?;
        assert_eq!(waited, Waited::Done, "the default patience never gives up");
        Ok(())
    }

    pub(super) fn check(&self, slice: &Slice, len: usize) {
        assert!(slice.buffer.is_of(&self.device), "a copy into another device");
        let end = slice.offset.checked_add(slice.bytes);
        assert!(end.is_some_and(|end| end <= slice.buffer.bytes()), "a copy leaves its buffer");
        assert!(len as u64 <= slice.bytes, "a copy of {len} bytes, a slice of {}", slice.bytes);
        let whole = len.is_multiple_of(4) && slice.offset.is_multiple_of(4);
        assert!(whole, "copies are of whole words");
    }
}
