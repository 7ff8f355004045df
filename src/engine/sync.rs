//! How to bring a session to a prompt: a pure decision about prefixes.
//!
//! Full-attention rows are append-only and can be cut anywhere; the recurrent state can not. So a
//! session continues only from where it stands or from a position somebody remembered.

use crate::engine::{Miss, Reuse, SnapshotId};
use crate::tokenizer::TokenId;

/// Where evaluation starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SyncPlan {
    pub(super) start: Start,
    pub(super) reused: usize,
    pub(super) miss: Option<Miss>,
}

/// The state that evaluation continues from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Live,
    Snapshot(SnapshotId),
    Empty,
}

impl Start {
    pub(super) fn reuse(self) -> Reuse {
        match self {
            Self::Live => Reuse::Live,
            Self::Snapshot(_) => Reuse::Snapshot,
            Self::Empty => Reuse::Cold,
        }
    }
}

/// What a session can restart from.
pub(super) struct Restarts<'a> {
    /// Its tokens.
    pub(super) live: &'a [TokenId],
    /// Whether the logits behind the last token are there.
    pub(super) has_logits: bool,
    /// Remembered positions; each has its logits.
    pub(super) snapshots: &'a [(SnapshotId, usize)],
}

/// Chooses the start that leaves least to evaluate. A start that needs no evaluation at all is only
/// good with logits.
pub(super) fn plan(from: &Restarts<'_>, prompt: &[TokenId]) -> SyncPlan {
    let live = from.live;
    let common = live.iter().zip(prompt).take_while(|(a, b)| a == b).count();
    let extends = !live.is_empty() && common == live.len();
    if extends && (common < prompt.len() || from.has_logits) {
        return SyncPlan { start: Start::Live, reused: common, miss: None };
    }
    let miss = match live.len() {
        0 => None,
        _ if common == prompt.len() => Some(Miss::ShorterPrompt),
        _ => Some(Miss::Mismatch { at: common }),
    };
    let best = from.snapshots.iter().filter(|s| s.1 <= common).max_by_key(|s| s.1);
    match best {
        Some(&(id, pos)) => SyncPlan { start: Start::Snapshot(id), reused: pos, miss },
        None => SyncPlan { start: Start::Empty, reused: 0, miss },
    }
}

/// Ends of the chunks that evaluate positions `from..to`. Cuts stand at multiples of `chunk` counted
/// from the start of the sequence, so they depend on the prompt alone and a warm start cuts where a
/// cold one does.
pub(super) fn cuts(from: usize, to: usize, chunk: usize) -> impl Iterator<Item = usize> {
    let mut pos = from;
    std::iter::from_fn(move || {
        if pos >= to {
            return None;
        }
        pos = ((pos / chunk + 1) * chunk).min(to);
        Some(pos)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Vec<TokenId> {
        text.bytes().map(|b| TokenId(u32::from(b))).collect()
    }

    fn check(live: &str, has_logits: bool, snapshots: &[usize], prompt: &str) -> SyncPlan {
        let snapshots: Vec<_> =
            snapshots.iter().map(|&pos| (SnapshotId(pos as u64), pos)).collect();
        let live = ids(live);
        plan(&Restarts { live: &live, has_logits, snapshots: &snapshots }, &ids(prompt))
    }

    #[test]
    fn extends_rewinds_or_starts_anew() {
        let live = |reused| SyncPlan { start: Start::Live, reused, miss: None };
        let at = |pos: usize, miss| SyncPlan {
            start: Start::Snapshot(SnapshotId(pos as u64)),
            reused: pos,
            miss: Some(miss),
        };
        let cold = |miss| SyncPlan { start: Start::Empty, reused: 0, miss };
        assert_eq!(check("", false, &[], "abc"), cold(None));
        assert_eq!(check("ab", true, &[], "abc"), live(2));
        assert_eq!(check("ab", false, &[], "abc"), live(2));
        assert_eq!(check("abc", true, &[], "abc"), live(3));
        // The same prompt without logits cannot be answered from the live state.
        assert_eq!(check("abc", false, &[], "abc"), cold(Some(Miss::ShorterPrompt)));
        assert_eq!(check("abc", true, &[], "ab"), cold(Some(Miss::ShorterPrompt)));
        assert_eq!(check("abc", true, &[2], "ab"), at(2, Miss::ShorterPrompt));
        assert_eq!(check("abcd", true, &[1, 2, 4], "abx"), at(2, Miss::Mismatch { at: 2 }));
        assert_eq!(check("abcd", true, &[3], "abx"), cold(Some(Miss::Mismatch { at: 2 })));
    }

    #[test]
    fn cuts_do_not_depend_on_where_evaluation_starts() {
        assert_eq!(cuts(0, 10, 4).collect::<Vec<_>>(), [4, 8, 10]);
        assert_eq!(cuts(5, 10, 4).collect::<Vec<_>>(), [8, 10]);
        assert_eq!(cuts(8, 8, 4).count(), 0);
        assert_eq!(cuts(8, 9, 1).collect::<Vec<_>>(), [9]);
    }
}
