//! Opening a file: the header is parsed and every number in it checked, in the order in which
//! model.md 2.7 lists the rejections.
//!
//! Memory is bounded by the file's size: a list grows by one entry for each that was really read,
//! no allocation follows from a count alone, and strings and arrays stay where they are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{Error, Problem, printable};
use super::map::Storage;
use super::reader::{RangeReader, cached_share};
use super::tensor::{Tensor, foreign_type, size_bytes};
use super::value::{Entry, Metadata, ValueType};
use crate::quant::TensorType;
use crate::util::bytes::{Reader, Truncated};

/// Arrays within arrays, at most.
pub const MAX_NESTING: usize = 8;

const MAGIC: [u8; 4] = *b"GGUF";
const VERSION: u32 = 3;
const MIN_FILE_BYTES: u64 = 32;
/// Name length, no name, type, one byte.
const MIN_ENTRY_BYTES: u64 = 8 + 4 + 1;
/// Name length, no name, rank, one dimension, type, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 8 + 4 + 8;
/// Far above any real file; keeps the lists of a hostile one small.
const MAX_ENTRIES: u64 = 1 << 16;
const MAX_NAME_BYTES: u64 = 65_535;
const MAX_STRING_BYTES: u64 = 64 << 20;
const MAX_RANK: u32 = 8;
const DEFAULT_ALIGNMENT: u64 = 32;
/// Smaller ones would leave floats unaligned in memory.
const MIN_ALIGNMENT: u64 = 8;

/// An open GGUF file: mapped, parsed, checked.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    storage: Arc<Storage>,
    version: u32,
    alignment: u64,
    data_start: u64,
    metadata: Metadata,
    tensors: Vec<Tensor>,
    /// Positions in `tensors`, sorted by name.
    by_name: Vec<u32>,
}

impl File {
    /// Maps and checks a file. Reads its header only, not its tensors.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let fail = |problem| Error::new(path, problem);
        // Asked before opening: opening a pipe would wait for its writer.
        let info = std::fs::metadata(path).map_err(|e| fail(Problem::Open(e)))?;
        if !info.is_file() {
            return Err(fail(Problem::NotRegular));
        }
        if info.len() < MIN_FILE_BYTES {
            return Err(fail(Problem::TooSmall(info.len())));
        }
        let storage = Storage::map(path).map_err(|e| fail(Problem::Open(e)))?;
        Self::from_storage(path, storage)
    }

    /// Checks a file that is in memory; `name` is what errors call it.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, Error> {
        Self::from_storage(Path::new(name), Storage::owned(bytes))
    }

    fn from_storage(path: &Path, storage: Storage) -> Result<Self, Error> {
        let storage = Arc::new(storage);
        parse(path, &storage).map_err(|problem| Error::new(path, problem))
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.storage.bytes().len() as u64
    }

    /// Version of the format: 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What tensor offsets are multiples of.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Where the header ends and tensor data may begin.
    pub fn data_start(&self) -> u64 {
        self.data_start
    }

    /// Its keys and values.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Its tensors, in the order of the tensor list.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        let found =
            self.by_name.binary_search_by(|&i| self.tensors[i as usize].name.as_str().cmp(name));
        found.ok().map(|at| &self.tensors[self.by_name[at] as usize])
    }

    /// Bytes of all tensors together.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensors.iter().map(|t| t.bytes).sum()
    }

    /// The data of one of this file's tensors.
    pub fn data(&self, tensor: &Tensor) -> &[u8] {
        self.bytes(tensor.offset, tensor.bytes)
    }

    /// A range of the file, which must lie inside a tensor of it.
    pub fn bytes(&self, offset: u64, len: u64) -> &[u8] {
        let start = usize::try_from(offset).expect("inside the file");
        let len = usize::try_from(len).expect("inside the file");
        &self.storage.bytes()[start..start + len]
    }

    /// Reads ranges of it without the mapping; `direct` past the page cache. `None` when it is in memory and no file.
    ///
    /// # Errors
    /// When the file system cannot do that, or another file has the name by now.
    pub fn reader(&self, direct: bool) -> std::io::Result<Option<RangeReader>> {
        match &*self.storage {
            Storage::Mapped { file, .. } if direct => {
                RangeReader::direct(file, &self.path).map(Some)
            }
            Storage::Mapped { file, .. } => RangeReader::cached(file).map(Some),
            Storage::Owned { .. } => Ok(None),
        }
    }

    /// The mapping, when it is a file.
    pub fn mapping(&self) -> Option<&Arc<memmap2::Mmap>> {
        match &*self.storage {
            Storage::Mapped { map, .. } => Some(map),
            Storage::Owned { .. } => None,
        }
    }

    /// How much of it is in memory already, from 0 to 1.
    pub fn cached_share(&self) -> f64 {
        match &*self.storage {
            Storage::Mapped { file, .. } => cached_share(file, self.size()),
            Storage::Owned { .. } => 1.0,
        }
    }

    /// Asks the kernel to read a range (offset, length) ahead, without waiting for it.
    pub fn prefetch_range(&self, (offset, len): (u64, u64)) {
        let len = self.bytes(offset, len).len();
        self.storage.prefetch(usize::try_from(offset).expect("inside the file"), len);
    }

    /// Reads all tensor data into memory, calling `progress` with the bytes done so far; stops when
    /// that returns `false`.
    pub fn warm(&self, progress: &mut dyn FnMut(u64) -> bool) {
        const STEP: usize = 64 << 20;
        let end = self.storage.bytes().len();
        let start = usize::try_from(self.data_start).map_or(end, |start| start.min(end));
        for at in (start..end).step_by(STEP) {
            let len = STEP.min(end - at);
            self.storage.populate(at, len);
            if !progress((at + len - start) as u64) {
                return;
            }
        }
    }
}

