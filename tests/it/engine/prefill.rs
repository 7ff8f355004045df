//! Prompts slice by slice: what runs beside them, what stops them, and that neither changes a bit.
//!
//! Each check takes an engine of any backend; those of devices are called in `device::engine`.

use q36::engine::{
    Anchors, Border, BorderKind, Engine, Error, ModelEngine, Options, SessionId, Slice, Stage,
    SyncReport, Target, Unattended,
};
use q36::tokenizer::TokenId;
use q36::util::rng::Rng;
use std::time::Duration;

/// Opens an engine with changed options. Its chunks are smaller than the prompts here.
pub(crate) type Open<'a> = &'a dyn Fn(&dyn Fn(&mut Options)) -> ModelEngine;

/// A text of a good hundred tokens.
const STORY: &str = "The fox went to the river to drink. There it met a bear, who had been waiting all day. \
    They talked about the weather and the long winter behind them. Then the bear asked where the fish were, \
    and the fox said that they sleep under the stones when the water is cold, and that it takes two to lift one. \
    So they lifted one stone after the other until the moon stood over the hills.";

fn story(engine: &ModelEngine) -> Vec<TokenId> {
    engine.tokenizer().encode_text(STORY.as_bytes())
}

fn bits(engine: &mut ModelEngine, id: SessionId) -> Vec<u32> {
    let row = engine.logits(id).unwrap().expect("the session has logits");
    row.iter().map(|v| v.to_bits()).collect()
}

/// Brings a session to a prompt in the smallest slices; `between` is called after each.
pub(crate) fn in_slices(
    engine: &mut ModelEngine,
    id: SessionId,
    target: Target<'_>,
    mut between: impl FnMut(&mut ModelEngine, Stage),
) -> SyncReport {
    let mut report = engine.begin_sync(id, target).unwrap();
    while report.evaluated < report.total() {
        let advance = engine.advance_sync(id, &Slice::of(Duration::ZERO)).unwrap();
        report = advance.report;
        between(engine, advance.stage);
    }
    report
}

/// A prompt with two sessions that decode between its slices.
pub(crate) fn companions_change_no_bit(open: Open<'_>) {
    let mut engine = open(&|o| o.sessions = 3);
    let prompt = story(&engine);
    let ids: Vec<SessionId> = (0..3).map(|_| engine.open_session().unwrap()).collect();
    let others = [(ids[1], &prompt[3..9]), (ids[2], &prompt[40..51])];
    let start = |engine: &mut ModelEngine| {
        for (id, tokens) in others {
            engine.reset(id).unwrap();
            engine.sync(id, tokens, &mut Unattended).unwrap();
        }
    };
    let step = |engine: &mut ModelEngine, n: usize| {
        let token = prompt[60 + n % 20];
        engine.decode(&others.map(|(id, _)| (id, token))).unwrap();
        others.map(|(id, _)| bits(engine, id))
    };
    let borders = [Border { pos: 21, kind: BorderKind::Stop }];
    let target = Target { borders: &borders, ..Target::tokens(&prompt) };
    engine.sync_to(ids[0], target, &mut Unattended).unwrap();
    let alone = bits(&mut engine, ids[0]);
    engine.reset(ids[0]).unwrap();
    start(&mut engine);
    let mut together = Vec::new();
    let mut stages = Vec::new();
    in_slices(&mut engine, ids[0], target, |engine, stage| {
        stages.push(stage);
        together.push(step(engine, together.len()));
    });
    assert!(bits(&mut engine, ids[0]) == alone, "the prompt has other bits beside others");
    assert_eq!(stages.last(), Some(&Stage::Done));
    assert!(stages.contains(&Stage::Between), "{stages:?}");
    start(&mut engine);
    for (n, rows) in together.iter().enumerate() {
        assert!(*rows == step(&mut engine, n), "step {n} has other bits beside a prompt");
    }
}

/// Giving up costs the chunk that was open.
pub(crate) fn giving_up_keeps_what_was_committed(open: Open<'_>) {
    let mut engine = open(&|o| o.sessions = 2);
    let chunk = engine.info().chunk_tokens;
    let prompt = story(&engine);
    let (a, b) = (engine.open_session().unwrap(), engine.open_session().unwrap());
    engine.sync(b, &prompt, &mut Unattended).unwrap();
    let expected = bits(&mut engine, b);
    engine.begin_sync(a, Target::tokens(&prompt)).unwrap();
    let mut slices = 0;
    // To the second chunk, and into it where chunks have more than one slice.
    while engine.tokens(a).len() < chunk {
        engine.advance_sync(a, &Slice::of(Duration::ZERO)).unwrap();
        slices += 1;
    }
    if slices > 1 {
        let advance = engine.advance_sync(a, &Slice::of(Duration::ZERO)).unwrap();
        assert_eq!(advance.stage, Stage::Open);
    }
    engine.end_sync(a);
    assert_eq!(engine.tokens(a), &prompt[..chunk]);
    let none = engine.advance_sync(a, &Slice::of(Duration::ZERO)).unwrap_err();
    assert!(matches!(none, Error::NoPrompt(_)), "{none}");
    let report = engine.sync(a, &prompt, &mut Unattended).unwrap();
    assert_eq!((report.reused, report.evaluated), (chunk, prompt.len() - chunk));
    assert!(bits(&mut engine, a) == expected);
    // Cancelled by its caller: at once, and after the slice that was under way.
    engine.reset(a).unwrap();
    engine.begin_sync(a, Target::tokens(&prompt)).unwrap();
    let stop = Slice { limit: Duration::ZERO, cancelled: &|| true };
    let advance = engine.advance_sync(a, &stop).unwrap();
    assert_eq!((advance.stage, advance.report.cancelled), (Stage::Cancelled, true));
    assert!(engine.tokens(a).is_empty() && engine.logits(a).unwrap().is_none());
}

