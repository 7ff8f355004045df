//! The model file: found, sound, and how much memory it takes.

use super::{Finding, Level};
use crate::cli::doctor::DoctorArgs;
use crate::cli::environment::Environment;
use crate::commands::paths;
use crate::engine::{Context, Options, Prepared};
use crate::model::memory::Plan;

/// Opens the file as `run` would, without touching its weights, and plans memory for one session.
pub(super) fn look(args: &DoctorArgs, environment: &Environment) -> (Vec<Finding>, Option<Plan>) {
    let path = match paths::model(args.model.as_deref(), environment) {
        Ok(path) => path,
        Err(err) => return (vec![problem(&err.to_string())], None),
    };
    let context = args.ctx.map_or_else(Context::default, |n| Context::Exactly(n as usize));
    let prepared = match Prepared::new(Options { context, ..Options::new(path) }) {
        Ok(prepared) => prepared,
        Err(err) => return (vec![problem(&err.to_string())], None),
    };
    let findings = match prepared.tokenizer() {
        Ok(_) => vec![sound(&prepared)],
        Err(err) => vec![problem(&format!("{:#}", anyhow::Error::from(err)))],
    };
    (findings, Some(prepared.info().plan))
}

fn sound(prepared: &Prepared) -> Finding {
    let info = prepared.info();
    let name = prepared.model().map_or("random weights", |model| model.name());
    let text = format!(
        "{}: {}, {}-bit experts, context of {} tokens",
        info.model.display(),
        name,
        info.quant_bits,
        info.ctx_tokens
    );
    Finding::new("model", Level::Good, text)
}

/// A finding whose remedy is the error's own hint.
fn problem(message: &str) -> Finding {
    let (said, hint) = message.split_once("\nhint: ").unwrap_or((message, ""));
    let finding = Finding::new("model", Level::Problem, said);
    if hint.is_empty() { finding } else { finding.remedy(hint) }
}
