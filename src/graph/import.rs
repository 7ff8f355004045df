//! Weights that stay in the mapped file: the device reads them there, where it turns out to see the right bytes.

use super::Error;
use crate::gguf;
use crate::kernels::checksum::{Checksum, sums};
use crate::vulkan::{self, Arena, Device, Graph, Patience, Queue, Residence, Slice};
use memmap2::Mmap;
use std::sync::Arc;

/// Imports ranges of one file.
pub(super) struct Import {
    device: Arc<Device>,
    map: Arc<Mmap>,
    kernel: Checksum,
    results: Arena,
}

impl Import {
    /// `None` when there is no mapping to import.
    pub(super) fn new(device: &Arc<Device>, file: &gguf::File) -> Result<Option<Self>, Error> {
        let Some(map) = file.mapping() else { return Ok(None) };
        Ok(Some(Self {
            device: Arc::clone(device),
            map: Arc::clone(map),
            kernel: Checksum::new(device)?,
            results: Arena::new(device, "checksums", Residence::Readback, 1 << 16),
        }))
    }

    /// A range of the file, once the device has read the bytes that are there; `None` when it cannot or has not.
    ///
    /// # Errors
    /// When the device fails altogether.
    pub(super) fn take(
        &mut self,
        queue: &mut Queue,
        offset: u64,
        bytes: usize,
    ) -> Result<Option<Slice>, Error> {
        let start = usize::try_from(offset).expect("inside the file");
        let range = start..start + bytes;
        let Ok(slice) = vulkan::import(&self.device, &self.map, range.clone()) else {
            return Ok(None);
        };
        let expected = sums(&self.map[range]);
        if self.seen(queue, &slice)? != expected {
            return Ok(None);
        }
        Ok(Some(slice))
    }

    /// Sums of what the device sees.
    fn seen(&self, queue: &mut Queue, data: &Slice) -> Result<Vec<u32>, Error> {
        let data = data.buffer.slice(data.offset, data.bytes / 4 * 4);
        let bytes = Checksum::sums_bytes(data.bytes);
        let results = self.results.buffer("checksums", bytes)?.all();
        let mut graph = Graph::new("checksum");
        graph.input(&data);
        graph.level();
        self.kernel.record(&mut graph, "checksum", data, results.clone());
        queue.run(&graph.record(&self.device)?, &Patience::default())?;
        let mut seen = vec![0; usize::try_from(bytes / 4).expect("a word for each block")];
        results.buffer.read(0, bytemuck::cast_slice_mut(&mut seen));
        Ok(seen)
    }
}
