//! A desk whose engine is a script: what the client calls the model says what happens.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::server::http::{App, Config, Times};
use crate::server::{
    Desk, Facts, Failure, FailureKind, Finish, Job, LogFormat, LogWriter, Outcome, State, Update,
    Usage, Waiting,
};

/// A server without an engine.
pub(super) struct Scripted {
    pub(super) app: Arc<App>,
    pub(super) desk: Arc<Desk>,
    /// Requests whose clients have left.
    pub(super) abandoned: Arc<AtomicUsize>,
    /// Everything that was logged.
    pub(super) log: Arc<Mutex<String>>,
}

impl Scripted {
    /// A server that is ready.
    pub(super) fn new(config: Config) -> Self {
        let scripted = Self::loading(config);
        scripted.open();
        scripted
    }

    /// The model has been loaded, in play.
    pub(super) fn open(&self) {
        self.desk.open(Facts { ctx_tokens: 4096, default_limit: 262_144, vocab: 248_320 }, None);
        self.desk.announce(State::Ready, Vec::new());
    }

    /// One whose model is not there yet.
    pub(super) fn loading(config: Config) -> Self {
        let (sender, jobs) = mpsc::channel();
        let desk = Arc::new(Desk::new(sender));
        let abandoned = Arc::new(AtomicUsize::new(0));
        let log = Arc::new(Mutex::new(String::new()));
        let sink = Arc::clone(&log);
        let write = move |line: &str| sink.lock().unwrap().push_str(line);
        let count = Arc::clone(&abandoned);
        thread::spawn(move || {
            for job in jobs {
                let count = Arc::clone(&count);
                thread::spawn(move || play(&job, &count));
            }
        });
        let app = App::new(Arc::clone(&desk), config, LogWriter::to(write, LogFormat::Text, || 0));
        Self { app: Arc::new(app), desk, abandoned, log }
    }

    /// Waits until so many requests were left by their clients.
    #[track_caller]
    pub(super) fn expect_abandoned(&self, wanted: usize) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.abandoned.load(Ordering::Relaxed) < wanted {
            assert!(Instant::now() < until, "the client's leaving was not noticed");
            thread::yield_now();
        }
    }
}

/// Times that make tests short. What must not run out in a test on a busy machine is long.
pub(super) fn times() -> Times {
    Times {
        keepalive: Duration::from_millis(20),
        read: Duration::from_mins(1),
        stall: Duration::from_mins(1),
    }
}

fn play(job: &Job, abandoned: &AtomicUsize) {
    let send = |update| job.outbox.send(update);
    let usage = Usage { prompt_tokens: 7, cached_tokens: 3, output_tokens: 2, reasoning_tokens: 0 };
    match job.request.model.as_str() {
        "waits" => {
            send(Update::Waiting(Waiting::Prefill { done: 2, total: 7 }));
            until_abandoned(job, abandoned);
        }
        "queued" => {
            send(Update::Waiting(Waiting::Queued { position: 2 }));
            until_abandoned(job, abandoned);
        }
        "fails" => {
            send(Update::Failed(Failure::new(FailureKind::Engine, "the device is lost")));
        }
        "breaks" => {
            send(Update::Begin(usage));
            send(Update::Text("half".into()));
            send(Update::Failed(Failure::new(FailureKind::Engine, "the device is lost")));
        }
        "leaves" => {}
        "tells" => {
            send(Update::Begin(usage));
            for _ in 0..4096 {
                while job.outbox.is_full() && !job.outbox.is_abandoned() {
                    thread::sleep(Duration::from_millis(1));
                }
                send(Update::Text("word ".repeat(200)));
            }
            send(Update::End(Box::new(Outcome {
                finish: Finish::Stop,
                usage,
                ..Outcome::default()
            })));
        }
        "talks" => {
            send(Update::Begin(usage));
            while !job.outbox.is_abandoned() {
                if !job.outbox.is_full() {
                    send(Update::Text("word ".repeat(200)));
                }
                thread::yield_now();
            }
            abandoned.fetch_add(1, Ordering::Relaxed);
        }
        _ => {
            send(Update::Begin(usage));
            send(Update::Text("Hello".into()));
            send(Update::Text(" world".into()));
            let (finish, text) = (Finish::Stop, "Hello world".into());
            send(Update::End(Box::new(Outcome { finish, text, usage, ..Outcome::default() })));
        }
    }
}

fn until_abandoned(job: &Job, abandoned: &AtomicUsize) {
    while !job.outbox.is_abandoned() {
        thread::sleep(Duration::from_millis(1));
    }
    abandoned.fetch_add(1, Ordering::Relaxed);
}
