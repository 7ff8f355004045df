//! The engine with its sessions, and one round of work: a decode step, then a slice of a prompt.

use std::sync::Arc;
use std::time::Instant;

use super::queue::Queue;
use super::saved::Saved;
use super::slot::{Slot, Work};
use super::trace::Trace;
use super::{Config, Error, Office, Opened};
use crate::engine::{self, StateIo};
use crate::server::Place;
use crate::server::{Desk, Failure, FailureKind, Log, LogEvent, Update, What};
use crate::server::{Outbox, Request};
use crate::tokenizer::Tokenizer;
use crate::util::clock::unix_seconds;

/// What outlives the model.
pub(super) struct Common {
    pub(super) config: Arc<Config>,
    pub(super) desk: Arc<Desk>,
    pub(super) office: Arc<Office>,
    pub(super) saved: Saved,
    pub(super) log: Arc<dyn Log>,
    pub(super) trace: Option<Trace>,
    /// Counts requests.
    pub(super) requests: u64,
    /// Whether the client that came last with calls of ours sent their thoughts back.
    pub(super) sends_thoughts: bool,
}

/// A request that has no session yet.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) id: String,
    pub(super) request: Request,
    /// The body that it came in, where requests are written down.
    pub(super) body: Option<String>,
    pub(super) prepared: Box<super::Prepared>,
    pub(super) outbox: Outbox,
    pub(super) arrived: Instant,
    /// The count of uses of sessions when it last preferred to wait.
    pub(super) waits_since: Option<u64>,
    /// Dropped with it.
    pub(super) _place: Place,
}

/// The engine at work.
pub(super) struct Floor {
    pub(super) engine: Box<dyn StateIo>,
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) slots: Vec<Slot>,
    pub(super) common: Common,
    /// Who had the last slice, and whether its chunk is still open.
    pub(super) last_slice: (usize, bool),
    /// Seconds that a token of a prompt took, as slices went last; 0 before that is known.
    pub(super) token_seconds: f64,
    /// Counts uses of sessions.
    pub(super) uses: u64,
    /// Sessions do something else than when it was last told.
    pub(super) changed: bool,
}

impl Common {
    /// Says something about a request, or about none.
    pub(super) fn say(&self, request: Option<&str>, slot: Option<usize>, what: What) {
        let request = request.map(str::to_owned);
        self.log.log(&LogEvent { request, slot, what });
    }

    /// Writes down something that happened to a request, where requests are written down.
    pub(super) fn note(&mut self, number: u64, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.event(number, &text());
        }
    }

    /// Passes on what the store has noted.
    pub(super) fn pass_notes(&mut self) {
        for note in self.saved.take_notes() {
            self.say(None, None, What::Cache(note));
        }
    }
}

impl Floor {
    /// Opens the sessions.
    pub(super) fn new(opened: Opened, common: Common) -> Result<Self, Error> {
        let Opened { mut engine, tokenizer } = opened;
        let sessions = common.config.sessions.max(1);
        let mut slots = Vec::with_capacity(sessions);
        for number in 1..=sessions {
            match engine.open_session() {
                Ok(session) => slots.push(Slot::new(session)),
                Err(source) => return Err(Error::Session { number, sessions, source }),
            }
        }
        let last_slice = (sessions - 1, false);
        let (token_seconds, uses, changed) = (0.0, 0, false);
        Ok(Self { engine, tokenizer, slots, common, last_slice, token_seconds, uses, changed })
    }

    /// Whether any session serves somebody.
    pub(super) fn is_active(&self) -> bool {
        self.slots.iter().any(|slot| !slot.is_idle())
    }

    /// One round; whether anything was done.
    ///
    /// # Errors
    /// When the engine is lost for good.
    pub(super) fn round(&mut self, queue: &mut Queue<Waiter>) -> Result<bool, Error> {
        self.drop_the_gone();
        let admitted = self.admit(queue)?;
        let decoded = self.decode_step()?;
        let sliced = self.prefill_slice()?;
        self.common.saved.pump(&mut *self.engine);
        self.common.pass_notes();
        Ok(admitted || decoded || sliced)
    }

