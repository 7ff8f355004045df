//! What a person types: lines with editing, history and completion, or messages of many lines.
//!
//! The editor is rustyline, which nothing outside this file knows. A paste comes in one piece (bracketed paste), with all
//! its lines; elsewhere text is read line by line. Either way a text that opens with [`FENCE`] goes on until a line ends
//! with it.

use std::io::{self, BufRead, Read as _};
use std::path::{Path, PathBuf};

use rustyline::completion::{Completer, Pair};
use rustyline::config::{Behavior, BellStyle, Builder};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{
    Cmd, ColorMode, CompletionType, Config, Editor, Helper, KeyCode, KeyEvent, Modifiers,
};

use super::Class;
use super::complete::{Complete, Completions};

/// What opens and closes a text of several lines.
pub const FENCE: &str = "\"\"\"";

/// Entries that the history keeps.
const HISTORY_ENTRIES: usize = 512;
/// Longer texts are not kept: a document that was pasted once is nothing to scroll past.
const HISTORY_ENTRY_BYTES: usize = 16 << 10;
/// The longest text that is read from a pipe: far more than any context holds.
const MAX_TEXT_BYTES: usize = 16 << 20;

/// What came of waiting for input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A text, of one line or many.
    Text(String),
    /// Ctrl+C: what was typed is thrown away.
    Cleared,
    /// Nothing comes any more.
    End,
}

/// Why a text could not be read. The next one may.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// Bytes that are no text.
    #[error("the input is not UTF-8")]
    NotText,
    /// More than anybody wants to read.
    #[error("the input has more than {limit} bytes")]
    TooLong {
        /// Most bytes of a text.
        limit: usize,
    },
    /// The terminal or the pipe is gone.
    #[error("cannot read the input")]
    Io(#[source] io::Error),
}

impl InputError {
    /// Whether there is no use in reading on.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Io(_))
    }
}

/// Whether a text is not finished at the end of its line.
pub fn is_open(text: &str) -> bool {
    let rest = text.trim_start().strip_prefix(FENCE);
    rest.is_some_and(|rest| !rest.trim_end().ends_with(FENCE))
}

/// What stands between the fences of a text that has them.
pub fn fenced(text: &str) -> Option<&str> {
    text.trim().strip_prefix(FENCE)?.strip_suffix(FENCE)
}

/// How a line editor is set up.
pub struct Settings {
    /// What stands before the input.
    pub prompt: &'static str,
    /// Whether colours are wanted.
    pub is_colored: bool,
    /// Whether standard output is the terminal; where it is not, the terminal is asked for by name.
    pub on_stdout: bool,
    /// Where the history is kept between runs, if anywhere.
    pub history: Option<PathBuf>,
    /// Finds what a beginning can be completed to.
    pub complete: Complete,
}

/// Where texts come from.
pub enum Source {
    /// A person at a terminal.
    Person(Box<LineEditor>),
    /// A pipe or a file.
    Pipe(Box<dyn BufRead>),
}

impl Source {
    /// The next text.
    ///
    /// # Errors
    /// See [`InputError`].
    pub fn read(&mut self) -> Result<Input, InputError> {
        match self {
            Self::Person(editor) => editor.read(),
            Self::Pipe(pipe) => read_text(pipe.as_mut(), MAX_TEXT_BYTES),
        }
    }

    /// What went wrong beside reading, to be said once.
    pub fn take_problem(&mut self) -> Option<String> {
        match self {
            Self::Person(editor) => editor.problem.take(),
            Self::Pipe(_) => None,
        }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::Person(_)) { "Person" } else { "Pipe" })
    }
}

