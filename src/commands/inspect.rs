//! `q36 inspect`, and `q36 run --inspect`.

use anyhow::Result;

use super::{Context, Exit, paths};
use crate::cli::inspect::InspectArgs;
use crate::cli::values::CacheType;
use crate::quant::TensorType;
use crate::term::Printer;
use crate::tools::inspect::{Finding, InspectOptions, inspect};

/// Prints what is in a model file. A check that was asked for and found something is a failure.
pub fn show(options: &InspectOptions, printer: &Printer) -> Result<Exit> {
    let mut report = Vec::new();
    let finding = inspect(options, &mut report)?;
    printer.data(&report)?;
    Ok(match finding {
        Finding::Clean => Exit::Success,
        Finding::Problems => Exit::Failure,
    })
}

/// `q36 inspect`: resolves the flags and shows the file.
pub(super) fn run(args: &InspectArgs, context: &Context) -> Result<Exit> {
    let file = paths::model(args.file(), &context.environment)?;
    let options = InspectOptions {
        tensors: args.tensors,
        json: args.json,
        verify: args.verify,
        diff: args.diff.clone(),
        ctx: args.ctx.map(|ctx| ctx as usize),
        kv_k: storage(args.cache_type_k),
        kv_v: storage(args.cache_type_v),
        ..InspectOptions::new(&file)
    };
    show(&options, &context.printer)
}

fn storage(ty: Option<CacheType>) -> TensorType {
    match ty {
        None | Some(CacheType::F16) => TensorType::F16,
        Some(CacheType::Q8_0) => TensorType::Q8_0,
        Some(CacheType::Q4_0) => TensorType::Q4_0,
    }
}
