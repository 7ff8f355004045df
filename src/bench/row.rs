//! From times to a row of the table.

use std::time::Duration;

use serde::Serialize;

use super::sweep::Measured;

/// The middle of repeated measurements, and how far they reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The middle one; with an even number the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of a single value.
    pub const fn one(value: f64) -> Self {
        Self { median: value, min: value, max: value }
    }

    /// Whether the values differ.
    pub fn is_wide(&self) -> bool {
        self.max > self.min
    }

    /// How many times `old` this is: at least, at most, and by the medians. `None` where one of them is nothing.
    pub fn over(&self, old: &Self) -> Option<Self> {
        let known = self.min > 0.0 && old.min > 0.0;
        known.then(|| Self {
            median: self.median / old.median,
            min: self.min / old.max,
            max: self.max / old.min,
        })
    }

    /// Of at least one value.
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let n = values.len();
        let median = f64::midpoint(values[(n - 1) / 2], values[n / 2]);
        Self { median, min: values[0], max: values[n - 1] }
    }
}

/// Visits of one frontier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    visits: Vec<Measured>,
}

impl Series {
    /// Begins with a first visit.
    pub fn new(first: Measured) -> Self {
        Self { visits: vec![first] }
    }

    /// Adds another visit of the same frontier.
    pub fn add(&mut self, visit: Measured) {
        self.visits.push(visit);
    }

    /// What the visits say together.
    pub fn row(&self) -> Row {
        let first = self.visits[0];
        let spread =
            |rate: fn(&Measured) -> f64| Spread::of(self.visits.iter().map(rate).collect());
        let prefill = spread(|m| rate(m.sessions * m.prefill_tokens, m.prefill));
        let decode = spread(|m| rate(m.sessions * m.gen_tokens, m.decode));
        Row {
            ctx_tokens: first.ctx_tokens,
            prefill_tokens: first.prefill_tokens,
            prefill_tps: prefill.median,
            gen_tokens: first.gen_tokens,
            gen_tps: decode.median,
            kvcache_bytes: first.kvcache_bytes,
            prefill_tps_min: prefill.min,
            prefill_tps_max: prefill.max,
            gen_tps_min: decode.min,
            gen_tps_max: decode.max,
            recurrent_bytes: first.recurrent_bytes,
            repeat: self.visits.len(),
        }
    }
}

/// Tokens a second; 0 where nothing was done.
fn rate(tokens: usize, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 }
}

/// A row of the table. Counts are those of each session; rates and bytes those of all.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Row {
    /// Length of the context.
    pub ctx_tokens: usize,
    /// Tokens that were processed to get there.
    pub prefill_tokens: usize,
    /// Tokens a second while doing so, the median.
    pub prefill_tps: f64,
    /// Tokens that were generated there.
    pub gen_tokens: usize,
    /// Tokens a second while doing so, the median.
    pub gen_tps: f64,
    /// Size of the states.
    pub kvcache_bytes: u64,
    /// The slowest prefill.
    pub prefill_tps_min: f64,
    /// The fastest prefill.
    pub prefill_tps_max: f64,
    /// The slowest generation.
    pub gen_tps_min: f64,
    /// The fastest generation.
    pub gen_tps_max: f64,
    /// Size of the recurrent states, part of `kvcache_bytes`.
    pub recurrent_bytes: u64,
    /// Measurements behind the numbers.
    pub repeat: usize,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A visit of two sessions that took so many milliseconds.
    pub(in crate::bench) fn visit(ctx_tokens: usize, prefill: u64, decode: u64) -> Measured {
        Measured {
            ctx_tokens,
            prefill_tokens: 100,
            prefill: Duration::from_millis(prefill),
            gen_tokens: 10,
            decode: Duration::from_millis(decode),
            sessions: 2,
            kvcache_bytes: 5000,
            recurrent_bytes: 1000,
        }
    }

    #[test]
    fn rates_are_those_of_all_sessions() {
        let row = Series::new(visit(512, 400, 100)).row();
        assert!((row.prefill_tps - 500.0).abs() < 1e-9 && (row.gen_tps - 200.0).abs() < 1e-9);
        assert_eq!((row.prefill_tokens, row.gen_tokens, row.repeat), (100, 10, 1));
        let idle = Measured { gen_tokens: 0, decode: Duration::ZERO, ..visit(512, 400, 100) };
        assert!(Series::new(idle).row().gen_tps.abs() < 1e-9);
    }

    #[test]
    fn repetitions_are_told_by_median_and_reach() {
        let mut series = Series::new(visit(512, 400, 100));
        series.add(visit(512, 100, 50));
        let row = series.row();
        assert!((row.prefill_tps - 1250.0).abs() < 1e-9, "{row:?}");
        series.add(visit(512, 200, 200));
        let row = series.row();
        let rates = [row.prefill_tps_min, row.prefill_tps, row.prefill_tps_max];
        assert_eq!(rates.map(|rate| format!("{rate:.1}")), ["500.0", "1000.0", "2000.0"]);
        let rates = [row.gen_tps_min, row.gen_tps, row.gen_tps_max];
        assert_eq!(rates.map(|rate| format!("{rate:.1}")), ["100.0", "200.0", "400.0"]);
        assert_eq!(row.repeat, 3);
    }
}
