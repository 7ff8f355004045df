//! Conversations that change: what an edit costs, counted in tokens, and that the rest has the bits of a fresh start.

use super::prefill::Open;
use q36::engine::{
    Anchors, Border, BorderKind, Engine, Miss, ModelEngine, Options, Reuse, SessionId, SyncReport,
    Target, Unattended, turn_borders,
};
use q36::tokenizer::TokenId;

const SYSTEM: &str = "<|im_start|>system\nYou are a careful helper.<|im_end|>\n";
const FIRST: &str = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n";
const REPLY: &str = "<|im_start|>assistant\nThe capital of France is Paris.<|im_end|>\n";
const SECOND: &str = "<|im_start|>user\nAnd what river runs through it?<|im_end|>\n";
const OPENING: &str = "<|im_start|>assistant\n<think>\n";

/// Tokens of a conversation, markers recognised.
fn ids(engine: &ModelEngine, parts: &[&str]) -> Vec<TokenId> {
    engine.tokenizer().encode_control(parts.concat().as_bytes())
}

/// Slots for so many anchors, at any distance of each other.
fn anchors(open: Open<'_>, sessions: usize, slots: usize, spacing: usize) -> ModelEngine {
    let engine = open(&|o| {
        o.sessions = sessions;
        o.anchors = Anchors { slots, spacing };
    });
    let planned = (sessions + 1 + slots) as u64;
    assert_eq!(engine.info().plan.slots, planned, "their memory is in the plan");
    engine
}

fn sync(engine: &mut ModelEngine, id: SessionId, prompt: &[TokenId]) -> SyncReport {
    let borders = turn_borders(engine.tokenizer(), prompt);
    let target = Target { borders: &borders, ..Target::tokens(prompt) };
    let told = engine.foresee(id, target).unwrap();
    let report = engine.sync_to(id, target, &mut Unattended).unwrap();
    assert_eq!(told.report, SyncReport { evaluated: 0, ..report }, "what was foretold comes true");
    assert_eq!(told.tokens, engine.tokens(id));
    report
}

fn say(engine: &mut ModelEngine, id: SessionId, tokens: &[TokenId]) {
    for &token in tokens {
        engine.decode(&[(id, token)]).unwrap();
    }
}

fn bits(engine: &mut ModelEngine, id: SessionId) -> Vec<u32> {
    let row = engine.logits(id).unwrap().expect("the session has logits");
    row.iter().map(|v| v.to_bits()).collect()
}

/// The session's next logits are those of a fresh session with the same cuts: its own borders, and where it restarted.
fn assert_fresh(engine: &mut ModelEngine, id: SessionId, prompt: &[TokenId], cuts: &[usize]) {
    let found = bits(engine, id);
    engine.reset(id).unwrap();
    let stop = |&pos: &usize| Border { pos, kind: BorderKind::Stop };
    let mut borders: Vec<Border> = cuts.iter().map(stop).collect();
    borders.extend(turn_borders(engine.tokenizer(), prompt));
    borders.sort_by_key(|border| border.pos);
    let target = Target { borders: &borders, ..Target::tokens(prompt) };
    let report = engine.sync_to(id, target, &mut Unattended).unwrap();
    assert_eq!(report.evaluated, prompt.len());
    assert!(found == bits(engine, id), "other bits than a fresh session");
}

/// A reply with its reasoning; the next prompt has the reply without it.
pub(crate) fn dropped_reasoning_costs_the_reply(open: Open<'_>) {
    let mut engine = anchors(open, 1, 4, 20);
    let first = ids(&engine, &[SYSTEM, FIRST, OPENING]);
    let shared = ids(&engine, &[SYSTEM]).len();
    let turn = ids(&engine, &[SYSTEM, FIRST]).len();
    let id = engine.open_session().unwrap();
    let report = sync(&mut engine, id, &first);
    assert_eq!((report.reuse, report.miss), (Reuse::Cold, Some(Miss::NoLiveState)));
    let thought = ids(
        &engine,
        &["They ask for a city.\n</think>\n\nThe capital of France is Paris.<|im_end|>"],
    );
    say(&mut engine, id, &thought);
    let second = ids(&engine, &[SYSTEM, FIRST, REPLY, SECOND, OPENING]);
    let report = sync(&mut engine, id, &second);
    assert_eq!((report.reuse, report.reused), (Reuse::Anchor, turn));
    assert_eq!(report.evaluated, second.len() - turn);
    assert_eq!(report.live, first.len() + thought.len());
    assert!(
        matches!(report.miss, Some(Miss::TokenMismatch { at }) if at == report.common && at >= turn)
    );
    // Another first question: the system text stays.
    let other = ids(&engine, &[SYSTEM, SECOND, OPENING]);
    let report = sync(&mut engine, id, &other);
    assert_eq!((report.reuse, report.reused), (Reuse::Anchor, shared));
    assert_fresh(&mut engine, id, &other, &[]);
    sync(&mut engine, id, &first);
    say(&mut engine, id, &thought);
    sync(&mut engine, id, &second);
    assert_fresh(&mut engine, id, &second, &[turn]);
}

