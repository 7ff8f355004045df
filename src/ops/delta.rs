//! The gated delta rule of one value head (model.md 3.3 steps 6 and 7, 3.5).
//!
//! The state `S` is `[key channel i][value channel j]`, row-major. [`step`] is the definition and what the CPU
//! backend runs; [`chunked`] is the same function for many tokens at once, the reference of GPU kernels.

use super::exp::{exp, rounded};
use super::softplus;

/// Columns of the state held in registers by [`step`]. Columns are independent, so this changes no bits.
const COLUMNS: usize = 32;

/// Logarithm of the decay factor, `a * softplus(alpha + dt)`, never positive. `a` is the stored `ssm_a`
/// (already `-exp(A_log)`), `alpha` the projected value of the token, `dt` the bias.
pub fn log_decay(a: f32, alpha: f32, dt: f32) -> f32 {
    a * softplus(alpha + dt)
}

/// What one token brings to one value head. `q` and `k` are L2-normalised, `q` is scaled too.
#[derive(Debug, Clone, Copy)]
pub struct Token<'a> {
    /// Query of the key head, one value for each key channel.
    pub q: &'a [f32],
    /// Key of the key head.
    pub k: &'a [f32],
    /// Value of this head, one for each value channel.
    pub v: &'a [f32],
    /// Decay factor in (0, 1].
    pub decay: f32,
    /// Write strength in (0, 1).
    pub beta: f32,
}

/// One token of the recurrence, in exactly this order: decay, predict, update, read.
///
/// ```text
/// S <- decay * S
/// d <- beta * (v - S^T k)
/// S <- S + k d^T
/// out <- S^T q
/// ```
///
/// The old state is `source` when given, else `state` itself; the new one goes to `state`. Both give the same
/// bits. Sums over key channels run from the first to the last.
pub fn step(source: Option<&[f32]>, state: &mut [f32], token: &Token<'_>, out: &mut [f32]) {
    let width = token.v.len();
    let size = token.k.len() * width;
    assert!(state.len() == size && out.len() == width, "delta: a state of {}", state.len());
    assert!(source.is_none_or(|s| s.len() == size), "delta: source and target differ in size");
    let mut column = 0;
    while column + COLUMNS <= width {
        step_columns::<COLUMNS>(source, state, column, token, out);
        column += COLUMNS;
    }
    for column in column..width {
        step_columns::<1>(source, state, column, token, out);
    }
}

/// [`step`] for the `N` columns from `column` on.
fn step_columns<const N: usize>(
    source: Option<&[f32]>,
    state: &mut [f32],
    column: usize,
    token: &Token<'_>,
    out: &mut [f32],
) {
    let width = token.v.len();
    let decay = token.decay;
    let mut predicted = [0.0f32; N];
    for (i, k) in token.k.iter().enumerate() {
        let at = i * width + column;
        let row = state[at..].first_chunk_mut::<N>().expect("inside the state");
        if let Some(source) = source {
            *row = *source[at..].first_chunk::<N>().expect("inside the state");
        }
        for l in 0..N {
            row[l] *= decay;
            predicted[l] += k * row[l];
        }
    }
    let v = token.v[column..].first_chunk::<N>().expect("inside the row");
    let mut d = [0.0f32; N];
    for l in 0..N {
        d[l] = token.beta * (v[l] - predicted[l]);
    }
    let mut read = [0.0f32; N];
    for (i, (k, q)) in token.k.iter().zip(token.q).enumerate() {
        let at = i * width + column;
        let row = state[at..].first_chunk_mut::<N>().expect("inside the state");
        for l in 0..N {
            row[l] += k * d[l];
            read[l] += q * row[l];
        }
    }
    out[column..column + N].copy_from_slice(&read);
}

/// Tokens of one chunk for one value head, row-major: `beta.len()` rows.
#[derive(Debug, Clone, Copy)]
pub struct Chunk<'a> {
    /// Queries, `[tokens][key channels]`.
    pub q: &'a [f32],
    /// Keys, `[tokens][key channels]`.
    pub k: &'a [f32],
    /// Values, `[tokens][value channels]`.
    pub v: &'a [f32],
    /// [`log_decay`] of each token.
    pub log_decay: &'a [f32],
    /// Write strength of each token.
    pub beta: &'a [f32],
}

