//! An engine for servers that says what a test wants and tells what it was asked to do.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use q36::engine::sample::{DrawRules, Sampler, SamplerParams};
use q36::engine::{
    Advance, Engine, Error, Info, PartReading, Position, RawPart, Reuse, SessionId, Slice,
    SnapshotId, Stage, StateIo, StateSource, SyncReport, Target,
};
use q36::model::{Model, StateLayout, StatePart};
use q36::server::schedule::Opened;
use q36::tokenizer::{TokenId, Tokenizer};

use crate::support::scripted::ScriptedEngine;
use crate::support::tiny_model;

/// Work that an engine was asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Did {
    /// A slice of a session's prompt: so many tokens.
    Slice(u32, usize),
    /// A step of these sessions.
    Step(Vec<u32>),
}

/// What engine and test share.
#[derive(Debug, Default)]
struct Shared {
    did: Vec<Did>,
    /// How long each slice might take.
    limits: Vec<Duration>,
    /// Steps that may still be done; `None` is any number.
    steps: Option<usize>,
    /// Slices likewise.
    slices: Option<usize>,
    /// The next step of at least so many sessions fails.
    failing_members: Option<usize>,
    fail_next_slice: bool,
    /// Engines that are open.
    engines: usize,
}

/// The test's end: watches the engine, holds it up, makes it fail.
#[derive(Clone, Default)]
pub(super) struct Control(Arc<(Mutex<Shared>, Condvar)>);

impl Control {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.0.lock().unwrap()
    }

    /// What was done since the last call.
    pub(super) fn take(&self) -> Vec<Did> {
        self.take_timed().0
    }

    /// The same, and the limits of the slices among it.
    pub(super) fn take_timed(&self) -> (Vec<Did>, Vec<Duration>) {
        let mut shared = self.lock();
        (std::mem::take(&mut shared.did), std::mem::take(&mut shared.limits))
    }

    /// Lets so many more steps happen; then the engine waits.
    pub(super) fn allow_steps(&self, steps: usize) {
        self.lock().steps = Some(steps);
        self.0.1.notify_all();
    }

    /// Lets so many more slices happen.
    pub(super) fn allow_slices(&self, slices: usize) {
        self.lock().slices = Some(slices);
        self.0.1.notify_all();
    }

    /// Lets everything happen.
    pub(super) fn release(&self) {
        let mut shared = self.lock();
        (shared.steps, shared.slices) = (None, None);
        self.0.1.notify_all();
    }

    /// Makes the next step of at least so many sessions fail.
    pub(super) fn fail_step_of(&self, members: usize) {
        self.lock().failing_members = Some(members);
    }

    pub(super) fn fail_next_slice(&self) {
        self.lock().fail_next_slice = true;
    }

    /// How many engines hold memory.
    pub(super) fn engines(&self) -> usize {
        self.lock().engines
    }

    /// How many prompt tokens were evaluated of what `take` would return.
    pub(super) fn evaluated(&self) -> usize {
        let tokens = |did: &Did| if let Did::Slice(_, n) = did { *n } else { 0 };
        self.lock().did.iter().map(tokens).sum()
    }

    /// Waits until a step or a slice may happen, and takes note of it.
    fn pass(&self, did: Did) -> bool {
        let members = if let Did::Step(sessions) = &did { Some(sessions.len()) } else { None };
        let is_step = members.is_some();
        let closed = |shared: &mut Shared| {
            let left = if is_step { shared.steps } else { shared.slices };
            left == Some(0)
        };
        let mut shared = self.0.1.wait_while(self.lock(), closed).unwrap();
        let left = if is_step { &mut shared.steps } else { &mut shared.slices };
        *left = left.map(|n| n - 1);
        shared.did.push(did);
        match members {
            Some(members) => shared.failing_members.take_if(|least| *least <= members).is_none(),
            None => !std::mem::take(&mut shared.fail_next_slice),
        }
    }
}

/// Replies to questions: the first one whose question occurs in the last user turn is given. Replies are control text.
pub(super) type Replies = &'static [(&'static str, &'static str)];

/// A server's engine with these replies.
pub(super) fn scripted(
    ctx: usize,
    replies: Replies,
    control: &Control,
) -> impl FnMut() -> Opened + Send + 'static {
    let control = control.clone();
    move || {
        let model = Model::open(&tiny_model()).unwrap();
        let tokenizer = Arc::new(q36::engine::tokenizer_of(&model).unwrap());
        let own = Arc::clone(&tokenizer);
        let script = Box::new(move |tokens: &[TokenId]| next(&own, replies, tokens));
        let inner = ScriptedEngine::new(ctx, script);
        let (kv_k, kv_v) = (inner.info().kv_k, inner.info().kv_v);
        let layout = StateLayout::new(&model.shape, kv_k, kv_v);
        control.lock().engines += 1;
        let engine = Served { inner, layout, control: control.clone(), jobs: BTreeMap::new() };
        Opened { engine: Box::new(engine), tokenizer }
    }
}