    /// Ends requests whose client has left, or leaves its answer unread for too long.
    fn drop_the_gone(&mut self) {
        let patience = self.common.config.client_stall;
        for index in 0..self.slots.len() {
            let Some(serving) = self.slots[index].serving_mut() else { continue };
            if !serving.outbox.is_full() {
                serving.stalled = None;
            }
            let since = serving.stalled.filter(|since| since.elapsed() >= patience);
            if serving.outbox.is_abandoned() || since.is_some() {
                self.cancel(index);
            }
        }
    }

    /// Frees a session whose request nobody waits for. What was evaluated stays.
    pub(super) fn cancel(&mut self, index: usize) {
        self.end(index, "cancelled", None);
    }

    /// Answers a request with an error, and frees its session.
    pub(super) fn fail(&mut self, index: usize, mut failure: Failure) {
        let error = failure.message.clone();
        if let Work::Decode(active) = &self.slots[index].work {
            failure.output_tokens = active.writing.tokens();
        }
        if let Some(serving) = self.slots[index].serving() {
            serving.outbox.send(Update::Failed(failure));
        }
        self.end(index, "error", Some(error));
    }

    /// Whether nothing works any more.
    pub(super) fn is_fatal(error: &engine::Error) -> bool {
        matches!(error, engine::Error::Recovery(_))
    }

    /// The answer to an error of the engine.
    pub(super) fn failure_of(error: &engine::Error) -> Failure {
        let text = error.to_string();
        Failure::new(FailureKind::Engine, text.lines().next().unwrap_or_default())
    }

    /// Fails one request, or all when the engine is lost for good.
    pub(super) fn failed(&mut self, index: usize, error: engine::Error) -> Result<(), Error> {
        if Self::is_fatal(&error) {
            return Err(error.into());
        }
        self.fail(index, Self::failure_of(&error));
        Ok(())
    }

    /// Frees a session before its request was answered.
    fn end(&mut self, index: usize, finish: &'static str, error: Option<String>) {
        let slot = &mut self.slots[index];
        self.engine.end_sync(slot.session);
        let work = std::mem::take(&mut slot.work);
        slot.cut(self.engine.tokens(slot.session).len());
        if self.last_slice.0 == index {
            self.last_slice.1 = false;
        }
        let (serving, tokens) = match work {
            Work::Idle => return,
            Work::Prefill(filling) => (filling.serving, 0),
            Work::Decode(active) => {
                slot.loose = Some(active.serving.usage.prompt_tokens);
                (active.serving, active.writing.tokens())
            }
        };
        let took = serving.arrived.elapsed();
        self.touch(index);
        self.common.desk.counters().count_finish(finish, tokens, took);
        if let Some(trace) = &mut self.common.trace {
            trace.end(serving.number, finish, error.as_deref());
        }
        self.common.say(
            Some(&serving.id),
            Some(index),
            What::Finish { finish, tokens, error, took },
        );
    }

    /// A session was used just now.
    pub(super) fn touch(&mut self, index: usize) {
        self.uses += 1;
        self.changed = true;
        let slot = &mut self.slots[index];
        (slot.last_used, slot.used_at) = (self.uses, unix_seconds());
    }

    /// Says something about the request that a session serves.
    pub(super) fn say(&self, index: usize, what: What) {
        let request = self.slots[index].serving().map(|serving| serving.id.as_str());
        self.common.say(request, Some(index), what);
    }

    /// Calls of a session's conversation, for its file.
    pub(super) fn tool_blocks(&self, index: usize) -> Vec<crate::kv::ToolBlock> {
        let ids = &self.slots[index].calls;
        self.common.office.with_memory(|memory| memory.for_disk(ids)).unwrap_or_default()
    }
}