/// A line editor with a history.
pub struct LineEditor {
    editor: Editor<Hand, FileHistory>,
    prompt: (&'static str, String),
    history: Option<PathBuf>,
    problem: Option<String>,
}

impl LineEditor {
    /// Opens the terminal and reads the history. A history that cannot be read is not kept either, which
    /// [`Source::take_problem`] says.
    ///
    /// # Errors
    /// When there is no terminal.
    pub fn open(settings: Settings) -> Result<Self, InputError> {
        let mut editor = Editor::with_config(config(&settings)?).map_err(sort)?;
        editor.set_helper(Some(Hand { complete: settings.complete }));
        let newline = KeyEvent(KeyCode::Enter, Modifiers::ALT);
        editor.bind_sequence(newline, Cmd::Newline);
        let (mut history, mut problem) = (settings.history, None);
        if let Some(path) = history.as_ref().filter(|path| path.exists())
            && let Err(why) = editor.load_history(path)
        {
            problem = Some(not_kept(path, &why));
            history = None;
        }
        let styled = Class::Heading.paint(settings.prompt, settings.is_colored);
        Ok(Self { editor, prompt: (settings.prompt, styled), history, problem })
    }

    fn read(&mut self) -> Result<Input, InputError> {
        match self.editor.readline(&self.prompt) {
            Ok(text) => {
                self.remember(&text);
                Ok(Input::Text(text))
            }
            Err(ReadlineError::Eof) => Ok(Input::End),
            Err(ReadlineError::Interrupted | ReadlineError::Signal(_)) => Ok(Input::Cleared),
            Err(why) => Err(sort(why)),
        }
    }

    /// Keeps a text at once: whoever kills the program later loses nothing.
    fn remember(&mut self, text: &str) {
        let is_worth = !text.trim().is_empty() && text.len() <= HISTORY_ENTRY_BYTES;
        if !is_worth || !matches!(self.editor.add_history_entry(text), Ok(true)) {
            return;
        }
        let Some(path) = &self.history else { return };
        if let Err(why) = self.editor.append_history(path) {
            self.problem = Some(not_kept(path, &why));
            self.history = None;
        }
    }
}

fn not_kept(path: &Path, why: &ReadlineError) -> String {
    format!("the history {} is not kept: {why}", path.display())
}

fn config(settings: &Settings) -> Result<Config, InputError> {
    let color = if settings.is_colored { ColorMode::Enabled } else { ColorMode::Disabled };
    let behavior = if settings.on_stdout { Behavior::Stdio } else { Behavior::PreferTerm };
    let builder = Builder::new().max_history_size(HISTORY_ENTRIES).map_err(sort)?;
    let builder = builder.history_ignore_dups(true).map_err(sort)?;
    Ok(builder
        .history_ignore_space(true)
        .completion_type(CompletionType::List)
        .bell_style(BellStyle::None)
        .color_mode(color)
        .behavior(behavior)
        .build())
}

fn sort(why: ReadlineError) -> InputError {
    if let ReadlineError::Io(why) = why {
        let is_text = why.kind() != io::ErrorKind::InvalidData;
        return if is_text { InputError::Io(why) } else { InputError::NotText };
    }
    InputError::Io(io::Error::other(why.to_string()))
}

/// What the editor asks while somebody types.
struct Hand {
    complete: Complete,
}

impl Completer for Hand {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _context: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let Completions { start, candidates } = (self.complete)(&line[..pos]);
        let pair = |c: super::complete::Candidate| Pair { display: c.shown, replacement: c.text };
        Ok((start, candidates.into_iter().map(pair).collect()))
    }
}