/// Undo, retry, and an edit two turns back.
pub(crate) fn edits_restart_at_the_turn_before(open: Open<'_>) {
    let mut engine = anchors(open, 1, 4, 20);
    let history = [SYSTEM, FIRST, REPLY, SECOND];
    let prompts: Vec<_> = [&[SYSTEM, FIRST, OPENING][..], &[SYSTEM, FIRST, REPLY, SECOND, OPENING]]
        .map(|parts| ids(&engine, parts))
        .to_vec();
    let turns = [2, 4].map(|n| ids(&engine, &history[..n]).len());
    let said = ids(&engine, &["Well, so it is said."]);
    let id = engine.open_session().unwrap();
    for prompt in &prompts {
        sync(&mut engine, id, prompt);
        say(&mut engine, id, &said);
    }
    // Retry: the same prompt, another reply.
    let report = sync(&mut engine, id, &prompts[1]);
    assert_eq!((report.reuse, report.reused), (Reuse::Anchor, turns[1]));
    assert_eq!(report.miss, Some(Miss::ShorterPrompt));
    assert_eq!(report.evaluated, prompts[1].len() - turns[1]);
    assert_fresh(&mut engine, id, &prompts[1], &[turns[0]]);
    for prompt in &prompts {
        sync(&mut engine, id, prompt);
    }
    // Undo: back to the first turn.
    let report = sync(&mut engine, id, &prompts[0]);
    assert_eq!((report.reuse, report.reused), (Reuse::Anchor, turns[0]));
    assert!(matches!(report.miss, Some(Miss::TokenMismatch { .. })));
    // The second turn's anchor is gone with its rows: the way forward is evaluated again.
    let report = sync(&mut engine, id, &prompts[1]);
    assert_eq!(report.reused, turns[0]);
    // Another reply to the first turn.
    let other =
        ids(&engine, &[SYSTEM, FIRST, "<|im_start|>assistant\nRome.<|im_end|>\n", SECOND, OPENING]);
    let report = sync(&mut engine, id, &other);
    assert_eq!((report.reuse, report.reused), (Reuse::Anchor, turns[0]));
    assert_fresh(&mut engine, id, &other, &[turns[0]]);
}

/// A reply that was cut, by a stop string or by its reader, and one that came back in other tokens.
pub(crate) fn a_cut_reply_keeps_its_prompt(open: Open<'_>) {
    let mut engine = anchors(open, 1, 3, 20);
    let closed = "<|im_start|>assistant\n<think>\n\n</think>\n\n";
    let first = ids(&engine, &[SYSTEM, FIRST, closed]);
    let turn = ids(&engine, &[SYSTEM, FIRST]).len();
    let id = engine.open_session().unwrap();
    sync(&mut engine, id, &first);
    // Letter by letter, as no tokenizer would.
    let reply = "The capital of France is Paris.";
    for letter in reply.bytes() {
        let token = engine.tokenizer().encode_text(&[letter]);
        say(&mut engine, id, &token);
    }
    let live = engine.tokens(id).to_vec();
    let shown = [SYSTEM, FIRST, closed, reply, "<|im_end|>\n", SECOND, OPENING];
    let second = ids(&engine, &shown);
    let borders = turn_borders(engine.tokenizer(), &second);
    let target = Target { borders: &borders, by_text: true, ..Target::tokens(&second) };
    let report = engine.sync_to(id, target, &mut Unattended).unwrap();
    assert_eq!((report.reuse, report.miss), (Reuse::LiveText, None));
    assert_eq!((report.reused, report.common), (live.len(), live.len()));
    assert!(engine.tokens(id).starts_with(&live));
    let text = engine.tokenizer().decode(engine.tokens(id));
    assert_eq!(text, shown.concat().into_bytes());
    // The same letters where the session has a marker are another text.
    let letters =
        [&first[..], &ids(&engine, &[reply]), &engine.tokenizer().encode_text(b"<|im_end|>\n")]
            .concat();
    let report = engine
        .sync_to(id, Target { by_text: true, ..Target::tokens(&letters) }, &mut Unattended)
        .unwrap();
    assert_eq!(report.common, live.len());
    assert_eq!((report.reuse, report.reused), (Reuse::Anchor, turn));
    // Cut in the middle: everything after the turn is evaluated again, and nothing before.
    sync(&mut engine, id, &first);
    let said = ids(&engine, &[" The capital of"]);
    say(&mut engine, id, &said);
    let cut =
        ids(&engine, &[SYSTEM, FIRST, closed, "The capital", "<|im_end|>\n", SECOND, OPENING]);
    let report = sync(&mut engine, id, &cut);
    assert_eq!((report.reuse, report.reused), (Reuse::Anchor, turn));
    assert_eq!(report.evaluated, cut.len() - turn);
    assert_fresh(&mut engine, id, &cut, &[turn]);
}

