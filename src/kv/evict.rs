//! Which files make room for a new one (server.md 14.4). Pure functions.
//!
//! ```text
//! score = (h + 1) x tokens / bytes x weight;  h = hits x 2^(-age / 6 h), below 0.01 counts as 0
//! ```
//!
//! The lowest score goes first, of equals the one that was used longest ago. The weight is 4 for cold files, which
//! alone serve other conversations, 2 for those written when a session ended, 1 for continued ones. A continued file
//! whose text the new one extends is dominated by it: its weight is 0.05 + 0.45 h / (h + 1), but for the two longest
//! on that path, which are what an edited last turn falls back to. The file that was written last goes after all others.

use std::cmp::Reverse;

use super::header::Reason;

/// Seconds in which a hit loses half of its worth.
const HALF_LIFE: f64 = 6.0 * 3600.0;
const LEAST_HITS: f64 = 0.01;
/// Continued files of the new one's own path that keep their whole weight.
const KEPT_OF_PATH: usize = 2;

/// A file that might go.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate<N> {
    /// What it is called.
    pub name: N,
    /// Size of the file.
    pub bytes: u64,
    /// Tokens of its state.
    pub tokens: u32,
    /// How often it was loaded.
    pub hits: u32,
    /// When it was last used, Unix seconds.
    pub last_used: u64,
    /// Why it was written.
    pub reason: Reason,
    /// Whether the text of the new file begins with its text.
    pub is_prefix: bool,
    /// Whether it must stay: it is being loaded, or serves the request that the new file makes room for.
    pub is_protected: bool,
    /// Whether it was written last: it goes only where all others do not suffice, or one prompt that is saved twice
    /// would delete its own beginning.
    pub is_newest: bool,
}

impl<N> Candidate<N> {
    /// Hits, each worth less the longer ago the last one was.
    fn decayed_hits(&self, now: u64) -> f64 {
        let age = now.saturating_sub(self.last_used) as f64;
        let hits = f64::from(self.hits) * (-age / HALF_LIFE).exp2();
        if hits < LEAST_HITS { 0.0 } else { hits }
    }

    /// What it is worth to keep.
    pub fn score(&self, now: u64, is_dominated: bool) -> f64 {
        let hits = self.decayed_hits(now);
        let weight = match self.reason {
            Reason::Cold | Reason::AgentSystem => 4.0,
            Reason::Evict | Reason::Shutdown | Reason::AgentSession => 2.0,
            Reason::Continued if is_dominated => 0.05 + 0.45 * hits / (hits + 1.0),
            Reason::Continued | Reason::Unknown => 1.0,
        };
        (hits + 1.0) * f64::from(self.tokens) / self.bytes.max(1) as f64 * weight
    }

    fn may_go(&self) -> bool {
        // What a user saved by hand is the user's to delete.
        !self.is_protected && self.reason != Reason::AgentSession
    }
}

/// Why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// The file alone is too large.
    #[error("the file of {bytes} bytes exceeds the budget of {budget}")]
    File {
        /// Its size.
        bytes: u64,
        /// The budget.
        budget: u64,
    },
    /// What may not be deleted fills the budget.
    #[error("{kept} bytes of the budget of {budget} are in files that must stay")]
    Kept {
        /// Bytes that stay.
        kept: u64,
        /// The budget.
        budget: u64,
    },
}

/// Whether a file may be written at all: it and one percent more.
pub(super) fn fits(bytes: u64, budget: u64) -> bool {
    bytes.checked_add(bytes / 100).is_some_and(|needed| needed <= budget)
}

