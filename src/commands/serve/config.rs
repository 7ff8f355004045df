//! Flags of `serve` become what the server is told, in one step.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::cli::environment::Environment;
use crate::cli::serve::ServeArgs;
use crate::cli::server_environment::ServerEnvironment;
use crate::cli::values::{self, EffortBudgets, ThinkMode};
use crate::commands::config::engine_options;
use crate::commands::paths;
use crate::engine::sample::SamplerParams;
use crate::engine::{Anchors, Options, SteeringChoice};
use crate::kv;
use crate::server::http::{self, Address, Times};
use crate::server::{Effort, LogFormat, schedule};

/// Everything that is decided before anything is opened.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Where to listen.
    pub(super) address: Address,
    /// What connections are told.
    pub(super) http: http::Config,
    /// What the engine's thread is told.
    pub(super) schedule: schedule::Config,
    /// What the engine is opened with.
    pub(super) engine: Options,
    /// How the log is written.
    pub(super) log: LogFormat,
    /// How long the end may take.
    pub(super) shutdown: Duration,
}

/// Resolves everything. Finds the model file.
///
/// # Errors
/// When no model is found, or scales are given without a direction file.
pub(super) fn plan(args: &ServeArgs, environment: &Environment) -> Result<Plan> {
    let shutdown = Duration::from_secs(args.server.shutdown_timeout.into());
    Ok(Plan {
        address: Address::new(&args.server.host, args.server.port),
        http: http(args, environment),
        schedule: schedule(args, environment, shutdown),
        engine: engine(args, environment)?,
        log: match args.server.log_format {
            values::LogFormat::Text => LogFormat::Text,
            values::LogFormat::Json => LogFormat::Json,
        },
        shutdown,
    })
}

/// Keys: those of the command line, else that of the environment.
pub(super) fn keys(args: &ServeArgs, environment: &Environment) -> Vec<String> {
    let given = &args.server.api_keys;
    if given.is_empty() { environment.api_key.iter().cloned().collect() } else { given.clone() }
}

fn http(args: &ServeArgs, environment: &Environment) -> http::Config {
    http::Config {
        keys: keys(args, environment),
        cors: args.server.cors,
        metrics: args.server.metrics,
        strict_media: args.requests.strict_media,
        body_bytes: (args.requests.max_body_mb as usize).saturating_mul(1 << 20),
        responses: args.requests.response_store_max as usize,
        times: Times::default(),
        defaults: defaults(args),
    }
}

/// What the engine's thread has no defaults for.
fn defaults(args: &ServeArgs) -> http::Defaults {
    let sampling = &args.sampling;
    http::Defaults {
        seed: sampling.seed,
        think_budget: sampling.think_budget.map(|n| n as usize),
        effort: (sampling.think_mode() == ThinkMode::Max).then_some(Effort::Max),
    }
}

fn schedule(args: &ServeArgs, environment: &Environment, shutdown: Duration) -> schedule::Config {
    let sampling = &args.sampling;
    let requests = &args.requests;
    let defaults = schedule::Config::default();
    let replay = schedule::ReplayLimits {
        ids: requests.tool_memory_max_ids as usize,
        ..schedule::ReplayLimits::default()
    };
    schedule::Config {
        sessions: sessions(args),
        default_limit: requests.tokens as usize,
        sampling: SamplerParams {
            temperature: sampling.temperature,
            top_k: sampling.top_k as usize,
            top_p: sampling.top_p(),
            min_p: sampling.min_p,
        },
        thinking: sampling.think_mode() != ThinkMode::Off,
        preserve_thinking: args.thinking.preserve_thinking,
        efforts: efforts(args.thinking.effort_budgets.unwrap_or_default()),
        recover_calls: !environment.server.no_call_recovery,
        sharing: sharing(&environment.server),
        max_queue: requests.max_queue as usize,
        decode_stall: Duration::from_millis(requests.max_decode_stall_ms.into()),
        idle_unload: args.server.idle_unload.map(|n| Duration::from_secs(u64::from(n) * 60)),
        shutdown_timeout: shutdown,
        disk: args.kv_disk.kv_disk_dir.clone().map(|dir| disk(args, dir)),
        tool_replay: (!requests.disable_exact_tool_replay).then_some(replay),
        trace: args.server.trace.clone().map(|path| schedule::TraceConfig {
            path,
            max_bytes: args.server.trace_max_mb.map_or(u64::MAX, |n| u64::from(n) << 20),
        }),
        ..defaults
    }
}

fn sharing(environment: &ServerEnvironment) -> schedule::Sharing {
    schedule::Sharing {
        alone: environment.prefill_quantum.map(|n| n as usize),
        mixed: environment.mixed_prefill_quantum.map(|n| n as usize),
        log_steps: environment.batch_log,
    }
}

/// Resident sessions.
fn sessions(args: &ServeArgs) -> usize {
    args.requests.batched_session.unwrap_or(1) as usize
}

fn efforts(given: EffortBudgets) -> schedule::EffortBudgets {
    let defaults = schedule::EffortBudgets::default();
    let or = |given: Option<u32>, default| given.map(|n| n as usize).or(default);
    schedule::EffortBudgets {
        minimal: or(given.minimal, defaults.minimal),
        low: or(given.low, defaults.low),
        medium: or(given.medium, defaults.medium),
        high: or(given.high, defaults.high),
    }
}

