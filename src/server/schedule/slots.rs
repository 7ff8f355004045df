//! Which session a request gets: a pure decision (server.md 13.6).

use std::cmp::Reverse;

/// A session, as far as the decision goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct View {
    /// It serves somebody.
    pub(super) busy: bool,
    /// Tokens it holds.
    pub(super) tokens: usize,
    /// Tokens of the request's prompt that need no evaluation there.
    pub(super) reuse: usize,
    /// When it was used last; later is larger.
    pub(super) last_used: u64,
    /// Its last request came from the same client, as that says.
    pub(super) akin: bool,
}

/// What to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// Take this session.
    Take(usize),
    /// A busy session has so much of the prompt that it is worth waiting for.
    Wait,
}

/// The session with most of the prompt; of equals one that holds nothing, then the one of the same client, then the one
/// used longest ago. `worth_waiting` is how much more a busy session must have to be waited for, if that is possible at
/// all. `None` when every session is busy.
pub(super) fn choose(views: &[View], worth_waiting: Option<usize>) -> Option<Choice> {
    let order = |view: &View| (view.reuse, view.tokens == 0, view.akin, Reverse(view.last_used));
    let idle = views.iter().enumerate().filter(|(_, view)| !view.busy);
    // The last of equals is taken, so the order of ids is turned around.
    let (index, best) = idle.rev().max_by_key(|(_, view)| order(view))?;
    let elsewhere = views.iter().filter(|view| view.busy).map(|view| view.reuse).max();
    let is_worth = |tokens: usize| elsewhere.is_some_and(|reuse| reuse > best.reuse + tokens);
    Some(if worth_waiting.is_some_and(is_worth) { Choice::Wait } else { Choice::Take(index) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EMPTY: View = View { busy: false, tokens: 0, reuse: 0, last_used: 0, akin: false };

    fn full(reuse: usize, last_used: u64) -> View {
        View { tokens: 5000, reuse, last_used, ..EMPTY }
    }

    fn busy(reuse: usize) -> View {
        View { busy: true, ..full(reuse, 9) }
    }

    #[test]
    fn reuse_counts_first_then_emptiness_then_age() {
        let take = |views: &[View]| choose(views, None);
        assert_eq!(take(&[EMPTY, EMPTY]), Some(Choice::Take(0)), "the lowest of equals");
        assert_eq!(take(&[EMPTY, full(10, 1), full(20, 1)]), Some(Choice::Take(2)));
        assert_eq!(take(&[full(0, 1), EMPTY]), Some(Choice::Take(1)), "nothing is overwritten");
        assert_eq!(take(&[full(0, 3), full(0, 2), full(0, 4)]), Some(Choice::Take(1)));
        let akin = View { akin: true, ..full(0, 8) };
        assert_eq!(take(&[full(0, 3), akin, EMPTY]), Some(Choice::Take(2)));
        assert_eq!(take(&[full(0, 3), akin]), Some(Choice::Take(1)));
    }

    #[test]
    fn a_busy_session_is_never_taken_but_may_be_worth_a_wait() {
        assert_eq!(choose(&[busy(9000)], Some(4096)), None);
        assert_eq!(choose(&[busy(9000), EMPTY], None), Some(Choice::Take(1)));
        assert_eq!(choose(&[busy(9000), EMPTY], Some(4096)), Some(Choice::Wait));
        assert_eq!(choose(&[busy(4096), EMPTY], Some(4096)), Some(Choice::Take(1)));
        assert_eq!(choose(&[busy(9000), full(8000, 1)], Some(4096)), Some(Choice::Take(1)));
        assert_eq!(choose(&[], Some(1)), None);
    }

    proptest! {
        #[test]
        fn the_choice_is_idle_and_nobody_idle_has_more(
            views in prop::collection::vec(
                (any::<bool>(), 0usize..3, 0usize..4, 0u64..3, any::<bool>()), 0..6),
        ) {
            let views: Vec<View> = views
                .into_iter()
                .map(|(busy, tokens, reuse, last_used, akin)| {
                    View { busy, tokens, reuse: reuse.min(tokens), last_used, akin }
                })
                .collect();
            match choose(&views, None) {
                None => prop_assert!(views.iter().all(|view| view.busy)),
                Some(Choice::Wait) => prop_assert!(false, "waiting was not allowed"),
                Some(Choice::Take(index)) => {
                    let taken = views[index];
                    prop_assert!(!taken.busy);
                    for view in views.iter().filter(|view| !view.busy) {
                        prop_assert!(view.reuse <= taken.reuse);
                        let is_waste = taken.reuse == 0 && taken.tokens > 0;
                        prop_assert!(!(is_waste && view.tokens == 0));
                    }
                }
            }
        }
    }
}
