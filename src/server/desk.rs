//! Where connections hand in requests, and ask how things are.
//!
//! The desk is there before the model is: until then it refuses with [`FailureKind::Loading`]. Everything here is for
//! many threads; what takes the engine goes to its thread through `jobs`.

use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::outbox::{Inbox, OUTBOX_BYTES, Outbox, outbox};
use super::{Failure, FailureKind, Request};

/// A request on its way to the engine's thread.
#[derive(Debug)]
pub struct Job {
    /// The request's id, for logs: the one that the client sees.
    pub id: String,
    /// What is wanted.
    pub request: Request,
    /// Where the answer goes.
    pub outbox: Outbox,
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

/// Facts about the open model that connections need.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// Positions of a session.
    pub ctx_tokens: usize,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Most tokens of a reply whose request names no limit.
    pub default_limit: usize,
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
}

/// What the engine's thread says about itself.
#[derive(Debug, Default)]
struct Board {
    facts: Option<Facts>,
    status: Status,
}

impl Desk {
    /// A desk whose jobs go to `jobs`.
    pub fn new(jobs: Sender<Job>) -> Self {
        Self { jobs: Mutex::new(jobs), board: Mutex::default() }
    }

    /// Takes a request. What can be refused without the engine is refused here: wrong state, a prompt that does not fit.
    /// May take as long as tokenizing the prompt: not for an asynchronous task.
    ///
    /// # Errors
    /// [`FailureKind::Loading`], [`FailureKind::Stopping`], [`FailureKind::QueueFull`],
    /// [`FailureKind::ContextLength`], and whatever is wrong with the conversation.
    pub fn submit(&self, id: String, request: Request) -> Result<Inbox, Failure> {
        match self.status().state {
            State::Ready | State::Idle => {}
            State::Loading => {
                return Err(Failure::new(FailureKind::Loading, "the model is being loaded"));
            }
            State::Stopping => {
                return Err(Failure::new(FailureKind::Stopping, "the server is stopping"));
            }
        }
        let (outbox, inbox) = outbox(OUTBOX_BYTES);
        let gone = |_| Failure::new(FailureKind::Stopping, "the server is stopping");
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.send(Job { id, request, outbox }).map_err(gone)?;
        Ok(inbox)
    }

    /// Tokens of a request's prompt.
    pub fn count(&self, _request: &Request) -> Result<usize, Failure> {
        Err(Failure::new(FailureKind::Loading, "the model is being loaded"))
    }
    /// Tokens of a text.
    pub fn tokenize(&self, _text: &str) -> Result<Vec<crate::tokenizer::TokenId>, Failure> {
        Err(Failure::new(FailureKind::Loading, "the model is being loaded"))
    }
    /// The text of tokens.
    pub fn detokenize(&self, _ids: &[crate::tokenizer::TokenId]) -> Result<String, Failure> {
        Err(Failure::new(FailureKind::Loading, "the model is being loaded"))
    }
    /// All metrics.
    pub fn metrics(&self) -> String {
        "# EOF\n".into()
    }
    /// Counts a response.
    pub fn count_response(&self, _path: &str, _status: u16) {}
    /// Stops.
    pub fn stop(&self) {
        self.board().status.state = State::Stopping;
    }
    /// The model is open.
    pub fn open(&self, facts: Facts, _office: Option<()>) {
        self.board().facts = Some(facts);
    }
    /// Says how things are.
    pub fn announce(&self, state: State, slots: Vec<SlotStatus>) {
        let mut board = self.board();
        board.status.slots = slots;
        board.status.state = state;
    }
    /// How things are.
    pub fn status(&self) -> Status {
        self.board().status.clone()
    }

    /// Facts about the model; `None` while it is being loaded for the first time.
    pub fn facts(&self) -> Option<Facts> {
        self.board().facts.clone()
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
