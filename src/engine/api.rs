//! The interface between a model and whoever talks to it.
//!
//! It is synchronous and single-owner: one thread holds the engine, sessions are named by id, and a
//! call returns when its work is done. Front ends are written against the trait, so that their tests
//! run on a scripted engine that needs no model.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::engine::Error;
use crate::engine::report::{Advance, Foresight, Miss, Reuse, Slice, SyncReport, Target};
use crate::engine::sample::{DrawRules, Sampler, SamplerParams};
use crate::model::memory::Plan;
use crate::quant::TensorType;
use crate::tokenizer::{TokenId, Tokenizer};
use crate::util::units::Bytes;

/// Names a session of one engine; never reused by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u32);

/// Names a remembered position of a session; never reused by its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(pub u64);

/// What computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendKind {
    /// The CPU backend.
    Cpu,
    /// A Vulkan device.
    Vulkan,
}

impl BackendKind {
    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Vulkan => "vulkan",
        }
    }
}

/// Facts about an open engine.
#[derive(Debug, Clone)]
pub struct Info {
    /// The model file.
    pub model: PathBuf,
    /// What computes.
    pub backend: BackendKind,
    /// The Vulkan device and its driver, when one computes.
    pub device: Option<String>,
    /// Positions a session can hold.
    pub ctx_tokens: usize,
    /// Prompt tokens evaluated at once.
    pub chunk_tokens: usize,
    /// Worker threads.
    pub threads: usize,
    /// Storage of K rows.
    pub kv_k: TensorType,
    /// Storage of V rows.
    pub kv_v: TensorType,
    /// Bits of the routed experts: 2, 4 or 8.
    pub quant_bits: u8,
    /// Rows of the vocabulary, padding included.
    pub vocab: usize,
    /// Memory by purpose.
    pub plan: Plan,
    /// What the device can give, when one computes.
    pub device_usable: Option<Bytes>,
}

/// How the weights of a device were loaded.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LoadReport {
    /// Where the copied weights came from, in words that follow a rate.
    pub how: &'static str,
    /// Bytes of all weights.
    pub bytes: u64,
    /// Those of them that were left in the mapped file.
    pub in_place: u64,
    /// Seconds it took.
    pub seconds: f64,
}

/// What a device spent its time on.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Profile {
    /// Kinds of work, in the order they are reported in.
    pub phases: Vec<Phase>,
}

/// One kind of work. Sums are over all its runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Phase {
    /// `prefill` or `decode`.
    pub name: &'static str,
    /// Chunks or steps that were run.
    pub runs: usize,
    /// Nanoseconds from submitting the runs to having their results.
    pub wall_ns: f64,
    /// Barriers between dispatches, as recorded without a profile.
    pub barriers: usize,
    /// What was dispatched.
    pub kernels: Vec<KernelTime>,
}

/// The dispatches of one label. Sums are over all of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelTime {
    /// What it is for.
    pub label: String,
    /// The program that ran.
    pub program: &'static str,
    /// Dispatches.
    pub count: usize,
    /// Nanoseconds.
    pub ns: f64,
    /// Bytes moved.
    pub bytes: u64,
    /// Floating-point operations.
    pub flops: u64,
}

/// How tokens were drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Draws {
    /// From the candidates that a device found.
    pub short: u64,
    /// From whole rows of logits that had to be brought from a device, because its candidates did not decide.
    pub fetched: u64,
    /// From rows of logits that were here anyway.
    pub whole: u64,
}

/// Hears how a prompt gets on, and may stop it.
pub trait SyncControl: Sync {
    /// `done` of `total` tokens that had to be evaluated are; called first with 0 and last with
    /// `total`, and never when there is nothing to do.
    fn progress(&mut self, done: usize, total: usize);
    /// Asked between layers or slices: whether to stop at the last committed chunk.
    fn cancelled(&self) -> bool;
}

/// Wants nothing and never stops.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unattended;

