//! Errors on their way out: the text and the exit code.
//!
//! A message is its cause chain on one line. Any cause may carry lines that begin with `hint: `;
//! they are printed after the message, each on a line of its own.

use anyhow::{Error, Result};

use super::Exit;
use crate::cli::UsageError;
use crate::cli::environment::EnvironmentError;
use crate::engine::{self, lock};
use crate::term::{Class, OutputError, Printer};

/// Prints what failed, if anything did; returns the process status.
pub(super) fn finish(printer: &Printer, result: Result<Exit>) -> u8 {
    let err = match result {
        Ok(exit) => return exit.code(),
        Err(err) => err,
    };
    let code = code(&err);
    if code != Exit::Success.code() {
        say(printer, &err);
    }
    code
}

/// Prints what failed, where the program goes on.
pub(super) fn say(printer: &Printer, err: &Error) {
    let (message, hints) = text(err);
    printer.message(Class::Error, &message);
    for hint in hints {
        printer.message(Class::Plain, &format!("hint: {hint}"));
    }
}

/// 0 for a reader that has gone, 2 for what the user has to change on the command line or in the
/// environment and for a lock that is held, 1 for everything else.
fn code(err: &Error) -> u8 {
    let is_closed = |cause: &OutputError| matches!(cause, OutputError::Closed);
    if err.chain().filter_map(|cause| cause.downcast_ref()).any(is_closed) {
        return 0;
    }
    let is_usage = |cause: &(dyn std::error::Error + 'static)| {
        let is_option =
            |error: &engine::Error| matches!(error, engine::Error::ContextTooLarge { .. });
        cause.is::<UsageError>()
            || cause.is::<EnvironmentError>()
            || cause.is::<lock::Error>()
            || cause.downcast_ref().is_some_and(is_option)
    };
    if err.chain().any(is_usage) { 2 } else { 1 }
}

/// The message, and the hints in the order of the causes.
fn text(err: &Error) -> (String, Vec<String>) {
    let mut parts: Vec<String> = Vec::new();
    let mut hints = Vec::new();
    for cause in err.chain() {
        let text = cause.to_string();
        let (said, advice): (Vec<_>, Vec<_>) =
            text.lines().partition(|line| !line.starts_with("hint: "));
        let said = said.join(" ");
        // Some errors repeat their cause in their own text.
        if !parts.last().is_some_and(|last| last.ends_with(&said)) {
            parts.push(said);
        }
        hints.extend(
            advice.iter().filter_map(|line| line.strip_prefix("hint: ")).map(str::to_owned),
        );
        if let Some(usage) = cause.downcast_ref::<UsageError>() {
            hints.extend(usage.next_step().map(str::to_owned));
        }
        if let Some(environment) = cause.downcast_ref::<EnvironmentError>() {
            hints.push(environment.hint.clone());
        }
    }
    // Usage errors begin with the command they are about.
    let prefix = if err.is::<UsageError>() { "" } else { "q36: " };
    hints.dedup();
    (format!("{prefix}{}", parts.join(": ")), hints)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[track_caller]
    fn check(err: &Error, expected_code: u8, message: &str, hints: &[&str]) {
        assert_eq!(code(err), expected_code);
        let (said, advice) = text(err);
        assert_eq!(said, message);
        assert_eq!(advice, hints);
    }

    #[test]
    fn causes_are_joined_and_hints_come_last() {
        let err = anyhow!("file is short\nhint: download it again").context("cannot open `m`");
        check(&err, 1, "q36: cannot open `m`: file is short", &["download it again"]);
        let err = anyhow!("disk full").context("cannot write: disk full");
        check(&err, 1, "q36: cannot write: disk full", &[]);
    }

    #[test]
    fn codes_follow_the_cause() {
        let usage = UsageError::new("run", "specify only one prompt source").hint("see");
        check(&usage.into(), 2, "q36 run: specify only one prompt source", &["see"]);
        let held = engine::Error::from(lock::Error::Held { pid: Some(7) });
        let err = anyhow::Error::from(held);
        check(
            &err,
            2,
            "q36: cannot load the model: another q36 has a model loaded (process 7)",
            &[],
        );
        assert_eq!(code(&OutputError::Closed.into()), 0);
        let full = OutputError::from(std::io::Error::other("disk full"));
        check(&full.into(), 1, "q36: cannot write to stdout: disk full", &[]);
    }
}
