//! How long the layers of a chunk take, as they were last seen to: what slices are cut by.

use std::time::Duration;

/// Seconds for a token in each layer. Layers differ: an attention layer takes longer the more there is to look at.
pub(super) struct Pace {
    layers: Vec<Seen>,
}

/// Seconds for a token in the last two chunks; 0 where nothing is known yet.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    last: f64,
    before: f64,
}

impl Seen {
    /// What the next chunk is expected to take: as much more than the last as that took more than the one before, but
    /// no more than a quarter, since times waver.
    fn expected(self) -> f64 {
        let growth = if self.before > 0.0 { self.last - self.before } else { 0.0 };
        self.last + growth.clamp(0.0, self.last / 4.0)
    }
}

impl Pace {
    /// Nothing is known of any of `layers`.
    pub(super) fn new(layers: usize) -> Self {
        Self { layers: vec![Seen::default(); layers] }
    }

    /// A layer took so long for so many tokens.
    pub(super) fn took(&mut self, layer: usize, tokens: usize, time: Duration) {
        let seen = &mut self.layers[layer];
        *seen = Seen { last: time.as_secs_f64() / tokens as f64, before: seen.last };
    }

    /// How many layers from `first` on are expected to take no longer than `limit` together: at least one, and one
    /// alone that nothing is known of.
    pub(super) fn fitting(&self, first: usize, tokens: usize, limit: Duration) -> usize {
        let mut left = limit.as_secs_f64();
        let fits = |seen: &&Seen| {
            left -= seen.expected() * tokens as f64;
            seen.last > 0.0 && left >= 0.0
        };
        self.layers[first..].iter().take_while(fits).count().max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_fit_until_the_time_is_used_up() {
        let mut pace = Pace::new(6);
        let ms = Duration::from_millis;
        assert_eq!(pace.fitting(0, 100, ms(50)), 1, "nothing is known");
        for (layer, time) in [10, 10, 30, 10, 60].into_iter().enumerate() {
            pace.took(layer, 100, ms(time));
        }
        assert_eq!(pace.fitting(0, 100, ms(51)), 3);
        assert_eq!(pace.fitting(0, 100, ms(49)), 2);
        assert_eq!(pace.fitting(0, 50, ms(31)), 4, "half the tokens take half the time");
        assert_eq!(pace.fitting(4, 100, ms(50)), 1, "too long, but at least one");
        assert_eq!(pace.fitting(3, 100, Duration::MAX), 2, "up to the first unknown one");
        assert_eq!(pace.fitting(5, 100, Duration::MAX), 1);
    }

    #[test]
    fn what_grew_is_expected_to_grow_on() {
        let mut pace = Pace::new(2);
        let ms = Duration::from_millis;
        for times in [[20, 20], [22, 18]] {
            for (layer, time) in times.into_iter().enumerate() {
                pace.took(layer, 100, ms(time));
            }
        }
        // 24 and 18 are expected: what became shorter is not expected to go on with that.
        assert_eq!(pace.fitting(0, 100, ms(43)), 2);
        assert_eq!(pace.fitting(0, 100, ms(41)), 1);
        pace.took(0, 100, ms(88));
        assert_eq!(pace.fitting(0, 100, ms(111)), 1, "four times as long is not expected again");
        assert_eq!(pace.fitting(0, 100, ms(129)), 2);
    }
}
