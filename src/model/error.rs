//! Why a GGUF file is not a model that this program runs. Every message names the file, the key or
//! tensor, what was expected and what was found.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use crate::gguf;

/// A file that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The container is damaged, or a key is missing or of the wrong type.
    #[error(transparent)]
    File(#[from] gguf::Error),
    /// The container is sound, but its content is another model's.
    #[error("{}: {problem}", file.display())]
    Model {
        /// The file.
        file: PathBuf,
        /// What does not fit.
        problem: Box<Invalid>,
    },
    /// The file given for MTP.
    #[error("{}: MTP: {problem}", file.display())]
    Mtp {
        /// The file.
        file: PathBuf,
        /// What does not fit.
        problem: Box<Invalid>,
    },
}

impl Error {
    pub(super) fn model(file: &Path, problem: Invalid) -> Self {
        Self::Model { file: file.to_path_buf(), problem: Box::new(problem) }
    }

    pub(super) fn mtp(file: &Path, problem: Invalid) -> Self {
        Self::Mtp { file: file.to_path_buf(), problem: Box::new(problem) }
    }
}

/// What does not fit.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    /// Another architecture.
    #[error(
        "expected general.architecture=qwen35moe, got {found}\n\
         hint: this program runs only Qwen3.6-35B-A3B"
    )]
    Architecture {
        /// The file's.
        found: String,
    },
    /// One of several parts.
    #[error("split GGUF: merge it first (part {part} of {count})")]
    Split {
        /// This part, from 1.
        part: u64,
        /// Number of parts.
        count: u64,
    },
    /// Main model and MTP block in one file.
    #[error(
        "this file also contains the MTP block; use the {expected}-tensor main file plus `--mtp`"
    )]
    Combined {
        /// Tensors of the main file.
        expected: u64,
    },
    /// A file that has the MTP block and nothing else.
    #[error("this is an MTP support file\nhint: give it with `--mtp`, beside a main model")]
    MtpFile,
    /// A value that no kernel or relation allows.
    #[error("expected {key}={expected}, got {found}")]
    Key {
        /// The key.
        key: String,
        /// The value, or the rule, that would fit.
        expected: String,
        /// The file's value.
        found: String,
    },
    /// An array of another length.
    #[error("expected {key} length={expected}, got {found}")]
    Length {
        /// The key.
        key: String,
        /// The length that would fit.
        expected: u64,
        /// The file's.
        found: u64,
    },
    /// A wrong array element.
    #[error("unexpected {key}[{index}]={found}{}", .expected.as_ref().map(|e| format!(", expected {e}")).unwrap_or_default())]
    Element {
        /// The key.
        key: String,
        /// Which element.
        index: usize,
        /// Its value.
        found: String,
        /// What would fit.
        expected: Option<String>,
    },
    /// A file with more or fewer tensors.
    #[error("expected {expected} tensors, got {found}")]
    TensorCount {
        /// By the file's own layer counts.
        expected: u64,
        /// The file's.
        found: u64,
    },
    /// A tensor that is not there.
    #[error("required tensor is missing: {name}")]
    MissingTensor {
        /// The tensor.
        name: String,
    },
    /// A tensor stored in a way that no kernel reads.
    #[error("tensor {name} has type {found}, expected {expected}")]
    TensorType {
        /// The tensor.
        name: String,
        /// The file's.
        found: String,
        /// The accepted ones.
        expected: String,
    },
    /// A tensor with more or fewer dimensions.
    #[error("tensor {name} has {found} dimensions, expected {expected}")]
    Rank {
        /// The tensor.
        name: String,
        /// The file's.
        found: usize,
        /// By the shape.
        expected: usize,
    },
    /// A tensor of another size.
    #[error("tensor {name} has dim[{index}]={found}, expected {expected}")]
    Dim {
        /// The tensor.
        name: String,
        /// Which dimension, fastest first.
        index: usize,
        /// The file's.
        found: u64,
        /// By the shape.
        expected: u64,
    },
    /// Tokenizer data that contradicts itself.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
}

impl Invalid {
    pub(super) fn key(key: &str, expected: impl Display, found: impl Display) -> Self {
        Self::Key { key: key.to_owned(), expected: expected.to_string(), found: found.to_string() }
    }
}
