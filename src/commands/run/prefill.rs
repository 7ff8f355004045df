//! Bringing a session to a prompt while the user watches and may stop it.

use std::time::Instant;

use anyhow::Result;

use crate::commands::Context;
use crate::engine::{Engine, SessionId, SyncControl, SyncReport};
use crate::term::Printer;
use crate::term::status::Prefill;
use crate::term::width;
use crate::tokenizer::TokenId;
use crate::util::signal::Interrupt;

/// Syncs with a progress line on stderr. Ctrl+C stops between layers; what was committed stays.
pub(super) fn run(
    engine: &mut dyn Engine,
    session: SessionId,
    prompt: &[TokenId],
    context: &Context,
    interrupt: &Interrupt,
) -> Result<SyncReport> {
    let mut watch = Watch::new(context, interrupt);
    let report = engine.sync(session, prompt, &mut watch);
    watch.finish();
    Ok(report?)
}

/// Turns progress into status lines and Ctrl+C into cancellation.
struct Watch<'a> {
    printer: &'a Printer,
    interrupt: &'a Interrupt,
    /// Width of the terminal on stderr, if it is one.
    columns: Option<usize>,
    started: Instant,
    status: Option<Prefill>,
}

impl<'a> Watch<'a> {
    fn new(context: &'a Context, interrupt: &'a Interrupt) -> Self {
        let printer = &context.printer;
        let columns =
            printer.stderr_is_terminal().then(|| width::terminal_columns(context.terminal.columns));
        Self { printer, interrupt, columns, started: Instant::now(), status: None }
    }

    fn finish(&mut self) {
        if let Some(end) = self.status.as_mut().and_then(Prefill::abandon) {
            self.printer.raw_message(end);
        }
    }
}

impl SyncControl for Watch<'_> {
    fn progress(&mut self, done: usize, total: usize) {
        if self.printer.is_quiet() {
            return;
        }
        let now = self.started.elapsed();
        let status = self.status.get_or_insert_with(|| Prefill::new(total, self.columns, now));
        if let Some(text) = status.update(done, now) {
            self.printer.raw_message(&text);
        }
    }

    fn cancelled(&self) -> bool {
        self.interrupt.is_raised()
    }
}
