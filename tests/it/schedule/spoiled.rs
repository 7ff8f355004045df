//! An engine that cannot go on from states that an earlier one wrote, whatever else it can.

use q36::engine::sample::{DrawRules, Sampler, SamplerParams};
use q36::engine::{
    Advance, Draws, Engine, Error, Foresight, Info, PartReading, Position, RawPart, SessionId,
    Slice, SnapshotId, StateIo, StateSource, SyncReport, Target,
};
use q36::model::{StateLayout, StatePart};
use q36::server::schedule::Opened;
use q36::tokenizer::{TokenId, Tokenizer};

/// Around another engine.
struct Spoiled {
    inner: Box<dyn StateIo>,
    /// A state of an earlier engine was loaded, and nothing was done with it.
    is_loaded: bool,
    /// It has handed out states of its own: what is loaded from now on is one of them.
    has_saved: bool,
}

/// The engine of `open`, which fails at the first work on a state that it did not write itself.
pub(super) fn spoiled(
    mut open: impl FnMut() -> Opened + Send + 'static,
) -> impl FnMut() -> Opened + Send + 'static {
    move || {
        let Opened { engine, tokenizer } = open();
        let engine = Spoiled { inner: engine, is_loaded: false, has_saved: false };
        Opened { engine: Box::new(engine), tokenizer }
    }
}

impl Engine for Spoiled {
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
        self.inner.begin_sync(id, target)
    }

    fn foresee(&self, id: SessionId, target: Target<'_>) -> Result<Foresight, Error> {
        self.inner.foresee(id, target)
    }

    fn advance_sync(&mut self, id: SessionId, slice: &Slice<'_>) -> Result<Advance, Error> {
        if std::mem::take(&mut self.is_loaded) {
            return Err(Error::NoState(id.0));
        }
        self.inner.advance_sync(id, slice)
    }

    fn end_sync(&mut self, id: SessionId) {
        self.inner.end_sync(id);
    }

    fn decode(&mut self, steps: &[(SessionId, TokenId)]) -> Result<(), Error> {
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

    fn draws(&self) -> Draws {
        self.inner.draws()
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

impl StateIo for Spoiled {
    fn state_layout(&self) -> &StateLayout {
        self.inner.state_layout()
    }

    fn fingerprint(&self) -> [u8; 20] {
        self.inner.fingerprint()
    }

    fn state_head(&mut self, at: Position) -> Result<(Vec<TokenId>, Vec<f32>), Error> {
        self.has_saved = true;
        self.inner.state_head(at)
    }

    fn start_part(&mut self, at: Position, part: &StatePart) -> Result<Option<PartReading>, Error> {
        self.inner.start_part(at, part)
    }

    fn finish_part(&mut self, reading: PartReading) -> Result<RawPart, Error> {
        self.inner.finish_part(reading)
    }

    fn import_state(
        &mut self,
        id: SessionId,
        tokens: &[TokenId],
        source: &mut dyn StateSource,
    ) -> Result<bool, Error> {
        let is_whole = self.inner.import_state(id, tokens, source)?;
        self.is_loaded = is_whole && !self.has_saved;
        Ok(is_whole)
    }
}
