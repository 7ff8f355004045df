//! Device memory: an arena for each class of use (weights, KV, state, scratch, staging), of few large
//! blocks, because drivers validate every allocation on every submission.

use super::buffer::Buffer;
use super::device::Device;
use super::error::Error;
use super::free_list::FreeList;
use crate::util::units::Bytes;
use ash::vk::{self, MemoryPropertyFlags as P};
use memmap2::Mmap;
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Who reads and writes the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residence {
    /// The device. The host does not see it.
    Device,
    /// The host writes, the device reads.
    Upload,
    /// The device writes, the host reads. Cached by the host, or reads would crawl.
    Readback,
    /// No memory: buffers have a size and nothing else. For graphs that are looked at and never recorded
    /// ([`Device::inspect`]).
    Nowhere,
}

/// The largest block of an arena; drivers guarantee allocations of this size.
const BLOCK_LIMIT: u64 = 1 << 30;

/// The smallest block of an arena that knows what is to come.
const SMALL_BLOCK: u64 = 1 << 20;

/// Memory of one class, handed out as buffers.
pub struct Arena {
    device: Arc<Device>,
    name: &'static str,
    residence: Residence,
    block_bytes: u64,
    /// What will be asked for in all, where that is known.
    expected_bytes: Option<u64>,
    blocks: Mutex<Blocks>,
    /// Tells that growing ended.
    grown: Condvar,
}

/// What an arena has from the driver.
#[derive(Default)]
struct Blocks {
    all: Vec<Arc<Block>>,
    /// Whether a thread allocates one more, which the others wait for.
    is_growing: bool,
}

impl Blocks {
    fn bytes(&self) -> u64 {
        self.all.iter().map(|b| b.bytes).sum()
    }
}

impl Arena {
    /// An empty arena that grows by blocks of `block_bytes` (at most 1 GiB; a larger buffer gets a
    /// block of its own).
    pub fn new(
        device: &Arc<Device>,
        name: &'static str,
        residence: Residence,
        block_bytes: u64,
    ) -> Self {
        let limit = BLOCK_LIMIT.min(device.caps().limits.allocation_bytes);
        let block_bytes = block_bytes.min(limit);
        Self {
            device: Arc::clone(device),
            name,
            residence,
            block_bytes,
            expected_bytes: None,
            blocks: Mutex::default(),
            grown: Condvar::new(),
        }
    }

    /// Lets blocks be no larger than what is still to come of `bytes` in all.
    #[must_use]
    pub fn expecting(mut self, bytes: u64) -> Self {
        self.expected_bytes = Some(bytes);
        self
    }

    /// Size of the next block.
    fn next_block(&self, reserved: u64) -> u64 {
        match self.expected_bytes {
            // Rounding of buffers takes a little more than expected.
            Some(all) => self.block_bytes.min(all.saturating_sub(reserved).max(SMALL_BLOCK)),
            None => self.block_bytes,
        }
    }

    /// A buffer of `bytes`, at least one. Its content is unspecified.
    ///
    /// # Errors
    /// [`Error::Memory`] when the driver has no more.
    pub fn buffer(&self, name: &str, bytes: u64) -> Result<Arc<Buffer>, Error> {
        Buffer::new(&self.device, self, name, bytes).map(Arc::new)
    }

    pub(super) fn has_memory(&self) -> bool {
        self.residence != Residence::Nowhere
    }

    /// Bytes allocated from the driver.
    pub fn reserved(&self) -> Bytes {
        Bytes(self.blocks().bytes())
    }

