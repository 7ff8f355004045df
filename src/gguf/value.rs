//! Metadata: typed values under keys. Strings and arrays borrow from the file's bytes.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{Error, Problem, printable};
use super::map::Storage;
use crate::util::bytes::{Reader, Truncated};

/// The type of a value, as numbered in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// 8 bits, unsigned.
    U8,
    /// 8 bits, signed.
    I8,
    /// 16 bits, unsigned.
    U16,
    /// 16 bits, signed.
    I16,
    /// 32 bits, unsigned.
    U32,
    /// 32 bits, signed.
    I32,
    /// 32-bit float.
    F32,
    /// One byte, 0 or 1.
    Bool,
    /// Length and bytes.
    String,
    /// Element type, count, elements.
    Array,
    /// 64 bits, unsigned.
    U64,
    /// 64 bits, signed.
    I64,
    /// 64-bit float.
    F64,
}

/// Type, name, bytes of a value (0: not fixed); the position is the GGUF number.
const VALUE_TYPES: [(ValueType, &str, usize); 13] = [
    (ValueType::U8, "u8", 1),
    (ValueType::I8, "i8", 1),
    (ValueType::U16, "u16", 2),
    (ValueType::I16, "i16", 2),
    (ValueType::U32, "u32", 4),
    (ValueType::I32, "i32", 4),
    (ValueType::F32, "f32", 4),
    (ValueType::Bool, "bool", 1),
    (ValueType::String, "string", 0),
    (ValueType::Array, "array", 0),
    (ValueType::U64, "u64", 8),
    (ValueType::I64, "i64", 8),
    (ValueType::F64, "f64", 8),
];

impl ValueType {
    /// The type with this GGUF number.
    pub fn from_gguf(number: u32) -> Option<Self> {
        VALUE_TYPES.get(usize::try_from(number).ok()?).map(|row| row.0)
    }

    /// Its GGUF number.
    pub fn gguf(self) -> u32 {
        self as u32
    }

    /// Its lower-case name.
    pub fn name(self) -> &'static str {
        VALUE_TYPES[self as usize].1
    }

    /// Bytes of a value; `None` for strings and arrays.
    pub fn fixed_bytes(self) -> Option<usize> {
        Some(VALUE_TYPES[self as usize].2).filter(|&n| n > 0)
    }
}

/// One value. Strings need not be UTF-8: token spellings are bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "each variant is the value type of the same name")]
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(&'a [u8]),
    Array(Array<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl<'a> Value<'a> {
    /// Its type.
    pub fn ty(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// As a whole number, whatever its width; `None` for anything else.
    pub fn integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(v) => v.into(),
            Self::I8(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::U64(v) => v.into(),
            Self::I64(v) => v.into(),
            Self::F32(_) | Self::F64(_) | Self::Bool(_) | Self::String(_) | Self::Array(_) => {
                return None;
            }
        })
    }

    /// As text for people: strings shortened and escaped, arrays as type and count.
    pub fn describe(&self) -> String {
        match self {
            Self::F32(v) => format!("{v:?}"),
            Self::F64(v) => format!("{v:?}"),
            Self::Bool(v) => v.to_string(),
            Self::String(v) => format!("\"{}\"", printable(v)),
            Self::Array(v) => format!("array of {} {}", v.count, v.element.name()),
            Self::U8(_)
            | Self::I8(_)
            | Self::U16(_)
            | Self::I16(_)
            | Self::U32(_)
            | Self::I32(_)
            | Self::U64(_)
            | Self::I64(_) => self.integer().expect("integer variants").to_string(),
        }
    }

    /// Decodes one value whose bytes were checked when the file was opened.
    fn decode(ty: ValueType, r: &mut Reader<'a>) -> Result<Self, Truncated> {
        Ok(match ty {
            ValueType::U8 => Self::U8(r.u8()?),
            ValueType::I8 => Self::I8(r.u8()?.cast_signed()),
            ValueType::U16 => Self::U16(r.u16()?),
            ValueType::I16 => Self::I16(r.u16()?.cast_signed()),
            ValueType::U32 => Self::U32(r.u32()?),
            ValueType::I32 => Self::I32(r.u32()?.cast_signed()),
            ValueType::F32 => Self::F32(f32::from_bits(r.u32()?)),
            ValueType::Bool => Self::Bool(r.u8()? != 0),
            ValueType::String => Self::String(string(r)?),
            ValueType::Array => Self::Array(Array::decode(r)?),
            ValueType::U64 => Self::U64(r.u64()?),
            ValueType::I64 => Self::I64(r.u64()?.cast_signed()),
            ValueType::F64 => Self::F64(f64::from_bits(r.u64()?)),
        })
    }
}

/// Length and bytes.
pub(super) fn string<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], Truncated> {
    // A length beyond the address space is beyond the file too.
    let len = usize::try_from(r.u64()?).unwrap_or(usize::MAX);
    r.take(len)
}