/// The files that must go so that one of `bytes` fits the budget, in the order in which they go.
///
/// # Errors
/// When deleting everything that may go does not suffice.
pub fn victims<N: Clone>(
    candidates: &[Candidate<N>],
    bytes: u64,
    budget: u64,
    now: u64,
) -> Result<Vec<N>, NoRoom> {
    if !fits(bytes, budget) {
        return Err(NoRoom::File { bytes, budget });
    }
    let mut used: u64 = candidates.iter().map(|c| c.bytes).sum();
    let mut path: Vec<u32> = candidates
        .iter()
        .filter(|c| c.is_prefix && c.reason == Reason::Continued)
        .map(|c| c.tokens)
        .collect();
    path.sort_unstable_by_key(|&tokens| Reverse(tokens));
    let shortest_kept = path.get(KEPT_OF_PATH - 1).copied().unwrap_or(0);
    let mut order: Vec<(f64, &Candidate<N>)> = candidates
        .iter()
        .filter(|c| c.may_go())
        .map(|c| (c.score(now, c.is_prefix && c.tokens < shortest_kept), c))
        .collect();
    order.sort_by(|(a, c), (b, d)| {
        let by_worth = a.total_cmp(b).then(c.last_used.cmp(&d.last_used));
        c.is_newest.cmp(&d.is_newest).then(by_worth)
    });
    let mut going = Vec::new();
    for (_, candidate) in order {
        if used + bytes <= budget {
            break;
        }
        used -= candidate.bytes;
        going.push(candidate.name.clone());
    }
    if used + bytes <= budget { Ok(going) } else { Err(NoRoom::Kept { kept: used, budget }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;

    fn file(name: &'static str, reason: Reason, tokens: u32) -> Candidate<&'static str> {
        Candidate {
            name,
            bytes: 100,
            tokens,
            hits: 0,
            last_used: NOW,
            reason,
            is_prefix: false,
            is_protected: false,
            is_newest: false,
        }
    }

    fn going(files: &[Candidate<&'static str>], budget: u64) -> Vec<&'static str> {
        victims(files, 100, budget, NOW).unwrap()
    }

    #[test]
    fn hits_decay_and_reasons_weigh() {
        let score = |hits, age, reason| {
            let c = Candidate { hits, last_used: NOW - age, ..file("a", reason, 1000) };
            c.score(NOW, false)
        };
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} and {b}");
        near(score(0, 0, Reason::Continued), 10.0);
        near(score(3, 0, Reason::Continued), 40.0);
        near(score(3, 6 * 3600, Reason::Continued), 25.0);
        near(score(1, 60 * 3600, Reason::Continued), 10.0);
        near(score(0, 0, Reason::Cold), 40.0);
        near(score(0, 0, Reason::Shutdown), 20.0);
        let dominated = Candidate { hits: 1, ..file("a", Reason::Continued, 1000) };
        near(dominated.score(NOW, true), 20.0 * 0.275);
    }

    #[test]
    fn the_least_valuable_goes_and_of_equals_the_older() {
        let old = Candidate { last_used: NOW - 10, ..file("old", Reason::Continued, 500) };
        let files = [file("new", Reason::Continued, 500), old, file("cold", Reason::Cold, 200)];
        assert_eq!(going(&files, 400), Vec::<&str>::new());
        assert_eq!(going(&files, 300), ["old"]);
        assert_eq!(going(&files, 200), ["old", "new"]);
    }

    #[test]
    fn a_long_path_loses_all_but_its_two_longest() {
        let step =
            |name, tokens| Candidate { is_prefix: true, ..file(name, Reason::Continued, tokens) };
        let files =
            [step("10", 10_240), step("20", 20_480), step("30", 30_720), step("40", 40_960)];
        let other = file("other", Reason::Continued, 4000);
        let all: Vec<_> = files.into_iter().chain([other]).collect();
        assert_eq!(going(&all, 400), ["10", "20"]);
        assert_eq!(going(&all, 300), ["10", "20", "other"]);
    }

    #[test]
    fn what_was_written_last_goes_last() {
        let newest = Candidate { is_newest: true, ..file("newest", Reason::Continued, 100) };
        let files =
            [newest, file("other", Reason::Continued, 4000), file("cold", Reason::Cold, 4000)];
        assert_eq!(going(&files, 300), ["other"]);
        assert_eq!(going(&files, 200), ["other", "cold"]);
        assert_eq!(going(&files, 102), ["other", "cold", "newest"], "a file of its size has room");
    }

    #[test]
    fn what_is_protected_stays() {
        let kept = Candidate { is_protected: true, ..file("a", Reason::Continued, 1) };
        let saved = file("b", Reason::AgentSession, 1);
        let files = [kept, saved, file("c", Reason::Cold, 30_000)];
        assert_eq!(going(&files, 300), ["c"]);
        let full = victims(&files, 100, 200, NOW).unwrap_err();
        assert_eq!(full, NoRoom::Kept { kept: 200, budget: 200 });
        let alone = victims(&files, 200, 200, NOW).unwrap_err();
        assert_eq!(alone, NoRoom::File { bytes: 200, budget: 200 }, "it needs one percent more");
    }
}
