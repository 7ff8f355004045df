//! What `q36 run` was asked for, in the order of cli.md 5, and what that needs to be open.

use std::path::Path;

use anyhow::Result;

use super::oneshot::{self, Request};
use super::prompt::{self, Reading};
use super::saved::Saved;
use super::show::{Display, Format};
use super::{config, dump, plan, prefill, repl, score};
use crate::chat::{Budget, ThinkOptions};
use crate::cli::UsageError;
use crate::cli::run::RunArgs;
use crate::commands::{self, Context, Exit, profile, progress};
use crate::engine::generate::ends_inside_thought;
use crate::engine::sample::Sampler;
use crate::engine::{Engine as _, Prepared, SessionId, StateIo};
use crate::term::Class;
use crate::tokenizer::TokenId;
use crate::tools::inspect::InspectOptions;
use crate::util::signal::Interrupt;

/// Runs the subcommand.
pub(in crate::commands) fn run(args: &RunArgs, context: &Context) -> Result<Exit> {
    let diagnostics = &args.diagnostics;
    if diagnostics.inspect {
        return inspect(args, context);
    }
    let wants_text = diagnostics.perplexity_file.is_none();
    let text = if wants_text { config::prompt_text(args)? } else { None };
    check(args, text.as_deref())?;
    let is_dialogue = wants_text && text.is_none();
    if is_dialogue && !args.prompt.dry_run {
        return repl::run(args, context);
    }
    let prepared = if is_dialogue {
        repl::prepare(args, context)?.0
    } else {
        Prepared::new(config::options(args, &context.environment)?)?
    };
    let printer = &context.printer;
    if let (true, Some(text)) = (diagnostics.dump_tokens, &text) {
        let tokenizer = prepared.tokenizer()?;
        let ids = tokenizer.encode_control(text.as_bytes());
        dump::tokens(&tokenizer, &ids, args.prompt.json, printer)?;
        return Ok(Exit::Success);
    }
    for note in prepared.notes() {
        printer.note(Class::Plain, note);
    }
    if args.prompt.dry_run {
        return plan::dry_run(prepared.info(), args.prompt.json, context);
    }
    printer.note(Class::Plain, &plan::line(prepared.info()));
    let interrupt = Interrupt::install()?;
    let opened = progress::open(prepared, args.engine.warm_weights, context, &interrupt)?;
    let Some(mut engine) = opened else { return Ok(Exit::Interrupted) };
    let session = engine.open_session()?;
    let exit = match (&diagnostics.perplexity_file, text) {
        (Some(path), _) => {
            let limit = args.prompt.tokens as usize;
            score::perplexity(&mut engine, session, path, limit, context, &interrupt)
        }
        (None, Some(text)) => {
            let mut run = Run { args, engine: &mut engine, session, context, interrupt };
            run.prompt(&text)
        }
        (None, None) => unreachable!("a conversation was begun instead"),
    }?;
    profile::report(&mut engine, &args.engine, context)?;
    Ok(exit)
}

/// `--inspect`: the summary of the file that would be run, with the memory plan of these flags.
fn inspect(args: &RunArgs, context: &Context) -> Result<Exit> {
    let options = config::options(args, &context.environment)?;
    let plain = InspectOptions::new(&options.model);
    let options = InspectOptions {
        json: args.prompt.json,
        ctx: args.engine.context.ctx.map(|n| n as usize),
        kv_k: options.kv_k.unwrap_or(plain.kv_k),
        kv_v: options.kv_v.unwrap_or(plain.kv_v),
        ..plain
    };
    commands::inspect::show(&options, context)
}

/// Combinations that cannot work, before anything is opened.
fn check(args: &RunArgs, text: Option<&str>) -> Result<(), UsageError> {
    let d = &args.diagnostics;
    let usage = |text: &str| Err(UsageError::new("run", text));
    match (&d.perplexity_file, text) {
        (Some(_), _) if args.prompt.source()?.is_some() => {
            usage("--perplexity-file takes no prompt")
        }
        (Some(_), _) if d.dump_tokens || d.reads_a_prompt() => {
            usage("--perplexity-file goes alone: the other diagnostics need a prompt")
        }
        (Some(_), _) if args.prompt.repl => usage("--perplexity-file goes without a conversation"),
        (_, Some(_)) if args.prompt.repl => usage("--repl takes no prompt"),
        (None, None) if d.dump_tokens => usage("--dump-tokens needs a prompt: add -p TEXT"),
        (None, None) if d.reads_a_prompt() => {
            usage("a prompt is needed: add -p TEXT or --prompt-file FILE")
        }
        (None, None) => match args.prompt.needs_a_prompt() {
            Some(flag) => usage(&format!("{flag} goes with a prompt, not with a conversation")),
            None => Ok(()),
        },
        (None, Some("")) => usage("the prompt is empty"),
        _ if args.kv_disk.kv_disk_dir.is_some()
            && (d.perplexity_file.is_some() || d.reads_a_prompt()) =>
        {
            usage("--kv-disk-dir goes with an answer, not with diagnostics")
        }
        _ => Ok(()),
    }
}

