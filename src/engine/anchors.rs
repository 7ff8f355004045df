//! Which kept states make room for others: a pure decision.
//!
//! An anchor is a recurrent state that was kept at a border of a prompt, by pinning its slot: it costs memory and no
//! time. All sessions share the slots. Rules, in this order: the end of what new conversations share outlives turns;
//! then whoever was taken or used longest ago goes first. Within a session turns that stand close together are worth
//! one: only the last of them may stand close to the one before it, which is where the next turn restarts.

/// An anchor, as far as the decision goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Anchor<Id> {
    pub(super) id: Id,
    /// Of what new conversations share.
    pub(super) shared: bool,
    /// When it was taken or used last; later is larger.
    pub(super) used: u64,
}

/// The anchor that makes room, if there is one.
pub(super) fn first_out<Id: Copy>(anchors: impl Iterator<Item = Anchor<Id>>) -> Option<Id> {
    anchors.min_by_key(|anchor| (anchor.shared, anchor.used)).map(|anchor| anchor.id)
}

/// The turn that a new one at `pos` makes superfluous: the last one before it, where that stands closer than `spacing`
/// to the one before itself. `turns` are the positions of a session's kept turns, `shared` those of its shared ends;
/// both ascending.
pub(super) fn crowded(
    turns: &[usize],
    shared: &[usize],
    pos: usize,
    spacing: usize,
) -> Option<usize> {
    let last = *turns.iter().rfind(|&&turn| turn < pos)?;
    let before = turns.iter().chain(shared).filter(|&&at| at < last).max();
    let is_near = before.is_some_and(|&before| last - before < spacing);
    (is_near && pos - last < spacing).then_some(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_before_shared_ends_and_old_before_new() {
        let anchor = |id, shared, used| Anchor { id, shared, used };
        let all = [anchor('a', true, 1), anchor('b', false, 7), anchor('c', false, 3)];
        assert_eq!(first_out(all.into_iter()), Some('c'));
        assert_eq!(first_out(all[..2].iter().copied()), Some('b'));
        assert_eq!(first_out(all[..1].iter().copied()), Some('a'));
        assert_eq!(first_out(all[..0].iter().copied()), None);
    }

    #[test]
    fn only_the_last_turn_stands_close() {
        assert_eq!(crowded(&[], &[], 10, 256), None);
        assert_eq!(crowded(&[100], &[], 150, 256), None, "the first one stays");
        assert_eq!(crowded(&[100, 150], &[], 200, 256), Some(150));
        assert_eq!(crowded(&[100, 400], &[], 450, 256), None, "far from the one before it");
        assert_eq!(crowded(&[100, 150], &[], 900, 256), None, "the new one is far");
        assert_eq!(crowded(&[150], &[100], 200, 256), Some(150), "close to the shared end");
        assert_eq!(
            crowded(&[100, 150, 300], &[], 200, 256),
            Some(150),
            "those behind do not count"
        );
    }
}
