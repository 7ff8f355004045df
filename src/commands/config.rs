//! Flags of every command that loads a model become engine options.

use std::path::PathBuf;

use super::values::tensor_type;
use crate::cli::engine::{EngineArgs, MAX_THREADS};
use crate::cli::environment::Environment;
use crate::cli::values;
use crate::engine::{BackendChoice, Context, Drill, LoadWay, Locking, Options, lock};

/// Resolves flags and environment for the model file `model`: one session, no snapshots, no steering.
pub(super) fn engine_options(
    args: &EngineArgs,
    environment: &Environment,
    model: PathBuf,
) -> Options {
    let context = &args.context;
    let threads = args.threads.or(environment.threads);
    let chunk = args.prefill_chunk.or(environment.cpu_prefill_chunk);
    let lock_file =
        lock::path(environment.lock_file.as_deref(), environment.runtime_dir.as_deref());
    Options {
        backend: match args.backend() {
            values::Backend::Auto => BackendChoice::Auto,
            values::Backend::Cpu => BackendChoice::Cpu,
            values::Backend::Vulkan => BackendChoice::Vulkan,
        },
        device: args.device.clone(),
        device_off: environment.debug.off.iter().map(|&name| name.to_owned()).collect(),
        cache_dir: environment.cache_dir.clone(),
        profile: args.profile.is_some(),
        threads: threads.map(|n| n.min(MAX_THREADS) as usize),
        context: match context.ctx {
            None => Context::default(),
            Some(n) if context.ctx_force => Context::Forced(n as usize),
            Some(n) => Context::Exactly(n as usize),
        },
        kv_k: context.cache_type_k.map(tensor_type),
        kv_v: context.cache_type_v.map(tensor_type),
        chunk: chunk.map(|n| n as usize),
        quality: args.quality,
        warm: args.warm_weights,
        power: args.power,
        load: match environment.debug.load {
            Some("in-place") => LoadWay::InPlace,
            Some("direct") => LoadWay::Direct,
            Some("cached") => LoadWay::Cached,
            _ => LoadWay::Auto,
        },
        drill: Drill {
            lose: environment.debug.lose.clone(),
            memory_bytes: environment.debug.memory_mib.map(|mib| mib.saturating_mul(1 << 20)),
            lacks: environment.debug.lacks.clone(),
        },
        step_sessions: if environment.one_by_one { 1 } else { usize::MAX },
        locking: if args.no_lock { Locking::Never } else { Locking::WhenLarge(lock_file) },
        ..Options::new(model)
    }
}