    /// Bytes handed out.
    pub fn used(&self) -> Bytes {
        Bytes(self.blocks().all.iter().map(|b| b.bytes - b.free().free_bytes()).sum())
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for an object with these requirements.
    pub(super) fn place(&self, needs: &vk::MemoryRequirements) -> Result<Place, Error> {
        let mut blocks = self.blocks();
        loop {
            if let Some(place) = find(&blocks, needs) {
                return Ok(place);
            }
            if !blocks.is_growing {
                break;
            }
            blocks = self.grown.wait(blocks).unwrap_or_else(PoisonError::into_inner);
        }
        let bytes = self.next_block(blocks.bytes()).max(needs.size);
        let kind = choose_type(self.device.memory_types(), needs.memory_type_bits, self.residence);
        let kind = kind.ok_or_else(|| self.fail(bytes, "no memory type fits".to_owned()))?;
        let take = |block: &Arc<Block>| {
            let start = block.free().take(needs.size, needs.alignment);
            let start = start.expect("a new block has room");
            Place { block: Arc::clone(block), start, bytes: needs.size }
        };
        self.grow(blocks, (kind, bytes), take)
    }

    /// Allocates the next block before it is needed, by another thread than those that ask for buffers. `false` when less
    /// than a whole block is still expected, or when there is none yet, which tells what kind of memory is needed.
    ///
    /// # Errors
    /// [`Error::Memory`] when the driver has no more.
    pub fn grow_ahead(&self) -> Result<bool, Error> {
        let waited = self.grown.wait_while(self.blocks(), |blocks| blocks.is_growing);
        let blocks = waited.unwrap_or_else(PoisonError::into_inner);
        let Some(kind) = blocks.all.first().map(|block| block.kind) else { return Ok(false) };
        let to_come = self.expected_bytes.unwrap_or(0).saturating_sub(blocks.bytes());
        if to_come < self.block_bytes {
            return Ok(false);
        }
        self.grow(blocks, (kind, self.block_bytes), |_| true)
    }

    /// Allocates a block, while others may take from those that there are; `first` may take from it before they do.
    fn grow<T>(
        &self,
        mut blocks: MutexGuard<'_, Blocks>,
        (kind, bytes): (u32, u64),
        first: impl FnOnce(&Arc<Block>) -> T,
    ) -> Result<T, Error> {
        blocks.is_growing = true;
        drop(blocks);
        let block = self.allocate(kind, bytes);
        let mut blocks = self.blocks();
        blocks.is_growing = false;
        self.grown.notify_all();
        let block = Arc::new(block?);
        let taken = first(&block);
        blocks.all.push(block);
        Ok(taken)
    }

    fn allocate(&self, kind: u32, bytes: u64) -> Result<Block, Error> {
        self.device.drill().allocate(self.name, bytes)?;
        Block::allocate(&self.device, kind, bytes).map_err(|code| {
            self.device.drill().free(bytes);
            self.fail(bytes, code.to_string())
        })
    }

    fn fail(&self, bytes: u64, code: String) -> Error {
        Error::Memory { what: self.name.to_owned(), bytes: Bytes(bytes), code }
    }
}

/// Room in one of these blocks.
fn find(blocks: &Blocks, needs: &vk::MemoryRequirements) -> Option<Place> {
    let fits = |block: &&Arc<Block>| needs.memory_type_bits & (1 << block.kind) != 0;
    blocks.all.iter().filter(fits).find_map(|block| {
        let start = block.free().take(needs.size, needs.alignment)?;
        Some(Place { block: Arc::clone(block), start, bytes: needs.size })
    })
}

/// The best memory type among those allowed: (must have, better with, better without).
fn choose_type(types: &[vk::MemoryType], allowed: u32, residence: Residence) -> Option<u32> {
    let (must, with, without) = match residence {
        // Host-visible device memory is a scarce window on some cards and uncached on others.
        Residence::Device => (P::DEVICE_LOCAL, P::empty(), P::HOST_VISIBLE | P::HOST_CACHED),
        Residence::Upload => (P::HOST_VISIBLE | P::HOST_COHERENT, P::empty(), P::HOST_CACHED),
        Residence::Readback => (P::HOST_VISIBLE, P::HOST_CACHED | P::HOST_COHERENT, P::empty()),
        Residence::Nowhere => return None,
    };
    // Types that only some special use may touch.
    let exotic =
        P::LAZILY_ALLOCATED | P::PROTECTED | P::DEVICE_COHERENT_AMD | P::DEVICE_UNCACHED_AMD;
    let score = |flags: P| {
        let present = (flags & with).as_raw().count_ones();
        let absent = (without & !flags).as_raw().count_ones();
        // Cached matters more than coherent.
        present
            + absent
            + u32::from(flags.contains(P::HOST_CACHED) && with.contains(P::HOST_CACHED))
    };
    let fits = |flags: P| flags.contains(must) && !flags.intersects(exotic);
    types
        .iter()
        .zip(0..)
        .filter(|(t, i)| allowed & (1 << i) != 0 && fits(t.property_flags))
        .max_by_key(|(t, i)| (score(t.property_flags), std::cmp::Reverse(*i)))
        .map(|(_, i)| i)
}

/// One allocation. Host-visible ones stay mapped.
pub(super) struct Block {
    device: Arc<Device>,
    memory: vk::DeviceMemory,
    kind: u32,
    bytes: u64,
    mapped: Option<NonNull<u8>>,
    coherent: bool,
    free: Mutex<FreeList>,
    /// What keeps imported pages alive.
    owner: Option<Arc<Mmap>>,
}

// SAFETY: The pointer is to mapped device memory, which no thread owns; accesses go through
// `Place::{read, write}`, which bound them to ranges that the free list gave to one owner each.
unsafe impl Send for Block {}
// SAFETY: As above.
unsafe impl Sync for Block {}

impl Block {
    fn allocate(device: &Arc<Device>, kind: u32, bytes: u64) -> Result<Self, vk::Result> {
        let info = vk::MemoryAllocateInfo::default().allocation_size(bytes).memory_type_index(kind);
        // SAFETY: The type index is one of the device's.
        let memory = unsafe { device.raw().allocate_memory(&info, None) }?;
        let flags = device.memory_types()[kind as usize].property_flags;
        let mut block = Self {
            device: Arc::clone(device),
            memory,
            kind,
            bytes,
            mapped: None,
            coherent: flags.contains(P::HOST_COHERENT),
            free: Mutex::new(FreeList::new(bytes)),
            owner: None,
        };
        if flags.contains(P::HOST_VISIBLE) {
            let all = vk::WHOLE_SIZE;
            // SAFETY: Just allocated from a host-visible type and not mapped yet.
            let pointer =
                unsafe { device.raw().map_memory(memory, 0, all, vk::MemoryMapFlags::empty()) }?;
            block.mapped = NonNull::new(pointer.cast());
        }
        Ok(block)
    }

