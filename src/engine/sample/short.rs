//! Drawing from candidates that were found elsewhere than in a row of logits: the same token, or none.
//!
//! A device finds the candidates and adds up the weights of the whole vocabulary; what is kept of them, and the draw,
//! are decided here, by the rules and in the arithmetic of [`Sampler::sample`]. Where the list does not decide the
//! token, nothing is drawn, and the caller draws from the whole row.

use super::{
    Candidate, DrawRules, Limits, Sampler, SamplerParams, TOP_K_MAX, best_first, is_greedy, sum,
};
use crate::tokenizer::TokenId;

/// What has to be found among logits for draws to be decided.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ask {
    /// Candidates at or above the best minus this; minus infinity where the best alone will do, or nothing would.
    pub margin: f32,
    /// Only about so many of the best, never fewer; 0 for all within the margin.
    pub top_k: usize,
    /// Reciprocal of the temperature that the sum of weights is for.
    pub inverse_temperature: f32,
}

impl Ask {
    const NOTHING: Self = Self { margin: f32::NEG_INFINITY, top_k: 0, inverse_temperature: 1.0 };
}

/// The tokens that are likely enough, with their addends.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shortlist {
    /// The allowed token with the largest logit, the first of equals, and that logit. `None` when it is not finite.
    pub best: Option<(TokenId, f32)>,
    /// Every allowed token whose logit is at or above the floor, in ascending order of ids.
    pub tokens: Vec<(TokenId, f32)>,
    /// Which logits are in the list; infinity when the list is not complete.
    pub floor: f32,
    /// Sum of `exp((logit - best) * inverse_temperature)` over all allowed tokens, and that reciprocal.
    pub weight: Option<(f32, f32)>,
}

/// How far a device's sum of weights may be from the exact one, relative to it. Its exponential is good to `3 + 2|x|`
/// units in the last place (Vulkan, "Precision and Operation of SPIR-V Instructions"), its argument to two roundings;
/// weights beyond `|x|` of 20 add less than a thousandth even if the whole vocabulary has them. That makes 5e-6 there,
/// and the order of adding up less than another 2e-6.
const WEIGHT_ERROR: f64 = 1e-5;

/// Candidates that a device has room for.
const ROOM: usize = 1024;
/// So many of the best decide nearly every cut by top-p; bins of a device's histogram hold several, so it finds some
/// more.
const TOP_P_LOOK: usize = 512;
/// Candidates beyond top-k, for what a repetition penalty brings down.
const REPEAT_LOOK: usize = 128;

impl Sampler {
    /// What must be found for draws with these parameters under these rules.
    pub fn ask(params: SamplerParams, rules: &DrawRules) -> Ask {
        let all = |top_k| Ask { margin: f32::INFINITY, top_k, ..Ask::NOTHING };
        let repeats = rules.repeats();
        if !rules.only_lowers() {
            return Ask::NOTHING;
        }
        if is_greedy(params) {
            return if repeats { all(REPEAT_LOOK) } else { Ask::NOTHING };
        }
        if rules.allowed().is_some_and(|mask| mask.count() <= ROOM) {
            return all(0);
        }
        let limits = Limits::new(params, 0.0);
        // A thousandth of margin for what rounding does to a floor computed from another maximum.
        let margin = if limits.min_p > 0.0 { -limits.logit_floor() + 1e-3 } else { f32::INFINITY };
        let ask = match (params.top_k.min(TOP_K_MAX), limits.top_p) {
            // Penalties move the maximum and with it every floor.
            (0, None) if repeats && limits.min_p > 0.0 => all(TOP_P_LOOK),
            (0, None) if limits.min_p > 0.0 => Ask { margin, ..Ask::NOTHING },
            // Everything may be drawn; or the share of what is penalised is unknown.
            (0, None) => Ask::NOTHING,
            (0, Some(_)) if repeats => Ask::NOTHING,
            (0, Some(_)) => Ask { margin, top_k: TOP_P_LOOK, ..Ask::NOTHING },
            (k, _) if repeats => all(k + REPEAT_LOOK),
            // Shares are those of all that top-k leaves, also of what min-p cuts.
            (k, Some(_)) => all(k),
            (k, None) => Ask { margin, top_k: k, ..Ask::NOTHING },
        };
        let inverse = 1.0 / params.temperature;
        let is_usable = inverse.is_finite() && inverse > 0.0;
        Ask { inverse_temperature: if is_usable { inverse } else { 1.0 }, ..ask }
    }

