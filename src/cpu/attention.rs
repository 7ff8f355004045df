//! Gated full attention (model.md 3.6): `mixer_in` to `y`, over the stored rows of the session.
//!
//! Keys are read in spans at absolute positions. Within a span a softmax is taken over whatever part of it the
//! query sees; spans are merged in order. That is one fixed order of operations for each query and head, whether
//! the spans of a single query are shared between threads or a thread walks through all of them for some queries.

use super::forward::Chunk;
use super::kv::Rows;
use super::linear::{Job, multiply};
use super::pool::PerThread;
use super::scratch::{Scratch, ThreadScratch, carve};
use crate::model::{Attention, Shape};
use crate::ops::{self, Partial, RopeTable};
use crate::quant::{axpy, dot_f32};
use rayon::prelude::*;
use std::ops::Range;

/// Keys of a span.
const SPAN: usize = 1024;
/// Keys decoded at a time, for all queries of a task.
const TILE: usize = 32;
/// Tokens of a task; each brings all query heads of one KV head.
const QUERY_TOKENS: usize = 8;
/// Spans of a single query computed before they are merged: a bound on the memory for their results.
const SPANS_AT_ONCE: usize = 32;

/// Floats of the arena per token: queries with gates, keys, values, heads.
pub(super) fn widths(shape: &Shape) -> [usize; 4] {
    [2 * shape.query_width(), shape.kv_width(), shape.kv_width(), shape.query_width()]
}

/// Floats of a thread: scores, weighted values of a span and of all, a tile of decoded rows.
pub(super) fn thread_floats(shape: &Shape) -> usize {
    let queries = QUERY_TOKENS * shape.heads_per_kv();
    queries * (SPAN + 2 * shape.head_dim) + TILE * shape.head_dim
}

/// Runs the mixer and stores the chunk's rows.
pub(super) fn mix(
    chunk: &Chunk<'_>,
    layer: &Attention,
    rope: &RopeTable,
    scratch: &mut Scratch,
    (stored_keys, stored_values): (&mut Rows, &mut Rows),
) {
    let (shape, n) = (chunk.shape, chunk.n);
    let [queries, keys, values, heads] = carve(&mut scratch.arena, n, widths(shape));
    let jobs = [
        Job { weights: chunk.rows(&layer.q), out: &mut *queries },
        Job { weights: chunk.rows(&layer.k), out: &mut *keys },
        Job { weights: chunk.rows(&layer.v), out: &mut *values },
    ];
    multiply(chunk.precision, &scratch.mixer_in[..n], jobs);

    // Query and gate alternate per head: every other head-sized piece is a query.
    let norm = chunk.model.f32s(&layer.q_norm);
    rotate(chunk, rope, norm, queries, 2 * shape.head_dim);
    rotate(chunk, rope, chunk.model.f32s(&layer.k_norm), keys, shape.head_dim);
    stored_keys.store(chunk.pos, keys);
    stored_values.store(chunk.pos, values);

    let view = View { shape, keys: stored_keys, values: stored_values };
    if n == 1 {
        attend_one(&view, &scratch.threads, chunk.pos, queries, heads);
    } else {
        attend_many(&view, &scratch.threads, chunk.pos, queries, heads);
    }
    let rows = heads.par_chunks_exact(shape.query_width()).zip(&mut scratch.heads_in);
    rows.for_each(|(row, activation)| activation.set(row));
    let jobs =
        [Job { weights: chunk.rows(&layer.output), out: &mut scratch.y[..n * shape.hidden] }];
    multiply(chunk.precision, &scratch.heads_in[..n], jobs);
}

/// Norm and rotation of the head at the start of every `stride` values of each token's row.
fn rotate(chunk: &Chunk<'_>, rope: &RopeTable, norm: &[f32], rows: &mut [f32], stride: usize) {
    let width = rows.len() / chunk.n;
    rows.par_chunks_exact_mut(width).enumerate().for_each(|(t, row)| {
        for piece in row.chunks_exact_mut(stride) {
            let head = &mut piece[..norm.len()];
            ops::rms_norm_mut(head, norm, chunk.shape.rms_eps);
            rope.rotate(head, chunk.pos + t);
        }
    });
}

