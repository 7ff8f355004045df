//! Save, start anew, load: the session goes on as if nothing had happened, bit for bit.

use std::path::Path;

use q36::engine::{Engine as _, ModelEngine, Options, Prepared, SessionId, Unattended};
use q36::kv::{self, Error, Extras, Refusal};
use q36::quant::TensorType;
use q36::tokenizer::TokenId;

use super::{options, prompt};
use crate::support::temp_dir;
use crate::support::tiny::Tiny;

/// What K and V rows may be.
pub(crate) const TYPES: [TensorType; 3] = [TensorType::F16, TensorType::Q8_0, TensorType::Q4_0];

/// An engine whose session holds so many tokens of the story, or nothing.
pub(crate) fn engine(options: &Options, tokens: usize) -> (ModelEngine, SessionId) {
    let mut engine = Prepared::new(options.clone()).unwrap().open(&mut |_, _| true).unwrap();
    let id = session(&mut engine, tokens);
    (engine, id)
}

/// A new session that holds so many tokens of the story, or nothing.
pub(crate) fn session(engine: &mut ModelEngine, tokens: usize) -> SessionId {
    let id = engine.open_session().unwrap();
    if tokens > 0 {
        let prompt = prompt(engine, tokens);
        // The end comes token by token, so that both ways of writing rows and states are in the file.
        let (beginning, end) = prompt.split_at(tokens - tokens.min(3));
        if !beginning.is_empty() {
            engine.sync(id, beginning, &mut Unattended).unwrap();
        }
        for &token in end {
            match engine.tokens(id) {
                [] => drop(engine.sync(id, &[token], &mut Unattended).unwrap()),
                _ => engine.decode(&[(id, token)]).unwrap(),
            }
        }
    }
    id
}

/// Logits of the session and of so many greedy tokens, and these tokens.
pub(crate) fn go_on(
    engine: &mut ModelEngine,
    id: SessionId,
    steps: usize,
) -> (Vec<Vec<f32>>, Vec<TokenId>) {
    let (mut rows, mut ids) = (Vec::new(), Vec::new());
    for step in 0..=steps {
        let row = engine.logits(id).unwrap().expect("the session has logits").to_vec();
        let best = (0..row.len()).rev().max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
        rows.push(row);
        if step < steps {
            let token = TokenId(u32::try_from(best).unwrap());
            engine.decode(&[(id, token)]).unwrap();
            ids.push(token);
        }
    }
    (rows, ids)
}

/// Saves, goes on for `steps` tokens, loads into a new engine and goes on again: all logits and ids are the same bits.
pub(crate) fn check(options: &Options, tokens: usize, steps: usize) {
    let dir = temp_dir();
    let path = dir.path().join("saved.kv");
    let (mut first, id) = engine(options, tokens);
    kv::save_file(&mut first, id, &path, &Extras::default(), 1).unwrap();
    let expected = go_on(&mut first, id, steps);
    drop(first);
    let (mut second, id) = engine(options, 0);
    let loaded = kv::load_file(&mut second, id, &path).unwrap();
    assert_eq!(loaded.tokens.len(), tokens);
    assert_eq!(second.tokens(id), loaded.tokens);
    let found = go_on(&mut second, id, steps);
    assert!(found == expected, "other bits after {tokens} tokens with {options:?}");
}

/// The same with another session of one engine in the place of a new engine.
fn check_beside(options: &Options, tokens: usize, steps: usize) {
    let dir = temp_dir();
    let path = dir.path().join("saved.kv");
    let (mut engine, id) = engine(&Options { sessions: 2, ..options.clone() }, tokens);
    kv::save_file(&mut engine, id, &path, &Extras::default(), 1).unwrap();
    let expected = go_on(&mut engine, id, steps);
    let other = session(&mut engine, 5);
    kv::load_file(&mut engine, other, &path).unwrap();
    let found = go_on(&mut engine, other, steps);
    assert!(found == expected, "other bits after {tokens} tokens with {options:?}");
}

#[test]
fn every_pair_of_types_goes_on_bit_for_bit() {
    for (kv_k, kv_v) in TYPES.into_iter().flat_map(|k| TYPES.map(|v| (k, v))) {
        let mut options = options();
        (options.kv_k, options.kv_v) = (Some(kv_k), Some(kv_v));
        check(&options, 150, 64);
    }
}

#[test]
fn any_length_goes_on_bit_for_bit() {
    for tokens in [1, 2, 3, 4, 63, 64, 65, 128, 200] {
        check_beside(&options(), tokens, 4);
    }
}

#[test]
fn other_shapes_go_on_bit_for_bit() {
    let dir = temp_dir();
    for (layers, full_interval, kv_heads) in [(4, 4, 1), (6, 2, 2), (7, 3, 4)] {
        let mut tiny = Tiny::default();
        (tiny.shape.layers, tiny.shape.full_interval) = (layers, full_interval);
        (tiny.shape.heads, tiny.shape.kv_heads) = (4, kv_heads);
        let model = dir.path().join("model.gguf");
        tiny.write(&model);
        check(&Options { model, ..options() }, 100, 4);
    }
}

fn load(options: &Options, path: &Path) -> Result<usize, Error> {
    let (mut engine, id) = engine(options, 0);
    kv::load_file(&mut engine, id, path).map(|loaded| loaded.tokens.len())
}

fn refusal(options: &Options, path: &Path) -> String {
    match load(options, path) {
        Err(Error::Refused { refusal, .. }) => refusal.to_string(),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn a_state_loads_where_it_fits_and_is_refused_elsewhere() {
    let dir = temp_dir();
    let path = dir.path().join("saved.kv");
    let (mut saver, id) = engine(&options(), 40);
    let bytes = kv::save_file(&mut saver, id, &path, &Extras::default(), 1).unwrap();
    assert_eq!(bytes, std::fs::metadata(&path).unwrap().len());
    // The context of the writer does not matter, only that the tokens fit.
    let with = |ctx| {
        let mut other = options();
        other.context = q36::engine::Context::Exactly(ctx);
        other.chunk = Some(8);
        other
    };
    assert_eq!(load(&with(41), &path).unwrap(), 40);
    let long = refusal(&with(40), &path);
    assert!(long.starts_with("KV checkpoint does not fit current context"), "{long}");
    let mut types = options();
    types.kv_v = Some(TensorType::Q4_0);
    let other = refusal(&types, &path);
    assert!(other.starts_with("KV checkpoint was written with a different cache type"), "{other}");
}

#[test]
fn a_refused_file_leaves_the_session_as_it_was() {
    let dir = temp_dir();
    let path = dir.path().join("saved.kv");
    let (mut engine, id) = engine(&options(), 40);
    kv::save_file(&mut engine, id, &path, &Extras::default(), 1).unwrap();
    let expected = go_on(&mut engine, id, 2);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 16;
    std::fs::write(&path, bytes).unwrap();
    let error = kv::load_file(&mut engine, id, &path).unwrap_err();
    let refused = matches!(&error, Error::Refused { refusal: Refusal::Checksum { what }, .. } if *what == "the payload");
    assert!(refused, "{error:?}");
    assert_eq!(engine.tokens(id).len(), 42);
    let row = engine.logits(id).unwrap().unwrap().to_vec();
    assert!(row == expected.0[2]);
}