/// An array of values of one type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Array<'a> {
    element: ValueType,
    count: u64,
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// Type of the elements.
    pub fn element(&self) -> ValueType {
        self.element
    }

    /// Number of elements.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The elements as they are encoded.
    pub(super) fn raw(&self) -> &'a [u8] {
        self.bytes
    }

    /// The elements in order. Ends early only if the file was changed while in use.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let mut r = Reader::new(self.bytes);
        let element = self.element;
        (0..self.count).map_while(move |_| Value::decode(element, &mut r).ok())
    }

    /// Decodes an array inside another one, whose end is only known after walking over it.
    fn decode(r: &mut Reader<'a>) -> Result<Self, Truncated> {
        let at = r.pos() as u64;
        let element = ValueType::from_gguf(r.u32()?).ok_or(Truncated { at })?;
        let count = r.u64()?;
        let mut elements = r.clone();
        let start = r.pos();
        for _ in 0..count {
            Value::decode(element, r)?;
        }
        Ok(Self { element, count, bytes: elements.take(r.pos() - start)? })
    }
}

/// The strings of an array, without copies.
#[derive(Debug, Clone)]
pub struct Strings<'a> {
    r: Reader<'a>,
    left: usize,
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        string(&mut self.r).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Strings<'_> {}

/// Where a checked value stands in the file.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) ty: ValueType,
    pub(super) range: Range<usize>,
}

/// All keys and values of a file, in file order.
#[derive(Debug)]
pub struct Metadata {
    file: PathBuf,
    storage: Arc<Storage>,
    entries: Vec<Entry>,
    /// Positions in `entries`, sorted by key.
    by_key: Vec<u32>,
}

impl Metadata {
    /// Checks that no key comes twice.
    pub(super) fn new(
        file: &Path,
        storage: Arc<Storage>,
        entries: Vec<Entry>,
    ) -> Result<Self, Problem> {
        let by_key = super::read::sorted_index(entries.len(), |i| entries[i].key.as_str())
            .map_err(|key| Problem::DuplicateKey(printable(key.as_bytes())))?;
        Ok(Self { file: file.to_path_buf(), storage, entries, by_key })
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keys and values in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.entries.iter().map(|e| (e.key.as_str(), self.value(e)))
    }

