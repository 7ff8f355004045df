//! Writing a file: the header is announced first, then tensor data streams through in order, so a
//! file of any size needs little memory. Nothing appears under its name until all of it is there.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::error::{Error, Problem};
use super::tensor::size_bytes;
use super::value::{Value, ValueType};
use crate::quant::TensorType;
use crate::util::fs::AtomicFile;

const DEFAULT_ALIGNMENT: u64 = 32;

/// A tensor that will be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorPlan {
    /// Its name.
    pub name: String,
    /// Dimensions, fastest first.
    pub dims: Vec<u64>,
    /// How its values are stored.
    pub ty: TensorType,
    /// Bytes of its data.
    pub bytes: u64,
}

/// Everything before the data: keys and values in the order in which they were set, and the tensor
/// list.
#[derive(Debug, Default)]
pub struct Header {
    alignment: Option<u64>,
    keys: Vec<String>,
    metadata: Vec<u8>,
    tensors: Vec<TensorPlan>,
}

impl Header {
    /// No keys, no tensors, alignment 32.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key. An array keeps its element type.
    pub fn set(&mut self, key: &str, value: Value<'_>) {
        if key == "general.alignment"
            && let Value::U32(v) = value
        {
            self.alignment = Some(u64::from(v));
        }
        self.key(key, value.ty());
        put_value(&mut self.metadata, value);
    }

    /// Sets a key to a text.
    pub fn set_str(&mut self, key: &str, text: &str) {
        self.set(key, Value::String(text.as_bytes()));
    }

    /// Sets a key to an array of strings.
    pub fn set_strings<S: AsRef<[u8]>>(&mut self, key: &str, strings: &[S]) {
        self.array(key, ValueType::String, strings.len());
        for s in strings {
            put_string(&mut self.metadata, s.as_ref());
        }
    }

    /// Sets a key to an array of values of one type.
    ///
    /// # Panics
    /// If the values are of different types.
    pub fn set_array(&mut self, key: &str, element: ValueType, values: &[Value<'_>]) {
        self.array(key, element, values.len());
        for &v in values {
            assert_eq!(v.ty(), element, "elements of one array have one type");
            put_value(&mut self.metadata, v);
        }
    }

    fn key(&mut self, key: &str, ty: ValueType) {
        self.keys.push(key.to_owned());
        put_string(&mut self.metadata, key.as_bytes());
        self.metadata.extend(ty.gguf().to_le_bytes());
    }

    fn array(&mut self, key: &str, element: ValueType, count: usize) {
        self.key(key, ValueType::Array);
        self.metadata.extend(element.gguf().to_le_bytes());
        self.metadata.extend((count as u64).to_le_bytes());
    }

    /// Announces the next tensor. Its shape is checked when the writer starts.
    pub fn tensor(&mut self, name: &str, dims: &[u64], ty: TensorType) {
        let bytes = size_bytes(ty, dims).unwrap_or(u64::MAX);
        self.tensors.push(TensorPlan { name: name.to_owned(), dims: dims.to_vec(), ty, bytes });
    }

    /// The tensors announced so far, in order.
    pub fn tensors(&self) -> &[TensorPlan] {
        &self.tensors
    }

    fn alignment(&self) -> u64 {
        self.alignment.unwrap_or(DEFAULT_ALIGNMENT)
    }

    fn check(&self) -> Result<(), Problem> {
        let bad = |text: String| Err(Problem::Write(text));
        let alignment = self.alignment();
        if !alignment.is_power_of_two() || alignment < 8 {
            return bad(format!("alignment {alignment} is no power of two of at least 8"));
        }
        let fits =
            |t: &TensorPlan| (1..=8).contains(&t.dims.len()) && t.bytes > 0 && t.bytes < u64::MAX;
        if let Some(t) = self.tensors.iter().find(|t| !fits(t)) {
            return bad(format!(
                "tensor {} cannot have dimensions {:?} as {}",
                t.name, t.dims, t.ty
            ));
        }
        let names = |i: usize| self.tensors[i].name.as_str();
        super::read::sorted_index(self.tensors.len(), names)
            .map_err(|name| Problem::DuplicateTensor(name.to_owned()))?;
        super::read::sorted_index(self.keys.len(), |i| self.keys[i].as_str())
            .map_err(|key| Problem::DuplicateKey(key.to_owned()))?;
        Ok(())
    }

    /// Header bytes, padded to where the data begins.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.metadata.len() + 128 * self.tensors.len() + 64);
        out.extend(b"GGUF");
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.keys.len() as u64).to_le_bytes());
        out.extend(&self.metadata);
        let mut offset = 0u64;
        for t in &self.tensors {
            put_string(&mut out, t.name.as_bytes());
            let rank = u32::try_from(t.dims.len()).expect("checked: at most eight");
            out.extend(rank.to_le_bytes());
            t.dims.iter().for_each(|d| out.extend(d.to_le_bytes()));
            out.extend(t.ty.gguf().to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset = (offset + t.bytes).next_multiple_of(self.alignment());
        }
        let padding = padding(out.len() as u64, self.alignment());
        out.extend(padding);
        out
    }
}

