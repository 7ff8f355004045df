//! A table held against an older one and against floors.

use super::csv::Recorded;
use super::row::Spread;

/// How many times the old rates the new ones of a frontier are; 1 is no change. `None` where one of the tables has
/// nothing. With repetitions: from the slowest new over the fastest old to the reverse.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// Length of the context.
    pub ctx_tokens: usize,
    /// Of prefill.
    pub prefill: Option<Spread>,
    /// Of generation.
    pub decode: Option<Spread>,
}

/// The frontiers that both tables have.
pub fn changes(old: &[Recorded], new: &[Recorded]) -> Vec<Change> {
    let changed = new.iter().filter_map(|row| {
        let before = old.iter().find(|old| old.ctx_tokens == row.ctx_tokens)?;
        Some(Change {
            ctx_tokens: row.ctx_tokens,
            prefill: row.prefill.over(&before.prefill),
            decode: row.decode.over(&before.decode),
        })
    });
    changed.collect()
}

/// The changes for the eye, a line each.
pub fn table(changes: &[Change]) -> Vec<String> {
    let percent = |ratio: f64| format!("{:+.1}", 100.0 * (ratio - 1.0));
    let cell = |change: Option<Spread>| match change {
        None => "-".to_owned(),
        Some(ratio) if ratio.is_wide() => {
            let [median, min, max] = [ratio.median, ratio.min, ratio.max].map(percent);
            format!("{median} % ({min} to {max})")
        }
        Some(ratio) => format!("{} %", percent(ratio.median)),
    };
    let line = |context: &str, prefill: &str, decode: &str| {
        format!("{context:>8}  {prefill:>26}  {decode:>26}")
    };
    let rows =
        changes.iter().map(|c| line(&c.ctx_tokens.to_string(), &cell(c.prefill), &cell(c.decode)));
    std::iter::once(line("context", "prefill", "decode")).chain(rows).collect()
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
    pub fn failures(&self, rows: &[Recorded], changes: &[Change]) -> Vec<String> {
        let mut failures = Vec::new();
        for row in rows {
            let rates = [
                ("prefill", row.prefill.median, self.prefill_tps),
                ("decode", row.decode.median, self.decode_tps),
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
                if ratio.median < floor {
                    let (at, ratio) = (change.ctx_tokens, ratio.median);
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

    fn rows() -> Vec<Recorded> {
        [(512, 400, 100), (1024, 500, 125)]
            .map(|(ctx, prefill, decode)| {
                Recorded::from(&Series::new(visit(ctx, prefill, decode)).row())
            })
            .to_vec()
    }

    fn old(ctx_tokens: usize, prefill: f64, decode: f64) -> Recorded {
        Recorded { ctx_tokens, prefill: Spread::one(prefill), decode: Spread::one(decode) }
    }

    #[test]
    fn common_frontiers_are_compared() {
        // The rows have 500 and 200 tokens a second at 512, 400 and 160 at 1024.
        let changes = changes(&[old(1024, 500.0, 0.0), old(2048, 1.0, 1.0)], &rows());
        let change = Change { ctx_tokens: 1024, prefill: Some(Spread::one(0.8)), decode: None };
        assert_eq!(changes, [change]);
        let cells: Vec<String> = table(&changes)
            .iter()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(cells, ["context prefill decode", "1024 -20.0 % -"]);
    }

    #[test]
    fn repetitions_widen_a_change() {
        let wide = |median, min, max| Spread { median, min, max };
        let new = [Recorded { decode: wide(110.0, 100.0, 120.0), ..old(512, 10.0, 1.0) }];
        let before = [Recorded { decode: wide(100.0, 80.0, 125.0), ..old(512, 10.0, 1.0) }];
        let changes = changes(&before, &new);
        assert_eq!(changes[0].decode, Some(wide(1.1, 0.8, 1.5)));
        assert!(
            table(&changes)[1].ends_with("  +10.0 % (-20.0 to +50.0)"),
            "{:?}",
            table(&changes)
        );
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
