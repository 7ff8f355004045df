//! Progress of prompt processing and of loading weights, as one line that is due now and then.
//!
//! Pure state machines: the caller passes the clock and writes what comes back. On a terminal the
//! line is rewritten in place at most ten times a second; elsewhere it is a line of its own, at most
//! once a second. Either way the last line is said exactly once. No escape codes are used: what
//! an earlier, longer line left behind is overwritten with spaces.

use std::time::Duration;

use super::width;

const TERMINAL_INTERVAL: Duration = Duration::from_millis(100);
const PLAIN_INTERVAL: Duration = Duration::from_secs(1);

const GIB: f64 = 1_073_741_824.0;
const MIB: f64 = 1_048_576.0;

/// When a line is due, and how it replaces the one before.
#[derive(Debug)]
struct Line {
    /// Terminal width, or `None` where lines cannot be rewritten.
    columns: Option<usize>,
    shown_at: Option<Duration>,
    /// Columns of the line that stands on the terminal without a newline.
    open: usize,
    is_complete: bool,
}

impl Line {
    /// The first line is due at once when nothing counts as shown yet.
    fn new(columns: Option<usize>, shown_at: Option<Duration>) -> Self {
        Self { columns, shown_at, open: 0, is_complete: false }
    }

    fn is_due(&self, now: Duration) -> bool {
        let interval = if self.columns.is_some() { TERMINAL_INTERVAL } else { PLAIN_INTERVAL };
        self.shown_at.is_none_or(|at| now.saturating_sub(at) >= interval)
    }

    /// What to write so that `text` is seen; the last line stays.
    fn show(&mut self, text: &str, now: Duration, is_last: bool) -> String {
        self.is_complete = is_last;
        self.shown_at = Some(now);
        let Some(columns) = self.columns else { return format!("{text}\n") };
        // The last column stays free: writing into it makes some terminals wrap.
        let line = width::truncate(text, columns.saturating_sub(1));
        let used = width::columns_of(line);
        let padding = " ".repeat(self.open.saturating_sub(used));
        self.open = if is_last { 0 } else { used };
        format!("\r{line}{padding}{}", if is_last { "\n" } else { "" })
    }

    fn abandon(&mut self) -> Option<&'static str> {
        self.is_complete = true;
        let was_open = std::mem::take(&mut self.open) > 0;
        was_open.then_some("\n")
    }
}

/// Prefill progress over `total` input tokens, those of a reused prefix not counted.
#[derive(Debug)]
pub struct Prefill {
    total: usize,
    started: Duration,
    line: Line,
}

impl Prefill {
    /// Starts at `now`. `columns` is the terminal's width, `None` when stderr is not one.
    pub fn new(total: usize, columns: Option<usize>, now: Duration) -> Self {
        Self { total, started: now, line: Line::new(columns, None) }
    }

    /// What to write to stderr when `done` tokens are processed at `now`, if anything is due. The
    /// last line says N of N.
    pub fn update(&mut self, done: usize, now: Duration) -> Option<String> {
        let done = done.min(self.total);
        let is_last = done == self.total;
        let is_due = is_last || self.line.is_due(now);
        if self.total == 0 || self.line.is_complete || !is_due {
            return None;
        }
        let mut text = self.text(done);
        if self.line.columns.is_some() {
            text += &self.rate(done, now);
        }
        Some(self.line.show(&text, now, is_last))
    }

    /// What ends an unfinished line, before anything else is written to stderr.
    pub fn abandon(&mut self) -> Option<&'static str> {
        self.line.abandon()
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

/// Progress of reading or copying weights, in bytes. Loading that takes less than one interval is
/// told by its last line alone.
#[derive(Debug)]
pub struct Loading {
    done: u64,
    total: u64,
    started: Duration,
    line: Line,
}

impl Loading {
    /// Starts at `now`. `columns` is the terminal's width, `None` when stderr is not one.
    pub fn new(columns: Option<usize>, now: Duration) -> Self {
        Self { done: 0, total: 0, started: now, line: Line::new(columns, Some(now)) }
    }

