//! The engine's thread: opens the model, serves, puts the model away when nobody comes, and ends in good order.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::floor::{Common, Floor, Waiter};
use super::queue::Queue;
use super::replay::ToolFiles;
use super::saved::Saved;
use super::trace::Trace;
use super::{Config, Error, Office};
use crate::engine::StateIo;
use crate::kv::{self, ModelKey, Moment};
use crate::server::{
    Desk, Facts, Failure, FailureKind, Job, Log, LogEvent, State, Update, Waiting, What,
};
use crate::tokenizer::Tokenizer;
use crate::util::signal::Interrupt;

/// How long to wait for requests when there is nothing to do.
const NAP: Duration = Duration::from_millis(20);
/// As long as something is being saved, or a client catches up.
const SHORT_NAP: Duration = Duration::from_millis(2);
/// How often the desk hears how things are.
const PUBLISH_EVERY: Duration = Duration::from_millis(50);

/// An open model.
pub struct Opened {
    /// The engine, with room for the sessions of the configuration.
    pub engine: Box<dyn StateIo>,
    /// Its vocabulary, for threads that prepare requests.
    pub tokenizer: Arc<Tokenizer>,
}

/// The engine's thread before it runs.
pub struct Worker<F> {
    config: Arc<Config>,
    open: F,
    desk: Arc<Desk>,
    jobs: Receiver<Job>,
    log: Arc<dyn Log>,
}

/// Why serving pauses.
enum Pause {
    Stop,
    Idle,
}

impl<F, E> Worker<F>
where
    F: FnMut() -> Result<Opened, E>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// One that serves the jobs of a desk. `open` opens the model: at the start, and again after it was put away.
    pub fn new(
        config: Config,
        open: F,
        desk: Arc<Desk>,
        jobs: Receiver<Job>,
        log: Arc<dyn Log>,
    ) -> Self {
        Self { config: Arc::new(config), open, desk, jobs, log }
    }

    /// Serves until `stop` is raised or the desk is stopped, then ends what is under way and saves sessions.
    ///
    /// # Errors
    /// When the model cannot be opened, or the engine is lost for good. Every request has been answered by then.
    pub fn run(mut self, stop: &Interrupt) -> Result<(), Error> {
        let served = self.serve(stop);
        self.desk.stop();
        // Nobody is left without an answer.
        for job in self.jobs.try_iter() {
            job.outbox.send(Update::Failed(Failure::stopping()));
        }
        served
    }

    fn serve(&mut self, stop: &Interrupt) -> Result<(), Error> {
        let opened = self.open_model()?;
        let common = self.common(&opened)?;
        let (ctx_tokens, default_limit) = (common.office.ctx_tokens, self.config.default_limit);
        let vocab = opened.tokenizer.vocab_size();
        let facts = Facts { ctx_tokens, default_limit, vocab };
        self.desk.open(facts, Some(Arc::clone(&common.office)));
        let mut queue = Queue::default();
        let mut floor = Self::ready(opened, common)?;
        loop {
            match self.serve_a_while(&mut floor, &mut queue, stop) {
                Ok(Pause::Idle) => {}
                ended => return self.shut_down(floor, queue, ended.map(|_| ())),
            }
            let common = floor.put_away()?;
            self.desk.announce(State::Idle, Vec::new());
            common.say(None, None, What::State("idle"));
            let Some(job) = self.next_job(stop) else { return Ok(()) };
            job.outbox.send(Update::Waiting(Waiting::Loading));
            let opened = self.open_model().inspect_err(|error| {
                let text = format!("the model cannot be opened again: {error}");
                job.outbox.send(Update::Failed(Failure::new(FailureKind::Engine, text)));
            })?;
            floor = Self::ready(opened, common)?;
            take(&mut queue, job);
        }
    }

    fn open_model(&mut self) -> Result<Opened, Error> {
        self.desk.announce(State::Loading, Vec::new());
        self.log.log(&LogEvent { request: None, slot: None, what: What::State("loading") });
        (self.open)().map_err(|error| Error::Open(error.into()))
    }

    fn ready(opened: Opened, common: Common) -> Result<Floor, Error> {
        let floor = Floor::new(opened, common)?;
        floor.publish(State::Ready, 0);
        floor.common.say(None, None, What::State("ready"));
        Ok(floor)
    }

    /// What outlives the model.
    fn common(&self, opened: &Opened) -> Result<Common, Error> {
        let engine = &*opened.engine;
        let config = &self.config;
        let trace = config.trace.as_ref().map(Trace::open).transpose()?;
        let store = |disk: &kv::Config| kv::Store::for_model(disk.clone(), ModelKey::of(engine));
        let saved = Saved::new(config.disk.as_ref().map(store).transpose()?);
        let files = config.disk.clone().map(|disk| ToolFiles::new(disk, ModelKey::of(engine)));
        let tokenizer = Arc::clone(&opened.tokenizer);
        let ctx_tokens = engine.info().ctx_tokens;
        let office = Office::new(Arc::clone(config), tokenizer, ctx_tokens, files);
        Ok(Common {
            config: Arc::clone(config),
            desk: Arc::clone(&self.desk),
            office: Arc::new(office),
            saved,
            log: Arc::clone(&self.log),
            trace,
            requests: 0,
            sends_thoughts: true,
        })
    }

    /// Rounds of work, until the end or until nobody has come for long.
    fn serve_a_while(
        &self,
        floor: &mut Floor,
        queue: &mut Queue<Waiter>,
        stop: &Interrupt,
    ) -> Result<Pause, Error> {
        let mut used = Instant::now();
        let mut published = Instant::now();
        loop {
            if stop.is_raised() || self.desk.is_stopping() {
                return Ok(Pause::Stop);
            }
            for job in self.jobs.try_iter() {
                take(queue, job);
            }
            let worked = floor.round(queue)?;
            let in_use = floor.is_active() || !queue.is_empty();
            if in_use {
                used = Instant::now();
            }
            let changed = std::mem::take(&mut floor.changed);
            if changed || !worked || published.elapsed() >= PUBLISH_EVERY {
                published = Instant::now();
                floor.publish(State::Ready, queue.len());
            }
            if worked {
                continue;
            }
            let is_saving = floor.common.saved.is_busy();
            let patience = self.config.idle_unload.filter(|_| !in_use && !is_saving);
            if patience.is_some_and(|patience| used.elapsed() >= patience) {
                return Ok(Pause::Idle);
            }
            match self.jobs.recv_timeout(if in_use || is_saving { SHORT_NAP } else { NAP }) {
                Ok(job) => take(queue, job),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(Pause::Stop),
            }
        }
    }

    /// Waits for a request while there is no model; `None` at the end.
    fn next_job(&self, stop: &Interrupt) -> Option<Job> {
        while !stop.is_raised() && !self.desk.is_stopping() {
            match self.jobs.recv_timeout(NAP) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }

    /// Answers everybody, and saves what is worth it.
    fn shut_down(
        &self,
        mut floor: Floor,
        mut queue: Queue<Waiter>,
        served: Result<(), Error>,
    ) -> Result<(), Error> {
        self.desk.stop();
        self.log.log(&LogEvent { request: None, slot: None, what: What::State("stopping") });
        let failure = match &served {
            Ok(()) => Failure::stopping(),
            Err(error) => Failure::new(FailureKind::Engine, error.to_string()),
        };
        while let Some(waiter) = queue.pop() {
            waiter.outbox.send(Update::Failed(failure.clone()));
        }
        for index in 0..floor.slots.len() {
            floor.fail(index, failure.clone());
        }
        served?;
        floor.save_all(Moment::Shutdown, self.config.shutdown_timeout)
    }
}

