//! Flags of `run` become engine options and sampling parameters.

use crate::cli::UsageError;
use crate::cli::engine::MAX_THREADS;
use crate::cli::environment::Environment;
use crate::cli::run::RunArgs;
use crate::cli::values;
use crate::commands::paths;
use crate::commands::values::tensor_type;
use crate::engine::sample::SamplerParams;
use crate::engine::{BackendChoice, Context, Locking, Options, SteeringChoice, lock};

/// Resolves the engine's options. Finds the model file.
///
/// # Errors
/// When no model is found, or scales are given without a direction file.
pub(super) fn options(args: &RunArgs, environment: &Environment) -> anyhow::Result<Options> {
    let engine = &args.engine;
    let context = &engine.context;
    if args.steering.lacks_file() {
        anyhow::bail!("a steering scale needs directions\nhint: add --dir-steering-file FILE");
    }
    let (attention, ffn) = args.steering.scales();
    let steering =
        args.steering.dir_steering_file.clone().map(|file| SteeringChoice { file, attention, ffn });
    let threads = engine.threads.or(environment.threads);
    let chunk = engine.prefill_chunk.or(environment.cpu_prefill_chunk);
    let lock_file =
        lock::path(environment.lock_file.as_deref(), environment.runtime_dir.as_deref());
    Ok(Options {
        backend: match engine.backend() {
            values::Backend::Auto => BackendChoice::Auto,
            values::Backend::Cpu => BackendChoice::Cpu,
            values::Backend::Vulkan => BackendChoice::Vulkan,
        },
        threads: threads.map(|n| n.min(MAX_THREADS) as usize),
        context: match context.ctx {
            None => Context::default(),
            Some(n) if context.ctx_force => Context::Forced(n as usize),
            Some(n) => Context::Exactly(n as usize),
        },
        kv_k: context.cache_type_k.map(tensor_type),
        kv_v: context.cache_type_v.map(tensor_type),
        chunk: chunk.map(|n| n as usize),
        quality: engine.quality,
        warm: engine.warm_weights,
        power: engine.power,
        // The comparison of --decode-consistency prefills in a session of its own.
        sessions: if args.diagnostics.decode_consistency.is_some() { 2 } else { 1 },
        steering,
        locking: if engine.no_lock { Locking::Never } else { Locking::WhenLarge(lock_file) },
        ..Options::new(paths::model(engine.model.as_deref(), environment)?)
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

/// Reads the prompt text named on the command line, or stdin where it is not a terminal.
///
/// # Errors
/// A usage error when it cannot be read or there is none.
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
        None if std::io::stdin().is_terminal() => return Ok(None),
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
