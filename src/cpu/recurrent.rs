//! The gated DeltaNet mixer (model.md 3.3): `mixer_in` to `y`, from one state to another.

use super::forward::Chunk;
use super::linear::{Job, multiply};
use super::scratch::{Scratch, carve};
use super::slots::LayerState;
use crate::model::{Recurrent, Shape};
use crate::ops;
use rayon::prelude::*;

/// Added to the squared length of a query or key head.
const L2_EPS: f32 = 1e-6;

/// Floats of the arena per token: raw rows, convolved rows, output gate, heads, decay, write strength.
pub(super) fn widths(shape: &Shape) -> [usize; 6] {
    let (channels, heads) = (shape.conv_channels, shape.value_heads);
    [channels, channels, shape.inner, shape.inner, heads, heads]
}

/// The convolution weights of a layer, stored by channel, as rows of channels: one for each tap.
pub(super) fn taps_by_row(stored: &[f32], taps: usize) -> Vec<f32> {
    (0..taps).flat_map(|tap| stored.iter().skip(tap).step_by(taps).copied()).collect()
}

/// Runs the mixer. The old state is `source`, or `target` itself when there is none.
pub(super) fn mix(
    chunk: &Chunk<'_>,
    layer: &Recurrent,
    taps: &[f32],
    scratch: &mut Scratch,
    (source, target): (Option<&LayerState>, &mut LayerState),
) {
    let (shape, n) = (chunk.shape, chunk.n);
    let [raw, convolved, gate, heads, decay, beta] = carve(&mut scratch.arena, n, widths(shape));
    let jobs = [
        Job { weights: chunk.rows(&layer.qkv), out: &mut *raw },
        Job { weights: chunk.rows(&layer.gate), out: &mut *gate },
        Job { weights: chunk.rows(&layer.alpha), out: &mut *decay },
        Job { weights: chunk.rows(&layer.beta), out: &mut *beta },
    ];
    multiply(chunk.precision, &scratch.mixer_in[..n], jobs);

    let ring = &source.unwrap_or(target).conv;
    convolve(shape, taps, &Window { raw, ring, shape, pos: chunk.pos }, convolved);
    advance(chunk, raw, source.map(|s| &*s.conv), &mut target.conv);
    gates(chunk, layer, decay, beta);
    let tokens = Tokens { shape, n, convolved, decay, beta };
    recur(&tokens, source.map(|s| &*s.state), &mut target.state, heads);

    let (norm, size) = (chunk.model.f32s(&layer.norm), shape.state_dim);
    let rows = raw.par_chunks_mut(shape.conv_channels).zip(gate.par_chunks(shape.inner));
    rows.zip(&mut scratch.heads_in).enumerate().for_each(|(t, ((row, gate), activation))| {
        // The raw rows are in the ring by now; their memory takes the normalised heads.
        let row = &mut row[..shape.inner];
        for (h, out) in row.chunks_exact_mut(size).enumerate() {
            let head = &heads[(h * n + t) * size..][..size];
            ops::gated_rms_norm(head, norm, &gate[h * size..][..size], shape.rms_eps, out);
        }
        activation.set(row);
    });
    let jobs = [Job { weights: chunk.rows(&layer.out), out: &mut scratch.y[..n * shape.hidden] }];
    multiply(chunk.precision, &scratch.heads_in[..n], jobs);
}

/// The raw convolution rows of a chunk and the ring of those before it.
struct Window<'a> {
    raw: &'a [f32],
    ring: &'a [f32],
    shape: &'a Shape,
    /// Position of the chunk's first row.
    pos: usize,
}

impl Window<'_> {
    /// The row `back` positions before row `t` of the chunk, `back < taps`.
    fn row(&self, t: usize, back: usize) -> &[f32] {
        let (taps, channels) = (self.shape.conv_taps, self.shape.conv_channels);
        if back <= t {
            &self.raw[(t - back) * channels..][..channels]
        } else {
            &self.ring[(self.pos + t + taps - back) % taps * channels..][..channels]
        }
    }
}

