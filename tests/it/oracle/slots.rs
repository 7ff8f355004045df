//! State slots, cancelled and failed steps.

use super::fixtures::{self, MODELS, Prompt};
use super::run::{Run, bits, options};
use q36::cpu::{Backend, Error, Logits, Options};
use q36::model::{Model, SlotId};
use q36::ops::Steering;
use q36::quant::TensorType;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const A: SlotId = SlotId(0);
const B: SlotId = SlotId(1);
const C: SlotId = SlotId(2);

fn demo() -> (Arc<Model>, Vec<Prompt>) {
    fixtures::load(MODELS[0]).expect("in this repository")
}

/// A sequence of some tokens in slot A.
fn started(quality: bool) -> (Run, Vec<u32>) {
    let (model, prompts) = demo();
    let mut run = Run::new(&model, options(quality));
    let ids = prompts[0].ids.clone();
    run.step(&ids, A, Logits::Last);
    (run, ids)
}

#[test]
fn a_step_to_another_slot_keeps_the_source() {
    for tokens in [&[5][..], &[5, 6], &[5, 6, 7, 8, 9, 10]] {
        let (mut run, ids) = started(false);
        let before = run.slot_bits(A, ids.len());
        let out_of_place = bits(run.step(tokens, B, Logits::All));
        assert!(run.slot_bits(A, ids.len()) == before, "{} tokens", tokens.len());

        let (mut other, _) = started(false);
        let in_place = bits(other.step(tokens, A, Logits::All));
        assert!(in_place == out_of_place, "{} tokens", tokens.len());
        assert!(other.slot_bits(A, other.pos) == run.slot_bits(B, run.pos));
    }
}

#[test]
fn a_pinned_slot_is_a_way_back() {
    let (mut run, ids) = started(true);
    let continuation = |run: &mut Run| -> Vec<Vec<u32>> {
        let first = bits(run.step(&[20], B, Logits::Last));
        let then = [21, 22, 23].map(|id| bits(run.step(&[id], B, Logits::Last)));
        [vec![first], then.to_vec()].concat()
    };
    let once = continuation(&mut run);
    (run.pos, run.slot) = (ids.len(), A);
    // Another branch from the same point overwrites the rows after it.
    run.step(&[400, 401, 402, 403, 404], C, Logits::None);
    (run.pos, run.slot) = (ids.len(), A);
    assert!(continuation(&mut run) == once);
}

#[test]
fn slots_and_rows_can_be_carried_to_another_backend() {
    let (mut run, ids) = started(false);
    let mut other = Run::new(run.backend.model(), options(false));
    let shape = other.backend.model().shape.clone();
    for index in 0..shape.recurrent_layers() {
        let (rows, state) = run.backend.read_slot(A, index, ids.len()).expect("the slot exists");
        let rows = rows.concat();
        other.backend.write_slot(C, index, ids.len(), (&rows, state)).expect("the slot exists");
    }
    for index in 0..shape.attention_layers() {
        let (keys, values) = other.kv.rows_mut(index, ids.len());
        keys.copy_from_slice(run.kv.keys(index, 0..ids.len()));
        values.copy_from_slice(run.kv.values(index, 0..ids.len()));
    }
    (other.pos, other.slot) = (ids.len(), C);
    assert!(bits(other.step(&[9], A, Logits::Last)) == bits(run.step(&[9], B, Logits::Last)));
}

#[test]
fn a_cancelled_step_changes_nothing_that_was_valid() {
    let (mut run, ids) = started(false);
    let before = run.slot_bits(A, ids.len());
    let tokens = [5, 6, 7, 8];
    for layer in [0, 1, 5] {
        let asked = AtomicUsize::new(0);
        let cancel = || asked.fetch_add(1, Ordering::Relaxed) == layer;
        let error = run.try_step(&tokens, B, Logits::Last, &cancel).expect_err("cancelled");
        assert_eq!(error.to_string(), format!("cancelled before layer {layer}"));
        assert!(run.backend.logits().is_empty());
    }
    assert!(run.slot_bits(A, ids.len()) == before);
    let after = bits(run.step(&tokens, B, Logits::Last));
    let (mut fresh, _) = started(false);
    assert!(after == bits(fresh.step(&tokens, B, Logits::Last)));
    // A step in place could not be undone, so it is not asked.
    let all =
        |run: &mut Run| run.try_step(&[5], B, Logits::Last, &|| true).map_err(|e| e.to_string());
    assert_eq!(all(&mut run), Ok(()));
}

#[test]
fn bad_steps_and_options_say_what_is_wrong() {
    let (mut run, _) = started(false);
    let mut check = |tokens: &[u32], target, expected: &str| {
        let error = run.try_step(tokens, target, Logits::None, &|| false).expect_err(expected);
        assert_eq!(error.to_string(), expected);
    };
    check(&[], A, "a step has 1 to 512 tokens, got 0");
    check(&[1; 513], A, "a step has 1 to 512 tokens, got 513");
    check(&[3, 4096], A, "token 4096 at position 15 is outside the vocabulary of 4096");
    check(&[3], SlotId(3), "state slot 3 does not exist, there are 3");
    run.pos = 5999;
    check_context(&mut run);

    let (model, _) = demo();
    let refused = |options: Options| match Backend::new(Arc::clone(&model), options) {
        Ok(_) => panic!("accepted"),
        Err(error) => error.to_string(),
    };
    let good = options(false);
    assert_eq!(
        refused(Options { kv_v: TensorType::F32, ..good.clone() }),
        "the V cache cannot hold f32: expected f16, q8_0 or q4_0"
    );
    assert_eq!(
        refused(Options { chunk: 6001, ..good.clone() }),
        "option chunk: expected 1 to 6000, got 6001"
    );
    assert_eq!(
        refused(Options { threads: 0, ..good }),
        "option threads: expected at least 1, got 0"
    );
}

fn check_context(run: &mut Run) {
    let error = run.try_step(&[1, 2], A, Logits::None, &|| false).expect_err("outside the context");
    assert!(matches!(error, Error::Context { end: 6001, ctx: 6000 }));
}

#[test]
fn steering_with_a_zero_scale_changes_no_bit() {
    let (model, prompts) = demo();
    let shape = &model.shape;
    let unit = 1.0 / (shape.hidden as f32).sqrt();
    let file = unit.to_le_bytes().repeat(shape.layers * shape.hidden);
    let ids = &prompts[0].ids;
    let with = |scales: Option<[f32; 2]>| {
        let parse = |scales| Steering::parse(&file, shape.layers, shape.hidden, scales);
        let steering = scales.map(|s| parse(s).expect("unit rows"));
        bits(Run::new(&model, Options { steering, ..options(false) }).feed(ids, 512))
    };
    let plain = with(None);
    assert!(with(Some([0.0, 0.0])) == plain);
    let (attention, ffn) = (with(Some([1.0, 0.0])), with(Some([0.0, 1.0])));
    assert!(attention != plain && ffn != plain && attention != ffn);
}
