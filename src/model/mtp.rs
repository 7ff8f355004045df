//! The MTP support file: one full-attention block that drafts the token after next, beside copies
//! of the main model's embedding and head, which are checked but never used (model.md 2.2).

use std::path::Path;
use std::sync::Arc;

use super::error::{Error, Invalid};
use super::layout::{Expected, Role, mtp_file};
use super::shape::Shape;
use super::validate::find;
use super::weights::{Attention, Binder, Matrix, Moe, Vector};
use crate::gguf::File;

/// A checked MTP file.
#[derive(Debug)]
pub struct Mtp {
    /// The mapped file.
    pub file: Arc<File>,
    /// Norm before the mixer: `hidden`.
    pub attn_norm: Vector,
    /// Norm before the experts: `hidden`.
    pub post_norm: Vector,
    /// The mixer.
    pub attention: Attention,
    /// The experts.
    pub moe: Moe,
    /// `hidden` x `2 * hidden`: the embedding's half of a row, then the hidden state's.
    pub eh_proj: Matrix,
    /// Norm of the embedding: `hidden`.
    pub embedding_norm: Vector,
    /// Norm of the hidden state: `hidden`.
    pub hidden_norm: Vector,
    /// Norm before the head: `hidden`.
    pub head_norm: Vector,
}

impl Mtp {
    /// Opens the file and checks that it fits a main model of this shape.
    pub fn open(path: &Path, shape: &Shape) -> Result<Self, Error> {
        Self::from_file(&Arc::new(File::open(path)?), shape)
    }

    /// Checks a file that is open.
    pub fn from_file(file: &Arc<File>, shape: &Shape) -> Result<Self, Error> {
        let expected = mtp_file(shape);
        for tensor in &expected {
            find(file, shape, tensor).map_err(|problem| Error::mtp(file.path(), problem))?;
        }
        // Optional parts of other converters would change the result if they were ignored.
        let known = |name: &str| expected.iter().any(|e| e.name() == name);
        if let Some(extra) = file.tensors().iter().find(|t| !known(&t.name)) {
            let found = format!("{} tensors, one of them {}", file.tensors().len(), extra.name);
            let problem = Invalid::key("tensor count", expected.len(), found);
            return Err(Error::mtp(file.path(), problem));
        }
        let binder = Binder::new(file, shape, Error::mtp);
        let part = binder.part(Some(shape.layers));
        Ok(Self {
            attn_norm: part.vector(Role::AttnNorm)?,
            post_norm: part.vector(Role::PostNorm)?,
            attention: part.attention()?,
            moe: part.moe()?,
            eh_proj: part.matrix(Role::EhProj)?,
            embedding_norm: part.vector(Role::EmbeddingNorm)?,
            hidden_norm: part.vector(Role::HiddenNorm)?,
            head_norm: part.vector(Role::HeadNorm)?,
            file: Arc::clone(file),
        })
    }
}

/// Whether a file has the MTP block but no first layer.
pub fn is_mtp_file(file: &File) -> bool {
    let first = Expected { role: Role::AttnNorm, layer: Some(0) };
    file.tensor(&first.name()).is_none()
        && file.tensors().iter().any(|t| t.name.ends_with(Role::EhProj.suffix()))
}