impl SyncControl for Unattended {
    fn progress(&mut self, _done: usize, _total: usize) {}
    fn cancelled(&self) -> bool {
        false
    }
}

/// One open model with any number of independent sessions.
pub trait Engine {
    /// Facts that do not change.
    fn info(&self) -> &Info;

    /// The model's vocabulary.
    fn tokenizer(&self) -> &Tokenizer;

    /// Starts an empty session.
    ///
    /// # Errors
    /// When no state slot is left for it.
    fn open_session(&mut self) -> Result<SessionId, Error>;

    /// Ends a session and drops its snapshots. An unknown id is ignored.
    fn close_session(&mut self, id: SessionId);

    /// Brings the session to exactly `prompt`, evaluating as little as possible, and leaves the
    /// logits of the token after it. Returns when that is done; nothing else runs meanwhile.
    ///
    /// # Errors
    /// As [`Engine::begin_sync`] and [`Engine::advance_sync`].
    fn sync(
        &mut self,
        id: SessionId,
        prompt: &[TokenId],
        control: &mut dyn SyncControl,
    ) -> Result<SyncReport, Error> {
        self.sync_to(id, Target::tokens(prompt), control)
    }

    /// [`Engine::sync`] to a prompt with borders, or by its text.
    ///
    /// # Errors
    /// As [`Engine::begin_sync`] and [`Engine::advance_sync`].
    fn sync_to(
        &mut self,
        id: SessionId,
        target: Target<'_>,
        control: &mut dyn SyncControl,
    ) -> Result<SyncReport, Error> {
        let mut report = self.begin_sync(id, target)?;
        let total = report.total();
        if total > 0 {
            control.progress(0, total);
        }
        while report.evaluated < total && !report.cancelled {
            let before = report.evaluated;
            let slice = Slice { limit: Duration::MAX, cancelled: &|| control.cancelled() };
            report = self.advance_sync(id, &slice)?.report;
            if report.evaluated > before {
                control.progress(report.evaluated, total);
            }
        }
        Ok(report)
    }

