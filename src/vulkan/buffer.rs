//! Storage buffers, and slices of them that bindings take.

use super::check::Span;
use super::device::Device;
use super::error::{Error, api};
use super::memory::{Arena, Place};
use ash::vk;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A storage buffer. Recorded graphs and copies hold an `Arc` of it, and submissions of those: it cannot
/// go away while the device uses it.
pub struct Buffer {
    device: Arc<Device>,
    raw: vk::Buffer,
    id: u64,
    bytes: u64,
    name: String,
    // Declared last: the memory is given back after the buffer is destroyed.
    place: Option<Place>,
}

/// A number that no other buffer has.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Buffer {
    pub(super) fn new(
        device: &Arc<Device>,
        arena: &Arena,
        name: &str,
        bytes: u64,
    ) -> Result<Self, Error> {
        assert!(bytes > 0, "a buffer has at least one byte: {name}");
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST
            | vk::BufferUsageFlags::INDIRECT_BUFFER;
        // Whole words: shaders address nothing smaller, and copies want multiples of four.
        let size = bytes.next_multiple_of(4);
        if !arena.has_memory() {
            return Ok(Self {
                device: Arc::clone(device),
                raw: vk::Buffer::null(),
                id: next_id(),
                bytes: size,
                name: name.to_owned(),
                place: None,
            });
        }
        let info = vk::BufferCreateInfo::default().size(size).usage(usage);
        // SAFETY: The device is alive.
        let raw =
            unsafe { device.raw().create_buffer(&info, None) }.map_err(api("vkCreateBuffer"))?;
        // SAFETY: The buffer is of this device.
        let needs = unsafe { device.raw().get_buffer_memory_requirements(raw) };
        let place = match arena.place(&needs) {
            Ok(place) => place,
            Err(e) => {
                // SAFETY: Created above, used by nothing.
                unsafe { device.raw().destroy_buffer(raw, None) };
                return Err(e);
            }
        };
        Self::bind(device, raw, name, size, place)
    }

    /// Binds a new buffer of `bytes` to memory that meets its requirements.
    pub(super) fn bind(
        device: &Arc<Device>,
        raw: vk::Buffer,
        name: &str,
        bytes: u64,
        place: Place,
    ) -> Result<Self, Error> {
        let (memory, start) = place.memory();
        let (id, device) = (next_id(), Arc::clone(device));
        let buffer = Self { device, raw, id, bytes, name: name.to_owned(), place: Some(place) };
        // SAFETY: The place meets the buffer's requirements and belongs to it alone.
        unsafe { buffer.device.raw().bind_buffer_memory(raw, memory, start) }
            .map_err(api("vkBindBufferMemory"))?;
        buffer.device.name(raw, &buffer.name);
        Ok(buffer)
    }

    /// Size, a multiple of four.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the host can read and write it in place.
    pub fn is_host_visible(&self) -> bool {
        self.place.as_ref().is_some_and(Place::is_host_visible)
    }

    /// Writes from the host. The device must not be using the range: wait for the submission first.
    ///
    /// # Panics
    /// Past the end, or when the host cannot see the buffer.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        self.place().write(offset, bytes);
    }

    /// Lets `fill` write `len` bytes in place. Their content before that is unspecified. Nobody else, host or
    /// device, may use the range meanwhile.
    ///
    /// # Panics
    /// As [`Buffer::write`].
    pub(super) fn fill(&self, offset: u64, len: usize, fill: impl FnOnce(&mut [u8])) {
        self.place().fill(offset, len, fill);
    }

    /// Reads to the host what a completed submission wrote.
    ///
    /// # Panics
    /// As [`Buffer::write`].
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        self.place().read(offset, out);
    }

    fn place(&self) -> &Place {
        self.place.as_ref().expect("the buffer has memory")
    }

    /// All of it.
    pub fn all(self: &Arc<Self>) -> Slice {
        self.slice(0, self.bytes)
    }

    /// A part of it. Whether it lies inside, and how it is aligned, is checked when a graph is recorded.
    pub fn slice(self: &Arc<Self>, offset: u64, bytes: u64) -> Slice {
        Slice { buffer: Arc::clone(self), offset, bytes }
    }

    pub(super) fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    pub(super) fn raw(&self) -> vk::Buffer {
        self.raw
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: Whatever the device may still use is held by the queue until it has run; a buffer without memory has no
        // handle, which is ignored.
        unsafe { self.device.raw().destroy_buffer(self.raw, None) };
    }
}

/// A part of a buffer.
#[derive(Clone)]
pub struct Slice {
    /// The buffer.
    pub buffer: Arc<Buffer>,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Slice {
    pub(super) fn span(&self) -> Span {
        Span {
            buffer: self.buffer.id,
            start: self.offset,
            end: self.offset.saturating_add(self.bytes),
            size: self.buffer.bytes,
        }
    }
}
