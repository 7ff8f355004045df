//! What a user sees while waiting, and Ctrl+C meanwhile: loading weights, processing a prompt.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::Context;
use crate::engine::{BackendKind, LoadReport, ModelEngine, Prepared, SyncControl};
use crate::term::status::{Loading, Prefill};
use crate::term::{Class, Printer, width};
use crate::util::notice::{Notice, Tone};
use crate::util::signal::Interrupt;
use crate::util::units::Bytes;

/// Width of the terminal on stderr, if it is one.
fn columns(context: &Context) -> Option<usize> {
    let is_terminal = context.printer.stderr_is_terminal();
    is_terminal.then(|| width::terminal_columns(context.terminal.columns))
}

/// Opens the engine; `warm` says whether all weights were asked to be read first. `None` when Ctrl+C
/// ended it.
pub(super) fn open(
    prepared: Prepared,
    warm: bool,
    context: &Context,
    interrupt: &Interrupt,
) -> Result<Option<ModelEngine>> {
    let printer = &context.printer;
    if warm && prepared.info().backend == BackendKind::Vulkan {
        let text = "--warm-weights has no effect: the weights are copied to the device";
        printer.note(Class::Plain, text);
    }
    let prepared = prepared.with_notice(notice(printer));
    let started = Instant::now();
    let mut status = Loading::new(columns(context), started.elapsed());
    let say = |text: Option<String>| {
        if let Some(text) = text.filter(|_| !printer.is_quiet()) {
            printer.raw_message(&text);
        }
    };
    let opened = prepared.open(&mut |done, total| {
        say(status.update(done, total, started.elapsed()));
        !interrupt.is_raised()
    });
    if interrupt.is_raised() || opened.is_err() {
        say(status.abandon().map(str::to_owned));
    }
    if interrupt.is_raised() {
        return Ok(None);
    }
    let engine = opened?;
    let report = engine.load_report();
    // Behind loading, programs are compiled: that is not its time.
    let end = report.map_or_else(|| started.elapsed(), |r| Duration::from_secs_f64(r.seconds));
    say(status.finish(end, &report.map_or_else(String::new, |r| how(&r))));
    Ok(Some(engine))
}

/// Which way weights were loaded.
fn how(report: &LoadReport) -> String {
    match report.in_place {
        0 => format!(" {}", report.how),
        bytes => format!(" {}, {} left in the mapped file", report.how, Bytes(bytes)),
    }
}

/// What the engine says meanwhile. On a terminal something may stand in the line already.
fn notice(printer: &Printer) -> Notice {
    let printer = printer.clone();
    Notice::to(move |tone, line| {
        if printer.stderr_is_terminal() && !(tone == Tone::Remark && printer.is_quiet()) {
            printer.raw_message("\n");
        }
        match tone {
            Tone::Remark | Tone::Back => printer.note(Class::Plain, line),
            Tone::Warning | Tone::Away => printer.warning(line),
        }
    })
}

/// Turns progress of prompts into status lines and Ctrl+C into cancellation.
pub(super) struct Watch<'a> {
    printer: &'a Printer,
    interrupt: &'a Interrupt,
    columns: Option<usize>,
    started: Instant,
    status: Option<Prefill>,
}

impl<'a> Watch<'a> {
    /// Begins to watch; prompts may follow each other.
    pub(super) fn new(context: &'a Context, interrupt: &'a Interrupt) -> Self {
        let (printer, columns) = (&context.printer, columns(context));
        Self { printer, interrupt, columns, started: Instant::now(), status: None }
    }

    /// Ends an unfinished line, before anything else is written to stderr.
    pub(super) fn finish(&mut self) {
        if let Some(end) = self.status.take().and_then(|mut status| status.abandon()) {
            self.printer.raw_message(end);
        }
    }
}

impl SyncControl for Watch<'_> {
    fn progress(&mut self, done: usize, total: usize) {
        if self.printer.is_quiet() {
            return;
        }
        if done == 0 {
            self.finish();
        }
        let now = self.started.elapsed();
        let status = self.status.get_or_insert_with(|| Prefill::new(total, self.columns, now));
        if let Some(text) = status.update(done, now) {
            // The end of the line stays outside, as in every other line of this colour.
            let (line, end) = text.strip_suffix('\n').map_or((&*text, ""), |line| (line, "\n"));
            let line = Class::Prefill.paint(line, self.printer.stderr_is_colored());
            self.printer.raw_message(&format!("{line}{end}"));
        }
    }

    fn cancelled(&self) -> bool {
        self.interrupt.is_raised()
    }
}
