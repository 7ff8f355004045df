//! One frontier: process the new tokens, remember, generate, return.

use std::time::{Duration, Instant};

use crate::engine::sample::{Sampler, SamplerParams};
use crate::engine::{Engine, Error, SessionId, SyncControl};
use crate::tokenizer::TokenId;
use crate::util::rng::Rng;

/// What one visit of a frontier took. Counts are those of each session, times those of all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// Length of the context.
    pub ctx_tokens: usize,
    /// Tokens that were processed to get there.
    pub prefill_tokens: usize,
    /// The time that took.
    pub prefill: Duration,
    /// Tokens that were generated there.
    pub gen_tokens: usize,
    /// The time that took.
    pub decode: Duration,
    /// Sessions that took part.
    pub sessions: usize,
    /// Bytes that the states of all sessions take: K and V rows up to the frontier, and recurrent states.
    pub kvcache_bytes: u64,
    /// The recurrent states among them.
    pub recurrent_bytes: u64,
}

/// A session and the tokens it is fed.
struct Lane {
    session: SessionId,
    prompt: Vec<TokenId>,
    sampler: Sampler,
}

/// Sessions of an engine that are measured together.
pub struct Bench<'a> {
    engine: &'a mut dyn Engine,
    lanes: Vec<Lane>,
    gen_tokens: usize,
}

impl<'a> Bench<'a> {
    /// Opens a session for each prompt. At each frontier every session generates `gen_tokens`.
    ///
    /// # Errors
    /// When the engine has no room for so many sessions.
    pub fn new(
        engine: &'a mut dyn Engine,
        prompts: Vec<Vec<TokenId>>,
        gen_tokens: usize,
    ) -> Result<Self, Error> {
        let greedy = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
        let mut lanes = Vec::with_capacity(prompts.len());
        for prompt in prompts {
            let session = engine.open_session()?;
            engine.expect_draws(session, greedy);
            lanes.push(Lane { session, prompt, sampler: Sampler::new(greedy, 1) });
        }
        Ok(Self { engine, lanes, gen_tokens })
    }

    /// The engine.
    pub fn engine(&mut self) -> &mut dyn Engine {
        self.engine
    }

    /// The session whose prompt is the one that was given, in its order.
    pub fn first_session(&self) -> SessionId {
        self.lanes[0].session
    }

    /// Takes every session to `ctx_tokens` of its prompt, generates, and returns there. `None` when
    /// `control` stopped it in between.
    ///
    /// Every token that is drawn is fed, one that ends a turn too, so that each visit generates the same
    /// number. Remembering and returning are not timed.
    ///
    /// # Errors
    /// When evaluation fails.
    pub fn visit(
        &mut self,
        ctx_tokens: usize,
        control: &mut dyn SyncControl,
    ) -> Result<Option<Measured>, Error> {
        let started = Instant::now();
        let mut evaluated = 0;
        for lane in &self.lanes {
            let prompt = &lane.prompt[..ctx_tokens];
            let report = self.engine.sync(lane.session, prompt, control)?;
            if report.cancelled {
                return Ok(None);
            }
            evaluated += report.evaluated;
        }
        let prefill = started.elapsed();
        let Some(decode) = self.generate(control)? else { return Ok(None) };
        let plan = self.engine.info().plan;
        let sessions = self.lanes.len() as u64;
        // K and V rows of a session are allocated for its whole context, all of one size.
        let kv_row = plan.kv_per_session / self.engine.info().ctx_tokens as u64;
        let recurrent_bytes = sessions * plan.slot;
        Ok(Some(Measured {
            ctx_tokens,
            prefill_tokens: evaluated / self.lanes.len(),
            prefill,
            gen_tokens: self.gen_tokens,
            decode,
            sessions: self.lanes.len(),
            kvcache_bytes: sessions * kv_row * ctx_tokens as u64 + recurrent_bytes,
            recurrent_bytes,
        }))
    }

    /// Generates in every session and returns to where it was. The time of the steps.
    fn generate(&mut self, control: &dyn SyncControl) -> Result<Option<Duration>, Error> {
        if self.gen_tokens == 0 {
            return Ok(Some(Duration::ZERO));
        }
        let mut snapshots = Vec::with_capacity(self.lanes.len());
        for lane in &self.lanes {
            snapshots.push(self.engine.snapshot(lane.session)?);
        }
        let mut steps = Vec::with_capacity(self.lanes.len());
        let started = Instant::now();
        for _ in 0..self.gen_tokens {
            if control.cancelled() {
                return Ok(None);
            }
            steps.clear();
            for lane in &mut self.lanes {
                steps.push((lane.session, self.engine.sample(lane.session, &mut lane.sampler)?));
            }
            self.engine.decode(&steps)?;
        }
        let time = started.elapsed();
        for (lane, snapshot) in self.lanes.iter().zip(snapshots) {
            self.engine.restore(lane.session, snapshot)?;
            self.engine.release(lane.session, snapshot);
        }
        Ok(Some(time))
    }

    /// Empties every session, so that the next visit starts from the first token.
    ///
    /// # Errors
    /// When the backend cannot clear its state.
    pub fn reset(&mut self) -> Result<(), Error> {
        self.lanes.iter().try_for_each(|lane| self.engine.reset(lane.session))
    }
}

impl std::fmt::Debug for Bench<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench").field("sessions", &self.lanes.len()).finish_non_exhaustive()
    }
}

/// A prompt for each of `n` sessions. The first has the tokens as they are; the others begin elsewhere
/// in them, because sessions that read the same tokens would choose the same experts and look cheaper
/// together than sessions do.
pub fn lanes(prompt: &[TokenId], n: usize) -> Vec<Vec<TokenId>> {
    let start = |lane: usize| lane * prompt.len() / n;
    (0..n).map(|lane| [&prompt[start(lane)..], &prompt[..start(lane)]].concat()).collect()
}

/// `n` tokens below `vocab`, the same ones every time.
pub fn random_tokens(vocab: usize, n: usize) -> Vec<TokenId> {
    let mut rng = Rng::new(36);
    let mut token = || {
        let id = rng.next_u64() % vocab as u64;
        TokenId(u32::try_from(id).expect("a vocabulary has fewer than 2^32 rows"))
    };
    (0..n).map(|_| token()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_tokens_are_the_same_for_ever_and_of_the_vocabulary() {
        let ids = random_tokens(4096, 1000);
        assert_eq!(ids, random_tokens(4096, 1000));
        assert_eq!(ids[..5], random_tokens(4096, 5));
        assert!(ids.iter().all(|id| id.index() < 4096));
        assert!(ids.iter().any(|id| id.index() >= 2048));
    }

    #[test]
    fn every_session_reads_the_same_tokens_from_another_place() {
        let prompt = [1, 2, 3, 4, 5].map(TokenId);
        assert_eq!(lanes(&prompt, 1), [prompt.to_vec()]);
        let ids = |list: [u32; 5]| list.map(TokenId).to_vec();
        assert_eq!(
            lanes(&prompt, 3),
            [ids([1, 2, 3, 4, 5]), ids([2, 3, 4, 5, 1]), ids([4, 5, 1, 2, 3])]
        );
    }
}