    /// The value under a key.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        let found =
            self.by_key.binary_search_by(|&i| self.entries[i as usize].key.as_str().cmp(key));
        found.ok().map(|at| self.value(&self.entries[self.by_key[at] as usize]))
    }

    fn value(&self, entry: &Entry) -> Value<'_> {
        let mut r = Reader::new(&self.storage.bytes()[entry.range.clone()]);
        let array =
            |r: &mut Reader<'_>| Some((ValueType::from_gguf(r.u32().ok()?)?, r.u64().ok()?));
        if entry.ty == ValueType::Array {
            // Not `decode`: walking over 248,320 strings to find the end would be for nothing.
            if let Some((element, count)) = array(&mut r) {
                let bytes = &self.storage.bytes()[entry.range.clone()][r.pos()..];
                return Value::Array(Array { element, count, bytes });
            }
        }
        Value::decode(entry.ty, &mut r).expect("checked when the file was opened")
    }

    fn error(&self, problem: Problem) -> Error {
        Error::new(&self.file, problem)
    }

    fn required(&self, key: &str, array: bool) -> Result<Value<'_>, Error> {
        let missing = || self.error(Problem::MissingKey { key: key.to_owned(), array });
        self.get(key).ok_or_else(missing)
    }

    fn wrong_type(&self, key: &str, expected: &'static str, found: Value<'_>) -> Error {
        let is_array = found.ty() == ValueType::Array;
        let prefix = if is_array { String::new() } else { format!("{} ", found.ty().name()) };
        let found = prefix + &found.describe();
        self.error(Problem::KeyType { key: key.to_owned(), expected, found })
    }

    /// A whole number that fits 64 bits, stored in any integer type.
    pub fn u64(&self, key: &str) -> Result<u64, Error> {
        let value = self.required(key, false)?;
        let number = value.integer().and_then(|v| u64::try_from(v).ok());
        number.ok_or_else(|| self.wrong_type(key, "u64", value))
    }

    /// A whole number that fits 32 bits, stored in any integer type.
    pub fn u32(&self, key: &str) -> Result<u32, Error> {
        let value = self.required(key, false)?;
        let number = value.integer().and_then(|v| u32::try_from(v).ok());
        number.ok_or_else(|| self.wrong_type(key, "u32", value))
    }

    /// A 32-bit float.
    pub fn f32(&self, key: &str) -> Result<f32, Error> {
        let value = self.required(key, false)?;
        if let Value::F32(v) = value { Ok(v) } else { Err(self.wrong_type(key, "f32", value)) }
    }

    /// A truth value.
    pub fn bool(&self, key: &str) -> Result<bool, Error> {
        let value = self.required(key, false)?;
        if let Value::Bool(v) = value { Ok(v) } else { Err(self.wrong_type(key, "bool", value)) }
    }

    /// A text.
    pub fn str(&self, key: &str) -> Result<&str, Error> {
        let value = self.required(key, false)?;
        let Value::String(bytes) = value else {
            return Err(self.wrong_type(key, "string", value));
        };
        std::str::from_utf8(bytes).map_err(|_| self.wrong_type(key, "UTF-8 string", value))
    }

    /// An array of any type.
    pub fn array(&self, key: &str) -> Result<Array<'_>, Error> {
        let value = self.required(key, true)?;
        if let Value::Array(a) = value { Ok(a) } else { Err(self.wrong_type(key, "array", value)) }
    }

    /// An array of strings, read from the file as it is walked.
    pub fn strings(&self, key: &str) -> Result<Strings<'_>, Error> {
        let array = self.array(key)?;
        if array.element != ValueType::String {
            return Err(self.wrong_type(key, "array of string", Value::Array(array)));
        }
        let left = usize::try_from(array.count).unwrap_or(usize::MAX);
        Ok(Strings { r: Reader::new(array.bytes), left })
    }

    /// An array of whole numbers that fit 32 bits, stored as i32 or u32.
    pub fn i32s(&self, key: &str) -> Result<Vec<i32>, Error> {
        let array = self.array(key)?;
        let wrong = || self.wrong_type(key, "array of i32", Value::Array(array));
        if !matches!(array.element, ValueType::I32 | ValueType::U32) {
            return Err(wrong());
        }
        let number = |v: Value<'_>| v.integer().and_then(|v| i32::try_from(v).ok());
        array.iter().map(number).collect::<Option<_>>().ok_or_else(wrong)
    }

    /// An array of truth values.
    pub fn bools(&self, key: &str) -> Result<Vec<bool>, Error> {
        let array = self.array(key)?;
        if array.element != ValueType::Bool {
            return Err(self.wrong_type(key, "array of bool", Value::Array(array)));
        }
        Ok(array.iter().map(|v| v == Value::Bool(true)).collect())
    }
}
