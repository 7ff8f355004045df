//! What `q36 bench` was asked for: prompt, engine, the sweep, and what the numbers are held against.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

use super::beside;
use super::output::Output;
use crate::bench::compare::{self, Gates};
use crate::bench::csv::Recorded;
use crate::bench::{Bench, Frontiers, Growth, Row, Series, lanes, random_tokens};
use crate::chat::ThinkMode;
use crate::cli::UsageError;
use crate::cli::bench::{BenchArgs, BenchSource};
use crate::commands::run::dump;
use crate::commands::run::plan;
use crate::commands::run::prompt::{self, Reading};
use crate::commands::{Context, Exit, config, paths, profile, progress, table};
use crate::engine::{self, Engine as _, ModelEngine, Options, Prepared};
use crate::term::Class;
use crate::tokenizer::TokenId;
use crate::util::hex;
use crate::util::signal::Interrupt;
use crate::util::units::Bytes;

/// What the model is called that has no file.
const SYNTHETIC: &str = "synthetic";

/// Runs the subcommand.
pub(in crate::commands) fn run(args: &BenchArgs, context: &Context) -> Result<Exit> {
    let source = args.check()?;
    let old = args.results.compare.as_deref().map(|file| table::read("bench", file)).transpose()?;
    if let Some(dir) = args.results.dump_frontier_logits_dir.as_deref().filter(|d| !d.is_dir()) {
        return Err(usage(format!("{} is no folder", dir.display())).into());
    }
    let text = match source {
        BenchSource::Text(file) | BenchSource::Chat { file, .. } => read_text(file)?,
        BenchSource::Synthetic { .. } => String::new(),
    };
    let prepared = prepare(args, source, context)?;
    let printer = &context.printer;
    for note in prepared.notes() {
        printer.note(Class::Plain, note);
    }
    let prompt = tokens(&prepared, source, &text, args.sweep.ctx_max as usize)?;
    let is_file = !matches!(source, BenchSource::Synthetic { .. });
    let is_named = is_file && (args.results.meta || args.results.json);
    let fingerprint =
        prepared.model().filter(|_| is_named).map(|model| hex::encode(&model.fingerprint()));
    printer.note(Class::Plain, &plan::line(prepared.info()));
    let interrupt = Interrupt::install()?;
    let opened = progress::open(prepared, args.engine.warm_weights, context, &interrupt)?;
    let Some(mut engine) = opened else { return Ok(Exit::Interrupted) };
    if args.sweep.beside.is_some() {
        let exit = beside::run(args, &mut engine, &prompt, context, &interrupt)?;
        profile::report(&mut engine, &args.engine, context)?;
        return Ok(exit);
    }
    let prompts = lanes(&prompt, args.sweep.concurrency as usize);
    let load = if args.results.meta { load(&mut engine)? } else { None };
    let mut output = Output::begin(args, engine.info(), (fingerprint, load), printer)?;
    let bench = Bench::new(&mut engine, prompts, args.sweep.gen_tokens as usize)?;
    let mut sweep = Sweep { args, bench, series: Vec::new(), written: 0 };
    let is_complete = sweep.measure(&mut output, context, &interrupt)?;
    let rows = sweep.finish(&mut output)?;
    output.end(&rows, is_complete)?;
    let rows: Vec<Recorded> = rows.iter().map(Recorded::from).collect();
    if let Some(path) = &args.results.svg {
        output.draw(&rows, old.as_deref().unwrap_or_default(), path)?;
    }
    profile::report(&mut engine, &args.engine, context)?;
    let passed = judge(args, old.as_deref(), &rows, context)?;
    Ok(match (is_complete, passed) {
        (false, _) => Exit::Interrupted,
        (true, false) => Exit::Failure,
        (true, true) => Exit::Success,
    })
}

/// How the weights got to a device, and how fast that was beside plain copying.
fn load(engine: &mut ModelEngine) -> Result<Option<String>> {
    let Some(report) = engine.load_report() else { return Ok(None) };
    let rate = report.bytes as f64 / report.seconds;
    let (bytes, seconds) = (Bytes(report.bytes), report.seconds);
    let mut text = format!("{bytes} in {seconds:.2} s {} ({:.2} GB/s", report.how, rate / 1e9);
    if report.in_place > 0 {
        let _ = write!(text, ", {} left in the mapped file", Bytes(report.in_place));
    }
    if let Some(copy) = engine.copy_rate()? {
        let ratio = rate / copy;
        let _ = write!(text, "; plain copying {:.2} GB/s, ratio {ratio:.2}", copy / 1e9);
    }
    Ok(Some(text + ")"))
}

fn usage(message: impl Into<String>) -> UsageError {
    UsageError::new("bench", message)
}

fn read_text(file: &Path) -> Result<String, UsageError> {
    fs::read_to_string(file).map_err(|e| usage(format!("cannot read {}: {e}", file.display())))
}

/// Resolves options against the model, or against the shape that is made up.
fn prepare(args: &BenchArgs, source: BenchSource<'_>, context: &Context) -> Result<Prepared> {
    let environment = &context.environment;
    let model = match source {
        BenchSource::Synthetic { .. } => SYNTHETIC.into(),
        BenchSource::Text(_) | BenchSource::Chat { .. } => {
            paths::model(args.engine.model.as_deref(), environment)?
        }
    };
    let beside = args.sweep.beside.map(|others| others as usize + 1);
    let sessions = beside.unwrap_or(args.sweep.concurrency as usize);
    let ctx = usize::try_from(args.ctx_alloc())?;
    let options = Options {
        context: if args.engine.context.ctx_force {
            engine::Context::Forced(ctx)
        } else {
            engine::Context::Exactly(ctx)
        },
        sessions,
        // Each session remembers the frontier while it generates.
        snapshots: if args.sweep.gen_tokens > 0 && beside.is_none() { sessions } else { 0 },
        ..config::engine_options(&args.engine, environment, model)
    };
    let prepared = match source {
        BenchSource::Synthetic { layers } => Prepared::synthetic(options, layers),
        BenchSource::Text(_) | BenchSource::Chat { .. } => Prepared::new(options),
    };
    match prepared {
        Err(engine::Error::ContextTooLarge { asked, limit }) => {
            let text = format!("a context of {asked} tokens exceeds the model's {limit}");
            Err(usage(text).hint("lower --ctx-max, or add --ctx-force to try anyway").into())
        }
        other => Ok(other?),
    }
}