/// Everything that has a prompt and an engine.
struct Run<'a> {
    args: &'a RunArgs,
    engine: &'a mut dyn StateIo,
    session: SessionId,
    context: &'a Context,
    interrupt: Interrupt,
}

impl Run<'_> {
    fn prompt(&mut self, text: &str) -> Result<Exit> {
        let args = &self.args.prompt;
        let reading = Reading::of(text, args.raw, args.rendered);
        let ctx = self.engine.info().ctx_tokens;
        let thinking = prompt::think_mode(self.args, ctx, &self.context.printer);
        let tokenizer = self.engine.tokenizer();
        let ids = prompt::tokens(tokenizer, text, reading, args.system(), thinking)?;
        if self.args.diagnostics.reads_a_prompt() {
            self.diagnose(&ids)
        } else {
            self.answer(&ids, reading)
        }
    }

    /// Runs the diagnostics asked for, one after the other on the same prompt.
    fn diagnose(&mut self, ids: &[TokenId]) -> Result<Exit> {
        let d = &self.args.diagnostics;
        if self.sync(ids)? {
            return Ok(Exit::Interrupted);
        }
        if let Some(path) = &d.dump_logits {
            dump::logits(self.engine, self.session, ids.len(), path)?;
            self.wrote(path);
        }
        if let Some(path) = &d.dump_logprobs {
            let wanted = dump::Continuation { limit: self.limit(), top_k: d.logprobs_top_k() };
            let interrupted =
                dump::logprobs(self.engine, self.session, wanted, path, &self.interrupt)?;
            self.wrote(path);
            if interrupted {
                return Ok(Exit::Interrupted);
            }
        }
        let Some(steps) = d.decode_consistency else { return Ok(Exit::Success) };
        if d.dump_logprobs.is_some() && self.sync(ids)? {
            return Ok(Exit::Interrupted);
        }
        let (engine, session) = (&mut *self.engine, self.session);
        score::decode_consistency(engine, session, steps as usize, self.context, &self.interrupt)
    }

    /// Whether syncing to the prompt was interrupted.
    fn sync(&mut self, ids: &[TokenId]) -> Result<bool> {
        let report = prefill::run(self.engine, self.session, ids, self.context, &self.interrupt)?;
        Ok(report.cancelled)
    }

    fn answer(&mut self, ids: &[TokenId], reading: Reading) -> Result<Exit> {
        let args = self.args;
        let format = match (args.prompt.stream_json, args.prompt.json) {
            (true, _) => Format::StreamJson,
            (false, true) => Format::Json,
            (false, false) => Format::Text,
        };
        let printer = &self.context.printer;
        let output = args.prompt.output.as_deref();
        let mut display = Display::new(format, args.prompt.show_thinking, output, printer)?;
        let seed = config::seed(args);
        printer.detail(&format!("seed {seed}"));
        let think = ThinkOptions {
            thinking: reading != Reading::Raw && ends_inside_thought(self.engine, ids),
            budget: args.sampling.think_budget.map(|n| Budget::thought(n as usize)),
            recover_calls: false,
        };
        let mut saved = Saved::open(&args.kv_disk, self.engine, self.context)?;
        let request = Request {
            prompt: ids,
            sampler: Sampler::new(config::sampler_params(args), seed),
            seed,
            think,
            limit: self.limit(),
            format,
            saved: saved.as_mut(),
        };
        let (engine, session) = (&mut *self.engine, self.session);
        oneshot::run(engine, session, request, &mut display, self.context, &self.interrupt)
    }

    fn limit(&self) -> usize {
        self.args.prompt.tokens as usize
    }

    fn wrote(&self, path: &Path) {
        self.context.printer.note(Class::Good, &format!("wrote {}", path.display()));
    }
}
