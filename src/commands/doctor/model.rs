//! The model file: found, sound, and how much memory it takes.

use super::{Finding, Level};
use crate::cli::doctor::DoctorArgs;
use crate::cli::engine::DEFAULT_CTX;
use crate::cli::environment::Environment;
use crate::commands::paths;
use crate::model::Model;
use crate::model::memory::{Plan, Request};
use crate::quant::TensorType;

/// Opens the file as `run` would, without touching its weights, and plans memory for one session.
pub(super) fn look(args: &DoctorArgs, environment: &Environment) -> (Vec<Finding>, Option<Plan>) {
    let path = match paths::model(args.model.as_deref(), environment) {
        Ok(path) => path,
        Err(err) => return (vec![problem(&err.to_string())], None),
    };
    let model = match Model::open(&path) {
        Ok(model) => model,
        Err(err) => return (vec![problem(&err.to_string())], None),
    };
    let trained = model.shape.context_length;
    let wanted = args.ctx.map_or(DEFAULT_CTX as usize, |ctx| ctx as usize);
    let mut findings = Vec::new();
    if args.ctx.is_some() && wanted > trained {
        let text = format!("a context of {wanted} tokens is beyond the model's own {trained}");
        let finding = Finding::new("model", Level::Problem, text);
        findings.push(finding.remedy(format!("use --ctx {trained}, or --ctx-force with it")));
    } else {
        findings.push(sound(&model, wanted.min(trained)));
    }
    let weights = model.file.tensors().iter().map(|tensor| tensor.bytes).sum();
    let request = Request::single(TensorType::F16, TensorType::F16, wanted.min(trained));
    (findings, Some(Plan::new(&model.shape, weights, &request)))
}

fn sound(model: &Model, ctx: usize) -> Finding {
    let (path, name, bits) = (model.file.path().display(), model.name(), model.expert_bits());
    let text = format!("{path}: {name}, {bits}-bit experts, context of {ctx} tokens");
    Finding::new("model", Level::Good, text)
}

/// A finding whose remedy is the error's own hint.
fn problem(message: &str) -> Finding {
    let (said, hint) = message.split_once("\nhint: ").unwrap_or((message, ""));
    let finding = Finding::new("model", Level::Problem, said);
    if hint.is_empty() { finding } else { finding.remedy(hint) }
}
