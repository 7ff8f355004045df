//! What `q36 serve` does, from the first flag to the last saved session.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::config::{self, Plan};
use super::engine::Opener;
use crate::cli::serve::ServeArgs;
use crate::commands::{Context, Exit};
use crate::server::http::{App, Listener, serve};
use crate::server::schedule::Worker;
use crate::server::{Desk, LogWriter, schedule};
use crate::term::Class;
use crate::util::clock::unix_seconds;
use crate::util::signal::Interrupt;

/// Threads for connections; they wait most of the time, and the engine needs the others.
const THREADS: usize = 2;
/// Time for what was said last to be sent.
const LAST_BYTES: Duration = Duration::from_secs(3);

/// Runs the subcommand.
pub(in crate::commands) fn run(args: &ServeArgs, context: &Context) -> Result<Exit> {
    args.check()?;
    if let Some(dir) = &args.server.chdir {
        std::env::set_current_dir(dir)
            .with_context(|| format!("cannot work in {}", dir.display()))?;
    }
    if let Some(client) = args.server.print_config {
        return super::client::print(args, client, context);
    }
    let plan = config::plan(args, &context.environment)?;
    let log = LogWriter::new(&context.printer, plan.log, unix_seconds);
    let interrupt = Interrupt::install()?;
    // Before the model is loaded: a port that is taken fails at once, and clients are told to wait.
    let listener = plan.address.bind()?;
    log.say(Class::Good, &format!("listening on {}", listener.url()));
    for warning in warnings(args, &plan) {
        log.say(Class::Warning, &warning);
    }
    let (sender, jobs) = mpsc::channel();
    let desk = Arc::new(Desk::new(sender));
    let opener = Opener::new(&plan, interrupt.clone(), log.clone(), Arc::clone(&desk));
    let app = Arc::new(App::new(Arc::clone(&desk), plan.http.clone(), log.clone()));
    let (ended, end) = oneshot::channel();
    let worker_desk = Arc::clone(&desk);
    let (schedule, worker_log) = (plan.schedule.clone(), Arc::new(log.clone()));
    let worker_interrupt = interrupt.clone();
    thread::Builder::new().name("engine".into()).spawn(move || {
        let mut opener = opener;
        let open = move || opener.open();
        let worker = Worker::new(schedule, open, worker_desk, jobs, worker_log);
        let _ = ended.send(worker.run(&worker_interrupt));
    })?;
    let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()?;
    let serving = Serving { desk, log, interrupt, shutdown: plan.shutdown };
    let exit = serving.run(&runtime, listener, app, end);
    // Whoever is still connected has had time.
    runtime.shutdown_background();
    exit
}

/// What is good to know before anybody connects.
fn warnings(args: &ServeArgs, plan: &Plan) -> Vec<String> {
    let mut warnings = Vec::new();
    if args.engine.profile.is_some() {
        warnings.push(
            "--profile has no effect on a server; q36 bench --profile shows where time goes".into(),
        );
    }
    if plan.http.keys.is_empty() && !plan.address.is_local() {
        warnings.push(
            "other machines can connect and no key is asked for; --api-key KEY lets only those in who have it".into(),
        );
    }
    if let Some(trace) = &plan.schedule.trace {
        let path = trace.path.display();
        warnings.push(format!("{path} will hold everything that is asked and answered"));
    }
    warnings
}

/// A server that runs.
struct Serving {
    desk: Arc<Desk>,
    log: LogWriter,
    interrupt: Interrupt,
    shutdown: Duration,
}

/// What the engine's thread says in the end.
type End = oneshot::Receiver<Result<(), schedule::Error>>;

impl Serving {
    /// Serves until a signal or the end of the engine's thread, then ends everything in good order.
    fn run(
        &self,
        runtime: &Runtime,
        listener: Listener,
        app: Arc<App>,
        mut end: End,
    ) -> Result<Exit> {
        let (stop, stopped) = watch::channel(false);
        let mut connections = runtime.spawn(serve(listener, app, stopped));
        runtime.block_on(async {
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut terminate = signal(SignalKind::terminate())?;
            let engine = tokio::select! {
                _ = interrupt.recv() => None,
                _ = terminate.recv() => None,
                ended = &mut end => Some(ended),
                failed = &mut connections => {
                    self.desk.stop();
                    failed??;
                    anyhow::bail!("the server's socket was closed")
                }
            };
            if engine.is_none() {
                self.log.say(Class::Plain, "stopping; a second signal ends at once");
            }
            self.desk.stop();
            stop.send_replace(true);
            let ended = match engine {
                Some(ended) => Ok(ended),
                None => timeout(self.shutdown, end).await,
            };
            // Streams have got their last events; who does not take them is left.
            let _ = timeout(LAST_BYTES, connections).await;
            match ended {
                Ok(Ok(Ok(()))) => Ok(Exit::Success),
                Ok(Ok(Err(schedule::Error::Open(_)))) if self.interrupt.is_raised() => {
                    Ok(Exit::Interrupted)
                }
                Ok(Ok(Err(error))) => Err(error.into()),
                Ok(Err(_)) => anyhow::bail!("the engine's thread has ended without a word"),
                Err(_) => {
                    let text =
                        format!("not finished within {} s; ending anyway", self.shutdown.as_secs());
                    self.log.say(Class::Error, &text);
                    Ok(Exit::Failure)
                }
            }
        })
    }
}