fn disk(args: &ServeArgs, dir: PathBuf) -> kv::Config {
    let cache = &args.kv_cache;
    kv::Config {
        limits: kv::Limits {
            min_tokens: args.kv_disk.kv_cache_min_tokens as usize,
            cold_max_tokens: cache.kv_cache_cold_max_tokens as usize,
            continued_tokens: cache.kv_cache_continued_interval_tokens as usize,
            trim_tokens: cache.kv_cache_boundary_trim_tokens as usize,
            align_tokens: cache.kv_cache_boundary_align_tokens as usize,
        },
        budget_bytes: u64::from(args.kv_disk.kv_disk_space_mb) << 20,
        fsync: cache.kv_fsync,
        ..kv::Config::new(dir)
    }
}

fn engine(args: &ServeArgs, environment: &Environment) -> Result<Options> {
    let engine = &args.engine;
    if args.steering.lacks_file() {
        anyhow::bail!("a steering scale needs directions\nhint: add --dir-steering-file FILE");
    }
    let (attention, ffn) = args.steering.scales();
    let steering =
        args.steering.dir_steering_file.clone().map(|file| SteeringChoice { file, attention, ffn });
    let sessions = sessions(args);
    Ok(Options {
        sessions,
        // Each may have one position that is being saved.
        snapshots: if args.kv_disk.kv_disk_dir.is_some() { sessions } else { 0 },
        anchors: Anchors::of((args.requests.state_anchors as usize).saturating_mul(sessions)),
        steering,
        ..engine_options(engine, environment, paths::model(engine.model.as_deref(), environment)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{self, Command};

    fn args(line: &str) -> ServeArgs {
        let words = ["q36", "serve", "-m", "x.gguf"].into_iter().chain(line.split_whitespace());
        let cli = cli::parse(words.map(Into::into)).expect("the line parses");
        let Some(Command::Serve(args)) = cli.command else { panic!("not serve") };
        *args
    }

    fn plan(line: &str) -> Plan {
        super::plan(&args(line), &Environment::default()).unwrap()
    }

    #[test]
    fn nothing_said_is_the_documented_defaults() {
        let plan = plan("");
        assert_eq!(plan.address.to_string(), "127.0.0.1:8000");
        assert_eq!(plan.http, http::Config::default());
        let schedule = plan.schedule;
        assert_eq!(format!("{schedule:?}"), format!("{:?}", schedule::Config::default()));
        assert_eq!((schedule.sessions, schedule.default_limit), (1, 262_144));
        assert_eq!(schedule.efforts, schedule::EffortBudgets::default());
        assert_eq!(schedule.decode_stall, Duration::from_millis(150));
        assert!(schedule.disk.is_none() && schedule.trace.is_none() && schedule.thinking);
        assert_eq!(schedule.tool_replay.unwrap().ids, 100_000);
        assert_eq!((plan.engine.sessions, plan.engine.snapshots), (1, 0));
    }

    #[test]
    fn flags_reach_what_they_are_for() {
        let plan = plan(
            "--host ::1 --port 0 --batched-session 3 --kv-disk-dir d --kv-disk-space-mb 7 --kv-cache-min-tokens 9 \
             --kv-cache-cold-max-tokens 0 --nothink --effort-budgets low=7 --idle-unload 2 --trace t --trace-max-mb 3 \
             --max-body-mb 2 --metrics --cors --strict-media --api-key a --api-key b --disable-exact-tool-replay \
             --log-format json --state-anchors 4 --shutdown-timeout 3 --temp 0.5",
        );
        assert_eq!(plan.address.to_string(), "[::1]:0");
        assert_eq!(
            (plan.engine.sessions, plan.engine.snapshots, plan.engine.anchors.slots),
            (3, 3, 12)
        );
        let disk = plan.schedule.disk.unwrap();
        assert_eq!((disk.budget_bytes, disk.limits.min_tokens), (7 << 20, 9));
        assert_eq!(
            (plan.schedule.efforts.low, plan.schedule.efforts.high),
            (Some(7), Some(16_384))
        );
        assert_eq!(plan.schedule.idle_unload, Some(Duration::from_mins(2)));
        assert_eq!(plan.schedule.trace.unwrap().max_bytes, 3 << 20);
        assert!(!plan.schedule.thinking && plan.schedule.tool_replay.is_none());
        assert!((plan.schedule.sampling.temperature - 0.5).abs() < f32::EPSILON);
        assert_eq!(plan.http.keys, ["a", "b"]);
        assert!(plan.http.metrics && plan.http.cors && plan.http.strict_media);
        assert_eq!((plan.http.body_bytes, plan.log), (2 << 20, LogFormat::Json));
        assert_eq!(plan.shutdown, Duration::from_secs(3));
    }

    #[test]
    fn the_key_of_the_environment_counts_when_there_is_no_other() {
        let environment = Environment { api_key: Some("e".into()), ..Environment::default() };
        assert_eq!(keys(&args(""), &environment), ["e"]);
        assert_eq!(keys(&args("--api-key a"), &environment), ["a"]);
    }

    #[test]
    fn what_the_environment_says_of_sharing_the_engine_reaches_the_scheduler() {
        let server = ServerEnvironment {
            prefill_quantum: Some(7),
            mixed_prefill_quantum: Some(3),
            batch_log: true,
            no_call_recovery: true,
        };
        let environment = Environment { server, ..Environment::default() };
        let config = super::plan(&args(""), &environment).unwrap().schedule;
        let expected = schedule::Sharing { alone: Some(7), mixed: Some(3), log_steps: true };
        assert_eq!(config.sharing, expected);
        assert!(!config.recover_calls);
    }

    #[test]
    fn cold_saves_that_are_never_long_enough_are_refused() {
        assert!(args("--kv-cache-cold-max-tokens 100").check().is_err());
        assert!(args("--kv-cache-cold-max-tokens 0").check().is_ok());
        assert!(args("--api-key=").check().is_err());
        assert!(args("").check().is_ok());
    }
}