    /// [`Sampler::sample_by`] from a short list that was found under the same mask and addends: the same token. `None`,
    /// and nothing drawn, when the list does not decide it or its best logit is not finite.
    pub fn sample_short(&mut self, list: &Shortlist, rules: &DrawRules) -> Option<TokenId> {
        let (best, max) = list.best?;
        if !rules.only_lowers() {
            return None;
        }
        if !rules.repeats() {
            if is_greedy(self.params) {
                return Some(best);
            }
            self.candidates.clear();
            let candidate = |&(id, value): &(TokenId, f32)| Candidate { row: id.0, value };
            self.candidates.extend(list.tokens.iter().map(candidate));
            return self.draw_short(list, max);
        }
        self.candidates.clear();
        for &(id, logit) in &list.tokens {
            let value = rules.lowered(id, logit);
            // Below the floor others may be better: only what is above is complete.
            if value >= list.floor {
                self.candidates.push(Candidate { row: id.0, value });
            }
        }
        let first = *self.candidates.first()?;
        let best = |best: Candidate, c: &Candidate| if c.value > best.value { *c } else { best };
        let best = self.candidates.iter().fold(first, best);
        if is_greedy(self.params) {
            return Some(TokenId(best.row));
        }
        self.draw_short(
            &Shortlist { weight: None, floor: list.floor, ..Shortlist::default() },
            best.value,
        )
    }

    /// Keeps and draws among `self.candidates`: all allowed tokens at or above the list's floor, ids ascending.
    fn draw_short(&mut self, list: &Shortlist, max: f32) -> Option<TokenId> {
        let limits = Limits::new(self.params, max);
        let is_all = list.floor == f32::NEG_INFINITY;
        // Whether what is not among the candidates would be cut by min-p in any case.
        let is_enough = is_all || (limits.min_p > 0.0 && limits.logit_floor() >= list.floor);
        let top_k = self.params.top_k.min(TOP_K_MAX);
        if top_k == 0 && limits.top_p.is_none() {
            if !is_enough {
                return None;
            }
            for c in &mut self.candidates {
                c.value = limits.weight(c.value);
            }
            self.candidates.retain(|c| c.value >= limits.min_p);
            return Some(self.draw());
        }
        let total = if top_k == 0 { self.total_weight(list, limits)? } else { (0.0, 0.0) };
        for c in &mut self.candidates {
            // Adding zero makes the two zeros equal in the total order too.
            c.value += 0.0;
        }
        best_first(&mut self.candidates);
        if top_k > 0 {
            self.candidates.truncate(top_k);
        }
        for c in &mut self.candidates {
            c.value = limits.weight(c.value);
        }
        let kept = if top_k > 0 {
            let is_complete = self.candidates.len() == top_k || is_all;
            if !is_complete && (limits.top_p.is_some() || !is_enough) {
                return None;
            }
            limits.cut(&self.candidates, sum(&self.candidates))
        } else {
            let kept = limits.cut(&self.candidates, total.0);
            if kept != limits.cut(&self.candidates, total.1) || (kept.is_none() && !is_enough) {
                return None;
            }
            kept
        };
        self.candidates.truncate(kept.unwrap_or(usize::MAX));
        Some(self.draw())
    }

    /// Bounds of the weight of all allowed tokens.
    fn total_weight(&self, list: &Shortlist, limits: Limits) -> Option<(f64, f64)> {
        if list.floor == f32::NEG_INFINITY {
            let weights = self.candidates.iter().map(|c| f64::from(limits.weight(c.value)));
            let total = weights.sum();
            return Some((total, total));
        }
        let (total, inverse_temperature) = list.weight?;
        let is_ours = inverse_temperature.to_bits() == (1.0 / self.params.temperature).to_bits();
        let total = f64::from(total);
        (is_ours && total.is_finite())
            .then_some((total * (1.0 - WEIGHT_ERROR), total * (1.0 + WEIGHT_ERROR)))
    }
}

#[cfg(test)]
mod tests;
