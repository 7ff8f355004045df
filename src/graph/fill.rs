//! Where weights come from: the mapped file, or patterns of random numbers when only speed matters.

use super::Error;
use super::bound::bound;
use super::pattern::Patterns;
use crate::kernels::mv_q8::Planes;
use crate::model::{Experts, Matrix, Model, Vector};
use crate::quant::{self, TensorType};
use crate::vulkan::{Queue, Slice, Stage};
use rayon::prelude::*;

/// Bytes of a `Q8_0` block and of its codes.
const BLOCK: usize = 34;
const CODES: usize = 32;

/// What a vector of floats is for: random numbers must suit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Float {
    /// Factors of a norm.
    Norm,
    /// Taps of the convolution.
    Taps,
    /// `-exp(A_log)`.
    Decay,
    /// Bias of the decay.
    Bias,
    /// Weights of a dot product.
    Weight,
}

/// Hears how loading gets on: bytes done and in all. Returning `false` stops it.
pub(super) type Progress<'a> = dyn FnMut(u64, u64) -> bool + 'a;

/// Fills weights of the device.
pub(super) enum Fill<'a> {
    /// From a model file.
    File(FromFile<'a>),
    /// With random numbers.
    Random(Patterns<'a>),
    /// Not at all: only sizes matter.
    #[cfg(test)]
    Nothing,
}

/// Copies weights of a file, in the form that the device wants.
pub(super) struct FromFile<'a> {
    pub(super) model: &'a Model,
    pub(super) queue: &'a mut Queue,
    pub(super) stage: Stage,
    pub(super) progress: &'a mut Progress<'a>,
    pub(super) done: u64,
    pub(super) total: u64,
}

impl Fill<'_> {
    pub(super) fn floats(&mut self, v: &Vector, kind: Float, to: &Slice) -> Result<(), Error> {
        match self {
            Self::File(file) => file.copy(bytemuck::cast_slice(file.model.f32s(v)), to),
            Self::Random(patterns) => patterns.floats(kind, to),
            #[cfg(test)]
            Self::Nothing => Ok(()),
        }
    }

    /// Rows of `Q8_0` matrices, of several in turn, into planes from row `first` on. Returns a bound of the weights.
    pub(super) fn planes(
        &mut self,
        parts: &[&Matrix],
        planes: &Planes,
        first: usize,
    ) -> Result<f32, Error> {
        let rows: usize = parts.iter().map(|m| m.rows).sum();
        let cols = parts[0].cols;
        let part = |plane: &Slice, row_bytes: usize| {
            plane.buffer.slice(plane.offset + (first * row_bytes) as u64, (rows * row_bytes) as u64)
        };
        let (codes, scales) = (part(&planes.codes, cols), part(&planes.scales, cols / 16));
        match self {
            Self::File(file) => {
                file.planes(parts, &codes, &scales)?;
                Ok(file.bound(parts))
            }
            Self::Random(patterns) => patterns.planes(parts[0], &codes, &scales),
            #[cfg(test)]
            Self::Nothing => Ok(1.0),
        }
    }

    /// Rows of a matrix, decoded to f32, from row `first` of `to` on. Returns a bound of the weights.
    pub(super) fn rows(&mut self, matrix: &Matrix, to: &Slice, first: usize) -> Result<f32, Error> {
        let row_bytes = matrix.cols * 4;
        let start = to.offset + (first * row_bytes) as u64;
        let to = to.buffer.slice(start, (matrix.rows * row_bytes) as u64);
        match self {
            Self::File(file) => {
                file.rows(matrix, &to)?;
                Ok(file.bound(&[matrix]))
            }
            Self::Random(patterns) => {
                patterns.floats(Float::Weight, &to)?;
                Ok(patterns.bound(Float::Weight))
            }
            #[cfg(test)]
            Self::Nothing => Ok(1.0),
        }
    }

    /// Blocks of routed experts, as they are. Returns a bound of their weights.
    pub(super) fn blocks(&mut self, experts: &Experts, to: &Slice) -> Result<f32, Error> {
        match self {
            Self::File(file) => {
                let bytes = (experts.expert_bytes * experts.count) as u64;
                let blocks = file.model.file.bytes(experts.offset, bytes);
                file.copy(blocks, to)?;
                Ok(bound(experts.ty, blocks))
            }
            Self::Random(patterns) => patterns.blocks(experts, to),
            #[cfg(test)]
            Self::Nothing => Ok(1.0),
        }
    }
}

