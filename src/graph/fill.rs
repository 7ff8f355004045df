//! Where weights come from: the mapped file, or patterns of random numbers when only speed matters.

use super::Error;
use super::bound::{Blocks, bounds};
use super::bytes::Bytes;
use super::import::Import;
use super::pattern::Patterns;
use crate::kernels::mv_q8::Planes;
use crate::kernels::split::{Split, SplitIo};
use crate::model::{Experts, Matrix, Model, Vector};
use crate::quant::{self, TensorType};
use crate::vulkan::{Queue, Slice, Stage};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

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
    File(Box<FromFile<'a>>),
    /// With random numbers.
    Random(Patterns<'a>),
    /// Not at all: only sizes matter.
    #[cfg(test)]
    Nothing,
}

/// Copies weights of a file, in the form that the device wants.
pub(super) struct FromFile<'a> {
    pub(super) model: &'a Model,
    pub(super) bytes: Arc<Bytes<'a>>,
    pub(super) import: Option<Import>,
    pub(super) queue: &'a mut Queue,
    pub(super) stage: Stage,
    pub(super) split: Split,
    pub(super) progress: &'a mut Progress<'a>,
    pub(super) done: u64,
    pub(super) total: u64,
    /// Bytes that stayed in the file.
    pub(super) in_place: u64,
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

    /// Rows of `Q8_0` matrices, of several in turn, into planes from row `first` on.
    pub(super) fn planes(
        &mut self,
        parts: &[&Matrix],
        planes: &Planes,
        first: usize,
    ) -> Result<(), Error> {
        let rows: usize = parts.iter().map(|m| m.rows).sum();
        let part = |plane: &Slice, row_bytes: usize| {
            plane.buffer.slice(plane.offset + (first * row_bytes) as u64, (rows * row_bytes) as u64)
        };
        match self {
            Self::File(file) => file.planes(parts, planes, first),
            Self::Random(patterns) => {
                let cols = parts[0].cols;
                let (codes, scales) = (part(&planes.codes, cols), part(&planes.scales, cols / 16));
                patterns.planes(parts[0], &codes, &scales)
            }
            #[cfg(test)]
            Self::Nothing => Ok(()),
        }
    }

    /// Rows of a matrix, decoded to f32, from row `first` of `to` on.
    pub(super) fn rows(&mut self, matrix: &Matrix, to: &Slice, first: usize) -> Result<(), Error> {
        let row_bytes = matrix.cols * 4;
        let start = to.offset + (first * row_bytes) as u64;
        let to = to.buffer.slice(start, (matrix.rows * row_bytes) as u64);
        match self {
            Self::File(file) => file.rows(matrix, &to),
            Self::Random(patterns) => patterns.floats(Float::Weight, &to),
            #[cfg(test)]
            Self::Nothing => Ok(()),
        }
    }

    /// Blocks of routed experts where they lie in the file; `None` where the device cannot read them there.
    pub(super) fn in_place(&mut self, experts: &Experts) -> Result<Option<Slice>, Error> {
        match self {
            Self::File(file) => file.in_place(experts),
            Self::Random(_) => Ok(None),
            #[cfg(test)]
            Self::Nothing => Ok(None),
        }
    }

    /// Blocks of routed experts, as they are.
    pub(super) fn blocks(&mut self, experts: &Experts, to: &Slice) -> Result<(), Error> {
        match self {
            Self::File(file) => file.blocks(experts, to),
            Self::Random(patterns) => patterns.blocks(experts, to),
            #[cfg(test)]
            Self::Nothing => Ok(()),
        }
    }

    /// For each of these, how large its weights can be. All that was filled has arrived when this returns.
    pub(super) fn bounds(&mut self, all: &[Blocks]) -> Result<Vec<f32>, Error> {
        match self {
            Self::File(file) => {
                file.stage.finish(file.queue)?;
                bounds(file.queue, all)
            }
            Self::Random(patterns) => bounds(patterns.queue(), all),
            #[cfg(test)]
            Self::Nothing => Ok(vec![1.0; all.len()]),
        }
    }
}

