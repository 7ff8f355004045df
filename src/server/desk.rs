//! Where connections hand in requests, and ask how things are.
//!
//! The desk is there before the model is: until then it refuses with [`FailureKind::Loading`]. Everything here is for
//! many threads; what takes the engine goes to its thread through `jobs`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::outbox::{Inbox, OUTBOX_BYTES, Outbox, outbox};
use super::schedule::{Office, Prepared};
use super::{Failure, FailureKind, Metrics, Request};
use crate::tokenizer::TokenId;

/// A request on its way to the engine's thread.
#[derive(Debug)]
pub struct Job {
    /// The request's id, for logs: the one that the client sees.
    pub id: String,
    /// What is wanted.
    pub request: Request,
    /// The body that it came in, where requests are written down.
    pub body: Option<String>,
    /// Where the answer goes.
    pub outbox: Outbox,
    /// What was decided about it already; `None` where the desk has no [`Office`].
    pub prepared: Option<Box<Prepared>>,
    /// Gives its place in the queue back.
    pub place: Place,
}

/// A place in the queue. Dropping it lets somebody else in.
#[derive(Debug)]
pub struct Place(Arc<AtomicUsize>);

impl Place {
    /// The next place of a queue of at most `most`; `None` when it is full.
    fn take(queued: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let next = |n: usize| (n < most).then_some(n + 1);
        queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        Some(Self(Arc::clone(queued)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the server is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    /// The model is being loaded.
    #[default]
    Loading,
    /// Requests are served.
    Ready,
    /// The model was put away for want of requests; the next one loads it.
    Idle,
    /// No more requests.
    Stopping,
}

impl State {
    /// Its name in answers and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Ready => "ready",
            Self::Idle => "idle",
            Self::Stopping => "shutting_down",
        }
    }
}

/// Facts about the open model that connections need.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// Positions of a session.
    pub ctx_tokens: usize,
    /// Most tokens of a reply whose request names no limit.
    pub default_limit: usize,
    /// Tokens of the vocabulary.
    pub vocab: usize,
}

/// A resident session as `/slots` shows it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SlotStatus {
    /// From 0.
    pub id: usize,
    /// `idle`, `prefill`, `decode` or `paused`.
    pub state: &'static str,
    /// Tokens it holds.
    pub tokens: usize,
    /// When it was last used, Unix seconds; 0 for never.
    pub last_used: u64,
    /// What it can be continued by: `none`, `responses`, `tools` or `thinking`.
    pub binding: &'static str,
    /// The request it serves.
    pub request: Option<String>,
    /// Tokens a second of the reply it is writing.
    pub tokens_per_second: f64,
    /// Positions where its state is kept.
    pub anchors: usize,
}

/// How things are.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Status {
    /// What the server is doing.
    pub state: State,
    /// Requests that wait for a slot.
    pub queued: usize,
    /// The resident sessions.
    pub slots: Vec<SlotStatus>,
}

/// The desk.
#[derive(Debug)]
pub struct Desk {
    jobs: Mutex<Sender<Job>>,
    board: Mutex<Board>,
    metrics: Metrics,
    /// Requests that have no session yet, those on their way included.
    queued: Arc<AtomicUsize>,
    is_stopping: AtomicBool,
    is_away: AtomicBool,
}

/// What the engine's thread says about itself.
#[derive(Debug, Default)]
struct Board {
    facts: Option<Facts>,
    status: Status,
    office: Option<Arc<Office>>,
}

impl Desk {
    /// A desk whose jobs go to `jobs`.
    pub fn new(jobs: Sender<Job>) -> Self {
        Self {
            jobs: Mutex::new(jobs),
            board: Mutex::default(),
            metrics: Metrics::default(),
            queued: Arc::default(),
            is_stopping: AtomicBool::new(false),
            is_away: AtomicBool::new(false),
        }
    }

    /// Takes a request. What can be refused without the engine is refused here: wrong state, a prompt that does not fit.
    /// May take as long as tokenizing the prompt: not for an asynchronous task. `body` is what the request came in; it is
    /// kept where requests are written down.
    ///
    /// # Errors
    /// [`FailureKind::Loading`], [`FailureKind::Stopping`], [`FailureKind::QueueFull`],
    /// [`FailureKind::ContextLength`], and whatever is wrong with the conversation.
    pub fn submit(&self, id: String, request: Request, body: &[u8]) -> Result<Inbox, Failure> {
        let office = self.office()?;
        let most = office.as_ref().map_or(usize::MAX, |office| self.most_waiting(office));
        let place = Place::take(&self.queued, most).ok_or_else(|| {
            let text = "too many requests are waiting already; try again later";
            Failure::new(FailureKind::QueueFull, text)
        })?;
        let is_traced = office.as_ref().is_some_and(|office| office.is_traced());
        let body = is_traced.then(|| String::from_utf8_lossy(body).into_owned());
        let prepared = office.map(|office| office.prepare(&request)).transpose()?.map(Box::new);
        let (outbox, inbox) = outbox(OUTBOX_BYTES);
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let job = Job { id, request, body, outbox, prepared, place };
        jobs.send(job).map_err(|_| Failure::stopping())?;
        Ok(inbox)
    }

