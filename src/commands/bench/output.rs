//! Where the numbers go: the table, row by row, and one JSON object at the end.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::sensors::Sensors;
use crate::bench::Row;
use crate::bench::csv::{Columns, Device, Recorded};
use crate::bench::svg;
use crate::cli::bench::BenchArgs;
use crate::commands::machine::Machine;
use crate::engine::{BackendKind, Info};
use crate::term::Printer;
use crate::util::fs::write_atomic;

/// What was measured on what. Additive: scripts read these names.
#[derive(Debug, Serialize)]
struct Meta {
    version: &'static str,
    commit: &'static str,
    model: String,
    /// Of the model file; none of made-up weights.
    fingerprint: Option<String>,
    backend: &'static str,
    device: String,
    cache_type_k: &'static str,
    cache_type_v: &'static str,
    ctx_tokens: usize,
    chunk_tokens: usize,
    threads: usize,
    sessions: u32,
    quality: bool,
    flags: String,
    /// How the weights got to the device, and how fast, beside plain copying.
    #[serde(skip_serializing_if = "Option::is_none")]
    load: Option<String>,
}

/// The object of `--json`.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    meta: &'a Meta,
    complete: bool,
    rows: &'a [Row],
}

/// Takes rows as they are measured.
pub(super) struct Output<'a> {
    printer: &'a Printer,
    meta: Meta,
    columns: Columns,
    /// The file of `--csv`.
    file: Option<(PathBuf, File)>,
    json: bool,
    sensors: Sensors,
    mem_bytes: Option<u64>,
}

impl<'a> Output<'a> {
    /// Opens the file, if there is one, and writes what stands above the rows.
    pub(super) fn begin(
        args: &BenchArgs,
        info: &Info,
        (fingerprint, load): (Option<String>, Option<String>),
        printer: &'a Printer,
    ) -> Result<Self> {
        let results = &args.results;
        let columns = Columns { spread: args.sweep.repeat > 1, meta: results.meta };
        let file = match results.csv.clone() {
            Some(path) => {
                let file = File::create(&path)
                    .with_context(|| format!("cannot write {}", path.display()))?;
                Some((path, file))
            }
            None => None,
        };
        let on_gpu = info.backend == BackendKind::Vulkan;
        let mut output = Self {
            printer,
            meta: Meta { load, ..Meta::new(args, info, fingerprint) },
            columns,
            file,
            json: results.json,
            sensors: if on_gpu { Sensors::find("/".as_ref()) } else { Sensors::default() },
            mem_bytes: on_gpu.then(|| info.plan.total()),
        };
        if results.meta {
            for line in output.meta.lines() {
                output.line(&line)?;
            }
        }
        output.line(&columns.header())?;
        Ok(output)
    }

    /// Writes a row of the table.
    pub(super) fn row(&mut self, row: &Row) -> Result<()> {
        let device = Device {
            mem_bytes: self.mem_bytes,
            watts: self.sensors.watts(),
            temp_c: self.sensors.temp_c(),
        };
        self.line(&self.columns.line(row, device))
    }

    /// Writes what stands below the rows.
    pub(super) fn end(&self, rows: &[Row], complete: bool) -> Result<()> {
        if self.json {
            let report = Report { meta: &self.meta, complete, rows };
            self.printer.line(&serde_json::to_string(&report)?)?;
        }
        Ok(())
    }

    /// Draws the rows, and older ones behind them.
    pub(super) fn draw(&self, rows: &[Recorded], old: &[Recorded], path: &Path) -> Result<()> {
        let Meta { version, device, backend, .. } = &self.meta;
        let model = Path::new(&self.meta.model).file_stem().unwrap_or_default().to_string_lossy();
        let title = format!("{model}, {device}, {backend}, q36 {version}");
        let picture = svg::chart(&title, rows, &[old]);
        write_atomic(path, picture.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// A line of the table; it is out when this returns.
    fn line(&mut self, text: &str) -> Result<()> {
        match &mut self.file {
            Some((path, file)) => file
                .write_all(format!("{text}\n").as_bytes())
                .with_context(|| format!("cannot write {}", path.display())),
            None if self.json => Ok(()),
            None => Ok(self.printer.line(text)?),
        }
    }
}

impl Meta {
    fn new(args: &BenchArgs, info: &Info, fingerprint: Option<String>) -> Self {
        let processor = || Machine::read("/".as_ref()).cpu_name;
        let device = info.device.clone().or_else(processor);
        let flags = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("Q36_COMMIT").unwrap_or("unknown"),
            model: info.model.display().to_string(),
            fingerprint,
            backend: info.backend.name(),
            device: device.unwrap_or_else(|| "unknown".to_owned()),
            cache_type_k: info.kv_k.name(),
            cache_type_v: info.kv_v.name(),
            ctx_tokens: info.ctx_tokens,
            chunk_tokens: info.chunk_tokens,
            threads: info.threads,
            sessions: args.sweep.concurrency,
            quality: args.engine.quality,
            flags: flags.collect::<Vec<_>>().join(" "),
            load: None,
        }
    }

    /// Comment lines. A line break inside a name would end the comment.
    fn lines(&self) -> Vec<String> {
        let facts = [
            ("q36", format!("{}, commit {}", self.version, self.commit)),
            ("model", self.model.clone()),
            ("fingerprint", self.fingerprint.clone().unwrap_or_else(|| "none".to_owned())),
            ("backend", format!("{}, {} threads", self.backend, self.threads)),
            ("device", self.device.clone()),
            ("cache types", format!("{}/{}", self.cache_type_k, self.cache_type_v)),
            ("context", format!("{}, chunks of {}", self.ctx_tokens, self.chunk_tokens)),
            ("sessions", self.sessions.to_string()),
            ("flags", self.flags.clone()),
        ];
        let load = self.load.clone().map(|load| ("load", load));
        let line =
            |(name, fact): (&str, String)| format!("# {name}: {}", fact.replace(['\n', '\r'], " "));
        facts.into_iter().chain(load).map(line).collect()
    }
}
