//! `q36 bench --beside`: a prompt beside sessions that decode.

use anyhow::Result;

use crate::bench::beside::{self, Beside, Duet};
use crate::bench::lanes;
use crate::cli::bench::BenchArgs;
use crate::commands::{Context, Exit, progress};
use crate::engine::ModelEngine;
use crate::term::Class;
use crate::tokenizer::TokenId;
use crate::util::signal::Interrupt;

/// Measures as often as asked; a table of each run, or a JSON object of each.
pub(super) fn run(
    args: &BenchArgs,
    engine: &mut ModelEngine,
    prompt: &[TokenId],
    context: &Context,
    interrupt: &Interrupt,
) -> Result<Exit> {
    let sweep = &args.sweep;
    let others = sweep.beside.unwrap_or(1) as usize;
    // The sessions read other tokens than the prompt: from other places of it.
    let mut prompts = lanes(prompt, others + 1).split_off(1);
    for tokens in &mut prompts {
        tokens.truncate(sweep.ctx_start as usize);
    }
    let mut duet = Duet::new(engine, prompt.to_vec(), prompts)?;
    let mut watch = progress::Watch::new(context, interrupt);
    let runs = sweep.repeat + u32::from(sweep.warmup);
    let mut is_slow = false;
    for run in 0..runs {
        let measured = duet.run(&mut watch);
        watch.finish();
        let Some(measured) = measured? else { return Ok(Exit::Interrupted) };
        if run > 0 || !sweep.warmup {
            report(args, &measured, context)?;
            is_slow |= sweep.gate_step.is_some_and(|gate| measured.step_ms.p99 > f64::from(gate));
        }
    }
    if let Some(gate) = sweep.gate_step.filter(|_| is_slow) {
        let text = format!("too slow: a step in a hundred takes longer than {gate} ms");
        context.printer.message(Class::Error, &text);
        return Ok(Exit::Failure);
    }
    Ok(Exit::Success)
}

fn report(args: &BenchArgs, measured: &Beside, context: &Context) -> Result<()> {
    let printer = &context.printer;
    if args.results.json {
        return Ok(printer.line(&serde_json::to_string(measured)?)?);
    }
    for line in beside::table(measured) {
        printer.line(&line)?;
    }
    Ok(())
}
