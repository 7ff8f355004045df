//! A mapped file as a buffer: the device reads the file's pages where they are.
//!
//! Some drivers take a mapping and then read something else, so whoever imports compares what the device sees with
//! what is there before using it.

use super::buffer::{Buffer, Slice};
use super::device::Device;
use super::error::{Error, api};
use super::memory::{Block, Place};
use ash::vk;
use memmap2::Mmap;
use std::ops::Range;
use std::sync::Arc;

/// The handle type of host memory.
const HOST: vk::ExternalMemoryHandleTypeFlags =
    vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT;

/// A slice that is `range` of the mapping, for shaders to read and never to write.
///
/// # Errors
/// When the device cannot import, the driver refuses this memory, or the range does not suit a binding.
pub fn import(device: &Arc<Device>, map: &Arc<Mmap>, range: Range<usize>) -> Result<Slice, Error> {
    let refuse = |why: &str| Error::Import(why.to_owned());
    let caps = device.caps();
    let align = caps.host_import_align.ok_or_else(|| refuse("the device has no such import"))?;
    let align = usize::try_from(align).map_err(|_| refuse("a strange alignment"))?;
    assert!(range.start <= range.end && range.end <= map.len(), "a range of the mapping");
    let base = map.as_ptr().addr();
    let start = (base + range.start) / align * align;
    let end = (base + range.end).next_multiple_of(align);
    // The kernel maps whole pages.
    let mapped = base..(base + map.len()).next_multiple_of(rustix::param::page_size());
    if start < mapped.start || end > mapped.end {
        return Err(refuse("the mapping is not aligned as the device wants"));
    }
    let offset = (base + range.start - start) as u64;
    if !offset.is_multiple_of(caps.limits.storage_align) || !offset.is_multiple_of(4) {
        return Err(refuse("tensors are not aligned as bindings have to be"));
    }
    let bytes = (end - start) as u64;
    let pointer = map.as_ptr().wrapping_offset(start.wrapping_sub(base).cast_signed());
    let functions =
        ash::ext::external_memory_host::Device::new(device.instance().raw(), device.raw());
    let mut properties = vk::MemoryHostPointerPropertiesEXT::default();
    // SAFETY: The pointer is the start of mapped pages, alive as long as `map`.
    unsafe {
        (functions.fp().get_memory_host_pointer_properties_ext)(
            device.raw().handle(),
            HOST,
            pointer.cast(),
            &raw mut properties,
        )
    }
    .result()
    .map_err(api("vkGetMemoryHostPointerPropertiesEXT"))?;
    let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(HOST);
    let usage = vk::BufferUsageFlags::STORAGE_BUFFER | vk::BufferUsageFlags::TRANSFER_SRC;
    let info = vk::BufferCreateInfo::default().size(bytes).usage(usage).push_next(&mut external);
    // SAFETY: The device is alive and has the extension.
    let raw = unsafe { device.raw().create_buffer(&info, None) }.map_err(api("vkCreateBuffer"))?;
    let made = place(device, map, raw, (pointer, bytes), properties.memory_type_bits);
    let made = made.and_then(|place| Buffer::bind(device, raw, "mapped file", bytes, place));
    match made {
        Ok(buffer) => Ok(Arc::new(buffer).slice(offset, range.len() as u64)),
        Err(e) => Err(e),
    }
}

/// The imported memory, whole; destroys the buffer where there is none.
fn place(
    device: &Arc<Device>,
    map: &Arc<Mmap>,
    raw: vk::Buffer,
    (pointer, bytes): (*const u8, u64),
    allowed: u32,
) -> Result<Place, Error> {
    // SAFETY: The buffer is of this device.
    let needs = unsafe { device.raw().get_buffer_memory_requirements(raw) };
    let kinds = needs.memory_type_bits & allowed;
    let found = if kinds == 0 {
        Err(Error::Import("no memory type fits".to_owned()))
    } else if needs.size > bytes {
        Err(Error::Import("the driver wants more than the pages".to_owned()))
    } else {
        let memory = (pointer.cast_mut(), bytes);
        Block::import(device, kinds.trailing_zeros(), memory, Arc::clone(map))
            .map_err(api("vkAllocateMemory"))
    };
    match found {
        Ok(block) => Ok(Place::whole_of(block)),
        Err(e) => {
            // SAFETY: Just created, used by nothing.
            unsafe { device.raw().destroy_buffer(raw, None) };
            Err(e)
        }
    }
}
