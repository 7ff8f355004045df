//! Where weights come from: the mapped file, or patterns of random numbers when only speed matters.

use super::Error;
use super::bound::{bound, bound_of_part};
use super::bytes::Bytes;
use super::import::Import;
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
    pub(super) bytes: Bytes<'a>,
    pub(super) import: Option<Import>,
    pub(super) queue: &'a mut Queue,
    pub(super) stage: Stage,
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
            Self::File(file) => file.planes(parts, codes, scales),
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
            Self::File(file) => file.rows(matrix, to),
            Self::Random(patterns) => {
                patterns.floats(Float::Weight, &to)?;
                Ok(patterns.bound(Float::Weight))
            }
            #[cfg(test)]
            Self::Nothing => Ok(1.0),
        }
    }

    /// Blocks of routed experts where they lie in the file, with a bound of their weights; `None` where the device
    /// cannot read them there.
    pub(super) fn in_place(&mut self, experts: &Experts) -> Result<Option<(Slice, f32)>, Error> {
        match self {
            Self::File(file) => file.in_place(experts),
            Self::Random(_) => Ok(None),
            #[cfg(test)]
            Self::Nothing => Ok(None),
        }
    }

    /// Blocks of routed experts, as they are. Returns a bound of their weights.
    pub(super) fn blocks(&mut self, experts: &Experts, to: &Slice) -> Result<f32, Error> {
        match self {
            Self::File(file) => file.blocks(experts, to),
            Self::Random(patterns) => patterns.blocks(experts, to),
            #[cfg(test)]
            Self::Nothing => Ok(1.0),
        }
    }
}

impl FromFile<'_> {
    fn in_place(&mut self, experts: &Experts) -> Result<Option<(Slice, f32)>, Error> {
        let Some(import) = &mut self.import else { return Ok(None) };
        let bytes = experts.expert_bytes * experts.count;
        let Some(slice) = import.take(self.queue, experts.offset, bytes)? else {
            // One refusal is enough.
            self.import = None;
            return Ok(None);
        };
        let blocks = self.model.file.bytes(experts.offset, bytes as u64);
        self.in_place += bytes as u64;
        self.count(bytes)?;
        Ok(Some((slice, bound(experts.ty, blocks))))
    }

    /// Bytes as they are; the rest of the last word is zero.
    fn copy(&mut self, from: &[u8], to: &Slice) -> Result<(), Error> {
        let piece = self.stage.piece_bytes();
        for (i, bytes) in from.chunks(piece).enumerate() {
            let whole = bytes.len().next_multiple_of(4);
            let to = to.buffer.slice(to.offset + (i * piece) as u64, whole as u64);
            self.stage.put(self.queue, &[to], |out| {
                let (head, tail) = out.split_at_mut(bytes.len());
                tail.fill(0);
                head.copy_from_slice(bytes);
            })?;
            self.count(bytes.len())?;
        }
        Ok(())
    }

    /// Blocks as they are.
    fn blocks(&mut self, experts: &Experts, to: &Slice) -> Result<f32, Error> {
        let block = experts.ty.block_bytes();
        let whole = |bytes: usize| (bytes / (4 * block)).max(1) * 4 * block;
        let (piece, task) = (whole(self.stage.piece_bytes()), whole(self.bytes.task_bytes()));
        let all = experts.expert_bytes * experts.count;
        let mut largest = 0.0_f32;
        for from in (0..all).step_by(piece) {
            let len = piece.min(all - from);
            let padded = len.next_multiple_of(4);
            let to = to.buffer.slice(to.offset + from as u64, padded as u64);
            let (bytes, offset) = (&self.bytes, experts.offset + from as u64);
            let one = |(i, out): (usize, &mut [u8])| {
                bytes.with(offset + (i * task) as u64, out.len(), |blocks| {
                    out.copy_from_slice(blocks);
                    bound_of_part(experts.ty, blocks)
                })
            };
            let mut found = Ok(0.0);
            self.stage.put(self.queue, &[to], |out| {
                let (head, tail) = out.split_at_mut(len);
                tail.fill(0);
                found = bytes.install(|| most(head.par_chunks_mut(task).enumerate().map(one)));
            })?;
            largest = largest.max(found?);
            self.count(len)?;
        }
        Ok(largest)
    }

    fn planes(&mut self, parts: &[&Matrix], codes: Slice, scales: Slice) -> Result<f32, Error> {
        let cols = parts[0].cols;
        let planes =
            [Plane { to: codes, row_bytes: cols }, Plane { to: scales, row_bytes: cols / 16 }];
        self.each_row(parts, &planes, |row, codes, scales| {
            let blocks = row.chunks_exact(BLOCK);
            let out = codes.chunks_exact_mut(CODES).zip(scales.chunks_exact_mut(2));
            for (block, (codes, scale)) in blocks.zip(out) {
                scale.copy_from_slice(&block[..BLOCK - CODES]);
                codes.copy_from_slice(&block[BLOCK - CODES..]);
            }
        })
    }

    fn rows(&mut self, matrix: &Matrix, to: Slice) -> Result<f32, Error> {
        let none = Plane { to: to.buffer.slice(to.offset, 0), row_bytes: 0 };
        let planes = [Plane { to, row_bytes: matrix.cols * 4 }, none];
        self.each_row(&[matrix], &planes, |row, out, _| decode(matrix.ty, row, out))
    }

    /// Turns every row of the matrices, of several in turn, into a row of each plane. Returns a bound of the weights.
    fn each_row(
        &mut self,
        parts: &[&Matrix],
        planes: &[Plane; 2],
        convert: impl Fn(&[u8], &mut [u8], &mut [u8]) + Sync,
    ) -> Result<f32, Error> {
        let rows: usize = parts.iter().map(|m| m.rows).sum();
        let sizes = [planes[0].row_bytes, planes[1].row_bytes];
        // Whole words in every piece but the last, which is padded; whole turns of all parts.
        let turn = 2 * parts.len();
        let fitting = |bytes: usize, row: usize| (bytes / row / turn).max(1) * turn;
        let at_once = fitting(self.stage.piece_bytes() - 8, sizes[0] + sizes[1]);
        let task = fitting(self.bytes.task_bytes(), parts[0].row_bytes);
        let mut largest = 0.0_f32;
        for from in (0..rows).step_by(at_once) {
            let count = at_once.min(rows - from);
            let pieces = [0, 1].map(|p| planes[p].piece(from, count));
            let bytes = &self.bytes;
            let mut found = Ok(0.0);
            self.stage.put(self.queue, &pieces, |out| {
                let first = usize::try_from(pieces[0].bytes).expect("less than a piece");
                let (a, b) = out.split_at_mut(first);
                let used = [0, 1].map(|p| count * sizes[p]);
                let (a, b) = (padded(a, used[0]), padded(b, used[1]));
                let one = |(i, (a, b)): (usize, (&mut [u8], &mut [u8]))| {
                    let span = Span { first: from + i * task, sizes };
                    span.fill(bytes, parts, (a, b), &convert)
                };
                found = bytes.install(|| {
                    if sizes[1] == 0 {
                        most(
                            a.par_chunks_mut(task * sizes[0])
                                .enumerate()
                                .map(|(i, a)| one((i, (a, &mut [])))),
                        )
                    } else {
                        let chunks = a.par_chunks_mut(task * sizes[0]);
                        most(chunks.zip(b.par_chunks_mut(task * sizes[1])).enumerate().map(one))
                    }
                });
            })?;
            largest = largest.max(found?);
            self.count(count * parts[0].row_bytes)?;
        }
        Ok(largest)
    }

    fn count(&mut self, bytes: usize) -> Result<(), Error> {
        self.done += bytes as u64;
        if (self.progress)(self.done, self.total) { Ok(()) } else { Err(Error::Interrupted) }
    }
}

