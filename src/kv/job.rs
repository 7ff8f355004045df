//! One save under way: a state goes part by part from a session to the thread that writes it.
//!
//! The thread that runs steps only starts copies and hands on what has arrived, a little at a time between steps. The
//! writer converts, sums and writes. What is under way is bounded: parts in flight, and a short queue to the writer.

use std::collections::VecDeque;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::payload::StateHead;
use super::write::{self, Piece, SaveError, Task, Written};
use crate::engine::{Error, PART_BYTES, PartReading, Position, StateIo};
use crate::model::{StateLayout, StatePart};
use crate::tokenizer::TokenId;

/// Pieces between the two threads.
const QUEUE: usize = 16;
/// Copies under way while somebody waits for tokens, and while nobody does.
const AHEAD_BETWEEN_STEPS: usize = 2;
const AHEAD: usize = 6;
/// How long to wait for a writer that holds every buffer.
const NAP: Duration = Duration::from_micros(100);

/// Whether steps are waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// A little, without waiting.
    BetweenSteps,
    /// All that is left.
    ToTheEnd,
}

/// What becomes of the payload next.
enum Step {
    Bytes(Vec<u8>),
    Part(StatePart),
}

enum Flying {
    Bytes(Vec<u8>),
    Part(PartReading),
}

/// A save.
pub(super) struct Job {
    pub(super) at: Position,
    /// Tokens of the state.
    pub(super) tokens: usize,
    pub(super) started: Instant,
    steps: VecDeque<Step>,
    flying: VecDeque<Flying>,
    ready: Option<Piece>,
    to_writer: Option<SyncSender<Piece>>,
    writer: JoinHandle<Result<Written, SaveError>>,
}

impl Job {
    /// Starts the writer. The position must stay readable until [`Job::is_read`].
    pub(super) fn start(
        (at, layout): (Position, &StateLayout),
        (head, tokens, logits): (&StateHead, &[TokenId], &[f32]),
        task: Task,
    ) -> Result<Self, SaveError> {
        let path = task.path.clone();
        let steps = steps(layout, head, tokens, logits);
        let (to_writer, pieces) = sync_channel(QUEUE);
        let writer = spawn(move || write::write(task, &pieces))
            .map_err(|source| SaveError::Io { path, source })?;
        let (flying, ready) = (VecDeque::new(), None);
        let tokens = tokens.len();
        let (to_writer, started) = (Some(to_writer), Instant::now());
        Ok(Self { at, tokens, started, steps, flying, ready, to_writer, writer })
    }

    /// Starts one that needs nothing from a session.
    pub(super) fn detached(
        at: Position,
        tokens: usize,
        work: impl FnOnce() -> Result<Written, SaveError> + Send + 'static,
    ) -> std::io::Result<Self> {
        let (steps, flying) = (VecDeque::new(), VecDeque::new());
        let writer = spawn(work)?;
        let (ready, to_writer, started) = (None, None, Instant::now());
        Ok(Self { at, tokens, started, steps, flying, ready, to_writer, writer })
    }

    /// Whether everything has been read: the session may do what it likes.
    pub(super) fn is_read(&self) -> bool {
        self.to_writer.is_none()
    }

    /// Whether the writer is done.
    pub(super) fn is_finished(&self) -> bool {
        self.is_read() && self.writer.is_finished()
    }

    /// Waits for the writer.
    pub(super) fn join(mut self) -> Result<Written, SaveError> {
        self.abandon();
        self.writer.join().unwrap_or(Err(SaveError::Abandoned))
    }

    /// Gives up what has not been read: no file appears, unless all of it is with the writer.
    pub(super) fn abandon(&mut self) {
        self.steps.clear();
        self.flying.clear();
        self.ready = None;
        self.to_writer = None;
    }

