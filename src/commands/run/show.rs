//! Where the pieces of a reply go: reasoning in grey, aside, or nowhere; the answer as it comes; or
//! JSON (cli.md 4.2).

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::chat::Show;
use crate::cli::values::ShowThinking;
use crate::term::{Class, Printer};
use crate::tokenizer::StreamDecoder;

/// How the reply is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Text as it comes.
    Text,
    /// One object at the end.
    Json,
    /// An object a line for each piece, and one at the end.
    StreamJson,
}

/// Where text goes: stdout, or the file of `--output`.
enum Sink {
    Stdout(Printer),
    File(File, String),
}

impl Sink {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Stdout(printer) => Ok(printer.data(bytes)?),
            Self::File(file, name) => {
                file.write_all(bytes).with_context(|| format!("cannot write {name}"))
            }
        }
    }
}

/// Where reasoning goes in text form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reasoning {
    Sink,
    Stderr,
    Nowhere,
}

/// Prints a reply while it comes, and keeps it.
pub(super) struct Display {
    format: Format,
    sink: Sink,
    reasoning_to: Reasoning,
    /// Reasoning is coloured, and the colour is on.
    grey: Option<bool>,
    printer: Printer,
    thought: Part,
    answer: Part,
}

/// The reasoning or the answer so far.
#[derive(Default)]
struct Part {
    decoder: StreamDecoder,
    text: String,
}

#[derive(Serialize)]
struct Piece<'a> {
    r#type: &'static str,
    text: &'a str,
}

impl Display {
    /// Opens the output.
    pub(super) fn new(
        format: Format,
        thinking: ShowThinking,
        output: Option<&Path>,
        printer: &Printer,
    ) -> Result<Self> {
        let terminal = output.is_none() && printer.stdout_is_terminal();
        let sink = match output {
            None => Sink::Stdout(printer.clone()),
            Some(path) => {
                let name = path.display().to_string();
                let file = File::create(path).with_context(|| format!("cannot write {name}"))?;
                Sink::File(file, name)
            }
        };
        let reasoning_to = match thinking {
            ShowThinking::Auto if terminal => Reasoning::Sink,
            ShowThinking::Stdout => Reasoning::Sink,
            ShowThinking::Stderr => Reasoning::Stderr,
            ShowThinking::Auto | ShowThinking::Never => Reasoning::Nowhere,
        };
        let colored = match reasoning_to {
            Reasoning::Sink => output.is_none() && printer.stdout_is_colored(),
            Reasoning::Stderr => printer.stderr_is_colored(),
            Reasoning::Nowhere => false,
        };
        Ok(Self {
            format,
            sink,
            reasoning_to,
            grey: colored.then_some(false),
            printer: printer.clone(),
            thought: Part::default(),
            answer: Part::default(),
        })
    }

    /// Takes the bytes of a token.
    pub(super) fn token(&mut self, show: Show, bytes: &[u8]) -> Result<()> {
        match show {
            Show::Hidden => self.end_thought(),
            Show::Thought => {
                let text = self.thought.decoder.push(bytes);
                self.reasoning(&text)
            }
            Show::Answer => {
                let text = self.answer.decoder.push(bytes);
                self.text(&text)
            }
        }
    }

    /// Flushes what was held back and closes the output's last line.
    pub(super) fn finish(&mut self) -> Result<()> {
        let held = std::mem::take(&mut self.thought.decoder).finish_lossy();
        self.reasoning(&held)?;
        self.end_thought()?;
        let held = std::mem::take(&mut self.answer.decoder).finish_lossy();
        self.text(&held)?;
        if self.format != Format::Text {
            return Ok(());
        }
        match (self.answer.text.is_empty(), self.thought.text.is_empty()) {
            (false, _) => self.end_line(self.answer.text.ends_with('\n')),
            // Cut short inside the thought: the shell's prompt still gets a line of its own.
            (true, false) => self.aside("\n"),
            (true, true) => Ok(()),
        }
    }

    /// The reasoning so far.
    pub(super) fn thought(&self) -> &str {
        self.thought.text.trim()
    }

    /// The answer so far.
    pub(super) fn answer(&self) -> &str {
        &self.answer.text
    }

    /// Writes the closing object of the JSON formats.
    pub(super) fn json(&mut self, object: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(object)?;
        line.push(b'\n');
        self.sink.write(&line)
    }

    fn reasoning(&mut self, text: &str) -> Result<()> {
        // The newline behind the opening marker is markup.
        let text = if self.thought.text.is_empty() { text.trim_start_matches('\n') } else { text };
        if text.is_empty() {
            return Ok(());
        }
        self.thought.text.push_str(text);
        match self.format {
            Format::Json => Ok(()),
            Format::StreamJson => self.json(&Piece { r#type: "reasoning", text }),
            Format::Text => {
                if self.grey == Some(false) {
                    self.grey = Some(true);
                    self.aside(Class::Thinking.start())?;
                }
                self.aside(text)
            }
        }
    }

    fn end_thought(&mut self) -> Result<()> {
        if self.grey == Some(true) {
            self.grey = Some(false);
            self.aside(Class::Thinking.end())?;
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<()> {
        // The blank line between thought and answer is markup too.
        let is_first = self.answer.text.is_empty() && !self.thought.text.is_empty();
        let text = if is_first { text.trim_start_matches('\n') } else { text };
        if text.is_empty() {
            return Ok(());
        }
        if self.answer.text.is_empty() && self.format == Format::Text {
            self.separate()?;
        }
        self.answer.text.push_str(text);
        match self.format {
            Format::Json => Ok(()),
            Format::StreamJson => self.json(&Piece { r#type: "text", text }),
            Format::Text => self.sink.write(text.as_bytes()),
        }
    }

    /// A blank line where reasoning and answer share a stream.
    fn separate(&mut self) -> Result<()> {
        if self.thought.text.is_empty() || self.reasoning_to == Reasoning::Nowhere {
            return Ok(());
        }
        let newlines = if self.thought.text.ends_with('\n') { "\n" } else { "\n\n" };
        self.aside(newlines)
    }

    fn end_line(&mut self, is_ended: bool) -> Result<()> {
        if is_ended { Ok(()) } else { self.sink.write(b"\n") }
    }

    fn aside(&mut self, text: &str) -> Result<()> {
        match self.reasoning_to {
            Reasoning::Sink => self.sink.write(text.as_bytes()),
            Reasoning::Stderr => {
                self.printer.raw_message(text);
                Ok(())
            }
            Reasoning::Nowhere => Ok(()),
        }
    }
}