/// A target of converted rows.
struct Plane {
    to: Slice,
    row_bytes: usize,
}

impl Plane {
    /// The part of `count` rows from row `from` on.
    fn piece(&self, from: usize, count: usize) -> Slice {
        let bytes = (count * self.row_bytes).next_multiple_of(4);
        self.to.buffer.slice(self.to.offset + (from * self.row_bytes) as u64, bytes as u64)
    }
}

/// Consecutive rows of the matrices in turn, that one thread converts.
struct Span {
    first: usize,
    /// Bytes of a row of each plane.
    sizes: [usize; 2],
}

impl Span {
    fn fill(
        &self,
        bytes: &Bytes<'_>,
        parts: &[&Matrix],
        (a, b): (&mut [u8], &mut [u8]),
        convert: &(impl Fn(&[u8], &mut [u8], &mut [u8]) + Sync),
    ) -> Result<f32, Error> {
        let n = parts.len();
        let (rows, [size_a, size_b]) = (a.len() / self.sizes[0], self.sizes);
        let mut largest = 0.0_f32;
        for (p, part) in parts.iter().enumerate() {
            // Rows p, p + n ... of the span; its first row is one of the first part.
            let count = (rows + n - 1 - p) / n;
            let offset = part.offset + (self.first / n * part.row_bytes) as u64;
            let found = bytes.with(offset, count * part.row_bytes, |raw| {
                for (i, row) in raw.chunks_exact(part.row_bytes).enumerate() {
                    let at = i * n + p;
                    let (a, b) = (&mut a[at * size_a..][..size_a], &mut b[at * size_b..][..size_b]);
                    convert(row, a, b);
                }
                bound_of_part(part.ty, raw)
            })?;
            largest = largest.max(found);
        }
        Ok(largest)
    }
}

/// The first bytes of a padded part, once what is behind them is zero.
fn padded(part: &mut [u8], used: usize) -> &mut [u8] {
    let (head, tail) = part.split_at_mut(used);
    tail.fill(0);
    head
}

/// The largest of all, or the first error.
fn most(found: impl ParallelIterator<Item = Result<f32, Error>>) -> Result<f32, Error> {
    found.try_reduce(|| 0.0, |a, b| Ok(a.max(b)))
}

/// Decodes a row into the bytes of its floats.
fn decode(ty: TensorType, row: &[u8], out: &mut [u8]) {
    let mut floats = vec![0.0_f32; out.len() / 4];
    quant::dequantize(ty, row, &mut floats);
    out.copy_from_slice(bytemuck::cast_slice(&floats));
}