    /// Pages of a mapping, whole, as memory of the device.
    pub(super) fn import(
        device: &Arc<Device>,
        kind: u32,
        (pointer, bytes): (*mut u8, u64),
        owner: Arc<Mmap>,
    ) -> Result<Self, vk::Result> {
        let mut host = vk::ImportMemoryHostPointerInfoEXT::default()
            .handle_type(vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT)
            .host_pointer(pointer.cast());
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(bytes)
            .memory_type_index(kind)
            .push_next(&mut host);
        // SAFETY: The pages belong to `owner`, which this block keeps; no command writes to them, since shaders
        // declare what they import readonly, and copies only read it.
        let memory = unsafe { device.raw().allocate_memory(&info, None) }?;
        let mut free = FreeList::new(bytes);
        free.take(bytes, 1).expect("all of it is free");
        let device = Arc::clone(device);
        // The host has the mapping itself.
        let (mapped, coherent, free) = (None, true, Mutex::new(free));
        Ok(Self { device, memory, kind, bytes, mapped, coherent, free, owner: Some(owner) })
    }

    fn free(&self) -> std::sync::MutexGuard<'_, FreeList> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: Buffers bound to it hold an `Arc` of the block, so none is left; freeing unmaps.
        unsafe { self.device.raw().free_memory(self.memory, None) };
        if self.owner.is_none() {
            self.device.drill().free(self.bytes);
        }
    }
}

/// A range of a block that one object owns; given back on drop.
pub(super) struct Place {
    block: Arc<Block>,
    start: u64,
    bytes: u64,
}

impl Place {
    /// All of a block that is imported for one buffer.
    pub(super) fn whole_of(block: Block) -> Self {
        let bytes = block.bytes;
        Self { block: Arc::new(block), start: 0, bytes }
    }

