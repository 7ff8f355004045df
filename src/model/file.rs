//! An open model: the mapped file with its shape and weights, all checked.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::error::Error;
use super::fingerprint;
use super::shape::Shape;
use super::validate::{check_header, check_tokenizer};
use super::weights::{Experts, Matrix, Vector, Weights};
use crate::gguf::{File, Strings};
use crate::quant::TensorType;
use crate::util::hex;

/// A model that can be run.
#[derive(Debug)]
pub struct Model {
    /// The mapped file.
    pub file: Arc<File>,
    /// Its dimensions.
    pub shape: Shape,
    /// Where its weights are.
    pub weights: Weights,
    fingerprint: OnceLock<[u8; 20]>,
}

/// The tokenizer's data as it stands in the file.
#[derive(Debug, Clone)]
pub struct Vocabulary<'a> {
    /// Spelling of each id: GPT-2 byte letters, or literal text of added tokens.
    pub tokens: Strings<'a>,
    /// Kind of each id: 1 normal, 3 control, 4 user-defined, 5 unused.
    pub types: Vec<i32>,
    /// Pairs to merge, `left right`, by rank.
    pub merges: Strings<'a>,
    /// End of a turn.
    pub eos: u32,
    /// End of a text; absent in some older conversions.
    pub bos: Option<u32>,
}

impl Model {
    /// Opens and checks a main model file. Reads its header, none of its weights.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::from_file(Arc::new(File::open(path)?))
    }

    /// Checks a file that is open.
    pub fn from_file(file: Arc<File>) -> Result<Self, Error> {
        let shape = check_header(&file)?;
        let weights = Weights::bind(&file, &shape)?;
        check_tokenizer(&file, &shape)?;
        Ok(Self { file, shape, weights, fingerprint: OnceLock::new() })
    }

    /// All rows of a matrix.
    pub fn bytes(&self, m: &Matrix) -> &[u8] {
        self.file.bytes(m.offset, m.bytes)
    }

    /// One row of a matrix.
    pub fn row(&self, m: &Matrix, row: usize) -> &[u8] {
        assert!(row < m.rows, "row {row} of {}", m.rows);
        self.file.bytes(m.offset + (row * m.row_bytes) as u64, m.row_bytes as u64)
    }

    /// The matrix of one expert.
    pub fn expert(&self, e: &Experts, expert: usize) -> &[u8] {
        assert!(expert < e.count, "expert {expert} of {}", e.count);
        self.file.bytes(e.offset + (expert * e.expert_bytes) as u64, e.expert_bytes as u64)
    }

    /// The floats of a vector.
    pub fn f32s(&self, v: &Vector) -> &[f32] {
        const {
            assert!(cfg!(target_endian = "little"), "files hold little-endian floats");
        }
        // Offsets are multiples of eight at least, and so is the start of the mapping.
        bytemuck::cast_slice(self.file.bytes(v.offset, (v.len * size_of::<f32>()) as u64))
    }

    /// The tokenizer's data.
    pub fn vocabulary(&self) -> Result<Vocabulary<'_>, Error> {
        let meta = self.file.metadata();
        let bos = meta.get("tokenizer.ggml.bos_token_id").is_some();
        Ok(Vocabulary {
            tokens: meta.strings("tokenizer.ggml.tokens")?,
            types: meta.i32s("tokenizer.ggml.token_type")?,
            merges: meta.strings("tokenizer.ggml.merges")?,
            eos: meta.u32("tokenizer.ggml.eos_token_id")?,
            bos: bos.then(|| meta.u32("tokenizer.ggml.bos_token_id")).transpose()?,
        })
    }

    /// Name of the model, as its file gives it.
    pub fn name(&self) -> &str {
        self.file.metadata().str("general.name").unwrap_or("unnamed")
    }

    /// The chat template's text. It is never executed; its hash tells which one it is.
    pub fn chat_template(&self) -> Option<&str> {
        self.file.metadata().str("tokenizer.chat_template").ok()
    }

    /// SHA-256 of the chat template, in hex.
    pub fn chat_template_sha256(&self) -> Option<String> {
        self.chat_template().map(|text| hex::sha256(text.as_bytes()))
    }

    /// Which model this is, for files that outlive the process. Computed when first asked for.
    pub fn fingerprint(&self) -> [u8; 20] {
        *self.fingerprint.get_or_init(|| fingerprint::of(&self.file))
    }

    /// Bits of a routed expert's weights as cache files record them: by the gates of layer 0,
    /// whatever `general.file_type` says.
    pub fn expert_bits(&self) -> u8 {
        let wider = [(TensorType::Q8_0, 8), (TensorType::Q4_K, 4)];
        let found = wider.iter().find(|(ty, _)| *ty == self.weights.layers[0].moe.gate.ty);
        found.map_or(2, |&(_, bits)| bits)
    }
}
