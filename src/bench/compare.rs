//! A table held against an older one and against floors.

use super::csv::Recorded;
use super::row::Row;

/// How a frontier's rates changed; 1 is no change. `None` where one of the tables has nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// Length of the context.
    pub ctx_tokens: usize,
    /// New prefill rate over the old one.
    pub prefill: Option<f64>,
    /// New generation rate over the old one.
    pub decode: Option<f64>,
}

/// The frontiers that both tables have.
pub fn changes(old: &[Recorded], new: &[Row]) -> Vec<Change> {
    let ratio = |new: f64, old: f64| (new > 0.0 && old > 0.0).then(|| new / old);
    let changed = new.iter().filter_map(|row| {
        let before = old.iter().find(|old| old.ctx_tokens == row.ctx_tokens)?;
        Some(Change {
            ctx_tokens: row.ctx_tokens,
            prefill: ratio(row.prefill_tps, before.prefill_tps),
            decode: ratio(row.gen_tps, before.gen_tps),
        })
    });
    changed.collect()
}

/// The changes for the eye, a line each.
pub fn table(changes: &[Change]) -> Vec<String> {
    let percent = |ratio: Option<f64>| {
        ratio.map_or_else(|| "-".to_owned(), |r| format!("{:+.1} %", 100.0 * (r - 1.0)))
    };
    let head = format!("{:>8}  {:>10}  {:>10}", "context", "prefill", "decode");
    let rows = changes.iter().map(|c| {
        format!("{:>8}  {:>10}  {:>10}", c.ctx_tokens, percent(c.prefill), percent(c.decode))
    });
    std::iter::once(head).chain(rows).collect()
}

/// Floors that a table must keep. `None` asks for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Gates {
    /// New rate over old rate.
    pub min_ratio: Option<f64>,
    /// Prefill, tokens a second.
    pub prefill_tps: Option<f64>,
    /// Generation, tokens a second.
    pub decode_tps: Option<f64>,
}

impl Gates {
    /// What falls below a floor, a line for each.
    pub fn failures(&self, rows: &[Row], changes: &[Change]) -> Vec<String> {
        let mut failures = Vec::new();
        for row in rows {
            let rates = [
                ("prefill", row.prefill_tps, self.prefill_tps),
                ("decode", row.gen_tps, self.decode_tps),
            ];
            for (what, rate, floor) in rates {
                if let Some(floor) = floor.filter(|floor| rate < *floor) {
                    let at = row.ctx_tokens;
                    failures.push(format!("{what} at {at}: {rate:.2} t/s is below {floor:.2}"));
                }
            }
        }
        for change in changes {
            for (what, ratio) in [("prefill", change.prefill), ("decode", change.decode)] {
                let Some((ratio, floor)) = ratio.zip(self.min_ratio) else { continue };
                if ratio < floor {
                    let at = change.ctx_tokens;
                    failures.push(format!(
                        "{what} at {at}: {ratio:.3} times the old is below {floor:.3}"
                    ));
                }
            }
        }
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::{Series, tests::visit};
    use super::*;

    fn rows() -> Vec<Row> {
        [(512, 400, 100), (1024, 500, 125)]
            .map(|(ctx, prefill, decode)| Series::new(visit(ctx, prefill, decode)).row())
            .to_vec()
    }

    fn old(ctx_tokens: usize, prefill_tps: f64, gen_tps: f64) -> Recorded {
        Recorded { ctx_tokens, prefill_tps, gen_tps }
    }

    #[test]
    fn common_frontiers_are_compared() {
        // The rows have 500 and 200 tokens a second at 512, 400 and 160 at 1024.
        let changes = changes(&[old(1024, 500.0, 0.0), old(2048, 1.0, 1.0)], &rows());
        assert_eq!(changes, [Change { ctx_tokens: 1024, prefill: Some(0.8), decode: None }]);
        assert_eq!(table(&changes)[1], "    1024     -20.0 %           -");
    }

    #[test]
    fn what_falls_below_a_floor_is_named() {
        let rows = rows();
        let changes = changes(&[old(512, 550.0, 100.0)], &rows);
        assert_eq!(Gates::default().failures(&rows, &changes), [""; 0]);
        let gates =
            Gates { min_ratio: Some(0.95), prefill_tps: Some(450.0), decode_tps: Some(160.0) };
        assert_eq!(
            gates.failures(&rows, &changes),
            [
                "prefill at 1024: 400.00 t/s is below 450.00",
                "prefill at 512: 0.909 times the old is below 0.950"
            ]
        );
    }
}
