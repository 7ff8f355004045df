//! What `/stats` and `/tokens` tell.

use crate::commands::run::timing::Clock;

/// Tokens and times of one reply, or of several.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    pub(super) clock: Clock,
    /// Tokens of prompts that needed no evaluation.
    pub(super) reused: usize,
    /// Of those generated, how many were reasoning.
    pub(super) thought: usize,
}

/// The last reply, and all of them together.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stats {
    last: Option<Usage>,
    all: Usage,
    replies: usize,
}

impl Stats {
    pub(super) fn add(&mut self, usage: Usage) {
        let (all, one) = (&mut self.all, usage.clock);
        all.reused += usage.reused;
        all.thought += usage.thought;
        all.clock = Clock {
            prefill: all.clock.prefill + one.prefill,
            decode: all.clock.decode + one.decode,
            first_token: all.clock.first_token + one.first_token,
            evaluated: all.clock.evaluated + one.evaluated,
            generated: all.clock.generated + one.generated,
        };
        self.last = Some(usage);
        self.replies += 1;
    }

    /// A table.
    pub(super) fn table(&self) -> String {
        let Some(last) = self.last else { return "nothing was answered yet".to_owned() };
        let both = [last, self.all];
        let count = |of: fn(&Usage) -> usize| both.map(|usage| of(&usage).to_string());
        let timings = both.map(|usage| usage.clock.timings());
        let mut mean = timings[1].first_token_s / self.replies as f64;
        if !mean.is_finite() {
            mean = 0.0;
        }
        let rows = [
            ("", ["last answer".to_owned(), format!("all {}", self.replies)]),
            ("input tokens", count(|u| u.reused + u.clock.evaluated)),
            ("  reused", count(|u| u.reused)),
            ("generated tokens", count(|u| u.clock.generated)),
            ("  reasoning", count(|u| u.thought)),
            ("first token, s", [timings[0].first_token_s, mean].map(|s| format!("{s:.2}"))),
            ("prefill, t/s", timings.map(|t| format!("{:.2}", t.prefill_tps))),
            ("generation, t/s", timings.map(|t| format!("{:.2}", t.decode_tps))),
        ];
        let line =
            |(name, [last, all]): &(&str, [String; 2])| format!("  {name:<18}{last:>12}{all:>12}");
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// How full the context is.
pub(super) fn room(used: usize, ctx: usize, turns: usize) -> String {
    let left = ctx.saturating_sub(used);
    let percent = 100.0 * used as f64 / ctx.max(1) as f64;
    let turns = exchanges(turns);
    format!("context: {used} of {ctx} tokens used ({percent:.1}%), {left} left; {turns}")
}

/// So many messages with their answers.
pub(super) fn exchanges(turns: usize) -> String {
    if turns == 1 { "1 exchange".to_owned() } else { format!("{turns} exchanges") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn sums_are_of_all_replies_and_rates_of_their_sums() {
        let mut stats = Stats::default();
        assert_eq!(stats.table(), "nothing was answered yet");
        let usage = |evaluated, seconds| Usage {
            clock: Clock {
                prefill: Duration::from_secs(seconds),
                decode: Duration::from_secs(1),
                first_token: Duration::from_secs(seconds),
                evaluated,
                generated: 4,
            },
            reused: 5,
            thought: 3,
        };
        stats.add(usage(10, 1));
        stats.add(usage(20, 4));
        let expected = "                     last answer       all 2
  input tokens                25          40
    reused                     5          10
  generated tokens             4           8
    reasoning                  3           6
  first token, s            4.00        2.50
  prefill, t/s              5.00        6.00
  generation, t/s           4.00        4.00";
        let trimmed: Vec<_> = stats.table().lines().map(str::trim_end).map(str::to_owned).collect();
        assert_eq!(trimmed.join("\n"), expected);
    }

    #[test]
    fn the_room_may_be_none() {
        assert_eq!(room(10, 40, 1), "context: 10 of 40 tokens used (25.0%), 30 left; 1 exchange");
        assert!(room(50, 40, 2).ends_with("(125.0%), 0 left; 2 exchanges"));
    }
}