    /// What to write to stderr when `done` of `total` bytes are loaded at `now`, if anything is due. The end is told by
    /// [`Loading::finish`].
    pub fn update(&mut self, done: u64, total: u64, now: Duration) -> Option<String> {
        (self.done, self.total) = (done.min(total), total);
        // What follows the last byte is not loading any more, and has a line of its own.
        if self.done == total || self.line.is_complete || !self.line.is_due(now) {
            return None;
        }
        let (unit, name) = self.unit();
        let (done, all) = (self.done as f64, total as f64);
        let amounts = format!("{:.1} of {:.1} {name}", done / unit, all / unit);
        let rate = self.rate(now).map_or_else(String::new, |rate| format!(", {rate}"));
        let text = format!("loading weights: {amounts} ({:.0} %){rate}", 100.0 * done / all);
        Some(self.line.show(&text, now, false))
    }

    /// The last line, when anything was loaded. `how` goes behind it.
    pub fn finish(&mut self, now: Duration, how: &str) -> Option<String> {
        if self.done == 0 || self.line.is_complete {
            return None;
        }
        let (unit, name) = self.unit();
        let seconds = now.saturating_sub(self.started).as_secs_f64();
        let rate = self.rate(now).map_or_else(String::new, |rate| format!(" ({rate})"));
        let loaded = self.done as f64 / unit;
        let text = format!("loaded {loaded:.1} {name} in {seconds:.1} s{rate}{how}");
        Some(self.line.show(&text, now, true))
    }

    /// What ends an unfinished line, before anything else is written to stderr.
    pub fn abandon(&mut self) -> Option<&'static str> {
        self.line.abandon()
    }

    fn unit(&self) -> (f64, &'static str) {
        if self.total as f64 >= GIB { (GIB, "GiB") } else { (MIB, "MiB") }
    }

    fn rate(&self, now: Duration) -> Option<String> {
        let seconds = now.saturating_sub(self.started).as_secs_f64();
        let is_known = self.done > 0 && seconds > 0.0;
        is_known.then(|| format!("{:.1} GB/s", self.done as f64 / seconds / 1e9))
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

    #[test]
    fn loading_is_told_with_its_rate_and_ends_with_a_sum() {
        const GIB: u64 = 1 << 30;
        let total = 10 * GIB;
        let mut p = Loading::new(Some(80), ms(0));
        assert_eq!(p.update(0, total, ms(50)), None);
        assert_eq!(
            p.update(3 * GIB, total, ms(1000)).unwrap(),
            "\rloading weights: 3.0 of 10.0 GiB (30 %), 3.2 GB/s"
        );
        assert_eq!(p.update(4 * GIB, total, ms(1050)), None);
        assert_eq!(p.update(total, total, ms(1099)), None);
        assert_eq!(
            p.finish(ms(2500), "").unwrap(),
            "\rloaded 10.0 GiB in 2.5 s (4.3 GB/s)              \n"
        );
        assert_eq!((p.finish(ms(2600), ""), p.abandon()), (None, None));
    }

    #[test]
    fn short_loads_are_one_plain_line_and_no_load_is_none() {
        let mut p = Loading::new(None, ms(0));
        assert_eq!(p.update(5 << 20, 17 << 20, ms(10)), None);
        assert_eq!(p.update(17 << 20, 17 << 20, ms(100)), None);
        assert_eq!(
            p.finish(ms(100), " from x").unwrap(),
            "loaded 17.0 MiB in 0.1 s (0.2 GB/s) from x\n"
        );
        assert_eq!(Loading::new(None, ms(0)).finish(ms(100), ""), None);
        let mut p = Loading::new(Some(80), ms(0));
        p.update(1, 2, ms(500)).unwrap();
        assert_eq!(p.abandon(), Some("\n"));
        assert_eq!(p.finish(ms(600), ""), None);
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
