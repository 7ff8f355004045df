//! Why a file is not used. Every reason names the field; what becomes of the file follows from its class.

use std::io;

/// What a refused file is, and so what may be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Nothing that this program wrote: never touched.
    Alien,
    /// Of another model, setting, program or version, which may share the directory: left alone.
    Foreign,
    /// Ours, and broken: no use to anybody.
    Damaged,
    /// It cannot be read just now.
    Unreadable,
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The operating system refused.
    #[error("cannot read {what}: {source}")]
    Read {
        /// The field that was being read.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// The file ends inside a field.
    #[error("the file ends inside {what}")]
    Short {
        /// The field.
        what: &'static str,
    },
    /// It does not begin with `KVC`.
    #[error("not a KVC file: it begins with {0:02x?}")]
    Magic([u8; 3]),
    /// A field with a value that this program never writes or cannot use.
    #[error("{what} is {found}, expected {expected}")]
    Unsupported {
        /// The field.
        what: &'static str,
        /// Its value.
        found: String,
        /// What could be used.
        expected: String,
    },
    /// A file of another model, of other dimensions or K/V types.
    #[error("{rule}: {what} is {found}, expected {expected}")]
    Other {
        /// What differs, in general.
        rule: &'static str,
        /// The field.
        what: &'static str,
        /// Its value.
        found: String,
        /// The present one.
        expected: String,
    },
    /// A sound state that has no room now.
    #[error(
        "KV checkpoint does not fit current context: it has {tokens} tokens, the context {ctx}"
    )]
    TooLong {
        /// Tokens of the state.
        tokens: u64,
        /// Positions of the context; one stays free.
        ctx: usize,
    },
    /// Fields that contradict each other.
    #[error("{what}: {why}")]
    Broken {
        /// The field.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A checksum.
    #[error("the checksum of {what} does not match")]
    Checksum {
        /// What was summed.
        what: &'static str,
    },
}

impl Refusal {
    pub(super) fn broken(what: &'static str, why: impl Into<String>) -> Self {
        Self::Broken { what, why: why.into() }
    }

    /// A read that failed: at the end of the file it is the file's fault.
    pub(super) fn read(what: &'static str, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::UnexpectedEof {
            Self::Short { what }
        } else {
            Self::Read { what, source }
        }
    }

    /// What the file is.
    pub fn class(&self) -> Class {
        match self {
            Self::Read { .. } => Class::Unreadable,
            Self::Magic(_) => Class::Alien,
            Self::Unsupported { .. } | Self::Other { .. } | Self::TooLong { .. } => Class::Foreign,
            Self::Short { .. } | Self::Broken { .. } | Self::Checksum { .. } => Class::Damaged,
        }
    }
}