/// Sessions share the budget: shared ends outlive turns, and old turns go before new ones.
pub(crate) fn the_budget_is_kept_and_the_oldest_go_first(open: Open<'_>) {
    let mut engine = anchors(open, 3, 3, 20);
    let prompt = ids(&engine, &[SYSTEM, FIRST, OPENING]);
    let (shared, turn) = (ids(&engine, &[SYSTEM]).len(), ids(&engine, &[SYSTEM, FIRST]).len());
    let sessions: Vec<SessionId> = (0..3).map(|_| engine.open_session().unwrap()).collect();
    // Each session would keep two; the third one's come last, and one turn is left besides the shared ends.
    for &id in &sessions {
        sync(&mut engine, id, &prompt);
        say(&mut engine, id, &prompt[..2]);
    }
    let mut restart = |id: SessionId, prompt: &[TokenId]| {
        let report = engine.sync(id, prompt, &mut Unattended).unwrap();
        (report.reuse, report.reused)
    };
    // Shared ends: of the second and third session, after the first one's gave way to the third one's turn.
    assert_eq!(restart(sessions[2], &prompt[..=turn]), (Reuse::Anchor, turn));
    assert_eq!(restart(sessions[0], &prompt[..=turn]), (Reuse::Cold, 0));
    assert_eq!(restart(sessions[1], &prompt[..=turn]), (Reuse::Anchor, shared));
}

/// Turns close together are worth one: the last, and those far from each other.
pub(crate) fn close_turns_are_thinned(open: Open<'_>) {
    let mut engine = anchors(open, 1, 8, 30);
    let id = engine.open_session().unwrap();
    let prompt: Vec<TokenId> = ids(&engine, &[SYSTEM; 12]);
    let borders = [10, 20, 35, 75, 80].map(|pos| Border { pos, kind: BorderKind::Turn });
    let target = Target { borders: &borders, ..Target::tokens(&prompt[..90]) };
    engine.sync_to(id, target, &mut Unattended).unwrap();
    // 20 stood close to 10 and to 35; 35 is far from 75; the end is close to 80, so nothing was kept there.
    let mut found = Vec::new();
    for end in [90, 80, 75, 35, 20, 10] {
        let report =
            engine.sync(id, &[&prompt[..end], &[TokenId(1)]].concat(), &mut Unattended).unwrap();
        found.push(report.reused);
    }
    assert_eq!(found, [90, 80, 75, 35, 10, 10]);
}

fn on_the_cpu(change: &dyn Fn(&mut Options)) -> ModelEngine {
    super::open(|o| change(o))
}

#[test]
fn dropped_reasoning_on_the_cpu_costs_the_reply() {
    dropped_reasoning_costs_the_reply(&on_the_cpu);
}

#[test]
fn edits_on_the_cpu_restart_at_the_turn_before() {
    edits_restart_at_the_turn_before(&on_the_cpu);
}

#[test]
fn a_cut_reply_on_the_cpu_keeps_its_prompt() {
    a_cut_reply_keeps_its_prompt(&on_the_cpu);
}

#[test]
fn the_budget_on_the_cpu_is_kept() {
    the_budget_is_kept_and_the_oldest_go_first(&on_the_cpu);
}

#[test]
fn close_turns_on_the_cpu_are_thinned() {
    close_turns_are_thinned(&on_the_cpu);
}
