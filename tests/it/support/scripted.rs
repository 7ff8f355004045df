//! An engine that says what a test wants: the same interface, no model.

use std::collections::BTreeMap;

use q36::engine::sample::{DrawRules, Sampler, SamplerParams};
use q36::engine::{
    Advance, BackendKind, Engine, Error, Info, Miss, Reuse, SessionId, Slice, SnapshotId, Stage,
    SyncReport, Target,
};
use q36::model::Model;
use q36::model::memory::{Plan, Request};
use q36::quant::TensorType;
use q36::tokenizer::{TokenId, Tokenizer};

/// Chooses the next token of a session that holds these.
pub(crate) type Script = Box<dyn FnMut(&[TokenId]) -> TokenId>;

#[derive(Default)]
struct Session {
    tokens: Vec<TokenId>,
    logits: Option<Vec<f32>>,
    snapshots: BTreeMap<SnapshotId, usize>,
    rules: DrawRules,
    /// What is left of a prompt, and the report so far.
    job: Option<(Vec<TokenId>, SyncReport)>,
}

/// Its logits are 0 but for the scripted token's, which is 20: that one is certain at any usual
/// temperature.
pub(crate) struct ScriptedEngine {
    info: Info,
    tokenizer: Tokenizer,
    script: Script,
    sessions: BTreeMap<SessionId, Session>,
    next: u32,
    /// Every token that was evaluated, prompt tokens included, in order.
    pub(crate) evaluated: Vec<TokenId>,
}

impl ScriptedEngine {
    /// With the demo model's vocabulary and a context of `ctx` tokens.
    pub(crate) fn new(ctx: usize, script: Script) -> Self {
        let path = super::tiny_model();
        let model = Model::open(&path).unwrap();
        let (kv_k, kv_v) = (TensorType::F16, TensorType::F16);
        let plan = Plan::new(&model.shape, 0, &Request::single(kv_k, kv_v, ctx));
        let info = Info {
            device_usable: None,
            model: path,
            backend: BackendKind::Cpu,
            device: None,
            ctx_tokens: ctx,
            chunk_tokens: 4,
            threads: 1,
            kv_k,
            kv_v,
            quant_bits: 2,
            vocab: model.shape.vocab,
            plan,
        };
        Self {
            info,
            tokenizer: q36::engine::tokenizer_of(&model).unwrap(),
            script,
            sessions: BTreeMap::new(),
            next: 0,
            evaluated: Vec::new(),
        }
    }

    /// Replaces the script.
    pub(crate) fn set_script(&mut self, script: Script) {
        self.script = script;
    }

    fn evaluate(&mut self, id: SessionId, tokens: &[TokenId]) {
        let session = self.sessions.get_mut(&id).expect("an open session");
        session.tokens.extend_from_slice(tokens);
        self.evaluated.extend_from_slice(tokens);
        let mut row = vec![0.0; self.info.vocab];
        row[(self.script)(&session.tokens).index()] = 20.0;
        session.logits = Some(row);
    }
}

impl Engine for ScriptedEngine {
    fn info(&self) -> &Info {
        &self.info
    }

    fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    fn open_session(&mut self) -> Result<SessionId, Error> {
        let id = SessionId(self.next);
        self.next += 1;
        self.sessions.insert(id, Session::default());
        Ok(id)
    }

    fn close_session(&mut self, id: SessionId) {
        self.sessions.remove(&id);
    }

    fn begin_sync(&mut self, id: SessionId, target: Target<'_>) -> Result<SyncReport, Error> {
        let prompt = target.tokens;
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        let live = self.tokens(id).len();
        let common = self.tokens(id).iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let reused = if common == live { live } else { 0 };
        let reuse = if reused > 0 { Reuse::Live } else { Reuse::Cold };
        if reused == 0 {
            self.reset(id)?;
        }
        let miss = (reused == 0).then_some(Miss::NoLiveState);
        let (prompt, rest) = (prompt.len(), prompt[reused..].to_vec());
        let report = SyncReport {
            reuse,
            miss,
            live,
            common,
            prompt,
            reused,
            evaluated: 0,
            cancelled: false,
        };
        let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
        session.job = (!rest.is_empty()).then_some((rest, report));
        Ok(report)
    }

    /// All of the prompt at once.
    fn advance_sync(&mut self, id: SessionId, _slice: &Slice<'_>) -> Result<Advance, Error> {
        let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
        let (rest, report) = session.job.take().ok_or(Error::NoPrompt(id.0))?;
        self.evaluate(id, &rest);
        let report = SyncReport { evaluated: rest.len(), ..report };
        Ok(Advance { stage: Stage::Done, report })
    }

    fn end_sync(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.job = None;
        }
    }

    fn decode(&mut self, steps: &[(SessionId, TokenId)]) -> Result<(), Error> {
        for &(id, token) in steps {
            self.evaluate(id, &[token]);
        }
        Ok(())
    }

    fn logits(&mut self, id: SessionId) -> Result<Option<&[f32]>, Error> {
        Ok(self.sessions.get(&id).and_then(|s| s.logits.as_deref()))
    }

    fn sample(&mut self, id: SessionId, sampler: &mut Sampler) -> Result<TokenId, Error> {
        let session = self.sessions.get(&id).ok_or(Error::NoSession(id.0))?;
        let row = session.logits.as_deref().ok_or(Error::NoState(id.0))?;
        let mut allowed = self.tokenizer.drawable().clone();
        if let Some(mask) = session.rules.allowed() {
            allowed.intersect(mask);
        }
        Ok(sampler.sample_by(row, &allowed, &session.rules).expect("scripted logits are finite"))
    }

    fn set_rules(&mut self, id: SessionId, rules: DrawRules) -> Result<(), Error> {
        self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?.rules = rules;
        Ok(())
    }

    fn expect_draws(&mut self, _id: SessionId, _params: SamplerParams) {}

    fn tokens(&self, id: SessionId) -> &[TokenId] {
        self.sessions.get(&id).map_or(&[], |s| &s.tokens)
    }

    fn snapshot(&mut self, id: SessionId) -> Result<SnapshotId, Error> {
        let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
        let snapshot = SnapshotId(session.snapshots.len() as u64);
        session.snapshots.insert(snapshot, session.tokens.len());
        Ok(snapshot)
    }

    fn restore(&mut self, id: SessionId, snapshot: SnapshotId) -> Result<(), Error> {
        let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
        let missing = Error::NoSnapshot { session: id.0, snapshot: snapshot.0 };
        let pos = *session.snapshots.get(&snapshot).ok_or(missing)?;
        session.tokens.truncate(pos);
        let mut row = vec![0.0; self.info.vocab];
        row[(self.script)(&session.tokens).index()] = 20.0;
        session.logits = Some(row);
        Ok(())
    }

    fn release(&mut self, id: SessionId, snapshot: SnapshotId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.snapshots.remove(&snapshot);
        }
    }

    fn reset(&mut self, id: SessionId) -> Result<(), Error> {
        let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
        // Rules are the session's, not its tokens'.
        let rules = std::mem::take(&mut session.rules);
        *session = Session { rules, ..Session::default() };
        Ok(())
    }

    fn set_power(&mut self, _percent: u8) {}
}