/// The next token of the reply to the last question.
fn next(tokenizer: &Tokenizer, replies: Replies, tokens: &[TokenId]) -> TokenId {
    let special = tokenizer.special();
    let text = String::from_utf8_lossy(&tokenizer.decode(tokens)).into_owned();
    let Some((asked, reply)) = text.rsplit_once("<|im_start|>assistant\n") else {
        return special.im_end;
    };
    let question = asked.rsplit_once("<|im_start|>user").map_or(asked, |(_, q)| q);
    let written = ["<think>\n\n</think>\n\n", "<think>\n"]
        .iter()
        .find_map(|opening| reply.strip_prefix(opening))
        .unwrap_or(reply);
    let found = replies.iter().find(|(key, _)| question.contains(key));
    let reply = found.map_or("", |(_, reply)| reply);
    // What the server put in to close a thought is not in the script.
    let written = if reply.contains("</think>") {
        written.to_owned()
    } else {
        written.replacen("\n</think>\n\n", "", 1)
    };
    let rest = reply.strip_prefix(written.as_str()).unwrap_or_default();
    tokenizer.encode_control(rest.as_bytes()).first().copied().unwrap_or(special.im_end)
}

/// The scripted engine in slices, under control.
struct Served {
    inner: ScriptedEngine,
    layout: StateLayout,
    control: Control,
    jobs: BTreeMap<SessionId, (Vec<TokenId>, SyncReport)>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.control.lock().engines -= 1;
    }
}

/// Some error that an engine may return.
fn broken(id: SessionId) -> Error {
    Error::NoState(id.0)
}

impl Engine for Served {
    fn info(&self) -> &Info {
        self.inner.info()
    }

    fn tokenizer(&self) -> &Tokenizer {
        self.inner.tokenizer()
    }

    fn open_session(&mut self) -> Result<SessionId, Error> {
        self.inner.open_session()
    }

    fn close_session(&mut self, id: SessionId) {
        self.inner.close_session(id);
    }

    fn begin_sync(&mut self, id: SessionId, target: Target<'_>) -> Result<SyncReport, Error> {
        let report = self.foresee(id, target)?.report;
        if report.reuse == Reuse::Cold {
            self.reset(id)?;
        }
        if report.total() > 0 {
            self.jobs.insert(id, (target.tokens.to_vec(), report));
        }
        Ok(report)
    }

    fn advance_sync(&mut self, id: SessionId, slice: &Slice<'_>) -> Result<Advance, Error> {
        let (tokens, mut report) = self.jobs.remove(&id).ok_or(Error::NoPrompt(id.0))?;
        let held = self.tokens(id).len();
        let end = (held + self.info().chunk_tokens).min(tokens.len());
        self.control.lock().limits.push(slice.limit);
        if !self.control.pass(Did::Slice(id.0, end - held)) {
            return Err(broken(id));
        }
        if (slice.cancelled)() {
            return Ok(Advance { stage: Stage::Cancelled, report });
        }
        // The inner engine evaluates all that it is asked for at once.
        self.inner.begin_sync(id, Target::tokens(&tokens[..end]))?;
        self.inner.advance_sync(id, slice)?;
        report.evaluated = end - report.reused;
        let stage = if end == tokens.len() { Stage::Done } else { Stage::Between };
        if stage == Stage::Between {
            self.jobs.insert(id, (tokens, report));
        }
        Ok(Advance { stage, report })
    }

    fn end_sync(&mut self, id: SessionId) {
        self.jobs.remove(&id);
    }

    fn decode(&mut self, steps: &[(SessionId, TokenId)]) -> Result<(), Error> {
        if !self.control.pass(Did::Step(steps.iter().map(|(id, _)| id.0).collect())) {
            for &(id, _) in steps {
                self.inner.reset(id)?;
            }
            return Err(broken(steps[0].0));
        }
        self.inner.decode(steps)
    }

    fn logits(&mut self, id: SessionId) -> Result<Option<&[f32]>, Error> {
        self.inner.logits(id)
    }

    fn sample(&mut self, id: SessionId, sampler: &mut Sampler) -> Result<TokenId, Error> {
        self.inner.sample(id, sampler)
    }

    fn expect_draws(&mut self, id: SessionId, params: SamplerParams) {
        self.inner.expect_draws(id, params);
    }

    fn set_rules(&mut self, id: SessionId, rules: DrawRules) -> Result<(), Error> {
        self.inner.set_rules(id, rules)
    }

    fn tokens(&self, id: SessionId) -> &[TokenId] {
        self.inner.tokens(id)
    }

    fn snapshot(&mut self, id: SessionId) -> Result<SnapshotId, Error> {
        self.inner.snapshot(id)
    }

    fn restore(&mut self, id: SessionId, snapshot: SnapshotId) -> Result<(), Error> {
        self.inner.restore(id, snapshot)
    }

    fn release(&mut self, id: SessionId, snapshot: SnapshotId) {
        self.inner.release(id, snapshot);
    }

    fn reset(&mut self, id: SessionId) -> Result<(), Error> {
        self.inner.reset(id)
    }

    fn set_power(&mut self, percent: u8) {
        self.inner.set_power(percent);
    }
}

/// States never leave it: servers without a disk do not ask.
impl StateIo for Served {
    fn state_layout(&self) -> &StateLayout {
        &self.layout
    }

    fn fingerprint(&self) -> [u8; 20] {
        [1; 20]
    }

    fn state_head(&mut self, at: Position) -> Result<(Vec<TokenId>, Vec<f32>), Error> {
        Err(broken(at.session))
    }

    fn start_part(&mut self, _: Position, _: &StatePart) -> Result<Option<PartReading>, Error> {
        Ok(None)
    }

    fn finish_part(&mut self, _: PartReading) -> Result<RawPart, Error> {
        Err(Error::EmptyPrompt)
    }

    fn import_state(
        &mut self,
        _: SessionId,
        _: &[TokenId],
        _: &mut dyn StateSource,
    ) -> Result<bool, Error> {
        Ok(false)
    }
}
