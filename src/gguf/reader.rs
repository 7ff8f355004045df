//! Ranges of a file read into memory of the caller's, past the page cache or through it. For loads that copy every
//! byte once: they need no mapping, and need not push everything else out of the cache.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use bytemuck::{Pod, Zeroable};
use rustix::fs::{Advice, OFlags};
use rustix::io::ReadWriteFlags;

/// What reads past the page cache are aligned to: no block of a disk is larger.
const PAGE: usize = 4096;

#[repr(C, align(4096))]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Page([u8; PAGE]);

/// Memory that reads go to; grows to the largest of them and is used again.
#[derive(Default)]
pub struct Buffer(Vec<Page>);

/// Reads ranges of one file.
#[derive(Debug)]
pub struct RangeReader {
    file: fs::File,
    is_direct: bool,
}

/// How many places are looked at to tell how much of a file is in memory.
const SAMPLES: u64 = 256;

impl RangeReader {
    /// Through the page cache.
    pub(super) fn cached(file: &fs::File) -> io::Result<Self> {
        Ok(Self { file: file.try_clone()?, is_direct: false })
    }

    /// Past the page cache.
    ///
    /// # Errors
    /// When the file system cannot, or another file has this name by now.
    pub(super) fn direct(opened: &fs::File, path: &Path) -> io::Result<Self> {
        let flags = i32::try_from(OFlags::DIRECT.bits()).expect("a flag of open()");
        let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let identity = |file: &fs::File| file.metadata().map(|m| (m.dev(), m.ino(), m.len()));
        if identity(&file)? != identity(opened)? {
            return Err(io::Error::other("the file was replaced"));
        }
        let reader = Self { file, is_direct: true };
        // Some file systems only refuse to read.
        reader.read(0, 1, &mut Buffer::default())?;
        Ok(reader)
    }

    /// Whether it reads past the page cache.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// `len` bytes from `offset` on, in `buffer`.
    ///
    /// # Errors
    /// When the file cannot be read or ends before.
    pub fn read<'b>(
        &self,
        offset: u64,
        len: usize,
        buffer: &'b mut Buffer,
    ) -> io::Result<&'b [u8]> {
        let page = PAGE as u64;
        let start = if self.is_direct { offset / page * page } else { offset };
        let skipped = usize::try_from(offset - start).expect("less than a page");
        let needed = skipped + len;
        let pages = needed.div_ceil(PAGE);
        if buffer.0.len() < pages {
            buffer.0.resize(pages, Page::zeroed());
        }
        let all: &mut [u8] = bytemuck::cast_slice_mut(&mut buffer.0);
        let wanted = if self.is_direct { pages * PAGE } else { needed };
        let mut got = 0;
        while got < needed {
            match self.file.read_at(&mut all[got..wanted], start + got as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => got += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            // Past the cache only the end of the file leaves a page unfilled, and what goes on must be aligned.
            if self.is_direct && got < needed && !got.is_multiple_of(PAGE) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(&all[skipped..needed])
    }

    /// Fills `out` from `offset` on, with no buffer between; only through the page cache.
    ///
    /// # Errors
    /// As [`RangeReader::read`].
    pub fn read_into(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    /// Lets the kernel forget a range that was read through the page cache. A hint.
    pub fn forget(&self, offset: u64, len: u64) {
        let _ = rustix::fs::fadvise(
            &self.file,
            offset,
            std::num::NonZeroU64::new(len),
            Advice::DontNeed,
        );
    }
}

/// How much of a file of `bytes` is in the page cache, from 0 to 1, as some places of it tell. 0 where the kernel does
/// not say.
pub(super) fn cached_share(file: &fs::File, bytes: u64) -> f64 {
    let is_cached = |i: &u64| {
        let mut byte = [0];
        let mut parts = [io::IoSliceMut::new(&mut byte)];
        let at = bytes / SAMPLES * i;
        matches!(rustix::io::preadv2(file, &mut parts, at, ReadWriteFlags::NOWAIT), Ok(1))
    };
    (0..SAMPLES).filter(is_cached).count() as f64 / SAMPLES as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_read_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let bytes: Vec<u8> = (0..=255).cycle().step_by(7).take(3 * PAGE + 77).collect();
        fs::write(&path, &bytes).unwrap();
        let file = fs::File::open(&path).unwrap();
        let mut readers = vec![RangeReader::cached(&file).unwrap()];
        // Not every file system can; then there is nothing to compare.
        readers.extend(RangeReader::direct(&file, &path));
        let mut buffer = Buffer::default();
        for reader in &readers {
            for (offset, len) in [(0, 1), (0, bytes.len()), (4095, 2), (5000, 0), (12_300, 65)] {
                let found = reader.read(offset as u64, len, &mut buffer).unwrap();
                assert!(found == &bytes[offset..offset + len], "{reader:?}: {offset} {len}");
            }
            let end = reader.read(bytes.len() as u64 - 4, 5, &mut buffer).unwrap_err();
            assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        }
        assert!(cached_share(&file, bytes.len() as u64) >= 0.0);
        fs::rename(&path, dir.path().join("old")).unwrap();
        fs::write(&path, b"another").unwrap();
        assert!(RangeReader::direct(&file, &path).is_err());
    }
}
