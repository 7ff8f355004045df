//! What is said about a wrong command line.
//!
//! One line that names the flag and the text, and a line with the next step; never the whole help.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A wrong command line: exit code 2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", name(command.as_deref()))]
pub struct UsageError {
    command: Option<String>,
    message: String,
    hint: Option<String>,
}

impl UsageError {
    /// An error of the subcommand `command`.
    pub fn new(command: &str, message: impl Into<String>) -> Self {
        Self::at(Some(command), message)
    }

    /// An error outside any subcommand.
    pub fn program(message: impl Into<String>) -> Self {
        Self::at(None, message)
    }

    pub(super) fn at(command: Option<&str>, message: impl Into<String>) -> Self {
        Self { command: command.map(str::to_owned), message: message.into(), hint: None }
    }

    /// Adds the next step.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The next step, if there is one to give.
    pub fn next_step(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

/// `q36 run`, or `q36` outside a command.
fn name(command: Option<&str>) -> String {
    command.map_or_else(|| "q36".into(), |name| format!("q36 {name}"))
}

/// Puts clap's finding into q36's words.
pub(super) fn translate(
    err: &clap::Error,
    command: Option<&str>,
    root: &clap::Command,
) -> UsageError {
    let see = format!("see {} --help", name(command));
    let flag = context(err, ContextKind::InvalidArg).map(|arg| bare(&arg)).unwrap_or_default();
    let value = context(err, ContextKind::InvalidValue).unwrap_or_default();
    let error = |message: String| UsageError::at(command, message);
    #[expect(clippy::wildcard_enum_match_arm, reason = "clap adds kinds; those never occur here")]
    match err.kind() {
        ErrorKind::UnknownArgument if flag.starts_with('-') => {
            let nearest = context(err, ContextKind::SuggestedArg)
                .map(|arg| format!("did you mean {}? ", bare(&arg)));
            error(format!("unknown option: {flag}")).hint(nearest.unwrap_or_default() + &see)
        }
        ErrorKind::UnknownArgument | ErrorKind::TooManyValues => {
            let step = if command == Some("run") { "give a prompt with -p TEXT; " } else { "" };
            error(format!("unexpected argument: {flag}")).hint(format!("{step}{see}"))
        }
        ErrorKind::InvalidSubcommand => {
            let name = context(err, ContextKind::InvalidSubcommand).unwrap_or_default();
            unknown_command(None, &name, root)
        }
        ErrorKind::InvalidValue if value.is_empty() => {
            error(format!("missing value for {flag}")).hint(see)
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            error(format!("invalid value for {flag}: {value}")).hint(accepted(err, &flag, &value))
        }
        ErrorKind::MissingRequiredArgument => error(format!("missing argument: {flag}")).hint(see),
        ErrorKind::ArgumentConflict => {
            let other = context(err, ContextKind::PriorArg).map(|arg| bare(&arg));
            error(format!("{flag} cannot go with {}", other.unwrap_or_default())).hint(see)
        }
        ErrorKind::InvalidUtf8 => error("an argument is not valid UTF-8".into()).hint(see),
        _ => error(first_line(&err.to_string())).hint(see),
    }
}

/// An unknown command and the nearest known one.
pub(super) fn unknown_command(
    inside: Option<&str>,
    name: &str,
    root: &clap::Command,
) -> UsageError {
    let known = root.get_subcommands().map(clap::Command::get_name);
    let nearest = nearest(name, known).map(|n| format!("did you mean {n}? "));
    UsageError::at(inside, format!("unknown command: {name}"))
        .hint(nearest.unwrap_or_default() + "see q36 --help")
}

/// The known word closest to `word`, if it is close enough to be meant.
fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(1);
    let scored = known.map(|k| (distance(word, k), k));
    scored.filter(|(d, _)| *d <= limit).min().map(|(_, k)| k)
}

/// Letters to insert, drop, replace or swap with their neighbour to get from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let a = a.chars().collect::<Vec<_>>();
    let b = b.chars().collect::<Vec<_>>();
    // cost[i][j]: from the first i letters of `a` to the first j of `b`.
    let mut cost = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = cost[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(cost[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(cost[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        cost.push(row);
    }
    cost[a.len()][b.len()]
}

/// What a flag accepts, for the line under the error.
fn accepted(err: &clap::Error, flag: &str, value: &str) -> String {
    if flag == "--backend" && ["metal", "cuda", "rocm"].contains(&value) {
        return format!("{value} is not supported here, use --vulkan or --cpu");
    }
    if let Some(ContextValue::Strings(known)) = err.get(ContextKind::ValidValue) {
        return format!("expected {}", known.join(", "));
    }
    std::error::Error::source(err).map_or_else(String::new, ToString::to_string)
}

fn context(err: &clap::Error, kind: ContextKind) -> Option<String> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other shapes carry no name")]
    match err.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => texts.first().cloned(),
        _ => None,
    }
}

/// `--temp` from clap's `--temp <F>`, `FILE` from `<FILE>` and `[FILE]`.
fn bare(arg: &str) -> String {
    let arg = arg.trim_start_matches(['<', '[']);
    let end = arg.find([' ', '[', '=', '>', ']']).unwrap_or(arg.len());
    arg[..end].to_owned()
}

fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_finger_are_one_step() {
        for (a, b, steps) in [
            ("run", "rnu", 1),
            ("run", "rn", 1),
            ("run", "runn", 1),
            ("man", "run", 2),
            ("", "x", 1),
        ] {
            assert_eq!(distance(a, b), steps, "{a} {b}");
            assert_eq!(distance(b, a), steps, "{b} {a}");
        }
        let known = ["run", "inspect", "man"];
        assert_eq!(nearest("isnpecct", known.into_iter()), Some("inspect"));
        assert_eq!(nearest("zzz", known.into_iter()), None);
    }
}
