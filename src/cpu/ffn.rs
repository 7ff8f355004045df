//! The expert block (model.md 3.8): `moe_in` to `y`.
//!
//! One token: the rows of its experts are shared out, first gate and up, then down. Many tokens: they are grouped by
//! expert, so that every weight row is decoded once for all tokens that chose it, and an expert with some of its
//! tokens is a task. The experts of a token are added in the order in which the router chose them, either way.

use super::Error;
use super::forward::Chunk;
use super::linear::{Job, Precision, Rows, multiply, scatter};
use super::pool::PerThread;
use super::scratch::{Scratch, ThreadScratch, carve};
use crate::model::{Moe, Shape};
use crate::ops;
use crate::quant::{Activation, dot_f32};
use rayon::prelude::*;

/// Tokens of a task: what gate, up and activations of this many take stays in the second-level cache.
pub(super) const EXPERT_TOKENS: usize = 32;
/// Weight rows of a task of a single token.
const ROWS: usize = 64;
/// Rows of a down product at a time: what they give for all tokens of a task stays in the second-level cache.
const DOWN_ROWS: usize = 512;

/// Floats of the arena per token: router logits, gate and up of the shared expert, its output, expert outputs.
pub(super) fn widths(shape: &Shape) -> [usize; 5] {
    let routed = shape.experts_used * shape.hidden.max(shape.expert_ffn);
    [shape.experts, shape.shared_ffn, shape.shared_ffn, shape.hidden, routed]
}

/// Floats of a thread: gate, up, one row of their product, a block of results.
pub(super) fn thread_floats(shape: &Shape) -> usize {
    2 * shape.expert_ffn * EXPERT_TOKENS + shape.expert_ffn + DOWN_ROWS * EXPERT_TOKENS
}

/// Runs the block. Fails where a token's router logits leave no choice.
pub(super) fn run(
    chunk: &Chunk<'_>,
    layer: usize,
    moe: &Moe,
    scratch: &mut Scratch,
) -> Result<(), Error> {
    let (shape, n) = (chunk.shape, chunk.n);
    let [router, shared_gate, shared_up, shared, routed] =
        carve(&mut scratch.arena, n, widths(shape));
    let xs = &scratch.moe_in[..n];
    let jobs = [
        Job { weights: chunk.rows(&moe.router), out: &mut *router },
        Job { weights: chunk.rows(&moe.sh_gate), out: &mut *shared_gate },
        Job { weights: chunk.rows(&moe.sh_up), out: &mut *shared_up },
    ];
    multiply(chunk.precision, xs, jobs);

    let used = shape.experts_used;
    let (experts, weights) = (&mut scratch.experts[..n * used], &mut scratch.weights[..n * used]);
    let choices = experts.chunks_exact_mut(used).zip(weights.chunks_exact_mut(used));
    for (t, (logits, (experts, weights))) in
        router.chunks_exact(shape.experts).zip(choices).enumerate()
    {
        ops::route(logits, experts, weights).map_err(|source| Error::Router {
            layer,
            pos: chunk.pos + t,
            source,
        })?;
    }

    let rows = shared_gate.par_chunks_exact_mut(shape.shared_ffn);
    let rows = rows.zip(shared_up.par_chunks_exact(shape.shared_ffn));
    rows.zip(&mut scratch.shared_in).for_each(|((gate, up), activation)| {
        ops::swiglu_mut(gate, up);
        activation.set(gate);
    });
    let jobs = [Job { weights: chunk.rows(&moe.sh_down), out: &mut *shared }];
    multiply(chunk.precision, &scratch.shared_in[..n], jobs);

    let y = &mut scratch.y[..n * shape.hidden];
    if let [x] = xs {
        let mid = &mut scratch.slots_in;
        one_token(chunk, moe, (experts, weights), x, (routed, mid), y);
    } else {
        let routed = &mut routed[..n * used * shape.hidden];
        let places = grouped(chunk, moe, experts, xs, &scratch.threads, routed);
        let rows = y.par_chunks_exact_mut(shape.hidden).zip(places.par_chunks_exact(used));
        rows.zip(weights.par_chunks_exact(used)).for_each(|((y, places), weights)| {
            y.fill(0.0);
            for (place, weight) in places.iter().zip(weights) {
                ops::add_weighted(y, *weight, &routed[place * shape.hidden..][..shape.hidden]);
            }
        });
    }
    let shared_weight = chunk.model.f32s(&moe.shared_gate_in);
    let rows = y.par_chunks_exact_mut(shape.hidden).zip(shared.par_chunks_exact(shape.hidden));
    rows.zip(xs).for_each(|((y, shared), x)| {
        ops::add_weighted(y, ops::sigmoid(dot_f32(shared_weight, x.f32())), shared);
    });
    Ok(())
}