/// Zeros from `len` to the next multiple of the alignment.
fn padding(len: u64, alignment: u64) -> Vec<u8> {
    let missing = len.next_multiple_of(alignment) - len;
    vec![0; usize::try_from(missing).expect("less than an alignment, which is a u32")]
}

fn put_string(out: &mut Vec<u8>, s: &[u8]) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s);
}

fn put_value(out: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::U8(v) => out.push(v),
        Value::I8(v) => out.push(v.cast_unsigned()),
        Value::U16(v) => out.extend(v.to_le_bytes()),
        Value::I16(v) => out.extend(v.to_le_bytes()),
        Value::U32(v) => out.extend(v.to_le_bytes()),
        Value::I32(v) => out.extend(v.to_le_bytes()),
        Value::F32(v) => out.extend(v.to_le_bytes()),
        Value::Bool(v) => out.push(u8::from(v)),
        Value::String(v) => put_string(out, v),
        Value::Array(v) => {
            out.extend(v.element().gguf().to_le_bytes());
            out.extend(v.count().to_le_bytes());
            out.extend(v.raw());
        }
        Value::U64(v) => out.extend(v.to_le_bytes()),
        Value::I64(v) => out.extend(v.to_le_bytes()),
        Value::F64(v) => out.extend(v.to_le_bytes()),
    }
}

/// Streams tensor data behind a header. Each tensor is one [`Writer::tensor`], or several
/// [`Writer::part`]s, in the announced order.
#[derive(Debug)]
pub struct Writer<W: Write> {
    file: PathBuf,
    out: W,
    alignment: u64,
    tensors: Vec<TensorPlan>,
    /// Tensors that are complete, and bytes of the next one.
    done: usize,
    written: u64,
}

impl Writer<BufWriter<AtomicFile>> {
    /// Starts a file that replaces `path` when [`Writer::commit`] is called, and is gone otherwise.
    pub fn create(path: &Path, header: Header) -> Result<Self, Error> {
        let fail = |e| Error::new(path, Problem::Io(e));
        let out = BufWriter::with_capacity(1 << 20, AtomicFile::create(path).map_err(fail)?);
        Self::start(path, out, header)
    }

    /// Puts the complete file in place, on disk.
    pub fn commit(self) -> Result<(), Error> {
        let path = self.file.clone();
        let fail = |e| Error::new(&path, Problem::Io(e));
        let file = self.finish()?.into_inner().map_err(|e| fail(e.into_error()))?;
        file.commit().map_err(fail)
    }
}

impl<W: Write> Writer<W> {
    /// Checks the header and writes it to `out`.
    pub fn new(out: W, header: Header) -> Result<Self, Error> {
        Self::start(Path::new("output"), out, header)
    }

    fn start(path: &Path, mut out: W, header: Header) -> Result<Self, Error> {
        let fail = |problem| Error::new(path, problem);
        header.check().map_err(fail)?;
        out.write_all(&header.encode()).map_err(|e| fail(Problem::Io(e)))?;
        let alignment = header.alignment();
        let tensors = header.tensors;
        Ok(Self { file: path.to_path_buf(), out, alignment, tensors, done: 0, written: 0 })
    }

    fn fail<T>(&self, text: String) -> Result<T, Error> {
        Err(Error::new(&self.file, Problem::Write(text)))
    }

    /// The tensor whose data comes next.
    pub fn next_tensor(&self) -> Option<&TensorPlan> {
        self.tensors.get(self.done)
    }

    /// Writes all of the next tensor, which must be the one named.
    pub fn tensor(&mut self, name: &str, data: &[u8]) -> Result<(), Error> {
        match self.next_tensor() {
            Some(t) if t.name == name && t.bytes == data.len() as u64 && self.written == 0 => {
                self.part(data)
            }
            Some(t) => {
                let text = format!(
                    "expected {} bytes of {}, got {} of {name}",
                    t.bytes,
                    t.name,
                    data.len()
                );
                self.fail(text)
            }
            None => self.fail(format!("tensor {name} was not announced")),
        }
    }

    /// Writes the next bytes of the next tensor; the tensor ends when all its bytes are there.
    pub fn part(&mut self, data: &[u8]) -> Result<(), Error> {
        let Some(t) = self.next_tensor() else {
            return self.fail("more data than tensors".into());
        };
        let (bytes, left) = (t.bytes, t.bytes - self.written);
        if data.len() as u64 > left {
            let text = format!("{} bytes for the last {left} of {}", data.len(), t.name);
            return self.fail(text);
        }
        let io = |e| Error::new(&self.file, Problem::Io(e));
        self.out.write_all(data).map_err(io)?;
        self.written += data.len() as u64;
        if self.written == bytes {
            self.out.write_all(&padding(bytes, self.alignment)).map_err(io)?;
            self.done += 1;
            self.written = 0;
        }
        Ok(())
    }

    /// Checks that every announced tensor was written and returns the flushed output.
    pub fn finish(mut self) -> Result<W, Error> {
        if let Some(t) = self.next_tensor() {
            let text = format!("tensor {} has {} of {} bytes", t.name, self.written, t.bytes);
            return self.fail(text);
        }
        self.out.flush().map_err(|e| Error::new(&self.file, Problem::Io(e)))?;
        Ok(self.out)
    }
}
