//! Products of weight matrices with activation rows, shared out by blocks of weight rows.
//!
//! One result is one row's dot product with one activation, computed in one call: its bits do not depend on the
//! blocks, which are sized for caches and for sharing work.

use crate::quant::{self, Activation, Forms, TensorType};
use rayon::prelude::*;

/// Weight rows of one task of a single activation, and the unit of those of many.
const ROWS: usize = 64;
/// Most weight rows of a task of many activations: those are laid out anew by every task, which more rows make
/// cheaper.
const MOST_ROWS: usize = 256;
/// Activations a task multiplies its rows with at a time, so that they stay in the second-level cache. Rows are
/// decoded anew for each such group.
const TOKENS: usize = 64;
/// Weights decoded at a time in exact products: 64 KiB of f32.
const DECODED: usize = 1 << 14;

/// How dot products are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Precision {
    /// Decoded weights times f32 activations.
    Exact,
    /// Stored weights times 8-bit activations.
    Fast,
}

/// Weight rows as they are stored, one after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) ty: TensorType,
    pub(super) bytes: &'a [u8],
    pub(super) cols: usize,
}

impl Rows<'_> {
    fn row_bytes(self) -> usize {
        self.ty.row_bytes(self.cols).expect("checked when the model was opened")
    }

    /// Some of the rows.
    pub(super) fn slice(self, first: usize, count: usize) -> Self {
        let size = self.row_bytes();
        Self { bytes: &self.bytes[first * size..(first + count) * size], ..self }
    }
}

impl Precision {
    /// The 8-bit forms that activations need to meet weights of these types.
    pub(super) fn forms(self, types: impl IntoIterator<Item = TensorType>) -> Forms {
        match self {
            Self::Exact => Forms::NONE,
            Self::Fast => types.into_iter().fold(Forms::NONE, |all, ty| all.and(Forms::of(ty))),
        }
    }

    /// `out[r * xs.len() + t] = w[r] · xs[t]` on this thread.
    pub(super) fn product(self, w: Rows<'_>, xs: &[&Activation], out: &mut [f32]) {
        let plain = matches!(w.ty, TensorType::F32 | TensorType::F16 | TensorType::BF16);
        if self == Self::Fast || plain {
            return quant::matmul(w.ty, w.bytes, w.cols, xs, out);
        }
        let rows = (DECODED / w.cols).max(1);
        let mut decoded = vec![0.0; rows * w.cols];
        let stored = w.bytes.chunks(rows * w.row_bytes());
        for (stored, out) in stored.zip(out.chunks_mut(rows * xs.len())) {
            let decoded = &mut decoded[..out.len() / xs.len() * w.cols];
            quant::dequantize(w.ty, stored, decoded);
            quant::matmul(TensorType::F32, bytemuck::cast_slice(decoded), w.cols, xs, out);
        }
    }
}

/// A matrix to multiply with every activation, and where the results go: `[activations][rows]`.
pub(super) struct Job<'a> {
    pub(super) weights: Rows<'a>,
    pub(super) out: &'a mut [f32],
}

/// Computes all jobs with the same activations in one round of parallel work.
pub(super) fn multiply<const N: usize>(
    precision: Precision,
    xs: &[Activation],
    jobs: [Job<'_>; N],
) {
    if let [x] = xs {
        let mut tasks = Vec::new();
        for job in jobs {
            let blocks = job.out.chunks_mut(ROWS).enumerate();
            tasks.extend(blocks.map(|(i, out)| (job.weights.slice(i * ROWS, out.len()), out)));
        }
        tasks.into_par_iter().with_max_len(1).for_each(|(w, out)| precision.product(w, &[x], out));
        return;
    }
    let all: usize = jobs.iter().map(|job| job.out.len() / xs.len()).sum();
    // A few tasks for every thread, lest some wait long for the last.
    let task_rows = (all / (4 * rayon::current_num_threads())).clamp(ROWS, MOST_ROWS) / ROWS * ROWS;
    let mut tasks = Vec::new();
    for job in jobs {
        let rows = job.out.len() / xs.len();
        let first = tasks.len();
        for row in (0..rows).step_by(task_rows) {
            let weights = job.weights.slice(row, task_rows.min(rows - row));
            tasks.push((weights, Vec::with_capacity(xs.len())));
        }
        for out in job.out.chunks_exact_mut(rows) {
            for (piece, task) in out.chunks_mut(task_rows).zip(&mut tasks[first..]) {
                task.1.push(piece);
            }
        }
    }
    tasks
        .into_par_iter()
        .with_max_len(1)
        .for_each(|(w, mut out)| block(precision, w, xs, &mut out));
}

/// One block of weight rows times all activations; `out` has a piece for each activation.
fn block(precision: Precision, w: Rows<'_>, xs: &[Activation], out: &mut [&mut [f32]]) {
    let mut results = vec![0.0; out[0].len() * TOKENS.min(xs.len())];
    for (xs, out) in xs.chunks(TOKENS).zip(out.chunks_mut(TOKENS)) {
        let refs: Vec<&Activation> = xs.iter().collect();
        let results = &mut results[..out[0].len() * xs.len()];
        precision.product(w, &refs, results);
        scatter(results, out);
    }
}

/// `out[t][r] = results[r * out.len() + t]`.
pub(super) fn scatter(results: &[f32], out: &mut [&mut [f32]]) {
    let count = out.len();
    for (t, out) in out.iter_mut().enumerate() {
        for (o, row) in out.iter_mut().zip(results.chunks_exact(count)) {
            *o = row[t];
        }
    }
}
