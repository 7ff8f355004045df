//! A prompt beside sessions that decode: how long their steps wait for it, and how fast it gets on.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::engine::sample::{Sampler, SamplerParams};
use crate::engine::{Engine, Error, SessionId, Slice, Stage, SyncControl, Target};
use crate::tokenizer::TokenId;

/// Steps that are measured before the prompt begins.
const QUIET_STEPS: usize = 64;

/// The middle and the far end of some times, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Times {
    /// How many.
    pub count: usize,
    /// The middle one.
    pub median: f64,
    /// Exceeded by one in a hundred.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Times {
    /// Of some times; zeros where there is none. The one that a hundredth exceeds is the nearest rank: with fewer than
    /// a hundred times that is the longest.
    pub fn of(times: &[Duration]) -> Self {
        let mut ms: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        ms.sort_by(f64::total_cmp);
        let rank = |percent: usize| {
            let rank = (ms.len() * percent).div_ceil(100).max(1);
            ms.get(rank - 1).copied().unwrap_or(0.0)
        };
        Self { count: ms.len(), median: rank(50), p99: rank(99), max: rank(100) }
    }
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Beside {
    /// Tokens of the prompt.
    pub prefill_tokens: usize,
    /// Sessions that decoded.
    pub sessions: usize,
    /// Tokens a second of the same prompt with nobody beside it.
    pub alone_tps: f64,
    /// Tokens a second beside the others.
    pub prefill_tps: f64,
    /// Tokens a second that the others made meanwhile, all together.
    pub decode_tps: f64,
    /// From one step of the others to the next while no prompt runs.
    pub quiet_ms: Times,
    /// The same beside the prompt.
    pub step_ms: Times,
    /// Slices of the prompt.
    pub slice_ms: Times,
}

/// A session that decodes.
struct Other {
    session: SessionId,
    prompt: Vec<TokenId>,
    sampler: Sampler,
}

/// Sessions that decode, and one that reads.
pub struct Duet<'a> {
    engine: &'a mut dyn Engine,
    reader: SessionId,
    prompt: Vec<TokenId>,
    others: Vec<Other>,
}

impl<'a> Duet<'a> {
    /// Opens a session for each of `prompts`, which decode, and one for `prompt`.
    ///
    /// # Errors
    /// When the engine has no room for so many sessions.
    pub fn new(
        engine: &'a mut dyn Engine,
        prompt: Vec<TokenId>,
        prompts: Vec<Vec<TokenId>>,
    ) -> Result<Self, Error> {
        let greedy = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
        let mut others = Vec::with_capacity(prompts.len());
        for prompt in prompts {
            let session = engine.open_session()?;
            engine.expect_draws(session, greedy);
            others.push(Other { session, prompt, sampler: Sampler::new(greedy, 1) });
        }
        let reader = engine.open_session()?;
        Ok(Self { engine, reader, prompt, others })
    }

    /// Measures once. `None` when `control` stopped it.
    ///
    /// # Errors
    /// When evaluation fails.
    pub fn run(&mut self, control: &mut dyn SyncControl) -> Result<Option<Beside>, Error> {
        for other in &self.others {
            self.engine.reset(other.session)?;
            if self.engine.sync(other.session, &other.prompt, control)?.cancelled {
                return Ok(None);
            }
        }
        self.engine.reset(self.reader)?;
        let started = Instant::now();
        if self.engine.sync(self.reader, &self.prompt, control)?.cancelled {
            return Ok(None);
        }
        let alone = started.elapsed();
        let mut quiet = Vec::with_capacity(QUIET_STEPS);
        let mut last = Instant::now();
        for _ in 0..QUIET_STEPS {
            if control.cancelled() {
                return Ok(None);
            }
            quiet.push(self.step(&mut last)?);
        }
        self.engine.reset(self.reader)?;
        let started = Instant::now();
        let (mut steps, mut slices) = (Vec::new(), Vec::new());
        self.engine.begin_sync(self.reader, Target::tokens(&self.prompt))?;
        last = Instant::now();
        loop {
            let slice = Slice { limit: Slice::BESIDE, cancelled: &|| control.cancelled() };
            let begin = Instant::now();
            let advance = self.engine.advance_sync(self.reader, &slice)?;
            slices.push(begin.elapsed());
            steps.push(self.step(&mut last)?);
            match advance.stage {
                Stage::Open | Stage::Between => {}
                Stage::Done => break,
                Stage::Cancelled => return Ok(None),
            }
        }
        let time = started.elapsed();
        let rate = |n: usize, time: Duration| n as f64 / time.as_secs_f64().max(1e-9);
        Ok(Some(Beside {
            prefill_tokens: self.prompt.len(),
            sessions: self.others.len(),
            alone_tps: rate(self.prompt.len(), alone),
            prefill_tps: rate(self.prompt.len(), time),
            decode_tps: rate(self.others.len() * steps.len(), time),
            quiet_ms: Times::of(&quiet),
            step_ms: Times::of(&steps),
            slice_ms: Times::of(&slices),
        }))
    }

    /// A step of all others; the time since the last one ended.
    fn step(&mut self, last: &mut Instant) -> Result<Duration, Error> {
        let mut steps = Vec::with_capacity(self.others.len());
        for other in &mut self.others {
            let token = self.engine.sample(other.session, &mut other.sampler)?;
            steps.push((other.session, token));
        }
        self.engine.decode(&steps)?;
        let now = Instant::now();
        Ok(now - std::mem::replace(last, now))
    }
}

impl std::fmt::Debug for Duet<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Duet").field("others", &self.others.len()).finish_non_exhaustive()
    }
}

/// The measurement for the eye, a line each.
pub fn table(beside: &Beside) -> Vec<String> {
    let Beside { prefill_tokens, sessions, alone_tps, prefill_tps, decode_tps, .. } = beside;
    let times = |name: &str, t: &Times| {
        let Times { count, median, p99, max } = t;
        format!("{name:<22}  {count:>6}  {median:>9.2}  {p99:>9.2}  {max:>9.2}")
    };
    vec![
        format!(
            "{prefill_tokens} tokens beside {sessions} sessions: {prefill_tps:.2} t/s, {alone_tps:.2} t/s alone; the sessions made {decode_tps:.2} t/s"
        ),
        format!(
            "{:<22}  {:>6}  {:>9}  {:>9}  {:>9}",
            "milliseconds", "count", "median", "p99", "max"
        ),
        times("step, no prompt", &beside.quiet_ms),
        times("step, beside prompt", &beside.step_ms),
        times("slice of the prompt", &beside.slice_ms),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_by_nearest_rank() {
        let ms = |n: u64| Duration::from_millis(n);
        let hundred: Vec<_> = (1..=200).rev().map(ms).collect();
        let times = Times::of(&hundred);
        assert_eq!(times.count, 200);
        let told = [times.median, times.p99, times.max].map(|ms| format!("{ms:.0}"));
        assert_eq!(told, ["100", "198", "200"]);
        let few = Times::of(&[ms(3), ms(1), ms(2)]);
        let told = [few.median, few.p99, few.max].map(|ms| format!("{ms:.0}"));
        assert_eq!(told, ["2", "3", "3"]);
        assert_eq!(Times::of(&[]).count, 0);
    }
}
