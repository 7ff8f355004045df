//! The bytes of a file, mapped read-only. The only unsafe code of this module.
//!
//! No lock is taken: q36's own tools replace files by rename, so a mapping keeps the old contents,
//! and an advisory lock would stop nobody else. Whoever truncates a model file in place while it is
//! in use kills the process with SIGBUS, as with every program that maps its input.

use std::io;
use std::path::Path;
use std::sync::Arc;

use memmap2::{Advice, Mmap};

/// Where bytes stay for the life of a `File`.
#[derive(Debug)]
pub(super) enum Storage {
    Mapped {
        map: Arc<Mmap>,
        /// The file, for reads that go around the mapping.
        file: std::fs::File,
    },
    /// In memory, in words, so that the first byte is aligned for every element type.
    Owned { words: Vec<u64>, len: usize },
}

impl Storage {
    /// Maps a whole, non-empty file.
    pub(super) fn map(path: &Path) -> io::Result<Self> {
        let file = std::fs::File::open(path)?;
        // SAFETY: the mapping is private to this value, read-only, and only ever seen as `&[u8]`
        // (or plain floats, for which any bytes are a value). Should another process change the
        // file meanwhile, values read after that differ, but every offset used was copied out and
        // checked when the file was opened, so no access leaves the mapping.
        #[expect(unsafe_code, reason = "mapping a file is an unsafe operation")]
        let map = unsafe { Mmap::map(&file) }?;
        Ok(Self::Mapped { map: Arc::new(map), file })
    }

    /// Copies bytes into aligned memory.
    pub(super) fn owned(bytes: &[u8]) -> Self {
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Self::Owned { words, len: bytes.len() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped { map, .. } => map,
            Self::Owned { words, len } => &bytemuck::cast_slice(words)[..*len],
        }
    }

    /// Tells the kernel how a range will be read. A hint: failure changes nothing.
    fn advise(&self, advice: Advice, offset: usize, len: usize) {
        if let Self::Mapped { map, .. } = self {
            let _ = map.advise_range(advice, offset, len);
        }
    }

    /// Asks for a range to be read ahead, without waiting.
    pub(super) fn prefetch(&self, offset: usize, len: usize) {
        self.advise(Advice::WillNeed, offset, len);
    }

    /// Brings a range into memory and its pages into the mapping, and waits for it.
    pub(super) fn populate(&self, offset: usize, len: usize) {
        const PAGE: usize = 4096;
        self.prefetch(offset, len);
        let range = &self.bytes()[offset..offset + len];
        let sum = range.iter().step_by(PAGE).fold(0u8, |sum, &b| sum.wrapping_add(b));
        std::hint::black_box(sum);
    }
}
