//! The server's log on stderr: a line an event, for people or for programs (server.md 16.1).
//!
//! Lines for people begin with `MMDD HH:MM:SS` in UTC and are coloured by class on a terminal. Lines for programs are
//! JSON objects with the same values as members. Neither ever holds text of a prompt or of a reply.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::term::{Class, Printer};

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// A line of the log before it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEntry {
    /// Decides the colour, and whether `--quiet` drops it.
    pub class: Class,
    /// What happened, one or two words that never change.
    pub event: &'static str,
    /// The values, in the order in which they are shown.
    pub fields: Vec<(&'static str, Value)>,
}

impl LogEntry {
    /// An entry without values.
    pub fn new(class: Class, event: &'static str) -> Self {
        Self { class, event, fields: Vec::new() }
    }

    /// Adds a value.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// `event name=value …`. A value named `text` stands as it is: it is a sentence.
    fn text(&self) -> String {
        let mut line = self.event.to_owned();
        for (name, value) in &self.fields {
            let shown = value.as_str().map_or_else(|| value.to_string(), printable);
            let lead = if *name == "text" { ": ".to_owned() } else { format!(" {name}=") };
            line += &(lead + &shown);
        }
        line
    }

    fn json(&self, unix_seconds: u64) -> String {
        let mut object = Map::new();
        object.insert("time".into(), unix_seconds.into());
        object.insert("level".into(), level(self.class).into());
        object.insert("event".into(), self.event.into());
        object.extend(self.fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        Value::Object(object).to_string()
    }
}

/// Text of clients must not write lines of its own, or colours.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn level(class: Class) -> &'static str {
    match class {
        Class::Error => "error",
        Class::Warning => "warning",
        Class::Plain
        | Class::Heading
        | Class::Prefill
        | Class::Timing
        | Class::Generation
        | Class::Good
        | Class::Cache
        | Class::Tool
        | Class::Thinking => "info",
    }
}

type Sink = dyn Fn(&str) + Send + Sync;

/// The log. Clones write to the same place.
#[derive(Clone)]
pub struct LogWriter {
    sink: Arc<Sink>,
    format: LogFormat,
    is_colored: bool,
    is_quiet: bool,
    clock: fn() -> u64,
}

impl LogWriter {
    /// On stderr, by a clock of Unix seconds.
    pub fn new(printer: &Printer, format: LogFormat, clock: fn() -> u64) -> Self {
        let (is_colored, is_quiet) = (printer.stderr_is_colored(), printer.is_quiet());
        let printer = printer.clone();
        Self {
            sink: Arc::new(move |line| printer.raw_message(line)),
            format,
            is_colored,
            is_quiet,
            clock,
        }
    }

    /// Into a function, without colours; for tests.
    pub fn to(
        sink: impl Fn(&str) + Send + Sync + 'static,
        format: LogFormat,
        clock: fn() -> u64,
    ) -> Self {
        Self { sink: Arc::new(sink), format, is_colored: false, is_quiet: false, clock }
    }

    /// Writes an entry. `--quiet` leaves warnings and errors.
    pub fn write(&self, entry: &LogEntry) {
        if self.is_quiet && !matches!(entry.class, Class::Warning | Class::Error) {
            return;
        }
        let now = (self.clock)();
        let line = match self.format {
            LogFormat::Json => format!("{}\n", entry.json(now)),
            LogFormat::Text => {
                let text = entry.class.paint(&entry.text(), self.is_colored);
                format!("{} {text}\n", stamp(now))
            }
        };
        (self.sink)(&line);
    }

    /// A request that was answered: its id, what it was, who sent it, and the status.
    pub fn answer(&self, id: &str, request: &str, peer: &str, status: u16) {
        let class = match status {
            ..400 => Class::Plain,
            400..500 => Class::Warning,
            500.. => Class::Error,
        };
        let entry = LogEntry::new(class, "http").with("request", id).with("status", status);
        self.write(&entry.with("line", request).with("peer", peer));
    }

    /// What parsing a request wants to be known.
    pub fn warnings(&self, id: &str, warnings: &[String]) {
        for text in warnings {
            self.write(
                &LogEntry::new(Class::Warning, "warning")
                    .with("request", id)
                    .with("text", text.as_str()),
            );
        }
    }

    /// A sentence about the server itself.
    pub fn say(&self, class: Class, text: &str) {
        self.write(&LogEntry::new(class, "server").with("text", text));
    }
}

impl fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogWriter").field("format", &self.format).finish_non_exhaustive()
    }
}

/// `MMDD HH:MM:SS` of a Unix time, in UTC.
fn stamp(unix_seconds: u64) -> String {
    let (days, seconds) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let (month, day) = month_and_day(days);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{month:02}{day:02} {hours:02}:{minutes:02}:{seconds:02}")
}

/// The date that is `days` after 1 January 1970. Years begin in March here, so that the leap day is the last.
fn month_and_day(days: u64) -> (u64, u64) {
    let day_of_era = (days + 719_468) % 146_097;
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    (if month < 10 { month + 3 } else { month - 9 }, day)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn lines(format: LogFormat, write: impl Fn(&LogWriter)) -> String {
        let written = Arc::new(Mutex::new(String::new()));
        let log = {
            let written = Arc::clone(&written);
            LogWriter::to(
                move |line| written.lock().unwrap().push_str(line),
                format,
                || 1_796_050_567,
            )
        };
        write(&log);
        written.lock().unwrap().clone()
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix, expected) in [
            (0, "0101 00:00:00"),
            (951_782_399, "0228 23:59:59"),
            (951_782_400, "0229 00:00:00"),
            (951_868_800, "0301 00:00:00"),
            (1_798_761_599, "1231 23:59:59"),
            (4_107_542_400, "0301 00:00:00"),
        ] {
            assert_eq!(stamp(unix), expected, "{unix}");
        }
    }

    #[test]
    fn both_formats_say_the_same() {
        let write = |log: &LogWriter| log.answer("req_1", "POST /v1/messages", "127.0.0.1:9", 429);
        let text = lines(LogFormat::Text, write);
        assert_eq!(
            text,
            "1130 14:56:07 http request=req_1 status=429 line=POST /v1/messages peer=127.0.0.1:9\n"
        );
        let json: Value = serde_json::from_str(&lines(LogFormat::Json, write)).unwrap();
        assert_eq!(json["status"], 429);
        assert_eq!((&json["level"], &json["event"]), (&"warning".into(), &"http".into()));
        assert_eq!(json["time"], 1_796_050_567_u64);
    }

    #[test]
    fn clients_cannot_write_lines() {
        let text = lines(LogFormat::Text, |log| log.warnings("r", &["a\nb\x1b[31m".into()]));
        assert_eq!(text.lines().count(), 1);
        assert!(!text.contains('\x1b'), "{text:?}");
    }
}