/// The recurrence over a whole chunk in its WY form (model.md 3.5), `state` updated in place, `out` one row of
/// value channels for each token. Equal to [`step`] in exact arithmetic; in f32 within 1e-6 of values around 1.
/// Every exponent is at most 0: fast decay underflows to 0, which is right, and nothing overflows.
pub fn chunked(state: &mut [f32], chunk: &Chunk<'_>, out: &mut [f32]) {
    let tokens = chunk.beta.len();
    if tokens == 0 {
        return;
    }
    let (keys, width) = (chunk.k.len() / tokens, chunk.v.len() / tokens);
    // Cumulative in f64: fast decay takes the sum to -10^3 within a chunk, where f32 would leave an error of 3e-5 in
    // the small differences that matter.
    let mut sum = 0.0f64;
    let cumulative = |g: &f32| {
        sum += f64::from(*g);
        sum
    };
    let decay: Vec<f64> = chunk.log_decay.iter().map(cumulative).collect();
    let k = |t: usize| &chunk.k[t * keys..][..keys];
    let q = |t: usize| &chunk.q[t * keys..][..keys];
    let between = |t: usize, s: usize| exp(rounded(decay[t] - decay[s]));

    // (I + M) [U | W] = [diag(beta) V | diag(beta e^G) K], forward substitution row by row.
    let mut u = scaled_rows(chunk.v, width, |t| chunk.beta[t]);
    let mut w = scaled_rows(chunk.k, keys, |t| chunk.beta[t] * exp(rounded(decay[t])));
    for t in 0..tokens {
        for s in 0..t {
            let m = chunk.beta[t] * between(t, s) * dot(k(t), k(s));
            subtract_row(&mut u, width, t, s, m);
            subtract_row(&mut w, keys, t, s, m);
        }
    }
    // R = U - W S0: row t is the d of token t.
    let mut r = u;
    for (row, w) in r.chunks_exact_mut(width).zip(w.chunks_exact(keys)) {
        add_product(row, state, w, -1.0);
    }
    // O = diag(e^G) Q S0 + ((Q K^T) o D) R
    for (t, row) in out.chunks_exact_mut(width).enumerate() {
        row.fill(0.0);
        add_product(row, state, q(t), exp(rounded(decay[t])));
        for s in 0..=t {
            let weight = between(t, s) * dot(q(t), k(s));
            add_scaled(row, &r[s * width..][..width], weight);
        }
    }
    // S = e^{G_C} S0 + (diag(e^{G_C - G_t}) K)^T R
    let last = exp(rounded(decay[tokens - 1]));
    for (i, row) in state.chunks_exact_mut(width).enumerate() {
        for v in row.iter_mut() {
            *v *= last;
        }
        for t in 0..tokens {
            add_scaled(row, &r[t * width..][..width], between(tokens - 1, t) * k(t)[i]);
        }
    }
}

fn scaled_rows(x: &[f32], width: usize, factor: impl Fn(usize) -> f32) -> Vec<f32> {
    let rows = x.chunks_exact(width).enumerate();
    rows.flat_map(|(t, row)| {
        let f = factor(t);
        row.iter().map(move |v| f * v)
    })
    .collect()
}

/// Row `t` of `x` minus `m` times its row `s < t`.
fn subtract_row(x: &mut [f32], width: usize, t: usize, s: usize, m: f32) {
    let (before, rest) = x.split_at_mut(t * width);
    add_scaled(&mut rest[..width], &before[s * width..][..width], -m);
}

/// `row += factor * (x^T S)`.
fn add_product(row: &mut [f32], state: &[f32], x: &[f32], factor: f32) {
    for (s, v) in state.chunks_exact(row.len()).zip(x) {
        add_scaled(row, s, factor * v);
    }
}

fn add_scaled(row: &mut [f32], x: &[f32], factor: f32) {
    for (o, v) in row.iter_mut().zip(x) {
        *o += factor * v;
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "exact results are meant")]
mod tests;