/// The stored rows of one layer.
struct View<'a> {
    shape: &'a Shape,
    keys: &'a Rows,
    values: &'a Rows,
}

/// Queries of some consecutive tokens for the heads of one KV head.
struct Queries<'a> {
    /// Rows of queries and gates, one for each token.
    rows: &'a [f32],
    /// Position of the first token.
    pos: usize,
    kv_head: usize,
    shape: &'a Shape,
}

impl<'a> Queries<'a> {
    fn tokens(&self) -> usize {
        self.rows.len() / (2 * self.shape.query_width())
    }

    /// Query and gate of one head, counted within the KV head.
    fn get(&self, token: usize, head: usize) -> (&'a [f32], &'a [f32]) {
        let size = self.shape.head_dim;
        let head = self.kv_head * self.shape.heads_per_kv() + head;
        let row = &self.rows[token * 2 * self.shape.query_width()..];
        row[head * 2 * size..][..2 * size].split_at(size)
    }

    /// Every token with every head of the KV head.
    fn units(&self) -> Vec<(usize, usize)> {
        let heads = self.shape.heads_per_kv();
        (0..self.tokens()).flat_map(|t| (0..heads).map(move |h| (t, h))).collect()
    }

    /// How many keys of a span a token sees: those up to itself.
    fn visible(&self, token: usize, span: &Range<usize>) -> usize {
        (self.pos + token + 1).min(span.end).saturating_sub(span.start)
    }
}

impl View<'_> {
    /// Attention of all queries to the keys of one span, of which the last one sees some. `results` gets a
    /// row of weighted values for each query, token by token; so does what is returned.
    fn span(
        &self,
        queries: &Queries<'_>,
        span: &Range<usize>,
        (scores, tile): (&mut [f32], &mut [f32]),
        results: &mut [f32],
    ) -> Vec<Partial> {
        let size = self.shape.head_dim;
        let scale = 1.0 / (size as f32).sqrt();
        let units = queries.units();
        let last = queries.visible(queries.tokens() - 1, span);
        let tiles = || (0..last).step_by(TILE).map(|from| from..(from + TILE).min(last));
        // The part of a tile that token `t` sees.
        let part = |keys: &Range<usize>, t| keys.start..keys.end.min(queries.visible(t, span));

        for keys in tiles() {
            self.keys.decode(queries.kv_head, offset(&keys, span.start), tile);
            for (&(t, h), scores) in units.iter().zip(scores.chunks_exact_mut(SPAN)) {
                let Some(scores) = scores.get_mut(part(&keys, t)) else { continue };
                for (score, key) in scores.iter_mut().zip(tile.chunks_exact(size)) {
                    *score = dot_f32(queries.get(t, h).0, key) * scale;
                }
            }
        }
        let rows = units.iter().zip(scores.chunks_exact_mut(SPAN));
        let partials =
            rows.map(|(&(t, _), row)| Partial::from_scores(&mut row[..queries.visible(t, span)]));
        let partials = partials.collect();
        results.fill(0.0);
        for keys in tiles() {
            self.values.decode(queries.kv_head, offset(&keys, span.start), tile);
            let rows = scores.chunks_exact(SPAN).zip(results.chunks_exact_mut(size));
            for (&(t, _), (weights, result)) in units.iter().zip(rows) {
                let Some(weights) = weights.get(part(&keys, t)) else { continue };
                for (weight, value) in weights.iter().zip(tile.chunks_exact(size)) {
                    axpy(*weight, value, result);
                }
            }
        }
        partials
    }
}

