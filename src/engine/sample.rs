//! Sampling: from logits to the next token.
//!
//! The order is fixed: temperature, top-k, softmax, min-p relative to the best, top-p, draw (model.md appendix).
//! Ties go to the lower index everywhere, so the same logits, parameters and seed give the same tokens for ever.
//! Logits that are not finite are never candidates; a row of them alone is an error, because it means that the
//! computation went wrong.
//!
//! What a draw sees besides the logits, penalties and masks, are its [`DrawRules`]. Deliberately absent: any state
//! besides the generator, so who counts what was seen.

mod exp;
mod rules;
mod short;

use self::exp::exp;
pub use self::rules::{DrawRules, Penalties};
pub use self::short::{Ask, Shortlist};
use crate::tokenizer::{TokenId, TokenMask};
use crate::util::rng::Rng;

/// Largest effective top-k.
pub const TOP_K_MAX: usize = 1024;

/// No allowed token has a finite logit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot sample: none of {rows} logits is both finite and allowed")]
pub struct NonFinite {
    /// Logits in the row.
    pub rows: usize,
}

/// How to draw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplerParams {
    /// Divides the logits; 0 or less takes the best token.
    pub temperature: f32,
    /// Keeps the best so many; 0 keeps all, more than [`TOP_K_MAX`] counts as that.
    pub top_k: usize,
    /// Keeps the best tokens until their share of the probability reaches this; 1 or more, or 0, keeps all.
    pub top_p: f32,
    /// Keeps tokens at least so probable, relative to the best; at most 1.
    pub min_p: f32,
}

impl Default for SamplerParams {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.05 }
    }
}

/// A token and its logit, later its weight: the probability relative to the best token.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    row: u32,
    value: f32,
}

/// Draws tokens. Consumes one number of its generator for each token drawn at a temperature above 0.
#[derive(Debug, Clone)]
pub struct Sampler {
    params: SamplerParams,
    rng: Rng,
    /// Kept between draws for its memory.
    candidates: Vec<Candidate>,
    /// Likewise: a row as the rules make it.
    row: Vec<f32>,
}

impl Sampler {
    /// A sampler whose draws depend on `seed` alone.
    pub fn new(params: SamplerParams, seed: u64) -> Self {
        Self { params, rng: Rng::new(seed), candidates: Vec::new(), row: Vec::new() }
    }

    /// How it draws.
    pub fn params(&self) -> SamplerParams {
        self.params
    }

    /// Draws from now on with other parameters; the generator goes on where it is.
    pub fn set_params(&mut self, params: SamplerParams) {
        self.params = params;
    }

    /// Draws a token from a row of logits, among the `allowed` rows.
    pub fn sample(&mut self, logits: &[f32], allowed: &TokenMask) -> Result<TokenId, NonFinite> {
        let p = self.params;
        let best = best(logits, allowed).ok_or(NonFinite { rows: logits.len() })?;
        if is_greedy(p) {
            return Ok(TokenId(best.row));
        }
        let limits = Limits::new(p, best.value);
        if p.top_k == 0 && limits.top_p.is_none() {
            self.keep_probable(logits, allowed, limits);
        } else {
            self.keep_best(logits, allowed, limits);
        }
        Ok(self.draw())
    }

    /// Draws a token among the `allowed` rows from logits as the rules make them; the rules' own mask must be part of
    /// `allowed`.
    ///
    /// # Errors
    /// When no allowed row has a finite logit.
    pub fn sample_by(
        &mut self,
        logits: &[f32],
        allowed: &TokenMask,
        rules: &DrawRules,
    ) -> Result<TokenId, NonFinite> {
        if rules.keeps_logits() {
            return self.sample(logits, allowed);
        }
        let mut row = std::mem::take(&mut self.row);
        row.clear();
        row.extend_from_slice(logits);
        rules.apply(&mut row);
        let drawn = self.sample(&row, allowed);
        self.row = row;
        drawn
    }

    /// No sort: everything at or above the min-p floor, in index order.
    fn keep_probable(&mut self, logits: &[f32], allowed: &TokenMask, limits: Limits) {
        let floor = limits.logit_floor();
        self.candidates.clear();
        each_above(logits, allowed, floor, |c| {
            let value = limits.weight(c.value);
            if value >= limits.min_p {
                self.candidates.push(Candidate { value, ..c });
            }
            floor
        });
    }

