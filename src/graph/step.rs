//! What a step is asked for and what it brings back.

use crate::model::SlotId;
use std::sync::{Arc, Mutex, PoisonError};

/// Consecutive tokens of one sequence.
#[derive(Debug, Clone, Copy)]
pub struct Chunk<'a> {
    /// Token ids, at most a chunk of them.
    pub tokens: &'a [u32],
    /// Position of the first.
    pub pos: usize,
    /// Slot with the state before the first token.
    pub source: SlotId,
    /// Slot for the state after the last; equal to the source only for a single token.
    pub target: SlotId,
    /// Whether logits after the last token are wanted.
    pub logits: bool,
    /// Which of them to bring back.
    pub sieve: Sieve<'a>,
}

/// One token of one sequence, among those of others.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// K and V rows of the sequence.
    pub kv: &'a Kv,
    /// The token.
    pub token: u32,
    /// Its position.
    pub pos: usize,
    /// Slot with the state before it.
    pub source: SlotId,
    /// Slot for the state after it; may be the source.
    pub target: SlotId,
    /// Which logits to bring back.
    pub sieve: Sieve<'a>,
}

/// Which logits to bring back besides the best one, and how they look to who draws.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sieve<'a> {
    /// Those at or above the best one minus this; minus infinity for none.
    pub margin: f32,
    /// Only about so many of the best, never fewer; 0 for all within the margin.
    pub top_k: u32,
    /// Reciprocal of the temperature that [`Found::sum`] is for; above 0.
    pub inverse_temperature: f32,
    /// What draws of the sequence see besides its logits.
    pub rules: Option<&'a Rules<'a>>,
}

impl Default for Sieve<'_> {
    fn default() -> Self {
        Self { margin: f32::NEG_INFINITY, top_k: 0, inverse_temperature: 1.0, rules: None }
    }
}

/// What draws of a sequence see besides its logits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules<'a> {
    /// Names the content: rules of one version are the same for ever.
    pub version: u64,
    /// Bits of the ids that may be drawn, the lowest id in the lowest bit of the first word. Not `None` allows at
    /// least one that can be drawn at all.
    pub mask: Option<&'a [u64]>,
    /// What is added to which logits: ids ascending, each once, at most [`Rules::MOST_ADDENDS`] of them.
    pub addends: &'a [(u32, f32)],
}

impl Rules<'_> {
    /// Most addends of a sequence.
    pub const MOST_ADDENDS: usize = 1024;
}

/// What a step found among the logits of a row, as its rules make them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// The allowed id with the largest logit, the first of equals; `None` when a logit was not finite.
    pub best: Option<(u32, f32)>,
    /// Every allowed id at or above the floor, with its logit, in ascending order.
    pub rows: Vec<(u32, f32)>,
    /// The smallest logit that would be among them; infinity when they are not complete.
    pub floor: f32,
    /// Sum of `exp((logit - best) * inverse_temperature)` over all allowed ids, to about 1e-5 of itself. Only where
    /// there are rows.
    pub sum: f32,
}

/// K and V rows of one sequence: a range of pages in the buffers of every layer. Given back when dropped.
#[derive(Debug)]
pub struct Kv {
    pub(super) place: u32,
    free: Arc<Mutex<Vec<u32>>>,
}

/// The ranges of pages that nobody has.
#[derive(Debug, Clone)]
pub(super) struct Places {
    free: Arc<Mutex<Vec<u32>>>,
    count: usize,
}

impl Places {
    pub(super) fn new(count: usize) -> Self {
        let all = 0..u32::try_from(count).expect("few sessions");
        Self { free: Arc::new(Mutex::new(all.rev().collect())), count }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn take(&self) -> Option<Kv> {
        let place = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(Kv { place, free: Arc::clone(&self.free) })
    }
}

impl Drop for Kv {
    fn drop(&mut self) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_comes_back_when_it_is_dropped() {
        let places = Places::new(2);
        let (a, b) = (places.take().unwrap(), places.take().unwrap());
        assert_ne!(a.place, b.place);
        assert!(places.take().is_none());
        let place = a.place;
        drop(a);
        assert_eq!(places.take().unwrap().place, place);
    }
}
