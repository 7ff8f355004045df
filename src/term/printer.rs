//! The only place that prints: data to stdout, everything else to stderr.
//!
//! A reader that closes the pipe ends the program quietly, so writing to stdout returns
//! [`OutputError::Closed`] for the caller to pass up. A stderr that cannot be written to is
//! ignored: there is nobody left to tell.

use std::io::{self, IsTerminal as _, Write as _};

use super::color::{Choice, Class, Environment};

/// Why stdout took no more.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The reader has gone; for a command-line program that is success.
    #[error("stdout was closed")]
    Closed,
    /// Anything else, such as a full disk.
    #[error("cannot write to stdout")]
    Io(#[source] io::Error),
}

impl From<io::Error> for OutputError {
    fn from(err: io::Error) -> Self {
        if err.kind() == io::ErrorKind::BrokenPipe { Self::Closed } else { Self::Io(err) }
    }
}

/// What the user wants to see, beside the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Colours, as the command line says.
    pub color: Choice,
    /// Colours, as the environment says.
    pub environment: Environment,
    /// No progress and no remarks.
    pub quiet: bool,
    /// How many times `-v` was given.
    pub verbose: u8,
}

/// Writes to stdout and stderr by the rules above.
#[derive(Debug, Clone)]
pub struct Printer {
    options: Options,
    stdout_is_terminal: bool,
    stderr_is_terminal: bool,
}

impl Printer {
    /// Looks once at what stdout and stderr are.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            stdout_is_terminal: io::stdout().is_terminal(),
            stderr_is_terminal: io::stderr().is_terminal(),
        }
    }

    /// Whether stdout is a terminal.
    pub fn stdout_is_terminal(&self) -> bool {
        self.stdout_is_terminal
    }

    /// Whether stderr is a terminal.
    pub fn stderr_is_terminal(&self) -> bool {
        self.stderr_is_terminal
    }

    /// Whether text on stdout may carry colours.
    pub fn stdout_is_colored(&self) -> bool {
        self.options.color.is_colored(self.options.environment, self.stdout_is_terminal)
    }

    /// Whether text on stderr may carry colours.
    pub fn stderr_is_colored(&self) -> bool {
        self.options.color.is_colored(self.options.environment, self.stderr_is_terminal)
    }

    /// Whether progress and remarks are wanted.
    pub fn is_quiet(&self) -> bool {
        self.options.quiet
    }

    /// Writes bytes to stdout and flushes, so that streamed text appears at once.
    pub fn data(&self, bytes: &[u8]) -> Result<(), OutputError> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        Ok(stdout.flush()?)
    }

    /// Writes a line to stdout.
    pub fn line(&self, text: &str) -> Result<(), OutputError> {
        self.data(format!("{text}\n").as_bytes())
    }

    /// Writes a line to stdout, coloured by class where stdout is.
    pub fn painted(&self, class: Class, text: &str) -> Result<(), OutputError> {
        self.line(&class.paint(text, self.stdout_is_colored()))
    }

    /// A remark on stderr, unless `--quiet`.
    pub fn note(&self, class: Class, text: &str) {
        if !self.options.quiet {
            self.message(class, text);
        }
    }

    /// A detail on stderr, only with `-v`.
    pub fn detail(&self, text: &str) {
        if self.options.verbose > 0 && !self.options.quiet {
            self.message(Class::Plain, text);
        }
    }

    /// A warning on stderr.
    pub fn warning(&self, text: &str) {
        self.message(Class::Warning, &format!("warning: {text}"));
    }

    /// A line on stderr, whatever `--quiet` says.
    pub fn message(&self, class: Class, text: &str) {
        self.raw_message(&format!("{}\n", class.paint(text, self.stderr_is_colored())));
    }

    /// Text on stderr as it is, for a status line that is rewritten in place.
    pub fn raw_message(&self, text: &str) {
        let mut stderr = io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_told_from_other_errors() {
        let closed = OutputError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(matches!(closed, OutputError::Closed));
        let full = OutputError::from(io::Error::from(io::ErrorKind::StorageFull));
        assert!(matches!(full, OutputError::Io(_)));
    }
}
