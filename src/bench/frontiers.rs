//! The context lengths that are measured.

/// How one frontier follows from the one before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Growth {
    /// So many tokens more.
    By(usize),
    /// So many times as long, rounded up, and longer by one token at least.
    Times(f64),
}

/// Context lengths from the first to the last, both measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Frontiers {
    /// The first, in tokens.
    pub start: usize,
    /// The last, in tokens.
    pub max: usize,
    /// The way from one to the next.
    pub growth: Growth,
}

impl Frontiers {
    /// The lengths in order. The last is exactly [`Frontiers::max`].
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        let Self { start, max, growth } = *self;
        let after = move |tokens: &usize| {
            (*tokens < max).then(|| growth.next(*tokens).clamp(tokens + 1, max))
        };
        std::iter::successors(Some(start.min(max)), after)
    }
}

impl Growth {
    fn next(self, tokens: usize) -> usize {
        match self {
            Self::By(more) => tokens.saturating_add(more),
            Self::Times(factor) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "not negative; `as` saturates"
                )]
                let next = (tokens as f64 * factor).ceil() as usize;
                next
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(start: usize, max: usize, growth: Growth) -> Vec<usize> {
        Frontiers { start, max, growth }.iter().collect()
    }

    #[test]
    fn steps_end_at_the_last_frontier() {
        assert_eq!(list(2048, 8192, Growth::By(2048)), [2048, 4096, 6144, 8192]);
        assert_eq!(list(1000, 2500, Growth::By(1000)), [1000, 2000, 2500]);
        assert_eq!(list(512, 512, Growth::By(1)), [512]);
        assert_eq!(list(100, 1000, Growth::Times(2.5)), [100, 250, 625, 1000]);
        assert_eq!(list(10, 13, Growth::Times(1.01)), [10, 11, 12, 13]);
        assert_eq!(list(5, 7, Growth::Times(f64::MAX)), [5, 7]);
    }

    proptest! {
        #[test]
        fn lengths_grow_from_the_first_to_the_last(
            start in 1usize..500,
            more in 0usize..500,
            step in 1usize..100,
            factor in 1.0f64..4.0,
        ) {
            for growth in [Growth::By(step), Growth::Times(factor)] {
                let all = list(start, start + more, growth);
                prop_assert_eq!((all[0], all[all.len() - 1]), (start, start + more));
                prop_assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
            }
        }
    }
}
