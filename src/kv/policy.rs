//! When a session is worth a file, and at which position (model.md 8.4, server.md 14.3). Pure functions that whoever
//! drives a session asks: nothing here saves.
//!
//! A save never rolls a session back. So positions are found before a prompt is evaluated, and the evaluation stops
//! exactly there, saves, and goes on.

use super::header::Reason;
use crate::tokenizer::TokenId;

/// Sizes that decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Shorter states are not saved, nor looked for.
    pub min_tokens: usize,
    /// The longest prompt with a cold save; 0 for none.
    pub cold_max_tokens: usize,
    /// Distance of continued saves, rounded up to the alignment; 0 for none.
    pub continued_tokens: usize,
    /// The end of a prompt that is not stable: merging may change it when text follows.
    pub trim_tokens: usize,
    /// What saved positions are multiples of; 0 for anything.
    pub align_tokens: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            min_tokens: 512,
            cold_max_tokens: 30_000,
            continued_tokens: 10_000,
            trim_tokens: 32,
            align_tokens: 2048,
        }
    }
}

/// Why a session is saved just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The stable beginning of a prompt of which nothing was known.
    Cold,
    /// At a multiple of the interval.
    Continued,
    /// An unrelated prompt is about to take its place.
    Evict,
    /// The program ends.
    Shutdown,
    /// The agent's system prompt was evaluated.
    AgentSystem,
    /// A user asked for it.
    AgentSession,
}

impl Moment {
    /// As the header has it.
    pub fn reason(self) -> Reason {
        match self {
            Self::Cold => Reason::Cold,
            Self::Continued => Reason::Continued,
            Self::Evict => Reason::Evict,
            Self::Shutdown => Reason::Shutdown,
            Self::AgentSystem => Reason::AgentSystem,
            Self::AgentSession => Reason::AgentSession,
        }
    }

    /// Whether a user waits for it to be safe, or there will be no other chance.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Shutdown | Self::AgentSystem | Self::AgentSession)
    }
}

/// A prompt that is about to be evaluated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prefill {
    /// Its tokens.
    pub tokens: usize,
    /// Those that need no evaluation.
    pub reused: usize,
    /// Where its first conversation begins: see [`chat_anchor`].
    pub anchor: Option<usize>,
    /// Length of the session's last saved state.
    pub last_stored: usize,
}

/// A position to stop and save at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// Tokens evaluated by then.
    pub tokens: usize,
    /// Why it is saved.
    pub moment: Moment,
}

impl Limits {
    /// How much of a prompt will stay as it is when the conversation goes on.
    pub fn stable_tokens(&self, tokens: usize) -> usize {
        if self.align_tokens == 0 || tokens <= self.min_tokens + self.trim_tokens {
            return tokens;
        }
        let stable = (tokens - self.trim_tokens) / self.align_tokens * self.align_tokens;
        if stable >= self.min_tokens { stable } else { tokens }
    }

    /// Distance of continued saves; `None` where there are none.
    pub fn continued_step(&self) -> Option<usize> {
        let step = self.continued_tokens.next_multiple_of(self.align_tokens.max(1));
        (step > 0).then_some(step)
    }

    /// Whether a session that has come to `tokens` is to be saved, wherever it came from. Not to be asked inside a tool
    /// call.
    pub fn is_frontier(&self, tokens: usize, last_stored: usize) -> bool {
        let aligned = self.continued_step().is_some_and(|step| tokens.is_multiple_of(step));
        aligned && tokens >= self.min_tokens && tokens > last_stored
    }

    /// Whether a position between `last_stored` and here was one to save at, where that could not be done there.
    pub fn is_overdue(&self, tokens: usize, last_stored: usize) -> bool {
        let Some(step) = self.continued_step() else { return false };
        self.is_frontier(tokens / step * step, last_stored)
    }

    /// Where the cold save of a prompt is.
    pub fn cold_tokens(&self, tokens: usize, anchor: Option<usize>) -> Option<usize> {
        let range = self.min_tokens..=self.cold_max_tokens;
        if self.cold_max_tokens == 0 || !range.contains(&tokens) {
            return None;
        }
        let anchor = anchor.filter(|&at| at >= self.min_tokens && at <= tokens);
        Some(anchor.unwrap_or_else(|| self.stable_tokens(tokens)))
    }

    /// Where the evaluation of a prompt stops to save, in ascending order.
    pub fn stops(&self, prompt: &Prefill) -> Vec<Stop> {
        let Prefill { tokens, reused, anchor, last_stored } = *prompt;
        let cold = self.cold_tokens(tokens, anchor).filter(|_| reused == 0);
        let stop = |tokens, moment| Stop { tokens, moment };
        let mut stops: Vec<Stop> = cold.map(|at| stop(at, Moment::Cold)).into_iter().collect();
        if let Some(step) = self.continued_step() {
            let first = (reused / step + 1) * step;
            let frontiers = (first..=tokens).step_by(step);
            let due = frontiers.filter(|&at| self.is_frontier(at, last_stored) && Some(at) != cold);
            stops.extend(due.map(|at| stop(at, Moment::Continued)));
        }
        stops.sort_by_key(|stop| stop.tokens);
        stops
    }

    /// Whether a session of so many tokens is worth a file at all.
    pub fn is_worth(&self, moment: Moment, tokens: usize) -> bool {
        match moment {
            Moment::AgentSystem | Moment::AgentSession => tokens > 0,
            Moment::Cold | Moment::Continued | Moment::Evict | Moment::Shutdown => {
                tokens >= self.min_tokens.max(1)
            }
        }
    }
}

