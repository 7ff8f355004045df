//! The engine on the demo model: what a session keeps, what it loses, and that neither changes bits.

pub(crate) mod anchors;
pub(crate) mod prefill;

use std::sync::atomic::{AtomicUsize, Ordering};

use q36::engine::{
    BackendChoice, Context, Engine, Error, Miss, ModelEngine, Options, Prepared, Reuse, SessionId,
    SyncControl, SyncReport, Unattended,
};
use q36::tokenizer::TokenId;

use crate::support::tiny_model;

fn open(change: impl FnOnce(&mut Options)) -> ModelEngine {
    let mut options = Options::new(tiny_model());
    options.context = Context::Exactly(256);
    options.chunk = Some(8);
    options.backend = BackendChoice::Cpu;
    change(&mut options);
    Prepared::new(options).unwrap().open(&mut |_, _| true).unwrap()
}

fn ids(engine: &ModelEngine, text: &str) -> Vec<TokenId> {
    engine.tokenizer().encode_text(text.as_bytes())
}

/// A text of about forty tokens.
const STORY: &str = "The fox went to the river to drink. There it met a bear, who had been waiting \
                     all day. They talked about the weather and the long winter behind them.";

fn sync(engine: &mut ModelEngine, id: SessionId, prompt: &[TokenId]) -> SyncReport {
    engine.sync(id, prompt, &mut Unattended).unwrap()
}

/// The session's logits.
fn row(engine: &mut ModelEngine, id: SessionId) -> Vec<f32> {
    engine.logits(id).unwrap().expect("the session has logits").to_vec()
}

/// The logits after `prompt` in a session that never held anything else.
fn cold(engine: &mut ModelEngine, prompt: &[TokenId]) -> Vec<f32> {
    let id = engine.open_session().unwrap();
    sync(engine, id, prompt);
    let row = row(engine, id);
    engine.close_session(id);
    row
}

/// The session's logits are those of a cold start with `prompt`.
fn assert_same(engine: &mut ModelEngine, id: SessionId, prompt: &[TokenId]) {
    let expected = cold(engine, prompt);
    assert!(row(engine, id) == expected, "other bits than a cold start");
}

#[test]
fn a_longer_prompt_costs_its_new_tokens_and_gives_the_same_bits() {
    let mut engine = open(|o| o.sessions = 2);
    let prompt = ids(&engine, STORY);
    let id = engine.open_session().unwrap();
    let first = sync(&mut engine, id, &prompt[..20]);
    assert_eq!((first.reuse, first.reused, first.evaluated), (Reuse::Cold, 0, 20));
    let second = sync(&mut engine, id, &prompt);
    assert_eq!((second.reuse, second.reused), (Reuse::Live, 20));
    assert_eq!((second.evaluated, second.miss), (prompt.len() - 20, None));
    let warm = row(&mut engine, id);
    assert_eq!(warm, cold(&mut engine, &prompt));
    let again = sync(&mut engine, id, &prompt);
    assert_eq!((again.reused, again.evaluated), (prompt.len(), 0));
    assert_eq!(row(&mut engine, id), warm);
}

#[test]
fn a_changed_prompt_starts_at_the_best_snapshot() {
    let mut engine = open(|o| (o.sessions, o.snapshots) = (2, 2));
    let prompt = ids(&engine, STORY);
    let mut edited = prompt.clone();
    edited[20] = prompt[0];
    let id = engine.open_session().unwrap();
    for end in [5, 18] {
        sync(&mut engine, id, &prompt[..end]);
        engine.snapshot(id).unwrap();
    }
    sync(&mut engine, id, &prompt);
    let report = sync(&mut engine, id, &edited);
    assert_eq!((report.reuse, report.reused), (Reuse::Snapshot, 18));
    assert_eq!(report.miss, Some(Miss::TokenMismatch { at: 20 }));
    assert_same(&mut engine, id, &edited);
    // Shorter than the session: the snapshot at its very end has the logits.
    let report = sync(&mut engine, id, &prompt[..18]);
    assert_eq!((report.reused, report.evaluated), (18, 0));
    assert_eq!(report.miss, Some(Miss::ShorterPrompt));
    assert_same(&mut engine, id, &prompt[..18]);
    // Below the snapshot at 18: that one goes, the one at 5 serves.
    let report = sync(&mut engine, id, &prompt[..6]);
    assert_eq!((report.reuse, report.reused, report.evaluated), (Reuse::Snapshot, 5, 1));
    assert_same(&mut engine, id, &prompt[..6]);
}