/// Puts a request into the queue.
fn take(queue: &mut Queue<Waiter>, job: Job) {
    let Job { id, request, body, outbox, prepared, place } = job;
    let Some(prepared) = prepared else {
        let text = "the request was not prepared";
        outbox.send(Update::Failed(Failure::new(FailureKind::Engine, text)));
        return;
    };
    queue.push(Waiter {
        id,
        request,
        body,
        prepared,
        outbox,
        arrived: Instant::now(),
        waits_since: None,
        _place: place,
    });
}

impl Floor {
    /// Saves every session that is worth it, and gives back what outlives the model.
    ///
    /// # Errors
    /// When the engine is lost for good.
    fn put_away(mut self) -> Result<Common, Error> {
        let timeout = self.common.config.shutdown_timeout;
        self.save_all(Moment::Evict, timeout)?;
        if self.common.saved.sizes().is_none() && self.slots.iter().any(|s| s.last_used > 0) {
            let text = "the model is put away; without a disk cache its sessions are dropped";
            self.common.say(None, None, What::Cache(text.to_owned()));
        }
        for slot in &self.slots {
            self.common.saved.forget(slot.session);
        }
        Ok(self.common)
    }

    /// Saves every session that is worth it, for so long at most.
    fn save_all(&mut self, moment: Moment, timeout: Duration) -> Result<(), Error> {
        let begun = Instant::now();
        for index in 0..self.slots.len() {
            if begun.elapsed() >= timeout {
                break;
            }
            self.save(index, moment).or_else(|error| self.not_saved(index, error))?;
        }
        while self.common.saved.is_busy() && begun.elapsed() < timeout {
            self.common.saved.pump(&mut *self.engine);
            std::thread::sleep(Duration::from_micros(200));
        }
        self.common.pass_notes();
        Ok(())
    }
}
