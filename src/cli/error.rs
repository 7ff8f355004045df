//! What is said about a wrong command line.
//!
//! One line that names the flag and the text, and a line with the next step; never the whole help.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A wrong command line: exit code 2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", self.program())]
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

    /// `q36 run`, or `q36` outside a command.
    fn program(&self) -> String {
        program(self.command.as_deref())
    }
}

fn program(command: Option<&str>) -> String {
    command.map_or_else(|| "q36".into(), |name| format!("q36 {name}"))
}

/// Puts clap's finding into q36's words.
pub(super) fn translate(
    err: &clap::Error,
    command: Option<&str>,
    root: &clap::Command,
) -> UsageError {
    let see = format!("see {} --help", program(command));
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
            unknown_command("", &name, root)
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
pub(super) fn unknown_command(inside: &str, name: &str, root: &clap::Command) -> UsageError {
    let known = root.get_subcommands().map(clap::Command::get_name);
    let nearest = super::help::nearest(name, known).map(|n| format!("did you mean {n}? "));
    UsageError::at((!inside.is_empty()).then_some(inside), format!("unknown command: {name}"))
        .hint(nearest.unwrap_or_default() + "see q36 --help")
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

/// `--temp` from clap's `--temp <F>`, `FILE` from `<FILE>`.
fn bare(arg: &str) -> String {
    let end = arg.find([' ', '[', '=']).unwrap_or(arg.len());
    arg[..end].trim_matches(['<', '>']).to_owned()
}

fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}