/// Where the first conversation of a prompt begins: the last opening of a user's turn before the first of an
/// assistant's. What is before it (tools, system, a client's scaffolding) is shared by other conversations. `user` and
/// `assistant` are the ids that open such a turn.
pub fn chat_anchor(prompt: &[TokenId], user: &[TokenId], assistant: &[TokenId]) -> Option<usize> {
    let opens = |at: usize, turn: &[TokenId]| !turn.is_empty() && prompt[at..].starts_with(turn);
    let end = (0..prompt.len()).find(|&at| opens(at, assistant)).unwrap_or(prompt.len());
    (0..end).rev().find(|&at| opens(at, user)).filter(|&at| at > 0)
}

#[cfg(test)]
mod tests {
    use super::Moment::{Cold, Continued};
    use super::*;

    #[test]
    fn stable_lengths_are_those_of_the_format() {
        let stable = |align, tokens| {
            Limits { align_tokens: align, ..Limits::default() }.stable_tokens(tokens)
        };
        let cases = [(2048, 11_011, 10_240), (2048, 1695, 1695), (1000, 3500, 3000)];
        for (align, tokens, expected) in
            cases.into_iter().chain([(0, 3500, 3500), (2048, 544, 544)])
        {
            assert_eq!(stable(align, tokens), expected, "{tokens} by {align}");
        }
    }

    #[test]
    fn frontiers_are_multiples_of_the_rounded_interval() {
        let limits = Limits::default();
        assert_eq!(limits.continued_step(), Some(10_240));
        for (tokens, last, expected) in [
            (10_239, 0, false),
            (10_240, 0, true),
            (10_240, 10_240, false),
            (18_432, 10_240, false),
            (20_480, 10_240, true),
            (0, 0, false),
        ] {
            assert_eq!(limits.is_frontier(tokens, last), expected, "{tokens} after {last}");
        }
        let with =
            |continued_tokens, align_tokens| Limits { continued_tokens, align_tokens, ..limits };
        assert_eq!(with(10_000, 0).continued_step(), Some(10_000));
        assert_eq!(with(0, 2048).continued_step(), None);
        assert_eq!(with(0, 0).continued_step(), None);
    }

    #[test]
    fn a_cold_prompt_is_saved_at_its_anchor_or_its_stable_length() {
        let limits = Limits::default();
        let cold = |tokens, anchor| limits.cold_tokens(tokens, anchor);
        assert_eq!(cold(511, None), None);
        assert_eq!(cold(512, None), Some(512));
        assert_eq!(cold(30_001, Some(600)), None);
        assert_eq!(cold(11_011, Some(600)), Some(600));
        assert_eq!(cold(11_011, Some(511)), Some(10_240));
        assert_eq!(Limits { cold_max_tokens: 0, ..limits }.cold_tokens(600, None), None);
    }

    #[test]
    fn stops_are_in_order_and_one_for_each_position() {
        let limits = Limits::default();
        let stops = |tokens, reused, anchor, last_stored| {
            let stops = limits.stops(&Prefill { tokens, reused, anchor, last_stored });
            stops.into_iter().map(|s| (s.tokens, s.moment)).collect::<Vec<_>>()
        };
        assert_eq!(stops(11_011, 0, None, 0), [(10_240, Cold)]);
        let both = [(10_240, Continued), (20_480, Cold)];
        assert_eq!(stops(21_000, 0, None, 0), both);
        assert_eq!(
            stops(21_000, 0, Some(700), 0),
            [(700, Cold), (10_240, Continued), (20_480, Continued)]
        );
        assert_eq!(stops(21_000, 10_240, None, 10_240), [(20_480, Continued)]);
        assert_eq!(stops(21_000, 5001, None, 20_480), []);
        assert_eq!(stops(40_960, 20_481, None, 0), [(30_720, Continued), (40_960, Continued)]);
        assert_eq!(stops(100, 0, None, 0), []);
    }

    #[test]
    fn a_save_that_was_put_off_stays_due_until_it_is_made() {
        let limits = Limits { continued_tokens: 1000, align_tokens: 0, ..Limits::default() };
        let cases = [(999, 0, false), (1000, 0, true), (1700, 0, true), (1700, 1700, false)];
        for (tokens, last, expected) in
            cases.into_iter().chain([(1999, 1700, false), (2001, 1700, true)])
        {
            assert_eq!(limits.is_overdue(tokens, last), expected, "{tokens} after {last}");
        }
        assert!(!Limits { continued_tokens: 0, ..limits }.is_overdue(5000, 0), "there are none");
    }

    #[test]
    fn the_anchor_is_the_last_user_turn_before_any_answer() {
        let ids = |text: &str| text.bytes().map(|b| TokenId(b.into())).collect::<Vec<_>>();
        let anchor = |text: &str| chat_anchor(&ids(text), &ids("<u"), &ids("<a"));
        assert_eq!(anchor("<ssystem<uone<atwo<uthree<a"), Some(8));
        assert_eq!(anchor("<ssystem<ucontext<uquestion<a"), Some(17));
        assert_eq!(anchor("<ssystem<uquestion"), Some(8));
        assert_eq!(anchor("<uquestion<a"), None, "nothing is before it");
        assert_eq!(anchor("<ssystem<a"), None);
        assert_eq!(anchor(""), None);
    }
}