    /// Reads on.
    ///
    /// # Errors
    /// When the position is gone or the device lost; the save is abandoned then.
    pub(super) fn advance(&mut self, engine: &mut dyn StateIo, pace: Pace) -> Result<(), Error> {
        let advanced = match pace {
            Pace::BetweenSteps => self.advance_a_little(engine),
            Pace::ToTheEnd => self.advance_to_the_end(engine),
        };
        if advanced.is_err() {
            self.abandon();
        }
        advanced
    }

    fn advance_a_little(&mut self, engine: &mut dyn StateIo) -> Result<(), Error> {
        // What was started before the last step has arrived with it.
        for _ in 0..AHEAD_BETWEEN_STEPS {
            self.take_one(engine)?;
            if !self.offer() {
                return Ok(());
            }
        }
        self.launch(engine, AHEAD_BETWEEN_STEPS)
    }

    fn advance_to_the_end(&mut self, engine: &mut dyn StateIo) -> Result<(), Error> {
        while !self.is_read() {
            self.launch(engine, AHEAD)?;
            if self.flying.is_empty() && self.ready.is_none() && !self.steps.is_empty() {
                thread::sleep(NAP);
            }
            self.take_one(engine)?;
            if let (Some(piece), Some(to_writer)) = (self.ready.take(), &self.to_writer)
                && to_writer.send(piece).is_err()
            {
                self.abandon();
            }
            self.close_if_done();
        }
        Ok(())
    }

    /// Starts copies until so many are under way.
    fn launch(&mut self, engine: &mut dyn StateIo, ahead: usize) -> Result<(), Error> {
        while self.flying.len() < ahead {
            let Some(step) = self.steps.pop_front() else { break };
            match step {
                Step::Bytes(bytes) => self.flying.push_back(Flying::Bytes(bytes)),
                Step::Part(part) => {
                    let Some(reading) = engine.start_part(self.at, &part)? else {
                        self.steps.push_front(Step::Part(part));
                        break;
                    };
                    self.flying.push_back(Flying::Part(reading));
                }
            }
        }
        Ok(())
    }

    /// The oldest copy becomes what is ready, unless something is.
    fn take_one(&mut self, engine: &mut dyn StateIo) -> Result<(), Error> {
        if self.ready.is_none() {
            self.ready = match self.flying.pop_front() {
                None => None,
                Some(Flying::Bytes(bytes)) => Some(Piece::Bytes(bytes)),
                Some(Flying::Part(reading)) => Some(Piece::Part(engine.finish_part(reading)?)),
            };
        }
        Ok(())
    }

    /// Hands on what is ready, if the writer takes it now.
    fn offer(&mut self) -> bool {
        if let (Some(piece), Some(to_writer)) = (self.ready.take(), &self.to_writer) {
            match to_writer.try_send(piece) {
                Ok(()) => {}
                Err(TrySendError::Full(piece)) => {
                    self.ready = Some(piece);
                    return false;
                }
                Err(TrySendError::Disconnected(_)) => self.abandon(),
            }
        }
        self.close_if_done();
        true
    }

    fn close_if_done(&mut self) {
        if self.steps.is_empty() && self.flying.is_empty() && self.ready.is_none() {
            self.to_writer = None;
        }
    }
}

fn spawn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    thread::Builder::new().name("q36-save".into()).spawn(work)
}

/// Everything of a payload in order.
fn steps(
    layout: &StateLayout,
    head: &StateHead,
    tokens: &[TokenId],
    logits: &[f32],
) -> VecDeque<Step> {
    let mut first = head.encode();
    first.extend(tokens.iter().flat_map(|id| id.0.to_le_bytes()));
    first.extend_from_slice(bytemuck::cast_slice(logits));
    let mut steps = VecDeque::from([Step::Bytes(first)]);
    for layer in 0..layout.layers {
        if layout.is_full_attention(layer) {
            steps.push_back(Step::Bytes(head.tokens.to_le_bytes().to_vec()));
        }
        steps.extend(layout.parts(layer, tokens.len(), PART_BYTES).map(Step::Part));
    }
    steps
}
