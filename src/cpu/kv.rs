//! Stored key and value rows of one session.
//!
//! Each full-attention layer has `ctx` rows of K and of V, row `p` that of position `p`: all KV heads one after the
//! other, in the type chosen for K or for V. Rows are quantized when they are stored, after norm and rotation, and
//! attention reads them back from here, the newest included (model.md 11.15). Memory is zero and mapped when
//! first written.

use super::Error;
use crate::model::Shape;
use crate::quant::{self, TensorType};
use rayon::prelude::*;
use std::ops::Range;

/// The rows of one layer, K or V.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    ty: TensorType,
    row_bytes: usize,
    head_bytes: usize,
    head_dim: usize,
    bytes: Vec<u8>,
}

impl Rows {
    fn new(shape: &Shape, ty: TensorType, ctx: usize) -> Self {
        let head_bytes = ty.row_bytes(shape.head_dim).expect("a head is whole blocks");
        let row_bytes = head_bytes * shape.kv_heads;
        let bytes = vec![0; row_bytes * ctx];
        Self { ty, row_bytes, head_bytes, head_dim: shape.head_dim, bytes }
    }

    /// Stores f32 rows from position `pos` on.
    pub(super) fn store(&mut self, pos: usize, rows: &[f32]) {
        let width = self.row_bytes / self.head_bytes * self.head_dim;
        let places = self.bytes[pos * self.row_bytes..].par_chunks_exact_mut(self.row_bytes);
        let rows = rows.par_chunks_exact(width).zip(places);
        rows.for_each(|(row, place)| quant::quantize_kv(self.ty, row, place));
    }

    /// Decodes one head of some rows to f32, `[rows][head_dim]`.
    pub(super) fn decode(&self, head: usize, rows: Range<usize>, out: &mut [f32]) {
        for (row, out) in rows.zip(out.chunks_exact_mut(self.head_dim)) {
            let at = row * self.row_bytes + head * self.head_bytes;
            quant::dequantize(self.ty, &self.bytes[at..at + self.head_bytes], out);
        }
    }

    fn slice(&self, rows: Range<usize>) -> &[u8] {
        &self.bytes[rows.start * self.row_bytes..rows.end * self.row_bytes]
    }

    /// Sets the bytes of some rows.
    pub(super) fn put(&mut self, rows: Range<usize>, bytes: &[u8]) {
        self.bytes[rows.start * self.row_bytes..rows.end * self.row_bytes].copy_from_slice(bytes);
    }
}

/// One session's K and V rows of every full-attention layer.
#[derive(Debug, Clone)]
pub struct Kv {
    ctx: usize,
    pub(super) keys: Vec<Rows>,
    pub(super) values: Vec<Rows>,
}

impl Kv {
    pub(super) fn new(shape: &Shape, k: TensorType, v: TensorType, ctx: usize) -> Self {
        let rows = |ty| (0..shape.attention_layers()).map(|_| Rows::new(shape, ty, ctx)).collect();
        Self { ctx, keys: rows(k), values: rows(v) }
    }

    /// Positions there is room for.
    pub fn ctx(&self) -> usize {
        self.ctx
    }

    /// Bytes of some K rows of the `index`-th full-attention layer.
    pub fn keys(&self, index: usize, rows: Range<usize>) -> &[u8] {
        self.keys[index].slice(rows)
    }

    /// Bytes of some V rows of the `index`-th full-attention layer.
    pub fn values(&self, index: usize, rows: Range<usize>) -> &[u8] {
        self.values[index].slice(rows)
    }

    /// Room for the bytes of the first `rows` K rows and the first `rows` V rows of a layer, to load stored ones.
    pub fn rows_mut(&mut self, index: usize, rows: usize) -> (&mut [u8], &mut [u8]) {
        let (k, v) = (&mut self.keys[index], &mut self.values[index]);
        (&mut k.bytes[..rows * k.row_bytes], &mut v.bytes[..rows * v.row_bytes])
    }
}

/// Refuses types that [`quant::quantize_kv`] does not write.
pub(super) fn check_type(which: &'static str, ty: TensorType) -> Result<(), Error> {
    if matches!(ty, TensorType::F16 | TensorType::Q8_0 | TensorType::Q4_0) {
        Ok(())
    } else {
        Err(Error::KvType { which, found: ty })
    }
}
