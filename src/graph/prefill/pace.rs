//! How long the layers of a chunk take, as they were last seen to: what slices are cut by.

use std::time::Duration;

/// Seconds for a token in each layer. Layers differ: an attention layer takes longer the more there is to look at.
pub(super) struct Pace {
    /// 0 where nothing is known yet.
    seconds: Vec<f64>,
}

impl Pace {
    /// Nothing is known of any of `layers`.
    pub(super) fn new(layers: usize) -> Self {
        Self { seconds: vec![0.0; layers] }
    }

    /// A layer took so long for so many tokens.
    pub(super) fn took(&mut self, layer: usize, tokens: usize, time: Duration) {
        self.seconds[layer] = time.as_secs_f64() / tokens as f64;
    }

    /// How many layers from `first` on are expected to take no longer than `limit` together: at least one, and one
    /// alone that nothing is known of.
    pub(super) fn fitting(&self, first: usize, tokens: usize, limit: Duration) -> usize {
        let mut left = limit.as_secs_f64();
        let fits = |seconds: &&f64| {
            left -= **seconds * tokens as f64;
            **seconds > 0.0 && left >= 0.0
        };
        self.seconds[first..].iter().take_while(fits).count().max(1)
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
}