    pub(super) fn memory(&self) -> (vk::DeviceMemory, u64) {
        (self.block.memory, self.start)
    }

    pub(super) fn is_host_visible(&self) -> bool {
        self.block.mapped.is_some()
    }

    /// The address of `offset..offset + len`.
    fn address(&self, offset: u64, len: usize) -> *mut u8 {
        let end = offset.checked_add(len as u64);
        assert!(end.is_some_and(|end| end <= self.bytes), "host access past the end of a buffer");
        let base = self.block.mapped.expect("host access to device memory");
        let at =
            usize::try_from(self.start + offset).expect("mapped, so it fits the address space");
        base.as_ptr().wrapping_add(at)
    }

    /// Copies `bytes` into the mapped memory.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) {
        let to = self.address(offset, bytes.len());
        // SAFETY: The range was checked against this place, which no other object shares, and the source
        // is ordinary memory. The device does not use the range now: callers wait for the timeline.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        self.flush();
    }

    /// Gives `len` bytes of the mapped memory to `fill`.
    pub(super) fn fill(&self, offset: u64, len: usize, fill: impl FnOnce(&mut [u8])) {
        let at = self.address(offset, len);
        // SAFETY: As in `write`; every byte pattern is a `u8`, and the caller lets nobody else at the range.
        fill(unsafe { std::slice::from_raw_parts_mut(at, len) });
        self.flush();
    }

    fn flush(&self) {
        if !self.block.coherent {
            let range = [self.whole()];
            // SAFETY: The memory is mapped.
            let flushed = unsafe { self.block.device.raw().flush_mapped_memory_ranges(&range) };
            flushed.expect("flushing mapped memory cannot fail but for lack of memory");
        }
    }

    /// Copies out of the mapped memory.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) {
        if !self.block.coherent {
            let range = [self.whole()];
            // SAFETY: The memory is mapped.
            let got = unsafe { self.block.device.raw().invalidate_mapped_memory_ranges(&range) };
            got.expect("invalidating mapped memory cannot fail but for lack of memory");
        }
        let from = self.address(offset, out.len());
        // SAFETY: As in `write`, in the other direction.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
    }

    /// All of the block: its ends are the only offsets sure to suit the device's atom size.
    fn whole(&self) -> vk::MappedMemoryRange<'_> {
        vk::MappedMemoryRange::default().memory(self.block.memory).size(vk::WHOLE_SIZE)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.block.free().give(self.start, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(flags: &[P], residence: Residence) -> Option<u32> {
        let types: Vec<_> = flags
            .iter()
            .map(|&property_flags| vk::MemoryType { property_flags, heap_index: 0 })
            .collect();
        choose_type(&types, u32::MAX, residence)
    }

    #[test]
    fn memory_types_by_class_of_device() {
        let host = P::HOST_VISIBLE | P::HOST_COHERENT;
        let cached = host | P::HOST_CACHED;
        let card = [P::empty(), P::DEVICE_LOCAL, host, cached, P::DEVICE_LOCAL | host];
        assert_eq!(pick(&card, Residence::Device), Some(1));
        assert_eq!(pick(&card, Residence::Upload), Some(2));
        assert_eq!(pick(&card, Residence::Readback), Some(3));
        let unified = [P::DEVICE_LOCAL | cached, P::DEVICE_LOCAL | host, P::DEVICE_LOCAL];
        assert_eq!(pick(&unified, Residence::Device), Some(2));
        assert_eq!(pick(&unified, Residence::Readback), Some(0));
        let cpu = [P::DEVICE_LOCAL | cached];
        for residence in [Residence::Device, Residence::Upload, Residence::Readback] {
            assert_eq!(pick(&cpu, residence), Some(0));
        }
        let uncached = [host, P::HOST_VISIBLE | P::HOST_CACHED];
        assert_eq!(pick(&uncached, Residence::Readback), Some(1), "cached before coherent");
        assert_eq!(pick(&[host], Residence::Device), None);
    }
}
