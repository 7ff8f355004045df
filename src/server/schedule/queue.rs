//! Requests that wait for a session: first come, first served.

use std::collections::VecDeque;

/// Who waits.
#[derive(Debug)]
pub(super) struct Queue<T> {
    waiting: VecDeque<Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    item: T,
    /// The place that was told last.
    told: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new() }
    }
}

impl<T> Queue<T> {
    /// Appends one.
    pub(super) fn push(&mut self, item: T) {
        self.waiting.push_back(Entry { item, told: 0 });
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Who is next.
    pub(super) fn front(&mut self) -> Option<&mut T> {
        self.waiting.front_mut().map(|entry| &mut entry.item)
    }

    /// Takes the next one.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.waiting.pop_front().map(|entry| entry.item)
    }

    /// Takes out those that have given up; the others keep their order.
    pub(super) fn remove(&mut self, gone: impl Fn(&T) -> bool) -> Vec<T> {
        let (out, stay): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|entry| gone(&entry.item));
        self.waiting = stay.into();
        out.into_iter().map(|entry| entry.item).collect()
    }

    /// Tells everybody whose place has changed, from 1.
    pub(super) fn tell(&mut self, mut tell: impl FnMut(&T, usize)) {
        for (place, entry) in (1..).zip(&mut self.waiting) {
            if entry.told != place {
                entry.told = place;
                tell(&entry.item, place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told(queue: &mut Queue<u32>) -> Vec<(u32, usize)> {
        let mut all = Vec::new();
        queue.tell(|item, place| all.push((*item, place)));
        all
    }

    #[test]
    fn places_are_told_when_they_change() {
        let mut queue = Queue::default();
        for item in [7, 8, 9] {
            queue.push(item);
        }
        assert_eq!(told(&mut queue), [(7, 1), (8, 2), (9, 3)]);
        assert_eq!(told(&mut queue), []);
        assert_eq!(queue.remove(|item| *item == 8), [8]);
        assert_eq!(told(&mut queue), [(9, 2)]);
        assert_eq!(queue.pop(), Some(7));
        assert_eq!(told(&mut queue), [(9, 1)]);
        assert_eq!((queue.len(), queue.front().copied()), (1, Some(9)));
    }

    proptest! {
        #[test]
        fn whatever_happens_those_who_stay_keep_their_order(
            events in prop::collection::vec((0u32..3, 0u32..20), 0..60),
        ) {
            let mut queue = Queue::default();
            let mut expected: Vec<u32> = Vec::new();
            let mut next = 0;
            for (kind, number) in events {
                match kind {
                    0 => {
                        queue.push(next);
                        expected.push(next);
                        next += 1;
                    }
                    1 => {
                        let first = (!expected.is_empty()).then(|| expected.remove(0));
                        prop_assert_eq!(queue.pop(), first);
                    }
                    _ => {
                        let gone = queue.remove(|item| *item == number);
                        prop_assert_eq!(gone.len(), expected.iter().filter(|i| **i == number).count());
                        expected.retain(|item| *item != number);
                    }
                }
                told(&mut queue);
                prop_assert_eq!((queue.len(), queue.front().copied()), (expected.len(), expected.first().copied()));
            }
        }
    }
}