    /// The best tokens in descending order, cut by top-k, min-p and top-p.
    fn keep_best(&mut self, logits: &[f32], allowed: &TokenMask, limits: Limits) {
        let top_k = self.params.top_k;
        // Without top-k the cut usually comes within a few tokens: sort few, and more only if need be.
        let mut look = if top_k == 0 { TOP_K_MAX } else { top_k.min(TOP_K_MAX) };
        let all = (top_k == 0).then(|| limits.total(logits, allowed));
        loop {
            best_of(logits, allowed, look, &mut self.candidates);
            let complete = top_k > 0 || self.candidates.len() < look;
            for c in &mut self.candidates {
                c.value = limits.weight(c.value);
            }
            let kept = limits.cut(&self.candidates, all.unwrap_or_else(|| sum(&self.candidates)));
            if complete || kept.is_some() {
                self.candidates.truncate(kept.unwrap_or(usize::MAX));
                return;
            }
            look *= 16;
        }
    }

    /// Subtracts weights, in order, from a random share of their sum.
    fn draw(&mut self) -> TokenId {
        let mut rest = f64::from(self.rng.unit_f32()) * sum(&self.candidates);
        let drawn = self.candidates.iter().find(|c| {
            rest -= f64::from(c.value);
            rest <= 0.0
        });
        // Rounding may leave a trace of the share after the last.
        let drawn = drawn.or(self.candidates.last()).expect("the best token is always kept");
        TokenId(drawn.row)
    }
}

/// Whether the best token is taken instead of a draw.
fn is_greedy(params: SamplerParams) -> bool {
    params.temperature.is_nan() || params.temperature <= 0.0
}

fn sum(candidates: &[Candidate]) -> f64 {
    candidates.iter().map(|c| f64::from(c.value)).sum()
}

/// What cuts candidates, with the parameters in their effective form.
#[derive(Debug, Clone, Copy)]
struct Limits {
    max: f32,
    temperature: f32,
    min_p: f32,
    /// `None` keeps all.
    top_p: Option<f64>,
}

impl Limits {
    fn new(p: SamplerParams, max: f32) -> Self {
        Self {
            max,
            temperature: p.temperature,
            // A NaN is no limit.
            min_p: if p.min_p > 0.0 { p.min_p.min(1.0) } else { 0.0 },
            top_p: (p.top_p > 0.0 && p.top_p < 1.0).then_some(f64::from(p.top_p)),
        }
    }

    /// exp((l - max) / T): the probability relative to the best token.
    fn weight(&self, logit: f32) -> f32 {
        exp((logit - self.max) / self.temperature)
    }

    /// A logit below every one that the min-p floor keeps: spares the exponential of nearly all rows.
    fn logit_floor(&self) -> f32 {
        // The margin is far above the rounding of the product and of the exponential.
        let below = self.temperature * (self.min_p.ln() - 0.01);
        let floor = self.max + below - 1e-5 * (self.max.abs() + below.abs());
        // A temperature next to zero leaves no margin; the best token stays all the same.
        floor.min(self.max.next_down())
    }

    /// Weight of all allowed rows.
    fn total(&self, logits: &[f32], allowed: &TokenMask) -> f64 {
        let mut total = 0.0;
        for (block, &word) in logits.chunks(64).zip(allowed.words()) {
            let mut weights = [0.0; 64];
            for (weight, &l) in weights.iter_mut().zip(block) {
                *weight = if l.is_finite() { self.weight(l) } else { 0.0 };
            }
            let allowed = weights.iter().enumerate().filter(|&(bit, _)| word >> bit & 1 == 1);
            total = allowed.fold(total, |sum, (_, &w)| sum + f64::from(w));
        }
        total
    }

    /// How many of the descending `candidates` stay, `None` when nothing cuts them; `total` is the weight of all that
    /// top-k left.
    fn cut(&self, candidates: &[Candidate], total: f64) -> Option<usize> {
        let mut share = 0.0;
        for (i, c) in candidates.iter().enumerate() {
            if i > 0 && c.value < self.min_p {
                return Some(i);
            }
            share += f64::from(c.value) / total;
            if self.top_p.is_some_and(|top_p| share >= top_p) {
                return Some(i + 1);
            }
        }
        None
    }
}

