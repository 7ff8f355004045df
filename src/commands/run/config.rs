//! Flags of `run` become engine options and sampling parameters.

use crate::cli::UsageError;
use crate::cli::environment::Environment;
use crate::cli::run::RunArgs;
use crate::commands::config::engine_options;
use crate::commands::paths;
use crate::engine::sample::SamplerParams;
use crate::engine::{Options, SteeringChoice};

/// Resolves the engine's options. Finds the model file.
///
/// # Errors
/// When no model is found, or scales are given without a direction file.
pub(super) fn options(args: &RunArgs, environment: &Environment) -> anyhow::Result<Options> {
    let engine = &args.engine;
    if args.steering.lacks_file() {
        anyhow::bail!("a steering scale needs directions\nhint: add --dir-steering-file FILE");
    }
    let (attention, ffn) = args.steering.scales();
    let steering =
        args.steering.dir_steering_file.clone().map(|file| SteeringChoice { file, attention, ffn });
    Ok(Options {
        // The comparison of --decode-consistency prefills in a session of its own.
        sessions: if args.diagnostics.decode_consistency.is_some() { 2 } else { 1 },
        // A position that is being saved.
        snapshots: usize::from(args.kv_disk.kv_disk_dir.is_some()),
        steering,
        ..engine_options(engine, environment, paths::model(engine.model.as_deref(), environment)?)
    })
}

/// How to draw.
pub(super) fn sampler_params(args: &RunArgs) -> SamplerParams {
    SamplerParams {
        temperature: args.sampling.temperature,
        top_k: args.sampling.top_k as usize,
        top_p: args.sampling.top_p(),
        min_p: args.sampling.min_p,
    }
}

/// The seed asked for, or one from the clock; never 0.
pub(super) fn seed(args: &RunArgs) -> u64 {
    args.sampling.seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        // Nanoseconds since 1970 fit 64 bits until the year 2554.
        now.map_or(1, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)).max(1)
    })
}

/// Reads the prompt text named on the command line, or stdin where it is not a terminal. `None` where there is to be a
/// conversation instead.
///
/// # Errors
/// A usage error when it cannot be read.
pub(super) fn prompt_text(args: &RunArgs) -> Result<Option<String>, UsageError> {
    use crate::cli::run::PromptSource;
    use std::io::{IsTerminal as _, Read as _};

    let usage =
        |what: &str, e: std::io::Error| UsageError::new("run", format!("cannot read {what}: {e}"));
    let bytes = match args.prompt.source()? {
        Some(PromptSource::Text(text)) => return Ok(Some(text.to_owned())),
        Some(PromptSource::File(path)) => {
            std::fs::read(path).map_err(|e| usage(&path.display().to_string(), e))?
        }
        None if args.prompt.repl || std::io::stdin().is_terminal() => return Ok(None),
        Some(PromptSource::Stdin) | None => {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).map_err(|e| usage("standard input", e))?;
            bytes
        }
    };
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|e| UsageError::new("run", format!("the prompt is not UTF-8: {}", e.utf8_error())))
}
