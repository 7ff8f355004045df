//! Progress of prompt processing, as one line that is due now and then.
//!
//! A pure state machine: the caller passes the clock and writes what comes back. On a terminal the
//! line is rewritten in place at most ten times a second; elsewhere it is a line of its own, at most
//! once a second. Either way the last line says N of N exactly once. No escape codes are used: what
//! an earlier, longer line left behind is overwritten with spaces.

use std::time::Duration;

use super::width;

const TERMINAL_INTERVAL: Duration = Duration::from_millis(100);
const PLAIN_INTERVAL: Duration = Duration::from_secs(1);

/// Prefill progress over `total` input tokens, those of a reused prefix not counted.
#[derive(Debug)]
pub struct Prefill {
    total: usize,
    /// Terminal width, or `None` where lines cannot be rewritten.
    columns: Option<usize>,
    started: Duration,
    shown_at: Option<Duration>,
    /// Columns of the line that stands on the terminal without a newline.
    open: usize,
    is_complete: bool,
}

impl Prefill {
    /// Starts at `now`. `columns` is the terminal's width, `None` when stderr is not one.
    pub fn new(total: usize, columns: Option<usize>, now: Duration) -> Self {
        Self { total, columns, started: now, shown_at: None, open: 0, is_complete: false }
    }

    /// What to write to stderr when `done` tokens are processed at `now`, if anything is due.
    pub fn update(&mut self, done: usize, now: Duration) -> Option<String> {
        let done = done.min(self.total);
        let is_last = done == self.total;
        if self.total == 0 || self.is_complete || !(is_last || self.is_due(now)) {
            return None;
        }
        self.is_complete = is_last;
        self.shown_at = Some(now);
        let text = self.text(done);
        let Some(columns) = self.columns else { return Some(format!("{text}\n")) };
        let line = text + &self.rate(done, now);
        // The last column stays free: writing into it makes some terminals wrap.
        let line = width::truncate(&line, columns.saturating_sub(1));
        let used = width::columns_of(line);
        let padding = " ".repeat(self.open.saturating_sub(used));
        self.open = if is_last { 0 } else { used };
        Some(format!("\r{line}{padding}{}", if is_last { "\n" } else { "" }))
    }

    /// What ends an unfinished line, before anything else is written to stderr.
    pub fn abandon(&mut self) -> Option<&'static str> {
        self.is_complete = true;
        let was_open = std::mem::take(&mut self.open) > 0;
        was_open.then_some("\n")
    }

    fn is_due(&self, now: Duration) -> bool {
        let interval = if self.columns.is_some() { TERMINAL_INTERVAL } else { PLAIN_INTERVAL };
        self.shown_at.is_none_or(|at| now.saturating_sub(at) >= interval)
    }

    fn text(&self, done: usize) -> String {
        let percent = 100.0 * done as f64 / self.total as f64;
        format!("processing {n} input tokens: {done}/{n} ({percent:.1}%)", n = self.total)
    }

    /// Tokens a second, and the time left while there is some.
    fn rate(&self, done: usize, now: Duration) -> String {
        let seconds = now.saturating_sub(self.started).as_secs_f64();
        if done == 0 || seconds <= 0.0 {
            return String::new();
        }
        let rate = done as f64 / seconds;
        if done == self.total {
            return format!(", {rate:.1} t/s");
        }
        let left = (self.total - done) as f64 / rate;
        format!(", {rate:.1} t/s, ETA {}", clock(left))
    }
}

/// Seconds as `m:ss` or `h:mm:ss`, rounded up so that the end is never announced as now.
fn clock(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative; `as` saturates"
    )]
    let total = seconds.ceil() as u64;
    let (hours, minutes, seconds) = (total / 3600, total / 60 % 60, total % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn plain_lines_once_a_second_and_the_last() {
        let mut p = Prefill::new(2000, None, ms(0));
        let mut said = Vec::new();
        for (done, at) in [(500, 400), (1000, 800), (1500, 1500), (2000, 1600), (2000, 9000)] {
            said.extend(p.update(done, ms(at)));
        }
        assert_eq!(
            said.concat(),
            "processing 2000 input tokens: 500/2000 (25.0%)\n\
             processing 2000 input tokens: 1500/2000 (75.0%)\n\
             processing 2000 input tokens: 2000/2000 (100.0%)\n"
        );
    }

    #[test]
    fn a_terminal_line_is_rewritten_with_rate_and_time_left() {
        let mut p = Prefill::new(300, Some(80), ms(1000));
        assert_eq!(
            p.update(100, ms(2000)).unwrap(),
            "\rprocessing 300 input tokens: 100/300 (33.3%), 100.0 t/s, ETA 0:02"
        );
        assert_eq!(p.update(150, ms(2099)), None);
        assert_eq!(
            p.update(300, ms(2100)).unwrap(),
            "\rprocessing 300 input tokens: 300/300 (100.0%), 272.7 t/s         \n"
        );
        assert_eq!(p.abandon(), None);
    }

    #[test]
    fn nothing_for_no_tokens_and_a_newline_after_an_open_line() {
        assert_eq!(Prefill::new(0, Some(80), ms(0)).update(0, ms(5)), None);
        let mut p = Prefill::new(10, Some(80), ms(0));
        p.update(1, ms(5)).unwrap();
        assert_eq!(p.abandon(), Some("\n"));
        assert_eq!(p.update(10, ms(500)), None);
    }

    #[test]
    fn narrow_terminals_get_a_shorter_line() {
        let mut p = Prefill::new(1000, Some(20), ms(0));
        assert_eq!(p.update(10, ms(5)).unwrap(), "\rprocessing 1000 inp");
    }

    #[test]
    fn times() {
        assert_eq!(clock(0.2), "0:01");
        assert_eq!(clock(61.0), "1:01");
        assert_eq!(clock(3661.5), "1:01:02");
    }

    proptest! {
        #[test]
        fn the_end_is_said_once_and_lines_keep_their_distance(
            total in 1usize..5000,
            steps in proptest::collection::vec((1usize..800, 0u64..700), 1..40),
            columns in proptest::option::of(1usize..120),
        ) {
            let mut p = Prefill::new(total, columns, ms(0));
            let (mut done, mut now, mut last) = (0, 0, None);
            let mut complete = 0;
            for (tokens, wait) in steps.into_iter().chain([(5000, 1)]) {
                done = (done + tokens).min(total);
                now += wait;
                if let Some(line) = p.update(done, ms(now)) {
                    let interval = if columns.is_some() { 100 } else { 1000 };
                    prop_assert!(done == total || last.is_none_or(|at| now - at >= interval));
                    last = Some(now);
                    complete += u32::from(line.ends_with('\n') && done == total);
                    prop_assert!(!line.contains('\x1b'));
                }
            }
            prop_assert_eq!(complete, 1);
        }
    }
}