    /// Begins to bring the session to a prompt: goes back to where evaluation can start, and evaluates nothing.
    /// [`Engine::advance_sync`] does the rest, slice by slice; between two slices other sessions may decode. Where the
    /// prompt is cut, and so every bit of the result, is the same as if nobody had.
    ///
    /// # Errors
    /// When the prompt is empty, does not fit the context or holds an id outside the vocabulary. The session is then
    /// unchanged.
    fn begin_sync(&mut self, id: SessionId, target: Target<'_>) -> Result<SyncReport, Error>;

    /// What [`Engine::begin_sync`] with this target would come to, changing nothing. Also of a session that is at work:
    /// as if it stayed where it stands now.
    ///
    /// This implementation knows of extending a session only; an engine that can go back says more.
    ///
    /// # Errors
    /// As [`Engine::begin_sync`].
    fn foresee(&self, id: SessionId, target: Target<'_>) -> Result<Foresight, Error> {
        let (live, prompt) = (self.tokens(id), target.tokens);
        let common = live.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let is_live = !live.is_empty() && common == live.len();
        let report = SyncReport {
            reuse: if is_live { Reuse::Live } else { Reuse::Cold },
            miss: match (live.len(), is_live) {
                (0, _) => Some(Miss::NoLiveState),
                (_, true) => None,
                (_, false) => Some(Miss::TokenMismatch { at: common }),
            },
            live: live.len(),
            common,
            prompt: prompt.len(),
            reused: if is_live { common } else { 0 },
            evaluated: 0,
            cancelled: false,
        };
        Ok(Foresight { report, tokens: prompt.to_vec() })
    }

    /// Evaluates the next slice of the prompt that the session is being brought to. A device that is lost meanwhile is
    /// opened again, and the chunk that was open begins again, whoever found out.
    ///
    /// # Errors
    /// When no prompt is under way, when another session is in the middle of a chunk ([`crate::engine::Stage::Open`]), or when
    /// evaluation fails: the session then holds the committed prefix, and no prompt is under way any more.
    fn advance_sync(&mut self, id: SessionId, slice: &Slice<'_>) -> Result<Advance, Error>;

    /// Gives up the prompt that is under way, if there is one. What was committed stays.
    fn end_sync(&mut self, id: SessionId);

    /// Appends one token to each named session and computes its next logits: as many sessions together as the backend
    /// can, in groups where there are more, in this order. A session's bits do not depend on its company. Every step is
    /// checked before the first one runs, so a bad one changes nothing.
    ///
    /// # Errors
    /// When the session holds nothing, is in the middle of a prompt, or is full, and for an id outside the vocabulary. A
    /// session whose step failed while it ran is left where its state was last kept, or empty.
    fn decode(&mut self, steps: &[(SessionId, TokenId)]) -> Result<(), Error>;

    /// Logits of the next token, one for each vocabulary row; `None` before the first evaluation, in the
    /// middle of a prompt and after a cancelled one. May have to fetch them from a device: who only draws tokens calls
    /// [`Engine::sample`].
    ///
    /// # Errors
    /// When the device is lost.
    fn logits(&mut self, id: SessionId) -> Result<Option<&[f32]>, Error>;

    /// Draws the next token, among those that text may hold. Evaluates nothing; drawing again draws anew.
    ///
    /// # Errors
    /// When the session has no logits or is in the middle of a prompt, or none of its logits is finite.
    fn sample(&mut self, id: SessionId, sampler: &mut Sampler) -> Result<TokenId, Error>;

    /// Says how tokens of the session will be drawn from the next evaluation on, so that a device can find
    /// the candidates itself. Changes no result: [`Engine::sample`] with other parameters only takes longer.
    fn expect_draws(&mut self, id: SessionId, params: SamplerParams);

    /// What draws of the session see besides its logits, from now on. Best said before the step whose logits are to be
    /// drawn from: a device then applies it, else the logits come to the host.
    ///
    /// # Errors
    /// When nothing that can be drawn is allowed; the rules are then as they were.
    fn set_rules(&mut self, id: SessionId, rules: DrawRules) -> Result<(), Error>;

    /// How tokens were drawn since the engine was opened.
    fn draws(&self) -> Draws {
        Draws::default()
    }

    /// Tokens the session holds.
    fn tokens(&self, id: SessionId) -> &[TokenId];

    /// Positions that the session could go back to.
    fn restarts(&self, _id: SessionId) -> usize {
        0
    }

    /// Remembers the present position, so that a later prompt that shares it can restart there. Pins
    /// a state slot; copies no state.
    ///
    /// # Errors
    /// When the session holds no token or no logits or is in the middle of a prompt, or every spare slot is pinned.
    fn snapshot(&mut self, id: SessionId) -> Result<SnapshotId, Error>;

    /// Returns to a remembered position, which stays remembered. Snapshots behind it are dropped.
    ///
    /// # Errors
    /// When the snapshot is gone: released, or its session was cut below it.
    fn restore(&mut self, id: SessionId, snapshot: SnapshotId) -> Result<(), Error>;

    /// Forgets a remembered position. An unknown one is ignored.
    fn release(&mut self, id: SessionId, snapshot: SnapshotId);

    /// Empties the session and drops its snapshots.
    ///
    /// # Errors
    /// When the backend cannot clear its state.
    fn reset(&mut self, id: SessionId) -> Result<(), Error>;

    /// Changes the duty cycle, in percent of 1 to 100, of the work that follows.
    fn set_power(&mut self, percent: u8);

    /// What the device spent its time on since the engine was opened or this was last asked. `None` where
    /// nothing is timed: without [`crate::engine::Options::profile`], or on the CPU.
    fn profile(&mut self) -> Option<Profile> {
        None
    }
}