#[test]
fn decoding_behind_a_snapshot_leaves_it_as_it_was() {
    let mut engine = open(|o| o.snapshots = 1);
    let prompt = ids(&engine, STORY);
    let id = engine.open_session().unwrap();
    sync(&mut engine, id, &prompt);
    let snapshot = engine.snapshot(id).unwrap();
    let decode = |engine: &mut ModelEngine| -> Vec<Vec<f32>> {
        let mut rows = vec![row(engine, id)];
        for token in &prompt[..4] {
            engine.decode(&[(id, *token)]).unwrap();
            rows.push(row(engine, id));
        }
        rows
    };
    let first = decode(&mut engine);
    engine.restore(id, snapshot).unwrap();
    assert_eq!(engine.tokens(id), prompt);
    assert_eq!(decode(&mut engine), first);
    engine.release(id, snapshot);
    let gone = engine.restore(id, snapshot).unwrap_err();
    assert!(matches!(gone, Error::NoSnapshot { .. }), "{gone}");
}

#[test]
fn slots_run_out_with_an_error_and_come_back() {
    let mut engine = open(|o| o.snapshots = 1);
    let prompt = ids(&engine, STORY);
    let id = engine.open_session().unwrap();
    let missing = engine.open_session().unwrap_err();
    assert!(matches!(missing, Error::NoSlot { slots: 3 }), "{missing}");
    let early = engine.snapshot(id).unwrap_err();
    assert!(matches!(early, Error::NoState(0)), "{early}");
    sync(&mut engine, id, &prompt[..10]);
    let first = engine.snapshot(id).unwrap();
    // The same position again needs no further slot.
    let same = engine.snapshot(id).unwrap();
    sync(&mut engine, id, &prompt[..11]);
    let full = engine.snapshot(id).unwrap_err();
    assert!(matches!(full, Error::NoSlot { .. }), "{full}");
    engine.release(id, first);
    engine.release(id, same);
    engine.snapshot(id).unwrap();
    engine.close_session(id);
    for _ in 0..5 {
        let id = engine.open_session().unwrap();
        sync(&mut engine, id, &prompt[..9]);
        engine.snapshot(id).unwrap();
        engine.decode(&[(id, prompt[9])]).unwrap();
        engine.close_session(id);
    }
}

/// Stops after so many questions.
struct StopAfter(AtomicUsize);

impl SyncControl for StopAfter {
    fn progress(&mut self, _done: usize, _total: usize) {}
    fn cancelled(&self) -> bool {
        let left = self.0.load(Ordering::Relaxed);
        self.0.store(left.saturating_sub(1), Ordering::Relaxed);
        left == 0
    }
}

#[test]
fn a_cancelled_prompt_keeps_its_whole_chunks() {
    let mut engine = open(|o| o.sessions = 2);
    let prompt = ids(&engine, STORY);
    let expected = cold(&mut engine, &prompt);
    // A chunk asks once a layer, and once behind it.
    for questions in [0, 3, 9, 12, 20] {
        let id = engine.open_session().unwrap();
        let mut control = StopAfter(AtomicUsize::new(questions));
        let report = engine.sync(id, &prompt, &mut control).unwrap();
        assert!(report.cancelled);
        let held = engine.tokens(id).len();
        assert_eq!((held, held % 8), (report.evaluated, 0), "after {questions} questions");
        assert_eq!(engine.tokens(id), &prompt[..held]);
        assert!(engine.logits(id).unwrap().is_none());
        let report = sync(&mut engine, id, &prompt);
        assert_eq!(report.reused, held);
        assert_eq!(row(&mut engine, id), expected);
        engine.close_session(id);
    }
}