fn offset(range: &Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

/// The spans of the first `keys` keys.
fn spans(keys: usize) -> impl Iterator<Item = Range<usize>> {
    (0..keys).step_by(SPAN).map(move |from| from..(from + SPAN).min(keys))
}

/// One token: its spans are shared out, and merged when a round of them is done.
fn attend_one(
    view: &View<'_>,
    threads: &PerThread<ThreadScratch>,
    pos: usize,
    rows: &[f32],
    heads: &mut [f32],
) {
    let shape = view.shape;
    let width = shape.heads_per_kv() * shape.head_dim;
    let query = |kv_head| Queries { rows, pos, kv_head, shape };
    let mut totals = vec![Partial::EMPTY; shape.heads];
    let all: Vec<_> = spans(pos + 1).collect();
    for round in all.chunks(SPANS_AT_ONCE) {
        let tasks: Vec<_> =
            round.iter().flat_map(|span| (0..shape.kv_heads).map(move |h| (span, h))).collect();
        let mut results = vec![0.0; tasks.len() * width];
        let work = tasks.par_iter().zip(results.par_chunks_exact_mut(width)).with_max_len(1);
        let partials: Vec<Vec<Partial>> = work
            .map(|(&(span, kv_head), results)| {
                threads.with(|thread| {
                    let (scores, rest) = thread.floats.split_at_mut(shape.heads_per_kv() * SPAN);
                    view.span(&query(kv_head), span, (scores, rest), results)
                })
            })
            .collect();
        for ((&(_, kv_head), partials), results) in
            tasks.iter().zip(&partials).zip(results.chunks_exact(width))
        {
            let first = kv_head * shape.heads_per_kv();
            for (h, (partial, result)) in
                (first..).zip(partials.iter().zip(results.chunks_exact(shape.head_dim)))
            {
                let head = &mut heads[h * shape.head_dim..][..shape.head_dim];
                totals[h].merge(head, *partial, result);
            }
        }
    }
    for (h, (head, total)) in heads.chunks_exact_mut(shape.head_dim).zip(totals).enumerate() {
        let group = shape.heads_per_kv();
        total.finish(head);
        ops::gate_output(head, query(h / group).get(0, h % group).1);
    }
}

/// Several tokens: a task is some of them with the heads of one KV head, and walks through all spans.
fn attend_many(
    view: &View<'_>,
    threads: &PerThread<ThreadScratch>,
    pos: usize,
    rows: &[f32],
    heads: &mut [f32],
) {
    let shape = view.shape;
    let width = shape.heads_per_kv() * shape.head_dim;
    let mut tasks = Vec::new();
    let blocks = rows.chunks(QUERY_TOKENS * 2 * shape.query_width());
    for (i, (rows, heads)) in
        blocks.zip(heads.chunks_mut(QUERY_TOKENS * shape.query_width())).enumerate()
    {
        let pos = pos + i * QUERY_TOKENS;
        let first = tasks.len();
        tasks.extend(
            (0..shape.kv_heads).map(|kv_head| (Queries { rows, pos, kv_head, shape }, Vec::new())),
        );
        for token in heads.chunks_exact_mut(shape.query_width()) {
            for (piece, task) in token.chunks_exact_mut(width).zip(&mut tasks[first..]) {
                task.1.push(piece);
            }
        }
    }
    tasks.into_par_iter().with_max_len(1).for_each(|(queries, mut out)| {
        threads.with(|thread| attend_block(view, &queries, &mut thread.floats, &mut out));
    });
}

/// One task of [`attend_many`]; `out` has the heads' piece of each token's row.
fn attend_block(
    view: &View<'_>,
    queries: &Queries<'_>,
    floats: &mut [f32],
    out: &mut [&mut [f32]],
) {
    let size = view.shape.head_dim;
    let units = queries.units();
    let (scores, rest) = floats.split_at_mut(units.len() * SPAN);
    let (results, rest) = rest.split_at_mut(units.len() * size);
    let (sums, tile) = rest.split_at_mut(units.len() * size);
    let mut totals = vec![Partial::EMPTY; units.len()];
    for span in spans(queries.pos + queries.tokens()) {
        let partials = view.span(queries, &span, (scores, tile), results);
        let rows = sums.chunks_exact_mut(size).zip(results.chunks_exact(size));
        for (((total, partial), (sum, result)), &(t, _)) in
            totals.iter_mut().zip(partials).zip(rows).zip(&units)
        {
            if queries.visible(t, &span) > 0 {
                total.merge(sum, partial, result);
            }
        }
    }
    for ((&(t, h), sum), total) in units.iter().zip(sums.chunks_exact(size)).zip(totals) {
        let head = &mut out[t][h * size..][..size];
        head.copy_from_slice(sum);
        total.finish(head);
        ops::gate_output(head, queries.get(t, h).1);
    }
}
