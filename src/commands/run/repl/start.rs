//! Opening the model for a conversation, and opening it again for another context.

use std::io::{self, BufReader, IsTerminal as _};

use anyhow::{Context as _, Result};

use super::command;
use super::dialogue::{Desk, Dialogue, Outcome};
use crate::cli::run::RunArgs;
use crate::commands::run::saved::Saved;
use crate::commands::run::{config, plan};
use crate::commands::{Context, Exit, failure, profile, progress};
use crate::engine::{self, Anchors, Engine as _, ModelEngine, Options, Prepared};
use crate::kv::Moment;
use crate::term::input::{LineEditor, Settings, Source};
use crate::term::modes::TerminalModes;
use crate::term::{Class, Printer};
use crate::util::signal::Interrupt;

/// States kept for going back: what all conversations share, and the beginnings of the last message and reply and of the
/// message before. The published model's take 67 MB each.
const ANCHORS: Anchors = Anchors { slots: 4, spacing: SPACING_TOKENS };
/// Tokens that are evaluated again rather than kept a state for.
const SPACING_TOKENS: usize = 16;

const PROMPT: &str = "q36> ";

/// Talks until somebody leaves.
pub(in crate::commands::run) fn run(args: &RunArgs, context: &Context) -> Result<Exit> {
    let printer = &context.printer;
    let modes = TerminalModes::save();
    let interrupt = Interrupt::install_for_dialogue(leave(modes.clone(), printer.clone()))?;
    let (prepared, options) = prepare(args, context)?;
    for note in prepared.notes() {
        printer.note(Class::Plain, note);
    }
    printer.note(Class::Plain, &plan::line(prepared.info()));
    let made_for = prepared.model().map(|model| model.shape.context_length);
    let largest_ctx = made_for.filter(|_| !args.engine.context.ctx_force).unwrap_or(usize::MAX);
    let opened = progress::open(prepared, args.engine.warm_weights, context, &interrupt)?;
    let Some(mut engine) = opened else { return Ok(Exit::Interrupted) };
    let hands = (interrupt.clone(), modes, source(context)?);
    let mut dialogue = Dialogue::new(args, context, &engine, hands)?;
    dialogue.largest_ctx = largest_ctx;
    printer.note(Class::Plain, &command::short_help());
    while let Outcome::Context(n) = sit(&mut dialogue, &mut engine, context)? {
        profile::report(&mut engine, &args.engine, context)?;
        engine = reopen(engine, &options, n, (args, context, &interrupt))?;
    }
    profile::report(&mut engine, &args.engine, context)?;
    Ok(if interrupt.is_ending() { Exit::Interrupted } else { Exit::Success })
}

/// Talks with one engine.
fn sit(
    dialogue: &mut Dialogue<'_>,
    engine: &mut ModelEngine,
    context: &Context,
) -> Result<Outcome> {
    let session = engine.open_session()?;
    let saved = Saved::open(&dialogue.args.kv_disk, engine, context)?;
    let mut desk = Desk { engine, session, saved };
    let outcome = dialogue.talk(&mut desk)?;
    // Whoever left by a signal still wants what was said to be kept.
    dialogue.interrupt.clear();
    dialogue.keep_for_later(&mut desk, Moment::Shutdown)?;
    if let Some(saved) = &mut desk.saved {
        saved.close(desk.engine, context);
    }
    Ok(outcome)
}

/// The same model with a context of `n` tokens, or as it was where that cannot be had. Two do not fit beside each other,
/// so the old one goes first.
fn reopen(
    engine: ModelEngine,
    options: &Options,
    n: usize,
    (args, context, interrupt): (&RunArgs, &Context, &Interrupt),
) -> Result<ModelEngine> {
    let before = engine.info().ctx_tokens;
    drop(engine);
    let open = |n| -> Result<ModelEngine> {
        // Whether so many may be had was checked when they were asked for.
        let size = engine::Context::Forced(n);
        let prepared = Prepared::new(Options { context: size, ..options.clone() })?;
        context.printer.note(Class::Plain, &plan::line(prepared.info()));
        let opened = progress::open(prepared, args.engine.warm_weights, context, interrupt)?;
        opened.context("stopped while the model was loaded")
    };
    open(n).or_else(|error| {
        failure::say(&context.printer, &error);
        interrupt.clear();
        open(before).context("the model cannot be opened again")
    })
}

/// The model as any run has it, with states to go back to where there is room for them.
///
/// # Errors
/// When no model is found or it cannot be used, or scales are given without a direction file.
pub(in crate::commands::run) fn prepare(
    args: &RunArgs,
    context: &Context,
) -> Result<(Prepared, Options)> {
    let options = config::options(args, &context.environment)?;
    let options = Options { anchors: ANCHORS, ..options };
    let prepared = Prepared::new(options.clone())?;
    let info = prepared.info();
    if info.device_usable.is_none_or(|usable| info.plan.on_device() <= usable.0) {
        return Ok((prepared, options));
    }
    // Better a conversation whose changes cost time than none.
    let text = "the device has no room for states to go back to: /undo and /retry evaluate more";
    context.printer.note(Class::Plain, text);
    let options = Options { anchors: Anchors::default(), ..options };
    Ok((Prepared::new(options.clone())?, options))
}

/// A person where standard input is a terminal.
fn source(context: &Context) -> Result<Source> {
    if !io::stdin().is_terminal() {
        return Ok(Source::Pipe(Box::new(BufReader::new(io::stdin()))));
    }
    let printer = &context.printer;
    let home = context.environment.user_home.clone();
    let history = match &home {
        Some(home) => home.join(".q36_history"),
        None => "./.q36_history".into(),
    };
    let on_stdout = printer.stdout_is_terminal();
    let settings = Settings {
        prompt: PROMPT,
        is_colored: if on_stdout {
            printer.stdout_is_colored()
        } else {
            printer.stderr_is_colored()
        },
        on_stdout,
        history: Some(history),
        complete: Box::new(move |typed| command::completions(typed, home.as_deref())),
    };
    Ok(Source::Person(Box::new(LineEditor::open(settings)?)))
}

/// What is left to do when the program ends in the middle of something.
fn leave(modes: TerminalModes, printer: Printer) -> impl Fn() + Send + 'static {
    move || {
        modes.restore();
        if printer.stdout_is_terminal() {
            printer.raw_message(if printer.stdout_is_colored() { "\x1b[0m\n" } else { "\n" });
        }
    }
}