/// Sorts positions by name; a name that comes twice is the error.
pub(super) fn sorted_index<'a>(
    count: usize,
    name: impl Fn(usize) -> &'a str,
) -> Result<Vec<u32>, &'a str> {
    let count = u32::try_from(count).expect("lists are limited to MAX_ENTRIES");
    let mut index: Vec<u32> = (0..count).collect();
    index.sort_unstable_by(|&a, &b| name(a as usize).cmp(name(b as usize)));
    let twice = index.windows(2).find(|w| name(w[0] as usize) == name(w[1] as usize));
    twice.map_or(Ok(()), |w| Err(name(w[0] as usize)))?;
    Ok(index)
}

fn parse(path: &Path, storage: &Arc<Storage>) -> Result<File, Problem> {
    let bytes = storage.bytes();
    if (bytes.len() as u64) < MIN_FILE_BYTES {
        return Err(Problem::TooSmall(bytes.len() as u64));
    }
    let mut header = HeaderReader { r: Reader::new(bytes), size: bytes.len() as u64 };
    let magic: [u8; 4] = bytes[..4].try_into().expect("four bytes");
    if magic != MAGIC {
        return Err(Problem::Magic(magic));
    }
    let cut = |r: Result<_, Truncated>| r.map_err(|t| truncated(t, "the header".into()));
    cut(header.r.take(MAGIC.len()).map(|_| ()))?;
    let version = header.u32("the version")?;
    if version != VERSION {
        return Err(Problem::Version(version));
    }
    let n_tensors = header.count("tensors", MIN_TENSOR_BYTES)?;
    let n_keys = header.count("metadata keys", MIN_ENTRY_BYTES)?;

    let entries = (0..n_keys).map(|i| header.entry(i)).collect::<Result<Vec<_>, _>>()?;
    let alignment = alignment(bytes, &entries)?;
    let mut tensors = Vec::new();
    for i in 0..n_tensors {
        tensors.push(header.tensor(i)?);
    }
    let data_start = (header.r.pos() as u64).next_multiple_of(alignment);
    for t in &mut tensors {
        place(t, data_start, alignment, header.size)?;
    }
    check_overlap(&tensors)?;
    let by_name = sorted_index(tensors.len(), |i| tensors[i].name.as_str())
        .map_err(|name| Problem::DuplicateTensor(printable(name.as_bytes())))?;
    let metadata = Metadata::new(path, Arc::clone(storage), entries)?;
    let storage = Arc::clone(storage);
    let path = path.to_path_buf();
    Ok(File { path, storage, version, alignment, data_start, metadata, tensors, by_name })
}

fn truncated(t: Truncated, what: String) -> Problem {
    Problem::Truncated { at: t.at, what }
}