#[test]
fn what_is_refused_changes_nothing() {
    let mut engine = open(|o| (o.context, o.sessions) = (Context::Exactly(32), 2));
    let prompt = ids(&engine, STORY);
    let vocab = u32::try_from(engine.info().vocab).unwrap();
    let (a, b) = (engine.open_session().unwrap(), engine.open_session().unwrap());
    sync(&mut engine, a, &prompt[..31]);
    sync(&mut engine, b, &prompt[..8]);
    let rows = |e: &mut ModelEngine| [a, b].map(|id| row(e, id));
    let before = rows(&mut engine);
    let long = engine.sync(a, &prompt[..33], &mut Unattended).unwrap_err();
    assert!(matches!(long, Error::ContextFull { needed: 33, ctx: 32 }), "{long}");
    assert!(matches!(engine.sync(a, &[], &mut Unattended), Err(Error::EmptyPrompt)));
    let bad = engine.decode(&[(b, prompt[8]), (a, TokenId(vocab))]).unwrap_err();
    assert!(matches!(bad, Error::BadToken { at: 31, .. }), "{bad}");
    assert_eq!([a, b].map(|id| engine.tokens(id).len()), [31, 8]);
    assert_eq!(rows(&mut engine), before);
    engine.decode(&[(a, prompt[31])]).unwrap();
    let full = engine.decode(&[(a, prompt[0])]).unwrap_err();
    assert!(matches!(full, Error::ContextFull { .. }), "{full}");
    engine.close_session(b);
    assert!(matches!(engine.decode(&[(b, prompt[0])]), Err(Error::NoSession(1))));
    assert!(engine.logits(b).unwrap().is_none() && engine.tokens(b).is_empty());
}

#[test]
fn sessions_do_not_see_each_other() {
    let mut engine = open(|o| o.sessions = 2);
    let prompt = ids(&engine, STORY);
    let alone = cold(&mut engine, &prompt[..12]);
    let (a, b) = (engine.open_session().unwrap(), engine.open_session().unwrap());
    sync(&mut engine, a, &prompt[..10]);
    sync(&mut engine, b, &prompt[5..25]);
    engine.decode(&[(a, prompt[10]), (b, prompt[25])]).unwrap();
    engine.decode(&[(b, prompt[26]), (a, prompt[11])]).unwrap();
    assert_eq!(row(&mut engine, a), alone);
}

#[test]
fn power_and_threads_change_no_bit() {
    let row = |change: fn(&mut Options)| {
        let mut engine = open(change);
        let prompt = ids(&engine, STORY);
        cold(&mut engine, &prompt[..20])
    };
    let plain = row(|_| {});
    assert_eq!(row(|o| o.power = 60), plain);
    assert_eq!(row(|o| o.threads = Some(1)), plain);
    assert_eq!(row(|o| o.threads = Some(3)), plain);
    assert_eq!(row(|o| o.chunk = Some(1)), plain);
}

#[test]
fn a_context_above_the_models_own_is_refused_unless_forced() {
    let prepare = |context| {
        let mut options = Options::new(tiny_model());
        options.backend = BackendChoice::Cpu;
        options.context = context;
        Prepared::new(options)
    };
    let refused = prepare(Context::Exactly(9000)).unwrap_err();
    assert!(matches!(refused, Error::ContextTooLarge { asked: 9000, limit: 8192 }), "{refused}");
    let shrunk = prepare(Context::Default(32_768)).unwrap();
    assert_eq!(shrunk.info().ctx_tokens, 8192);
    assert!(shrunk.notes().iter().any(|n| n.contains("8192")), "{:?}", shrunk.notes());
    let forced = prepare(Context::Forced(9000)).unwrap().open(&mut |_, _| true).unwrap();
    assert_eq!(forced.info().ctx_tokens, 9000);
}