/// Convolution with SiLU, and the norms of queries and keys, row by row.
fn convolve(shape: &Shape, taps: &[f32], window: &Window<'_>, out: &mut [f32]) {
    let size = shape.state_dim;
    let scale = 1.0 / (size as f32).sqrt();
    out.par_chunks_mut(shape.conv_channels).enumerate().for_each(|(t, out)| {
        let rows: Vec<&[f32]> =
            (0..shape.conv_taps).rev().map(|back| window.row(t, back)).collect();
        ops::conv_silu(&rows, taps, out);
        let (queries, rest) = out.split_at_mut(shape.key_heads * size);
        let keys = &mut rest[..shape.key_heads * size];
        queries.chunks_exact_mut(size).for_each(|head| ops::l2_norm(head, L2_EPS, scale));
        keys.chunks_exact_mut(size).for_each(|head| ops::l2_norm(head, L2_EPS, 1.0));
    });
}

/// Leaves in `target` the ring of the position after the chunk. Rows older than the chunk come from `source`; without
/// one they are in place already.
fn advance(chunk: &Chunk<'_>, raw: &[f32], source: Option<&[f32]>, target: &mut [f32]) {
    let (taps, channels) = (chunk.shape.conv_taps, chunk.shape.conv_channels);
    for back in 1..=taps {
        let place = (chunk.pos + chunk.n + taps - back) % taps * channels;
        let row = &mut target[place..][..channels];
        if back <= chunk.n {
            row.copy_from_slice(&raw[(chunk.n - back) * channels..][..channels]);
        } else if let Some(source) = source {
            row.copy_from_slice(&source[place..][..channels]);
        }
    }
}

/// Turns the projections into decay factors and write strengths.
fn gates(chunk: &Chunk<'_>, layer: &Recurrent, decay: &mut [f32], beta: &mut [f32]) {
    let (a, dt) = (chunk.model.f32s(&layer.a), chunk.model.f32s(&layer.dt));
    for row in decay.chunks_exact_mut(a.len()) {
        for ((alpha, a), dt) in row.iter_mut().zip(a).zip(dt) {
            *alpha = ops::exp(ops::log_decay(*a, *alpha, *dt));
        }
    }
    for b in beta {
        *b = ops::sigmoid(*b);
    }
}

/// What the recurrence reads: rows of convolved queries, keys and values, and two values for each head.
struct Tokens<'a> {
    shape: &'a Shape,
    n: usize,
    convolved: &'a [f32],
    decay: &'a [f32],
    beta: &'a [f32],
}

impl Tokens<'_> {
    /// What token `t` brings to value head `h`. Value heads are stored so that head `h` belongs to key head
    /// `h mod key_heads` (model.md 3.1).
    fn get(&self, t: usize, h: usize) -> ops::Token<'_> {
        let (size, keys) = (self.shape.state_dim, self.shape.key_heads);
        let row = &self.convolved[t * self.shape.conv_channels..][..self.shape.conv_channels];
        let head = |index: usize| &row[index * size..][..size];
        ops::Token {
            q: head(h % keys),
            k: head(keys + h % keys),
            v: head(2 * keys + h),
            decay: self.decay[t * self.shape.value_heads + h],
            beta: self.beta[t * self.shape.value_heads + h],
        }
    }
}

/// The delta rule, a value head at a time; `heads` becomes `[value head][token][channel]`.
fn recur(tokens: &Tokens<'_>, source: Option<&[f32]>, target: &mut [f32], heads: &mut [f32]) {
    let size = tokens.shape.state_dim;
    let states = target.par_chunks_exact_mut(size * size);
    let outs = heads.par_chunks_exact_mut(tokens.n * size);
    states.zip(outs).enumerate().with_max_len(1).for_each(|(h, (state, outs))| {
        let mut source = source.map(|s| &s[h * size * size..][..size * size]);
        for (t, out) in outs.chunks_exact_mut(size).enumerate() {
            ops::step(source.take(), state, &tokens.get(t, h), out);
        }
    });
}