/// `general.alignment`, which is needed before the metadata as a whole is checked.
fn alignment(bytes: &[u8], entries: &[Entry]) -> Result<u64, Problem> {
    let Some(entry) = entries.iter().find(|e| e.key == "general.alignment") else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    if entry.ty != ValueType::U32 {
        return Err(Problem::Alignment(format!("a value of type {}", entry.ty.name())));
    }
    let raw: [u8; 4] = bytes[entry.range.clone()].try_into().expect("a u32 has four bytes");
    let value = u64::from(u32::from_le_bytes(raw));
    if !value.is_power_of_two() || value < MIN_ALIGNMENT {
        return Err(Problem::Alignment(value.to_string()));
    }
    Ok(value)
}

/// Turns the offset within the data section into one within the file.
fn place(t: &mut Tensor, data_start: u64, alignment: u64, size: u64) -> Result<(), Problem> {
    let name = || printable(t.name.as_bytes());
    let offset = t.offset;
    if !offset.is_multiple_of(alignment) {
        return Err(Problem::Misaligned { name: name(), offset, alignment });
    }
    let range = data_start.checked_add(offset).and_then(|s| Some((s, s.checked_add(t.bytes)?)));
    let Some((start, end)) = range else {
        return Err(Problem::OffsetOverflow { name: name(), offset });
    };
    if end > size {
        return Err(Problem::Outside { name: name(), end, size });
    }
    t.offset = start;
    Ok(())
}

fn check_overlap(tensors: &[Tensor]) -> Result<(), Problem> {
    let mut by_offset: Vec<&Tensor> = tensors.iter().collect();
    by_offset.sort_by_key(|t| t.offset);
    let clash = by_offset.windows(2).find(|w| w[0].offset + w[0].bytes > w[1].offset);
    clash.map_or(Ok(()), |w| {
        Err(Problem::Overlap {
            first: printable(w[0].name.as_bytes()),
            second: printable(w[1].name.as_bytes()),
            at: w[1].offset,
        })
    })
}

struct HeaderReader<'a> {
    r: Reader<'a>,
    size: u64,
}