/// The routed experts of a single token.
fn one_token(
    chunk: &Chunk<'_>,
    moe: &Moe,
    (experts, weights): (&[u32], &[f32]),
    x: &Activation,
    (floats, mid): (&mut [f32], &mut [Activation]),
    y: &mut [f32],
) {
    let (shape, precision) = (chunk.shape, chunk.precision);
    let mut tasks = Vec::new();
    for (expert, out) in experts.iter().zip(floats.chunks_mut(shape.expert_ffn)) {
        let (gate, up) = (chunk.expert(&moe.gate, *expert), chunk.expert(&moe.up, *expert));
        for (i, out) in out.chunks_mut(ROWS).enumerate() {
            let (first, count) = (i * ROWS, out.len());
            tasks.push((gate.slice(first, count), up.slice(first, count), out));
        }
    }
    tasks.into_par_iter().with_max_len(1).for_each(|(gate, up, out)| {
        let mut ups = [0.0; ROWS];
        let ups = &mut ups[..out.len()];
        precision.product(gate, &[x], out);
        precision.product(up, &[x], ups);
        ops::swiglu_mut(out, ups);
    });
    let rows = floats.par_chunks_exact(shape.expert_ffn);
    rows.zip(&mut *mid).for_each(|(row, activation)| activation.set(row));

    y.par_chunks_mut(ROWS).enumerate().with_max_len(1).for_each(|(i, y)| {
        let mut part = [0.0; ROWS];
        let part = &mut part[..y.len()];
        y.fill(0.0);
        for ((expert, weight), mid) in experts.iter().zip(weights).zip(&*mid) {
            let down = chunk.expert(&moe.down, *expert).slice(i * ROWS, y.len());
            precision.product(down, &[mid], part);
            ops::add_weighted(y, *weight, part);
        }
    });
}

/// The routed experts of many tokens, one row of `routed` for each token and expert, sorted by expert. Returns where
/// the row of each is, `[token][choice]`.
fn grouped(
    chunk: &Chunk<'_>,
    moe: &Moe,
    experts: &[u32],
    xs: &[Activation],
    threads: &PerThread<ThreadScratch>,
    routed: &mut [f32],
) -> Vec<usize> {
    let (shape, precision) = (chunk.shape, chunk.precision);
    let (order, places) = sort_by_expert(experts, shape.experts);
    let mut tasks = Vec::new();
    let mut rest = routed;
    for group in order.chunk_by(|a, b| experts[*a] == experts[*b]) {
        for choices in group.chunks(EXPERT_TOKENS) {
            let out = rest.split_off_mut(..choices.len() * shape.hidden);
            tasks.push((choices, out.expect("one row for each choice")));
        }
    }
    tasks.into_par_iter().with_max_len(1).for_each(|(choices, out)| {
        let expert = Expert::new(chunk, moe, experts[choices[0]]);
        let inputs: Vec<&Activation> =
            choices.iter().map(|choice| &xs[choice / shape.experts_used]).collect();
        threads.with(|thread| expert.run(precision, &inputs, thread, out));
    });
    places
}

/// Indices into `experts` sorted by expert, equal ones in order, and the place of each index in that list.
fn sort_by_expert(experts: &[u32], count: usize) -> (Vec<usize>, Vec<usize>) {
    let mut next = vec![0; count + 1];
    for expert in experts {
        next[*expert as usize + 1] += 1;
    }
    for i in 1..next.len() {
        next[i] += next[i - 1];
    }
    let mut order = vec![0; experts.len()];
    let mut places = Vec::with_capacity(experts.len());
    for (index, expert) in experts.iter().enumerate() {
        let place = next[*expert as usize];
        next[*expert as usize] += 1;
        order[place] = index;
        places.push(place);
    }
    (order, places)
}

/// The three matrices of one routed expert.
struct Expert<'a> {
    gate: Rows<'a>,
    up: Rows<'a>,
    down: Rows<'a>,
    ffn: usize,
}

impl<'a> Expert<'a> {
    fn new(chunk: &Chunk<'a>, moe: &Moe, expert: u32) -> Self {
        let rows = |experts| chunk.expert(experts, expert);
        let (gate, up, down) = (rows(&moe.gate), rows(&moe.up), rows(&moe.down));
        Self { gate, up, down, ffn: chunk.shape.expert_ffn }
    }

    /// Up to [`EXPERT_TOKENS`] tokens on this thread; `out` has a row for each.
    fn run(
        &self,
        precision: Precision,
        xs: &[&Activation],
        thread: &mut ThreadScratch,
        out: &mut [f32],
    ) {
        let count = xs.len();
        let (gate, rest) = thread.floats.split_at_mut(self.ffn * count);
        let (up, rest) = rest.split_at_mut(self.ffn * count);
        let (row, rest) = rest.split_at_mut(self.ffn);
        precision.product(self.gate, xs, gate);
        precision.product(self.up, xs, up);
        ops::swiglu_mut(gate, up);
        let mid = &mut thread.mid[..count];
        for (t, activation) in mid.iter_mut().enumerate() {
            column(gate, count, t, row);
            activation.set(row);
        }
        let mid: Vec<&Activation> = mid.iter().collect();
        let hidden = out.len() / count;
        let mut out: Vec<&mut [f32]> = out.chunks_exact_mut(hidden).collect();
        for first in (0..hidden).step_by(DOWN_ROWS) {
            let rows = DOWN_ROWS.min(hidden - first);
            let results = &mut rest[..rows * count];
            precision.product(self.down.slice(first, rows), &mid, results);
            let mut pieces: Vec<&mut [f32]> =
                out.iter_mut().map(|row| &mut row[first..first + rows]).collect();
            scatter(results, &mut pieces);
        }
    }
}

/// Column `t` of a matrix of `count` columns.
fn column(matrix: &[f32], count: usize, t: usize, out: &mut [f32]) {
    for (o, row) in out.iter_mut().zip(matrix.chunks_exact(count)) {
        *o = row[t];
    }
}
