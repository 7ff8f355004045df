//! `q36 doctor`: what this machine has, whether the model runs on it, and what to do if not.
//!
//! Facts are read first, by `machine`; `checks` turns them into findings without looking anywhere
//! else, so that pretend machines are tested. Nothing is loaded and no lock is taken.

mod checks;
mod model;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::{Context, Exit, gpu};
use crate::cli::doctor::DoctorArgs;
use crate::quant;
use crate::term::{Class, Printer};

use crate::commands::machine::Machine;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    /// As it should be.
    Good,
    /// To know.
    Note,
    /// Works, but worse than it could.
    Warning,
    /// The model does not load.
    Problem,
}

impl Level {
    fn label(self) -> (&'static str, Class) {
        match self {
            Self::Good => ("ok", Class::Good),
            Self::Note => ("note", Class::Plain),
            Self::Warning => ("warning", Class::Warning),
            Self::Problem => ("problem", Class::Error),
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    area: &'static str,
    level: Level,
    text: String,
    /// What to do about it.
    remedy: Option<String>,
}

impl Finding {
    fn new(area: &'static str, level: Level, text: impl Into<String>) -> Self {
        Self { area, level, text: text.into(), remedy: None }
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    findings: &'a [Finding],
}

/// Looks at everything; 1 if something would prevent loading.
pub(super) fn run(args: &DoctorArgs, context: &Context) -> Result<Exit> {
    let machine = Machine::read(Path::new("/"));
    let environment = &context.environment;
    let mut findings = checks::processor(&machine, quant::isa());
    findings.extend(checks::vulkan(&gpu::survey()));
    findings.extend(checks::graphics(&machine));
    let (model_findings, plan) = model::look(args, environment);
    findings.extend(checks::memory(&machine, plan.as_ref()));
    findings.extend(model_findings);
    findings.extend(checks::lock(&machine, environment, plan.as_ref()));
    let ok = findings.iter().all(|finding| finding.level != Level::Problem);
    if args.json {
        let report = Report { ok, findings: &findings };
        context.printer.line(&serde_json::to_string_pretty(&report)?)?;
    } else {
        context.printer.data(text(&findings, &context.printer).as_bytes())?;
    }
    Ok(if ok { Exit::Success } else { Exit::Failure })
}

/// A line for each finding, its remedy below it.
fn text(findings: &[Finding], printer: &Printer) -> String {
    let colored = printer.stdout_is_colored();
    let mut out = String::new();
    for finding in findings {
        let (label, class) = finding.level.label();
        let label = class.paint(&format!("{label:<8}"), colored);
        let _ = writeln!(out, "{label} {:<10} {}", finding.area, finding.text);
        if let Some(remedy) = &finding.remedy {
            let _ = writeln!(out, "{:20}-> {remedy}", "");
        }
    }
    out
}