impl Validator for Hand {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let is_open = is_open(context.input());
        Ok(if is_open { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Highlighter for Hand {}

impl Hinter for Hand {
    type Hint = String;
}

impl Helper for Hand {}

/// Reads a text of at most `limit` bytes: a line, or what is between fences. Of a text that is too long the rest of the
/// line is skipped.
fn read_text(pipe: &mut dyn BufRead, limit: usize) -> Result<Input, InputError> {
    let mut bytes = Vec::new();
    loop {
        let before = bytes.len();
        let room = (limit + 1).saturating_sub(before) as u64;
        pipe.take(room).read_until(b'\n', &mut bytes).map_err(InputError::Io)?;
        if bytes.len() > limit {
            if !bytes.ends_with(b"\n") {
                pipe.skip_until(b'\n').map_err(InputError::Io)?;
            }
            return Err(InputError::TooLong { limit });
        }
        let is_end = bytes.len() == before;
        if is_end && bytes.is_empty() {
            return Ok(Input::End);
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| InputError::NotText)?;
        if is_end || !is_open(text) {
            let text = text.strip_suffix('\n').unwrap_or(text);
            return Ok(Input::Text(text.strip_suffix('\r').unwrap_or(text).to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All texts of a pipe, up to its end.
    fn texts(mut pipe: &[u8], limit: usize) -> Vec<String> {
        let mut found = Vec::new();
        loop {
            match read_text(&mut pipe, limit) {
                Ok(Input::Text(text)) => found.push(text),
                Ok(Input::End) => return found,
                Ok(Input::Cleared) => unreachable!("a pipe has no keys"),
                Err(error) => found.push(format!("! {error}")),
            }
        }
    }

    #[test]
    fn lines_are_texts_and_fences_hold_lines_together() {
        let piped = "a\n\r\n\"\"\"\nb\n\"\"\"\r\n  \"\"\"c\"\"\" \n\"\"\"d";
        let expected = ["a", "", "\"\"\"\nb\n\"\"\"", "  \"\"\"c\"\"\" ", "\"\"\"d"];
        assert_eq!(texts(piped.as_bytes(), 100), expected);
    }

    #[test]
    fn what_is_no_text_or_too_long_costs_one_line() {
        let found = texts(b"a\xff\nb\n12345678\nc\n1234567\n", 7);
        let too_long = "! the input has more than 7 bytes";
        let expected = ["! the input is not UTF-8", "b", too_long, "c", too_long];
        assert_eq!(found, expected);
        assert_eq!(texts(b"\"\"\"a\nbcdefgh\ni\"\"\"\n", 7), [too_long, "i\"\"\""]);
    }

    #[test]
    fn a_fence_closes_at_the_end_of_a_line() {
        for (text, open, inside) in [
            ("a", false, None),
            ("\"\"\"", true, None),
            ("\"\"\"\nf(\"\"\"a\"\"\")\n", true, None),
            ("\"\"\"\na\n\"\"\"  ", false, Some("\na\n")),
            (" \"\"\"\"\"\"", false, Some("")),
            ("a \"\"\"", false, None),
        ] {
            assert_eq!((is_open(text), fenced(text)), (open, inside), "{text}");
        }
    }

    fn settings(history: &Path) -> Settings {
        let complete = |_: &str| Completions { start: 0, candidates: Vec::new() };
        let history = Some(history.to_path_buf());
        let (prompt, is_colored, on_stdout) = ("> ", false, true);
        Settings { prompt, is_colored, on_stdout, history, complete: Box::new(complete) }
    }

    #[test]
    fn the_history_is_for_its_owner_and_outlives_the_editor() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        let mut editor = LineEditor::open(settings(&path)).unwrap();
        assert_eq!(editor.problem, None, "no history yet is none");
        let huge = "x".repeat(HISTORY_ENTRY_BYTES + 1);
        for text in ["one", "two\nlines", "", " private", huge.as_str()] {
            editor.remember(text);
        }
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        drop(editor);
        let again = LineEditor::open(settings(&path)).unwrap();
        let entries: Vec<&str> = again.editor.history().iter().map(String::as_str).collect();
        assert_eq!(entries, ["one", "two\nlines"]);
    }

    #[test]
    fn a_history_that_cannot_be_kept_is_said_once_and_hurts_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let mut editor = LineEditor::open(settings(dir.path())).unwrap();
        let problem = editor.problem.take().unwrap();
        assert!(problem.contains("is not kept"), "{problem}");
        editor.remember("a");
        assert_eq!(editor.problem, None);
        let mut editor = LineEditor::open(settings(&dir.path().join("no/folder"))).unwrap();
        editor.remember("a");
        assert!(editor.problem.take().unwrap().contains("no/folder"));
        editor.remember("b");
        assert_eq!(editor.problem, None);
    }
}