impl FromFile<'_> {
    fn bound(&self, parts: &[&Matrix]) -> f32 {
        parts.iter().map(|m| bound(m.ty, self.model.bytes(m))).fold(0.0, f32::max)
    }

    /// Bytes as they are; the rest of the last word is zero.
    fn copy(&mut self, from: &[u8], to: &Slice) -> Result<(), Error> {
        let piece = self.stage.piece_bytes();
        for (i, bytes) in from.chunks(piece).enumerate() {
            let whole = bytes.len().next_multiple_of(4);
            let to = to.buffer.slice(to.offset + (i * piece) as u64, whole as u64);
            self.stage.put(self.queue, &to, |out| {
                let (head, tail) = out.split_at_mut(bytes.len());
                tail.fill(0);
                let parts = head.par_chunks_mut(1 << 20).zip(bytes.par_chunks(1 << 20));
                parts.for_each(|(out, bytes)| out.copy_from_slice(bytes));
            })?;
            self.count(bytes.len())?;
        }
        Ok(())
    }

    fn planes(&mut self, parts: &[&Matrix], codes: &Slice, scales: &Slice) -> Result<(), Error> {
        self.each_row(parts, codes, parts[0].cols, |row, out| {
            for (block, out) in row.chunks_exact(BLOCK).zip(out.chunks_exact_mut(CODES)) {
                out.copy_from_slice(&block[BLOCK - CODES..]);
            }
        })?;
        self.each_row(parts, scales, parts[0].cols / 16, |row, out| {
            for (block, out) in row.chunks_exact(BLOCK).zip(out.chunks_exact_mut(2)) {
                out.copy_from_slice(&block[..BLOCK - CODES]);
            }
        })?;
        self.count(parts.iter().map(|m| m.rows * m.row_bytes).sum())
    }

    fn rows(&mut self, matrix: &Matrix, to: &Slice) -> Result<(), Error> {
        let convert = |row: &[u8], out: &mut [u8]| decode(matrix.ty, row, out);
        self.each_row(&[matrix], to, matrix.cols * 4, convert)?;
        self.count(matrix.rows * matrix.row_bytes)
    }

    /// Turns every row of the matrices, of several in turn, into `out_bytes` bytes of `to`.
    fn each_row(
        &mut self,
        parts: &[&Matrix],
        to: &Slice,
        out_bytes: usize,
        convert: impl Fn(&[u8], &mut [u8]) + Sync,
    ) -> Result<(), Error> {
        let rows: usize = parts.iter().map(|m| m.rows).sum();
        // Whole words in every piece but the last, which is padded.
        let at_once = (self.stage.piece_bytes() / out_bytes).max(2) / 2 * 2;
        let model = self.model;
        for from in (0..rows).step_by(at_once) {
            let count = at_once.min(rows - from);
            let used = count * out_bytes;
            let start = to.offset + (from * out_bytes) as u64;
            let to = to.buffer.slice(start, used.next_multiple_of(4) as u64);
            self.stage.put(self.queue, &to, |out| {
                let (head, tail) = out.split_at_mut(used);
                tail.fill(0);
                head.par_chunks_exact_mut(out_bytes).enumerate().with_min_len(16).for_each(
                    |(i, out)| {
                        let row = from + i;
                        let part = parts[row % parts.len()];
                        convert(model.row(part, row / parts.len()), out);
                    },
                );
            })?;
        }
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), Error> {
        self.done += bytes as u64;
        if (self.progress)(self.done, self.total) { Ok(()) } else { Err(Error::Interrupted) }
    }
}

/// Decodes a row into the bytes of its floats.
fn decode(ty: TensorType, row: &[u8], out: &mut [u8]) {
    let mut floats = vec![0.0_f32; out.len() / 4];
    quant::dequantize(ty, row, &mut floats);
    out.copy_from_slice(bytemuck::cast_slice(&floats));
}
