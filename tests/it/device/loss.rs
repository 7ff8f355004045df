//! A device that is lost under the engine: what was committed is there again, the reply goes on.

use super::open_engine;
use q36::engine::{Engine as _, ModelEngine, SessionId, Slice, Stage, Target, Unattended};
use q36::tokenizer::TokenId;
use q36::util::notice::Notice;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Largest difference of logits between two ways to the same tokens: chunks here, single steps there.
const DRIFT: f32 = 0.25;

fn prompt(engine: &ModelEngine) -> Vec<TokenId> {
    let text =
        "The fox went to the river to drink. There it met a bear, who had been waiting all day.";
    engine.tokenizer().encode_text(text.as_bytes())
}

fn row(engine: &mut ModelEngine, id: SessionId) -> Vec<f32> {
    engine.logits(id).unwrap().expect("the session has logits").to_vec()
}

#[track_caller]
fn assert_near(found: &[f32], expected: &[f32]) {
    let largest = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(largest <= DRIFT, "off by {largest}");
}

/// Two sessions with snapshots and decoded tokens, each step of which may find the device lost.
#[test]
fn sessions_go_on_where_they_stood() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&heard);
    let notice = Notice::to(move |_, line| {
        // Not how long compiling takes.
        if line.contains("the device") && !line.contains("compiling") {
            list.lock().unwrap().push(line.to_owned());
        }
    });
    let Some(mut engine) = open_engine(|o| {
        (o.sessions, o.snapshots, o.chunk) = (2, 1, Some(8));
        o.notice = notice.clone();
    }) else {
        return;
    };
    let prompt = prompt(&engine);
    let other: Vec<TokenId> = prompt.iter().rev().copied().collect();
    let [a, b] = [(); 2].map(|()| engine.open_session().unwrap());
    engine.sync(a, &prompt[..11], &mut Unattended).unwrap();
    let snapshot = engine.snapshot(a).unwrap();
    engine.sync(a, &prompt, &mut Unattended).unwrap();
    engine.sync(b, &other[..9], &mut Unattended).unwrap();
    engine.decode(&[(a, prompt[3]), (b, other[9])]).unwrap();
    let expected = (row(&mut engine, a), row(&mut engine, b));

    // Found by reading logits.
    engine.sync(b, &[&other[..10], &other[..1]].concat(), &mut Unattended).unwrap();
    engine.sync(b, &other[..9], &mut Unattended).unwrap();
    engine.decode(&[(b, other[9])]).unwrap();
    engine.pretend_lost_after(&[0]);
    let b_logits = row(&mut engine, b);
    assert_near(&b_logits, &expected.1);
    assert_near(&row(&mut engine, a), &expected.0);
    let said = heard.lock().unwrap().join("\n");
    assert!(said.contains("the device was lost during `copy`"), "{said}");
    assert!(said.contains("the device is back: "), "{said}");

    // Found by a step of both.
    let tokens = (engine.tokens(a).to_vec(), engine.tokens(b).to_vec());
    engine.decode(&[(a, prompt[4]), (b, other[10])]).unwrap();
    let stepped = (row(&mut engine, a), row(&mut engine, b));
    engine.restore(a, snapshot).unwrap();
    engine.sync(a, &tokens.0, &mut Unattended).unwrap();
    engine.pretend_lost_after(&[0]);
    engine.decode(&[(a, prompt[4])]).unwrap();
    assert_eq!(engine.tokens(a), [&tokens.0[..], &[prompt[4]]].concat());
    assert_near(&row(&mut engine, a), &stepped.0);
    assert_near(&row(&mut engine, b), &stepped.1);

    // Found in the middle of a prompt; the remembered position is one again.
    engine.restore(a, snapshot).unwrap();
    engine.pretend_lost_after(&[12]);
    let report = engine.sync(a, &tokens.0, &mut Unattended).unwrap();
    assert_eq!((report.evaluated, engine.tokens(a)), (tokens.0.len() - 11, &tokens.0[..]));
    assert_near(&row(&mut engine, a), &expected.0);
    engine.restore(a, snapshot).unwrap();
    engine.sync(a, &tokens.0, &mut Unattended).unwrap();
    assert_near(&row(&mut engine, a), &expected.0);
    assert_eq!(heard.lock().unwrap().len(), 6);
}

