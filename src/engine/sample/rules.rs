//! What a draw sees besides the logits: which tokens are allowed, addends, penalties.
//!
//! A logit is seen with its addend, and then, where the token is repeated, brought down by the repetition penalty. All
//! of it in f32, one rounding an operation, so that a device that adds gives the same bits.

use std::collections::BTreeMap;

use crate::tokenizer::{TokenId, TokenMask};

/// Addends beyond this say no more.
const ADDEND_MAX: f32 = 1e9;

/// What a draw sees besides the logits. The default changes nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DrawRules {
    allowed: Option<TokenMask>,
    /// Ascending ids, no zeros.
    addends: Vec<(TokenId, f32)>,
    repeated: Option<Repeated>,
}

/// Tokens that a repetition penalty brings down.
#[derive(Debug, Clone, PartialEq)]
struct Repeated {
    penalty: f32,
    /// Ascending.
    ids: Vec<TokenId>,
}

/// Penalties for tokens that were seen; the defaults do nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Penalties {
    /// Taken off the logit of every token that was seen.
    pub presence: f32,
    /// Taken off for each time that it was seen.
    pub frequency: f32,
    /// Divides positive logits and multiplies others; 1 does nothing. Counts as 1 where it is not a positive number.
    pub repetition: f32,
}

impl Default for Penalties {
    fn default() -> Self {
        Self { presence: 0.0, frequency: 0.0, repetition: 1.0 }
    }
}

impl DrawRules {
    /// Only these tokens, besides those that cannot be drawn at all.
    #[must_use]
    pub fn allow(mut self, mask: TokenMask) -> Self {
        self.allowed = Some(mask);
        self
    }

    /// Adds to logits. Addends of one token add up, at most to 1e9 either way; one that is no number counts as 0.
    #[must_use]
    pub fn add_to(mut self, addends: impl IntoIterator<Item = (TokenId, f32)>) -> Self {
        let mut sums: BTreeMap<TokenId, f32> = self.addends.iter().copied().collect();
        for (id, addend) in addends {
            let sum = sums.entry(id).or_default();
            let added = *sum + addend;
            *sum = if added.is_nan() { 0.0 } else { added.clamp(-ADDEND_MAX, ADDEND_MAX) };
        }
        self.addends = sums.into_iter().filter(|(_, addend)| *addend != 0.0).collect();
        self
    }

    /// Penalises tokens by how often each was seen.
    #[must_use]
    pub fn penalise(mut self, penalties: Penalties, seen: &BTreeMap<TokenId, u32>) -> Self {
        let Penalties { presence, frequency, repetition } = penalties;
        let seen = || seen.iter().filter(|(_, count)| **count > 0);
        if presence != 0.0 || frequency != 0.0 {
            self =
                self.add_to(seen().map(|(&id, &count)| (id, -presence - frequency * count as f32)));
        }
        if repetition.is_finite() && repetition > 0.0 && (repetition - 1.0).abs() > 0.0 {
            let ids = seen().map(|(&id, _)| id).collect();
            self.repeated = Some(Repeated { penalty: repetition, ids });
        }
        self
    }

    /// The mask, if only some tokens are allowed.
    pub fn allowed(&self) -> Option<&TokenMask> {
        self.allowed.as_ref()
    }

    /// What is added to which logits, ids ascending.
    pub fn addends(&self) -> &[(TokenId, f32)] {
        &self.addends
    }

    /// Whether every logit is seen as it is.
    pub fn keeps_logits(&self) -> bool {
        self.addends.is_empty() && self.repeated.is_none()
    }

    /// Whether logits are only brought down after addends are added, or not touched: what is then above some floor was
    /// above it before.
    pub(super) fn only_lowers(&self) -> bool {
        self.repeated.as_ref().is_none_or(|repeated| repeated.penalty >= 1.0)
    }

    /// Whether some tokens are brought down after addends are added.
    pub(super) fn repeats(&self) -> bool {
        self.repeated.is_some()
    }

    /// A logit that already has its addend, as draws see it.
    pub(super) fn lowered(&self, id: TokenId, logit: f32) -> f32 {
        match &self.repeated {
            Some(repeated) if repeated.ids.binary_search(&id).is_ok() => {
                if logit > 0.0 {
                    logit / repeated.penalty
                } else {
                    logit * repeated.penalty
                }
            }
            _ => logit,
        }
    }

    /// Turns a row of logits into what draws see.
    pub fn apply(&self, row: &mut [f32]) {
        for &(id, addend) in &self.addends {
            if let Some(logit) = row.get_mut(id.index()) {
                *logit += addend;
            }
        }
        let ids = self.repeated.iter().flat_map(|repeated| &repeated.ids);
        for &id in ids {
            if let Some(logit) = row.get_mut(id.index()) {
                *logit = self.lowered(id, *logit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(counts: &[(u32, u32)]) -> BTreeMap<TokenId, u32> {
        counts.iter().map(|&(id, count)| (TokenId(id), count)).collect()
    }

    fn applied(rules: &DrawRules, row: &[f32]) -> Vec<f32> {
        let mut row = row.to_vec();
        rules.apply(&mut row);
        row
    }

    #[test]
    fn addends_add_up_and_stay_numbers() {
        let id = TokenId;
        let rules =
            DrawRules::default().add_to([(id(2), 1.5), (id(0), -1.0), (id(2), 0.5), (id(9), 3.0)]);
        assert_eq!(rules.addends(), [(id(0), -1.0), (id(2), 2.0), (id(9), 3.0)]);
        assert_eq!(applied(&rules, &[1.0, 1.0, 1.0]), [0.0, 1.0, 3.0]);
        let wild = DrawRules::default().add_to([
            (id(0), f32::NAN),
            (id(1), f32::INFINITY),
            (id(2), f32::NEG_INFINITY),
            (id(3), 0.0),
        ]);
        assert_eq!(wild.addends(), [(id(1), 1e9), (id(2), -1e9)]);
    }

    #[test]
    fn penalties_are_those_of_what_was_seen() {
        let counts = seen(&[(0, 1), (1, 3), (2, 0)]);
        let flat = Penalties { presence: 0.5, frequency: 0.25, ..Penalties::default() };
        let rules = DrawRules::default().penalise(flat, &counts);
        assert_eq!(applied(&rules, &[1.0, 1.0, 1.0, 1.0]), [0.25, -0.25, 1.0, 1.0]);
        let repetition = Penalties { repetition: 2.0, ..Penalties::default() };
        let rules = DrawRules::default().add_to([(TokenId(1), -3.0)]).penalise(repetition, &counts);
        assert_eq!(applied(&rules, &[1.0, 1.0, 1.0]), [0.5, -4.0, 1.0]);
        assert!(rules.only_lowers() && rules.repeats() && !rules.keeps_logits());
        let rules = DrawRules::default().penalise(Penalties::default(), &counts);
        assert_eq!(rules, DrawRules::default());
        for odd in [f32::NAN, 0.0, -1.0, f32::INFINITY] {
            let penalties = Penalties { repetition: odd, ..Penalties::default() };
            assert_eq!(DrawRules::default().penalise(penalties, &counts), DrawRules::default());
        }
        let raising = Penalties { repetition: 0.5, ..Penalties::default() };
        assert!(!DrawRules::default().penalise(raising, &counts).only_lowers());
    }
}
