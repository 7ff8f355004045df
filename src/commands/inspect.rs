//! `q36 inspect`, and `q36 run --inspect`.

use anyhow::Result;

use super::values::tensor_type;
use super::{Context, Exit, paths};
use crate::cli::inspect::InspectArgs;
use crate::cpu;
use crate::engine::default_threads;
use crate::model::Shape;
use crate::tools::inspect::{Finding, InspectOptions, inspect};

/// Runs the subcommand.
pub(super) fn run(args: &InspectArgs, context: &Context) -> Result<Exit> {
    let file = paths::model(args.file(), &context.environment)?;
    let plain = InspectOptions::new(&file);
    let options = InspectOptions {
        tensors: args.tensors,
        json: args.json,
        verify: args.verify,
        diff: args.diff.clone(),
        ctx: args.ctx.map(|n| n as usize),
        kv_k: args.cache_type_k.map_or(plain.kv_k, tensor_type),
        kv_v: args.cache_type_v.map_or(plain.kv_v, tensor_type),
        ..plain
    };
    show(&options, context)
}

/// Prints what is in a model file. A check that was asked for and found something is a failure.
pub(super) fn show(options: &InspectOptions, context: &Context) -> Result<Exit> {
    let options = InspectOptions { scratch_bytes: Some(scratch_bytes), ..options.clone() };
    let mut report = Vec::new();
    let finding = inspect(&options, &mut report)?;
    context.printer.data(&report)?;
    Ok(match finding {
        Finding::Clean => Exit::Success,
        Finding::Problems => Exit::Failure,
    })
}

/// Scratch of the backend that would run the model with its defaults.
fn scratch_bytes(shape: &Shape) -> u64 {
    cpu::scratch_bytes(shape, cpu::DEFAULT_CHUNK_TOKENS, default_threads()) as u64
}
