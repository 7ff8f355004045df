//! The command: options in, text or JSON out.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::diff::compare;
use super::report::Report;
use super::text;
use super::verify::verify;
use crate::gguf;
use crate::model::Shape;
use crate::quant::TensorType;

/// What to show.
#[derive(Debug, Clone)]
pub struct InspectOptions {
    /// The file.
    pub file: PathBuf,
    /// List every tensor; JSON always does.
    pub tensors: bool,
    /// One JSON object instead of text.
    pub json: bool,
    /// Read all weights and look for values that are not finite.
    pub verify: bool,
    /// Compare with this file.
    pub diff: Option<PathBuf>,
    /// Context of the memory plan, in tokens; absent: 32,768, or the model's own if that is less.
    pub ctx: Option<usize>,
    /// Type of K rows in the memory plan.
    pub kv_k: TensorType,
    /// Type of V rows in the memory plan.
    pub kv_v: TensorType,
    /// Sessions in the memory plan.
    pub sessions: usize,
    /// Bytes that the backend's own buffers will take.
    pub scratch_bytes: Option<fn(&Shape) -> u64>,
}

impl InspectOptions {
    /// Everything at its default.
    pub fn new(file: &Path) -> Self {
        Self {
            file: file.to_path_buf(),
            tensors: false,
            json: false,
            verify: false,
            diff: None,
            ctx: None,
            kv_k: TensorType::F16,
            kv_v: TensorType::F16,
            sessions: 1,
            scratch_bytes: None,
        }
    }
}

/// What the checks found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// Nothing was checked, or nothing is wrong.
    Clean,
    /// Values that are not finite, or differences.
    Problems,
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No GGUF file.
    #[error(transparent)]
    File(#[from] gguf::Error),
    /// The reader has gone, or the disk is full.
    #[error("cannot write the report")]
    Output(#[from] io::Error),
}

/// Writes the report on a file to `out`.
pub fn inspect(options: &InspectOptions, out: &mut dyn Write) -> Result<Finding, Error> {
    let file = Arc::new(gguf::File::open(&options.file)?);
    let mut report = Report::new(&file, options);
    if options.verify {
        report.verify = Some(verify(&file));
    }
    if let Some(other) = &options.diff {
        report.diff = Some(compare(&file, &gguf::File::open(other)?));
    }
    if options.json {
        serde_json::to_writer_pretty(&mut *out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        text::write(&report, options.tensors, out)?;
    }
    Ok(report.finding())
}
