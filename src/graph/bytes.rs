//! The bytes of weights, from wherever they are: read by many threads at once, each into its own piece of memory, or
//! looked at where they lie.

use super::Error;
use crate::gguf::{self, Buffer, RangeReader};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::cell::RefCell;
use std::path::PathBuf;

/// Reads under way at the same time past the page cache: what keeps a disk busy.
const DIRECT_DEPTH: usize = 16;
/// Bytes of a read. Through the page cache few: they stay in a core's cache until they are used, and threads end together.
const DIRECT_BYTES: usize = 1 << 20;
const CACHED_BYTES: usize = 64 << 10;

thread_local! {
    static BUFFER: RefCell<Buffer> = RefCell::default();
}

/// Where weights come from.
pub(super) enum Bytes<'a> {
    /// A file, range by range.
    Read {
        reader: RangeReader,
        path: PathBuf,
        pool: ThreadPool,
        /// Whether the page cache is to forget what was read.
        forget: bool,
    },
    /// Memory.
    Here(&'a gguf::File),
}

impl<'a> Bytes<'a> {
    /// Those of a file, past the page cache if `direct` and the file system can.
    pub(super) fn new(file: &'a gguf::File, direct: bool) -> Result<Self, Error> {
        let path = file.path().to_owned();
        let failed = |source| Error::Read { path: path.clone(), source };
        let past = if direct { file.reader(true).ok().flatten() } else { None };
        let reader = match past {
            Some(reader) => Some(reader),
            None => file.reader(false).map_err(failed)?,
        };
        let Some(reader) = reader else { return Ok(Self::Here(file)) };
        let threads = if reader.is_direct() { DIRECT_DEPTH } else { 0 };
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("load-{i}"))
            .build()
            .map_err(|e| failed(std::io::Error::other(e)))?;
        let forget = direct && !reader.is_direct();
        Ok(Self::Read { reader, path, pool, forget })
    }

    /// In words.
    pub(super) fn describe(&self) -> &'static str {
        match self {
            Self::Read { reader, .. } if reader.is_direct() => "by direct reads",
            Self::Read { .. } => "from the page cache",
            Self::Here(_) => "from memory",
        }
    }

    /// How many bytes one thread takes at once.
    pub(super) fn task_bytes(&self) -> usize {
        match self {
            Self::Read { reader, .. } if reader.is_direct() => DIRECT_BYTES,
            Self::Read { .. } | Self::Here(_) => CACHED_BYTES,
        }
    }

    /// Gives a range of the file to `work`.
    pub(super) fn with<T>(
        &self,
        offset: u64,
        len: usize,
        work: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, Error> {
        match self {
            Self::Here(file) => Ok(work(file.bytes(offset, len as u64))),
            Self::Read { reader, path, forget, .. } => BUFFER.with_borrow_mut(|buffer| {
                let read = reader.read(offset, len, buffer);
                let failed = |source| Error::Read { path: path.clone(), source };
                let found = work(read.map_err(failed)?);
                if *forget {
                    reader.forget(offset, len as u64);
                }
                Ok(found)
            }),
        }
    }

    /// Fills each of `parts` from its offset on, by many threads at once, while this one does `beside`.
    pub(super) fn fill(
        &self,
        parts: Vec<(u64, &mut [u8])>,
        beside: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let task = self.task_bytes();
        let tasks = parts.into_par_iter().flat_map(|(offset, out)| {
            let each = out.par_chunks_mut(task).enumerate();
            each.map(move |(i, out)| (offset + (i * task) as u64, out))
        });
        self.run(|| tasks.try_for_each(|(offset, out)| self.fill_part(offset, out)), beside)
    }

    /// Has the threads that read do `work`, whose parallel parts are then theirs, while this one does `beside`.
    pub(super) fn run(
        &self,
        work: impl FnOnce() -> Result<(), Error> + Send,
        beside: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let Self::Read { pool, .. } = self else {
            beside();
            return work();
        };
        let mut done = Ok(());
        pool.in_place_scope(|scope| {
            scope.spawn(|_| done = work());
            beside();
        });
        done
    }

    fn fill_part(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        match self {
            Self::Read { reader, path, forget: false, .. } if !reader.is_direct() => {
                let failed = |source| Error::Read { path: path.clone(), source };
                reader.read_into(offset, out).map_err(failed)
            }
            Self::Read { .. } | Self::Here(_) => {
                self.with(offset, out.len(), |bytes| out.copy_from_slice(bytes))
            }
        }
    }
}