#[test]
fn a_device_that_is_lost_at_once_again_is_an_error_and_not_the_end() {
    let Some(mut engine) = open_engine(|_| {}) else { return };
    let prompt = prompt(&engine);
    let id = engine.open_session().unwrap();
    engine.sync(id, &prompt, &mut Unattended).unwrap();
    let expected = row(&mut engine, id);
    // The second time while it is loaded again.
    engine.pretend_lost_after(&[0, 2]);
    let error = engine.decode(&[(id, prompt[0])]).unwrap_err().to_string();
    assert!(error.contains("after the device was lost"), "{error}");
    assert_eq!(engine.tokens(id), prompt, "nothing was committed and nothing dropped");
    engine.decode(&[(id, prompt[0])]).unwrap();
    assert_eq!(engine.tokens(id).len(), prompt.len() + 1);
    engine.sync(id, &prompt[..5], &mut Unattended).unwrap();
    engine.sync(id, &prompt, &mut Unattended).unwrap();
    assert_near(&row(&mut engine, id), &expected);
}

/// A prompt on its way by slices is lost in the middle of a chunk, by its own slice or by a step of another session.
#[test]
fn a_chunk_that_was_open_begins_again() {
    let Some(mut engine) = open_engine(|o| (o.sessions, o.chunk) = (2, Some(8))) else { return };
    let prompt = prompt(&engine);
    let [a, b] = [(); 2].map(|()| engine.open_session().unwrap());
    engine.sync(a, &prompt, &mut Unattended).unwrap();
    let expected = row(&mut engine, a);
    engine.sync(b, &prompt[..9], &mut Unattended).unwrap();
    let smallest = Slice::of(Duration::ZERO);
    // To the middle of the second chunk.
    let to_the_middle = |engine: &mut ModelEngine| {
        engine.reset(a).unwrap();
        engine.begin_sync(a, Target::tokens(&prompt)).unwrap();
        while engine.tokens(a).len() < 8 {
            engine.advance_sync(a, &smallest).unwrap();
        }
        let advance = engine.advance_sync(a, &smallest).unwrap();
        assert_eq!((advance.stage, advance.report.evaluated), (Stage::Open, 8));
    };
    let to_the_end = |engine: &mut ModelEngine| {
        let mut stage = Stage::Open;
        while stage != Stage::Done {
            stage = engine.advance_sync(a, &smallest).unwrap().stage;
        }
        assert_eq!(engine.tokens(a), prompt);
        row(engine, a)
    };
    // More often than there are slots: none is left behind.
    for (turn, by_a_step) in [false, true, false, true].into_iter().enumerate() {
        to_the_middle(&mut engine);
        engine.pretend_lost_after(&[0]);
        if by_a_step {
            engine.decode(&[(b, prompt[turn])]).unwrap();
        } else {
            let advance = engine.advance_sync(a, &smallest).unwrap();
            assert_eq!((advance.stage, advance.report.evaluated), (Stage::Open, 8));
        }
        // What is evaluated again has the cuts that it had, and so the bits.
        assert!(to_the_end(&mut engine) == expected, "other bits, turn {turn}");
    }
    assert_eq!(engine.tokens(b), [&prompt[..9], &[prompt[1], prompt[3]]].concat());
    // Lost again while it is loaded: the prompt ends there, what was committed stays.
    to_the_middle(&mut engine);
    engine.pretend_lost_after(&[0, 2]);
    let error = engine.advance_sync(a, &smallest).unwrap_err().to_string();
    assert!(error.contains("after the device was lost"), "{error}");
    assert_eq!(engine.tokens(a), &prompt[..8]);
    let report = engine.sync(a, &prompt, &mut Unattended).unwrap();
    assert_eq!((report.reused, report.evaluated), (8, prompt.len() - 8));
    assert!(row(&mut engine, a) == expected);
}
