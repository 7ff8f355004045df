//! The loop: read, do, again, until somebody leaves.

use std::path::PathBuf;

use anyhow::Result;

use super::command::{self, Command, Entry};
use super::stats::Stats;
use super::transcript::Transcript;
use crate::chat::ThinkMode;
use crate::cli::run::RunArgs;
use crate::commands::run::saved::Saved;
use crate::commands::run::{config, prompt};
use crate::commands::{Context, failure};
use crate::engine::{SessionId, StateIo};
use crate::term::input::{Input, Source};
use crate::term::modes::TerminalModes;
use crate::term::{Class, OutputError};
use crate::util::rng::Rng;
use crate::util::signal::Interrupt;

/// What a context of another size is made anew with.
pub(super) struct Desk<'a> {
    pub(super) engine: &'a mut dyn StateIo,
    pub(super) session: SessionId,
    pub(super) saved: Option<Saved>,
}

/// Why the loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nobody wants anything more.
    Leave,
    /// The conversation is to go on in a context of so many tokens.
    Context(usize),
}

/// What stays whatever the context.
pub(super) struct Dialogue<'a> {
    pub(super) args: &'a RunArgs,
    pub(super) context: &'a Context,
    pub(super) interrupt: Interrupt,
    pub(super) modes: TerminalModes,
    pub(super) source: Source,
    pub(super) transcript: Transcript,
    pub(super) mode: ThinkMode,
    /// Gives every reply a seed of its own.
    pub(super) seeds: Rng,
    pub(super) stats: Stats,
    /// When the conversation that was loaded began.
    pub(super) created: Option<u64>,
    pub(super) home: Option<PathBuf>,
    /// The largest context that may be asked for.
    pub(super) largest_ctx: usize,
}

impl<'a> Dialogue<'a> {
    /// A conversation that has not begun.
    pub(super) fn new(
        args: &'a RunArgs,
        context: &'a Context,
        engine: &dyn StateIo,
        (interrupt, modes, source): (Interrupt, TerminalModes, Source),
    ) -> Result<Self> {
        let mode = prompt::think_mode(args, engine.info().ctx_tokens, &context.printer);
        let seed = config::seed(args);
        context.printer.detail(&format!("seed {seed}"));
        Ok(Self {
            args,
            context,
            interrupt,
            modes,
            source,
            transcript: Transcript::new(engine.tokenizer(), args.prompt.system(), mode)?,
            mode,
            seeds: Rng::new(seed),
            stats: Stats::default(),
            created: None,
            home: context.environment.user_home.clone(),
            largest_ctx: usize::MAX,
        })
    }

    /// Talks until somebody leaves, or wants another context.
    ///
    /// # Errors
    /// When input or output is gone. What fails meanwhile is said, and the conversation goes on.
    pub(super) fn talk(&mut self, desk: &mut Desk<'_>) -> Result<Outcome> {
        loop {
            if let Some(problem) = self.source.take_problem() {
                self.context.printer.warning(&problem);
            }
            if self.interrupt.is_ending() {
                return Ok(Outcome::Leave);
            }
            self.interrupt.clear();
            let typed = match self.source.read() {
                Ok(Input::Text(text)) => text,
                Ok(Input::Cleared) => continue,
                Ok(Input::End) => return Ok(Outcome::Leave),
                Err(error) if error.is_final() => return Err(error.into()),
                Err(error) => {
                    failure::say(&self.context.printer, &error.into());
                    continue;
                }
            };
            self.interrupt.clear();
            match self.handle(desk, &typed) {
                Ok(None) => {}
                Ok(Some(outcome)) => return Ok(outcome),
                Err(error) if error.is::<OutputError>() => return Err(error),
                Err(error) => failure::say(&self.context.printer, &error),
            }
        }
    }

    fn handle(&mut self, desk: &mut Desk<'_>, typed: &str) -> Result<Option<Outcome>> {
        match command::read(typed, self.home.as_deref()) {
            Entry::Blank => {}
            Entry::Message(text) => self.ask(desk, &text)?,
            Entry::Mistake(text) => self.context.printer.message(Class::Warning, &text),
            Entry::Command(Command::Quit) => return Ok(Some(Outcome::Leave)),
            Entry::Command(Command::Context(n)) => return self.another_context(desk, n),
            Entry::Command(command) => self.act(desk, command)?,
        }
        Ok(None)
    }

    /// Answers a person's question about the program.
    pub(super) fn say(&self, text: &str) {
        self.context.printer.message(Class::Plain, text);
    }
}