/// The first `n` tokens of what is processed.
fn tokens(
    prepared: &Prepared,
    source: BenchSource<'_>,
    text: &str,
    n: usize,
) -> Result<Vec<TokenId>> {
    let (file, reading, system) = match source {
        BenchSource::Synthetic { .. } => return Ok(random_tokens(prepared.info().vocab, n)),
        BenchSource::Text(file) => (file, Reading::Raw, ""),
        BenchSource::Chat { file, system } => (file, Reading::Message, system),
    };
    let tokenizer = prepared.tokenizer()?;
    let mut ids = prompt::tokens(&tokenizer, text, reading, system, ThinkMode::Off)?;
    ensure!(
        ids.len() >= n,
        "{}: {} tokens are fewer than --ctx-max {n}\nhint: give a longer text or a smaller --ctx-max",
        file.display(),
        ids.len()
    );
    ids.truncate(n);
    Ok(ids)
}

/// Visits of all frontiers, as far as they have come.
struct Sweep<'a> {
    args: &'a BenchArgs,
    bench: Bench<'a>,
    /// One for each frontier that was visited.
    series: Vec<Series>,
    /// How many rows are out.
    written: usize,
}

impl Sweep<'_> {
    /// Visits every frontier as often as asked; a row is written when its last visit is over. Whether
    /// it came to the end: Ctrl+C stops it between steps.
    fn measure(
        &mut self,
        output: &mut Output<'_>,
        context: &Context,
        interrupt: &Interrupt,
    ) -> Result<bool> {
        let sweep = &self.args.sweep;
        let growth = if sweep.step_mul > 1.0 {
            Growth::Times(sweep.step_mul)
        } else {
            Growth::By(sweep.step_incr as usize)
        };
        let (start, max) = (sweep.ctx_start as usize, sweep.ctx_max as usize);
        let mut watch = progress::Watch::new(context, interrupt);
        if sweep.warmup {
            if self.bench.visit(start, &mut watch)?.is_none() {
                return Ok(false);
            }
            // What was timed so far does not count.
            self.bench.engine().profile();
        }
        for round in 1..=sweep.repeat {
            self.bench.reset()?;
            for (i, ctx_tokens) in (Frontiers { start, max, growth }).iter().enumerate() {
                let visit = self.bench.visit(ctx_tokens, &mut watch);
                watch.finish();
                let Some(visit) = visit? else { return Ok(false) };
                match self.series.get_mut(i) {
                    Some(series) => series.add(visit),
                    None => self.series.push(Series::new(visit)),
                }
                if round == sweep.repeat {
                    self.dump_logits(&self.series[i].row())?;
                    self.write(output)?;
                }
            }
        }
        Ok(true)
    }

    /// Writes the next row.
    fn write(&mut self, output: &mut Output<'_>) -> Result<()> {
        output.row(&self.series[self.written].row())?;
        self.written += 1;
        Ok(())
    }

    /// Writes the rows that are not out, because a sweep was interrupted. All rows.
    fn finish(mut self, output: &mut Output<'_>) -> Result<Vec<Row>> {
        while self.written < self.series.len() {
            self.write(output)?;
        }
        Ok(self.series.iter().map(Series::row).collect())
    }

    fn dump_logits(&mut self, row: &Row) -> Result<()> {
        let Some(dir) = &self.args.results.dump_frontier_logits_dir else { return Ok(()) };
        let path = dir.join(format!("frontier_{:06}.logits.json", row.ctx_tokens));
        let session = self.bench.first_session();
        let frontier = dump::Frontier {
            quality: self.args.engine.quality,
            tokens: row.ctx_tokens,
            prefill_tokens: row.prefill_tokens,
        };
        dump::frontier_logits(self.bench.engine(), session, &frontier, &path)
    }
}

/// Prints the changes against the older table and what falls below a floor. Whether nothing does.
fn judge(
    args: &BenchArgs,
    old: Option<&[Recorded]>,
    rows: &[Recorded],
    context: &Context,
) -> Result<bool> {
    let (results, printer) = (&args.results, &context.printer);
    let changes = compare::changes(old.unwrap_or_default(), rows);
    if let Some(path) = results.compare.as_deref().filter(|_| !rows.is_empty()) {
        let path = path.display();
        ensure!(!changes.is_empty(), "{path} has none of the measured frontiers");
        printer.message(Class::Plain, &format!("change against {path}:"));
        for line in compare::table(&changes) {
            printer.message(Class::Plain, &line);
        }
    }
    let floor = |value: Option<f32>| value.map(f64::from);
    let gates = Gates {
        min_ratio: floor(results.min_ratio),
        prefill_tps: floor(results.gate_prefill),
        decode_tps: floor(results.gate_decode),
    };
    let failures = gates.failures(rows, &changes);
    for failure in &failures {
        printer.message(Class::Error, &format!("too slow: {failure}"));
    }
    Ok(failures.is_empty())
}