impl<'a> HeaderReader<'a> {
    fn take(&mut self, len: u64) -> Result<&'a [u8], Truncated> {
        // A length beyond the address space is beyond the file too.
        self.r.take(usize::try_from(len).unwrap_or(usize::MAX))
    }

    fn u32(&mut self, what: &str) -> Result<u32, Problem> {
        self.r.u32().map_err(|t| truncated(t, what.to_owned()))
    }

    fn u64(&mut self, what: &str) -> Result<u64, Problem> {
        self.r.u64().map_err(|t| truncated(t, what.to_owned()))
    }

    /// A count of things of which each takes at least `min_bytes`.
    fn count(&mut self, what: &'static str, min_bytes: u64) -> Result<u64, Problem> {
        let found = self.u64(what)?;
        let limit = (self.size / min_bytes).min(MAX_ENTRIES);
        if found > limit { Err(Problem::Count { what, found, limit }) } else { Ok(found) }
    }

    fn name(&mut self, what: &str) -> Result<&'a str, Problem> {
        let bad = |reason| Problem::Name { what: what.to_owned(), reason };
        let len = self.u64(what)?;
        if len == 0 {
            return Err(bad("it is empty"));
        }
        if len > MAX_NAME_BYTES {
            return Err(bad("it is longer than 65,535 bytes"));
        }
        let bytes = self.take(len).map_err(|t| truncated(t, what.to_owned()))?;
        std::str::from_utf8(bytes).map_err(|_| bad("it is not UTF-8"))
    }

    fn entry(&mut self, index: u64) -> Result<Entry, Problem> {
        let key = self.name(&format!("metadata key {index}"))?;
        let ty = self.value_type(key)?;
        let start = self.r.pos();
        self.skip(key, ty, 1, 0)?;
        Ok(Entry { key: key.to_owned(), ty, range: start..self.r.pos() })
    }

    fn value_type(&mut self, key: &str) -> Result<ValueType, Problem> {
        let found = self.r.u32().map_err(|t| in_key(t, key))?;
        let unknown = || Problem::ValueType { key: printable(key.as_bytes()), found };
        ValueType::from_gguf(found).ok_or_else(unknown)
    }

    /// Checks `count` values of one type and moves past them.
    fn skip(&mut self, key: &str, ty: ValueType, count: u64, depth: usize) -> Result<(), Problem> {
        match ty {
            ValueType::Bool => self.skip_bools(key, count),
            ValueType::String => (0..count).try_for_each(|_| self.skip_string(key)),
            ValueType::Array => (0..count).try_for_each(|_| self.skip_array(key, depth)),
            ValueType::U8
            | ValueType::I8
            | ValueType::U16
            | ValueType::I16
            | ValueType::U32
            | ValueType::I32
            | ValueType::F32
            | ValueType::U64
            | ValueType::I64
            | ValueType::F64 => self.skip_numbers(key, ty, count),
        }
    }

    fn skip_numbers(&mut self, key: &str, ty: ValueType, count: u64) -> Result<(), Problem> {
        let size = ty.fixed_bytes().expect("numbers have a fixed size") as u64;
        let len = count.saturating_mul(size);
        self.take(len).map(|_| ()).map_err(|t| in_key(t, key))
    }

    fn skip_bools(&mut self, key: &str, count: u64) -> Result<(), Problem> {
        let bytes = self.take(count).map_err(|t| in_key(t, key))?;
        bytes
            .iter()
            .find(|&&b| b > 1)
            .map_or(Ok(()), |&found| Err(Problem::Bool { key: printable(key.as_bytes()), found }))
    }

    fn skip_string(&mut self, key: &str) -> Result<(), Problem> {
        let bytes = self.r.u64().map_err(|t| in_key(t, key))?;
        if bytes > MAX_STRING_BYTES {
            if bytes > self.r.remaining() as u64 {
                return Err(in_key(Truncated { at: self.size }, key));
            }
            return Err(Problem::StringSize { key: printable(key.as_bytes()), bytes });
        }
        self.take(bytes).map(|_| ()).map_err(|t| in_key(t, key))
    }

    fn skip_array(&mut self, key: &str, depth: usize) -> Result<(), Problem> {
        if depth >= MAX_NESTING {
            return Err(Problem::Nesting { key: printable(key.as_bytes()) });
        }
        let element = self.value_type(key)?;
        let count = self.r.u64().map_err(|t| in_key(t, key))?;
        let too_large = || Problem::ArraySize { key: printable(key.as_bytes()), count };
        // Strings take a length each, inner arrays a type and a count.
        let min_bytes = element.fixed_bytes().unwrap_or(8) as u64;
        let total = count.checked_mul(min_bytes).ok_or_else(too_large)?;
        if total > self.r.remaining() as u64 {
            return Err(if total > self.size {
                too_large()
            } else {
                in_key(Truncated { at: self.size }, key)
            });
        }
        self.skip(key, element, count, depth + 1)
    }

    /// A tensor whose `offset` is still relative to the data section.
    fn tensor(&mut self, index: u64) -> Result<Tensor, Problem> {
        let what = format!("tensor {index}");
        let raw_name = self.name(&what)?;
        let name = || printable(raw_name.as_bytes());
        let rank = self.u32(&what)?;
        if rank == 0 || rank > MAX_RANK {
            return Err(Problem::Rank { name: name(), found: rank });
        }
        let dims = (0..rank).map(|_| self.u64(&what)).collect::<Result<Vec<_>, _>>()?;
        if let Some(index) = dims.iter().position(|&d| d == 0) {
            return Err(Problem::EmptyDim { name: name(), index });
        }
        let elements = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        let overflow = || Problem::Elements { name: name(), dims: dims.clone() };
        let number = self.u32(&what)?;
        let offset = self.u64(&what)?;
        if elements.is_none() {
            return Err(overflow());
        }
        let Some(ty) = TensorType::from_gguf(number) else {
            return Err(Problem::TensorType { name: name(), ty: foreign_type(number) });
        };
        let block = ty.block_len() as u64;
        if !dims[0].is_multiple_of(block) {
            return Err(Problem::RowLength { name: name(), row: dims[0], ty: ty.name(), block });
        }
        let bytes = size_bytes(ty, &dims).ok_or_else(overflow)?;
        Ok(Tensor { name: raw_name.to_owned(), dims, ty, offset, bytes })
    }
}

fn in_key(t: Truncated, key: &str) -> Problem {
    truncated(t, format!("key {}", printable(key.as_bytes())))
}
