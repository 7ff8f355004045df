//! What can be wrong with a GGUF file. Every message names the file, the key or tensor, what was
//! expected and what was found.

use std::path::{Path, PathBuf};

/// A GGUF file that cannot be used, and why.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", file.display())]
pub struct Error {
    /// The file that was read.
    pub file: PathBuf,
    /// What is wrong with it. Not the `source`: its text is part of this error's.
    pub problem: Problem,
}

impl Error {
    pub(super) fn new(file: &Path, problem: Problem) -> Self {
        Self { file: file.to_path_buf(), problem }
    }
}

/// What is wrong with a file. Names of keys and tensors come from the file itself; they are shown
/// escaped and shortened, so that a hostile file cannot write to a terminal.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The operating system refused.
    #[error("cannot open model: {0}")]
    Open(std::io::Error),
    /// A folder, a pipe or a device.
    #[error("cannot open model: not a regular file")]
    NotRegular,
    /// Less than the smallest header.
    #[error("model file is too small to be GGUF: {0} bytes")]
    TooSmall(u64),
    /// The first four bytes are not `GGUF`.
    #[error("model is not a GGUF file: it starts with {0:02x?}, expected \"GGUF\"")]
    Magic([u8; 4]),
    /// Another version, or another byte order.
    #[error("only GGUF v3 is supported, found version {0}{hint}", hint = byte_order_hint(*.0))]
    Version(u32),
    /// The file ends inside the header.
    #[error("truncated GGUF file at byte {at}, reading {what}")]
    Truncated {
        /// Size of the file.
        at: u64,
        /// The field that was being read.
        what: String,
    },
    /// A count that cannot be true of a file of this size.
    #[error("impossible number of {what}: {found}, this file can hold at most {limit}")]
    Count {
        /// What is counted.
        what: &'static str,
        /// The number in the header.
        found: u64,
        /// The most that the bytes left, or the fixed limit, allow.
        limit: u64,
    },
    /// A key or tensor name that is empty, too long, or not UTF-8.
    #[error("bad name of {what}: {reason}")]
    Name {
        /// `metadata key 3`, `tensor 17`.
        what: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Arrays within arrays.
    #[error("metadata array nesting is too deep: key {key}, at most {} levels", super::MAX_NESTING)]
    Nesting {
        /// The key.
        key: String,
    },
    /// An array longer than the file.
    #[error("metadata array is too large: key {key}, {count} elements")]
    ArraySize {
        /// The key.
        key: String,
        /// The number in the file.
        count: u64,
    },
    /// A string value over the limit.
    #[error("metadata string is too long: key {key}, {bytes} bytes")]
    StringSize {
        /// The key.
        key: String,
        /// Its length.
        bytes: u64,
    },
    /// A number that stands for no value type.
    #[error("unknown GGUF metadata type {found} of key {key}")]
    ValueType {
        /// The key.
        key: String,
        /// The number in the file.
        found: u32,
    },
    /// A truth value other than 0 and 1.
    #[error("bad truth value of key {key}: expected 0 or 1, found {found}")]
    Bool {
        /// The key.
        key: String,
        /// The byte in the file.
        found: u8,
    },
    /// No power of two, or under eight bytes.
    #[error("bad general.alignment: expected a power of two of at least 8, found {0}")]
    Alignment(String),
    /// More or fewer dimensions than tensors have.
    #[error(
        "tensor has an unsupported number of dimensions: {name}, expected 1 to 8, found {found}"
    )]
    Rank {
        /// The tensor.
        name: String,
        /// The number in the file.
        found: u32,
    },
    /// A dimension of nothing.
    #[error("tensor {name} has dim[{index}]=0")]
    EmptyDim {
        /// The tensor.
        name: String,
        /// Which dimension.
        index: usize,
    },
    /// More elements, or more bytes, than 64 bits count.
    #[error("tensor element count overflow: {name}, dimensions {dims:?}")]
    Elements {
        /// The tensor.
        name: String,
        /// Its dimensions, fastest first.
        dims: Vec<u64>,
    },
    /// A storage type this program does not read.
    #[error("unsupported tensor type {ty} for {name}")]
    TensorType {
        /// The tensor.
        name: String,
        /// Name or number of the type.
        ty: String,
    },
    /// Rows that end inside a block.
    #[error("tensor {name}: a row of {row} values is no whole number of {ty} blocks of {block}")]
    RowLength {
        /// The tensor.
        name: String,
        /// Values in a row.
        row: u64,
        /// The storage type.
        ty: &'static str,
        /// Values in a block.
        block: u64,
    },
    /// A start that is no multiple of the alignment.
    #[error("tensor {name}: offset {offset} is not aligned to {alignment} bytes")]
    Misaligned {
        /// The tensor.
        name: String,
        /// Offset in the data section.
        offset: u64,
        /// The file's alignment.
        alignment: u64,
    },
    /// A start beyond 64 bits.
    #[error("tensor offset overflow: {name}, offset {offset}")]
    OffsetOverflow {
        /// The tensor.
        name: String,
        /// Offset in the data section.
        offset: u64,
    },
    /// Data beyond the end of the file.
    #[error(
        "tensor points outside GGUF file: {name} ends at byte {end} of {size}\n\
         hint: the file is truncated; download it again"
    )]
    Outside {
        /// The tensor.
        name: String,
        /// Where its data ends.
        end: u64,
        /// Size of the file.
        size: u64,
    },
    /// Two tensors share bytes.
    #[error("tensors {first} and {second} overlap at byte {at}")]
    Overlap {
        /// The one that starts first.
        first: String,
        /// The other.
        second: String,
        /// First byte of the second.
        at: u64,
    },
    /// The same tensor name twice.
    #[error("duplicate tensor {0}")]
    DuplicateTensor(String),
    /// The same key twice.
    #[error("duplicate metadata key {0}")]
    DuplicateKey(String),
    /// A key that was asked for and is not there.
    #[error("required metadata {} is missing: {key}", if *.array { "array" } else { "key" })]
    MissingKey {
        /// The key.
        key: String,
        /// Whether an array was expected.
        array: bool,
    },
    /// A key with a value of another type, or one that does not fit.
    #[error("expected {key} to be {expected}, got {found}")]
    KeyType {
        /// The key.
        key: String,
        /// The type that was asked for.
        expected: &'static str,
        /// Type and value in the file.
        found: String,
    },
    /// Writing only: the caller's data does not match what it announced.
    #[error("cannot write GGUF: {0}")]
    Write(String),
    /// Writing only: the operating system refused.
    #[error("cannot write GGUF: {0}")]
    Io(std::io::Error),
}

fn byte_order_hint(version: u32) -> &'static str {
    if version.swap_bytes() <= 16 { " (a big-endian file)" } else { "" }
}

/// Bytes of a file as they may be shown: control characters and the like escaped, at most 100
/// characters, so that a hostile file cannot write to a terminal.
pub fn printable(bytes: &[u8]) -> String {
    const MAX_SHOWN: usize = 100;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MAX_SHOWN)]);
    let mut out = String::new();
    for c in text.chars().take(MAX_SHOWN) {
        if c == '\'' { out.push(c) } else { out.extend(c.escape_debug()) }
    }
    if text.chars().count() > MAX_SHOWN || bytes.len() > 4 * MAX_SHOWN {
        out.push('…');
    }
    out
}