/// What cannot be done in the middle of a prompt is refused and harms nothing.
pub(crate) fn a_session_in_a_prompt_refuses_steps(open: Open<'_>) {
    let mut engine = open(&|o| (o.sessions, o.snapshots) = (2, 1));
    let prompt = story(&engine);
    let (a, b) = (engine.open_session().unwrap(), engine.open_session().unwrap());
    for id in [a, b] {
        engine.begin_sync(id, Target::tokens(&prompt)).unwrap();
    }
    let mut is_open = false;
    while engine.tokens(a).is_empty() {
        is_open |= engine.advance_sync(a, &Slice::of(Duration::ZERO)).unwrap().stage == Stage::Open;
        if is_open && engine.tokens(a).is_empty() {
            let refused = engine.advance_sync(b, &Slice::of(Duration::ZERO)).unwrap_err();
            assert!(matches!(refused, Error::ChunkOpen { session: 1, open: 0 }), "{refused}");
        }
    }
    let refused = engine.decode(&[(a, prompt[0])]).unwrap_err();
    assert!(matches!(refused, Error::Unfinished(0)), "{refused}");
    assert!(matches!(engine.snapshot(a), Err(Error::Unfinished(0))));
    assert!(engine.logits(a).unwrap().is_none());
    // Sessions that end in the middle give their slots back.
    engine.close_session(b);
    let mut id = a;
    for _ in 0..4 {
        engine.advance_sync(id, &Slice::of(Duration::ZERO)).unwrap();
        engine.close_session(id);
        id = engine.open_session().unwrap();
        engine.begin_sync(id, Target::tokens(&prompt)).unwrap();
    }
    engine.sync(id, &prompt[..5], &mut Unattended).unwrap();
    engine.snapshot(id).unwrap();
    engine.decode(&[(id, prompt[5])]).unwrap();
}

/// A prompt that shares a prefix of some length with others.
fn some_prompt(rng: &mut Rng, story: &[TokenId]) -> Vec<TokenId> {
    let mut pick = |n: usize| usize::try_from(rng.next_u64() % n as u64).unwrap();
    let mut prompt = story[..=pick(60)].to_vec();
    if pick(2) == 0 {
        let at = pick(prompt.len());
        prompt[at] = story[pick(story.len())];
    }
    prompt
}

#[test]
fn sessions_in_any_order_of_events_end_where_fresh_ones_do() {
    let mut engine = super::open(|o| {
        (o.sessions, o.snapshots) = (4, 1);
        o.anchors = Anchors { slots: 3, spacing: 10 };
    });
    let story = story(&engine);
    let mut rng = Rng::new(36);
    println!("seed 36");
    let check = engine.open_session().unwrap();
    let mut ids: Vec<SessionId> = (0..3).map(|_| engine.open_session().unwrap()).collect();
    let mut snapshot = None;
    for event in 0..600 {
        let at = event % 3;
        let id = ids[at];
        match rng.next_u64() % 9 {
            0 | 1 => {
                let prompt = some_prompt(&mut rng, &story);
                let kind = [BorderKind::Turn, BorderKind::Shared, BorderKind::Stop][at];
                let borders = [7, 22].map(|pos| Border { pos, kind });
                let target = Target { borders: &borders, ..Target::tokens(&prompt) };
                engine.begin_sync(id, target).unwrap();
            }
            2..5 => match engine.advance_sync(id, &Slice::of(Duration::ZERO)) {
                Ok(_) | Err(Error::NoPrompt(_)) => {}
                Err(other) => panic!("event {event}: {other}"),
            },
            5 => engine.end_sync(id),
            6 => match engine.decode(&[(id, story[event % story.len()])]) {
                Ok(()) | Err(Error::NoState(_) | Error::Unfinished(_)) => {}
                Err(other) => panic!("event {event}: {other}"),
            },
            7 => {
                if let Some((owner, taken)) = snapshot.take() {
                    let _gone_with_its_rows = engine.restore(owner, taken);
                    engine.release(owner, taken);
                }
                snapshot = engine.snapshot(id).ok().map(|taken| (id, taken));
            }
            _ if rng.next_u64().is_multiple_of(8) => {
                engine.close_session(id);
                ids[at] = engine.open_session().unwrap();
            }
            _ => {}
        }
        let held = engine.tokens(ids[at]).to_vec();
        if engine.logits(ids[at]).unwrap().is_some() && event % 5 == 0 {
            let found = bits(&mut engine, ids[at]);
            engine.reset(check).unwrap();
            engine.sync(check, &held, &mut Unattended).unwrap();
            assert!(
                bits(&mut engine, check) == found,
                "event {event}: other bits than a fresh session"
            );
        }
    }
}

fn on_the_cpu(change: &dyn Fn(&mut Options)) -> ModelEngine {
    super::open(|o| change(o))
}

#[test]
fn companions_of_a_prompt_on_the_cpu_change_no_bit() {
    companions_change_no_bit(&on_the_cpu);
}

#[test]
fn a_prompt_given_up_on_the_cpu_keeps_what_was_committed() {
    giving_up_keeps_what_was_committed(&on_the_cpu);
}

#[test]
fn a_session_in_a_prompt_on_the_cpu_refuses_steps() {
    a_session_in_a_prompt_refuses_steps(&on_the_cpu);
}