/// Calls `take`, in index order, with every allowed row whose logit is finite and above a floor: at first
/// `floor`, then whatever the last call returned.
///
/// Few rows of a real vocabulary pass, so sixty-four at a time are compared in a loop without branches.
fn each_above(
    logits: &[f32],
    allowed: &TokenMask,
    mut floor: f32,
    mut take: impl FnMut(Candidate) -> f32,
) {
    let blocks = logits.chunks(64).zip(allowed.words()).zip((0u32..).step_by(64));
    for ((block, &word), first) in blocks {
        let above: u32 = block.iter().map(|&l| u32::from(l > floor)).sum();
        if above == 0 {
            continue;
        }
        for (bit, (row, &value)) in (first..).zip(block).enumerate() {
            if value > floor && value < f32::INFINITY && word >> bit & 1 == 1 {
                floor = take(Candidate { row, value });
            }
        }
    }
}

/// Puts the best `n` candidates into `out`, best first, ties by index.
fn best_of(logits: &[f32], allowed: &TokenMask, n: usize, out: &mut Vec<Candidate>) {
    out.clear();
    if n == 0 {
        return;
    }
    // The worst logit that still counts. Rows come in index order, so an equal one loses.
    let mut floor = f32::NEG_INFINITY;
    each_above(logits, allowed, floor, |c| {
        // Adding zero makes the two zeros equal in the total order too.
        out.push(Candidate { value: c.value + 0.0, ..c });
        if out.len() == n.saturating_mul(2) {
            out.select_nth_unstable_by(n - 1, by_value);
            out.truncate(n);
            floor = out[n - 1].value;
        }
        floor
    });
    best_first(out);
    out.truncate(n);
}

/// Best first, ties by index.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that sorting wants")]
fn by_value(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.value.total_cmp(&a.value).then(a.row.cmp(&b.row))
}

fn best_first(candidates: &mut [Candidate]) {
    candidates.sort_unstable_by(by_value);
}

fn best(logits: &[f32], allowed: &TokenMask) -> Option<Candidate> {
    let mut best = None;
    each_above(logits, allowed, f32::NEG_INFINITY, |c| {
        best = Some(c);
        c.value
    });
    best
}

/// The row of the largest finite logit, the lowest of equals. `None` when no logit is finite.
pub fn argmax(logits: &[f32]) -> Option<TokenId> {
    best(logits, &TokenMask::all(logits.len())).map(|c| TokenId(c.row))
}

/// ln Σ exp(l) over the finite logits, in f64; minus infinity when there is none.
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let Some(best) = argmax(logits) else { return f64::NEG_INFINITY };
    let max = f64::from(logits[best.index()]);
    let finite = logits.iter().filter(|l| l.is_finite());
    max + finite.map(|&l| (f64::from(l) - max).exp()).sum::<f64>().ln()
}

/// A token with its logit and the logarithm of its probability at temperature 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scored {
    /// The row.
    pub token: TokenId,
    /// Its logit.
    pub logit: f32,
    /// Logit minus [`log_sum_exp`] of the row.
    pub logprob: f32,
}

/// The best `n` tokens of the whole vocabulary, best first, ties by index.
#[expect(clippy::cast_possible_truncation, reason = "rounds to the result's type")]
pub fn top_n(logits: &[f32], n: usize) -> Vec<Scored> {
    let total = log_sum_exp(logits);
    let mut best = Vec::new();
    best_of(logits, &TokenMask::all(logits.len()), n, &mut best);
    let score = |c: &Candidate| Scored {
        token: TokenId(c.row),
        logit: c.value,
        logprob: (f64::from(c.value) - total) as f32,
    };
    best.iter().map(score).collect()
}

/// Logarithm of the probability of one token at temperature 1; minus infinity where its logit is not finite.
#[expect(clippy::cast_possible_truncation, reason = "rounds to the result's type")]
pub fn logprob(logits: &[f32], token: TokenId) -> f32 {
    match logits.get(token.index()) {
        Some(&l) if l.is_finite() => (f64::from(l) - log_sum_exp(logits)) as f32,
        _ => f32::NEG_INFINITY,
    }
}

/// Place of a token among the finite logits: 0 is the best, ties by index. `None` where its logit is not finite.
pub fn rank_of(logits: &[f32], token: TokenId) -> Option<usize> {
    let own = *logits.get(token.index()).filter(|l| l.is_finite())?;
    let (before, after) = logits.split_at(token.index());
    let equal_wins = before.iter().map(|&l| u32::from(l >= own && l < f32::INFINITY)).sum::<u32>();
    let equal_loses = after.iter().map(|&l| u32::from(l > own && l < f32::INFINITY)).sum::<u32>();
    Some((equal_wins + equal_loses) as usize)
}

#[cfg(test)]
mod tests;