    /// Tokens of a request's prompt. No session is touched; works while the model is busy or put away.
    ///
    /// # Errors
    /// As [`Desk::submit`], but for a full queue and a prompt that does not fit.
    pub fn count(&self, request: &Request) -> Result<usize, Failure> {
        self.open_office()?.count(request)
    }

    /// Tokens of a text, in which added tokens are plain letters.
    ///
    /// # Errors
    /// [`FailureKind::Loading`] and [`FailureKind::Stopping`].
    pub fn tokenize(&self, text: &str) -> Result<Vec<TokenId>, Failure> {
        Ok(self.open_office()?.tokenizer().encode_text(text.as_bytes()))
    }

    /// The text of tokens; what is no UTF-8 becomes U+FFFD.
    ///
    /// # Errors
    /// As [`Desk::tokenize`].
    pub fn detokenize(&self, ids: &[TokenId]) -> Result<String, Failure> {
        let bytes = self.open_office()?.tokenizer().decode(ids);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Takes no more requests, and has the engine's thread end what it is doing.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.board().status.state = State::Stopping;
    }

    /// Whether [`Desk::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Says whether the device of an open model is lost and being opened again. Requests are taken meanwhile; whoever
    /// asks how things are hears that the model is being loaded. From any thread: the engine's is busy with it.
    pub fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Relaxed);
    }

    /// How things are.
    pub fn status(&self) -> Status {
        let mut status = self.board().status.clone();
        if status.state == State::Ready && self.is_away.load(Ordering::Relaxed) {
            status.state = State::Loading;
        }
        status.queued = self.queued.load(Ordering::Relaxed);
        status
    }

    /// Facts about the model; `None` while it is being loaded for the first time.
    pub fn facts(&self) -> Option<Facts> {
        self.board().facts.clone()
    }

    /// All metrics as Prometheus reads them.
    pub fn metrics(&self) -> String {
        self.metrics.text()
    }

    /// Counts an HTTP response. `path` is the route, of which there are few, not what a client sent.
    pub fn count_response(&self, path: &str, status: u16) {
        self.metrics.count_response(path, status);
    }

    /// Where the engine's thread counts.
    pub fn counters(&self) -> &Metrics {
        &self.metrics
    }

    /// The model is open: requests are taken from now on, and prepared by `office`; without one they go on as they are.
    pub fn open(&self, facts: Facts, office: Option<Arc<Office>>) {
        let mut board = self.board();
        board.facts = Some(facts);
        board.office = office;
    }

    /// Says how things are. What was stopped stays so.
    pub fn announce(&self, state: State, slots: Vec<SlotStatus>) {
        let mut board = self.board();
        board.status.slots = slots;
        if board.status.state != State::Stopping {
            board.status.state = state;
        }
    }

    /// Where requests are prepared, if they can be served now.
    fn office(&self) -> Result<Option<Arc<Office>>, Failure> {
        let board = self.board();
        match board.status.state {
            State::Ready | State::Idle => Ok(board.office.clone()),
            // It has been open before, and is loaded for somebody who came first.
            State::Loading if board.office.is_some() => Ok(board.office.clone()),
            State::Loading => Err(Failure::loading()),
            State::Stopping => Err(Failure::stopping()),
        }
    }

    /// How many requests may have no session yet: those that may wait, and one on its way to each session that is free.
    fn most_waiting(&self, office: &Office) -> usize {
        let slots = &self.board().status.slots;
        let free = slots.iter().filter(|slot| slot.state == "idle").count();
        let (sessions, waiting) = office.limits();
        waiting.saturating_add(if slots.is_empty() { sessions } else { free })
    }

    fn open_office(&self) -> Result<Arc<Office>, Failure> {
        self.office()?.ok_or_else(Failure::loading)
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_desk_serves_nobody_before_the_model_is_open_nor_after_its_end() {
        let (jobs, _received) = channel();
        let desk = Desk::new(jobs);
        assert_eq!(desk.tokenize("x").unwrap_err().kind, FailureKind::Loading);
        assert_eq!(desk.facts(), None);
        desk.stop();
        desk.announce(State::Ready, Vec::new());
        assert_eq!(desk.status().state, State::Stopping);
        assert_eq!(desk.tokenize("x").unwrap_err().kind, FailureKind::Stopping);
    }

    #[test]
    fn places_in_the_queue_come_back() {
        let queued = Arc::default();
        let first = Place::take(&queued, 2).unwrap();
        let second = Place::take(&queued, 2).unwrap();
        assert!(Place::take(&queued, 2).is_none());
        drop(first);
        assert!(Place::take(&queued, 2).is_some());
        drop(second);
        assert_eq!(queued.load(Ordering::Relaxed), 0);
    }
}