impl FromFile<'_> {
    fn in_place(&mut self, experts: &Experts) -> Result<Option<Slice>, Error> {
        let Some(import) = &mut self.import else { return Ok(None) };
        let bytes = experts.expert_bytes * experts.count;
        let Some(slice) = import.take(self.queue, experts.offset, bytes)? else {
            // One refusal is enough.
            self.import = None;
            return Ok(None);
        };
        self.in_place += bytes as u64;
        self.count(bytes)?;
        Ok(Some(slice))
    }

    /// Bytes as they are; the rest of the last word is zero.
    fn copy(&mut self, from: &[u8], to: &Slice) -> Result<(), Error> {
        self.pieces(from.len(), to, |range, out, _| {
            out.copy_from_slice(&from[range]);
            Ok(())
        })
    }

    /// Blocks as they are.
    fn blocks(&mut self, experts: &Experts, to: &Slice) -> Result<(), Error> {
        let all = experts.expert_bytes * experts.count;
        let bytes = Arc::clone(&self.bytes);
        self.pieces(all, to, |range, out, beside| {
            bytes.fill(vec![(experts.offset + range.start as u64, out)], beside)
        })
    }

    /// Has `len` bytes written piece by piece; the rest of the last word is zero.
    fn pieces(
        &mut self,
        len: usize,
        to: &Slice,
        write: impl Fn(Range<usize>, &mut [u8], &mut dyn FnMut()) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let piece = self.stage.piece_bytes() / 4 * 4;
        for start in (0..len).step_by(piece) {
            let range = start..len.min(start + piece);
            let whole = range.len().next_multiple_of(4) as u64;
            let to = to.buffer.slice(to.offset + start as u64, whole);
            let mut written = Ok(());
            self.stage.prepare(self.queue, &[to], |out, beside| {
                let (head, tail) = out.split_at_mut(range.len());
                tail.fill(0);
                written = write(range.clone(), head, beside);
            })?;
            written?;
            self.count(range.len())?;
        }
        Ok(())
    }

    /// Rows as they are, which the device splits.
    fn planes(&mut self, parts: &[&Matrix], planes: &Planes, first: usize) -> Result<(), Error> {
        let rows: usize = parts.iter().map(|m| m.rows).sum();
        let (row_bytes, row_blocks) =
            (parts[0].row_bytes, parts[0].cols / TensorType::Q8_0.block_len());
        let at_once = self.turns(row_bytes, parts.len());
        for from in (0..rows).step_by(at_once) {
            let count = at_once.min(rows - from);
            let part_bytes = count / parts.len() * row_bytes;
            let skipped = (from / parts.len() * row_bytes) as u64;
            let sizes = (int(count), int(row_blocks), int(parts.len()));
            let first = ((first + from) * row_blocks) as u64;
            let (bytes, split) = (&self.bytes, &self.split);
            let mut read = Ok(());
            let fill = |out: &mut [u8], beside: &mut dyn FnMut()| {
                let each = parts.iter().zip(out.chunks_mut(part_bytes));
                read = bytes
                    .fill(each.map(|(part, out)| (part.offset + skipped, out)).collect(), beside);
            };
            self.stage.dispatch(self.queue, count * row_bytes, fill, |graph, raw| {
                split.record(graph, "split", sizes, &SplitIo { raw, planes, first });
            })?;
            read?;
            self.count(count * row_bytes)?;
        }
        Ok(())
    }

    /// Rows, decoded by the host.
    fn rows(&mut self, matrix: &Matrix, to: &Slice) -> Result<(), Error> {
        let row_bytes = matrix.cols * 4;
        let at_once = self.turns(row_bytes, 1);
        let task = (self.bytes.task_bytes() / matrix.row_bytes).max(1);
        for from in (0..matrix.rows).step_by(at_once) {
            let count = at_once.min(matrix.rows - from);
            let start = to.offset + (from * row_bytes) as u64;
            let to = to.buffer.slice(start, (count * row_bytes) as u64);
            let bytes = &self.bytes;
            let one = |(i, out): (usize, &mut [u8])| {
                let offset = matrix.offset + ((from + i * task) * matrix.row_bytes) as u64;
                bytes.with(offset, out.len() / row_bytes * matrix.row_bytes, |raw| {
                    let rows = raw.chunks_exact(matrix.row_bytes);
                    rows.zip(out.chunks_exact_mut(row_bytes))
                        .for_each(|(row, out)| decode(matrix.ty, row, out));
                })
            };
            let mut read = Ok(());
            self.stage.prepare(self.queue, &[to], |out, beside| {
                let tasks = out.par_chunks_mut(task * row_bytes).enumerate();
                read = bytes.run(|| tasks.try_for_each(one), beside);
            })?;
            read?;
            self.count(count * matrix.row_bytes)?;
        }
        Ok(())
    }

    /// How many rows fit into a piece: whole turns of `parts` matrices, and an even number of rows of each.
    fn turns(&self, row_bytes: usize, parts: usize) -> usize {
        let turn = 2 * parts;
        (self.stage.piece_bytes() / row_bytes / turn).max(1) * turn
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

fn int(n: usize) -> u32 {
    u32::try_from(n).expect("dimensions were checked")
}
