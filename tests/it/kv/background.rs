//! Saving while the session goes on.

use q36::engine::{Engine as _, ModelEngine, SessionId};
use q36::kv::{Config, Extras, Limits, Moment, Saving, Store};
use q36::tokenizer::TokenId;
use std::path::Path;

use super::{open, prompt, sync};
use crate::support::temp_dir;

pub(super) fn config(dir: &Path) -> Config {
    let limits = Limits { min_tokens: 16, align_tokens: 8, ..Limits::default() };
    Config { limits, clock: || 1000, ..Config::new(dir.to_path_buf()) }
}

fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let all = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    all.filter(|p| p.extension().is_some_and(|e| e == "kv")).collect()
}

fn save(store: &mut Store, engine: &mut ModelEngine, id: SessionId, moment: Moment) -> Saving {
    store.save(engine, id, moment, &Extras::default()).unwrap()
}

/// Decodes tokens of the story while a save is under way; returns how many it took.
fn decode_until_saved(
    store: &mut Store,
    engine: &mut ModelEngine,
    id: SessionId,
    rest: &[TokenId],
) -> usize {
    for (steps, &token) in rest.iter().enumerate() {
        engine.decode(&[(id, token)]).unwrap();
        store.pump(engine);
        if !store.is_busy() {
            return steps + 1;
        }
    }
    panic!("a save that does not end");
}

#[test]
fn a_save_between_steps_has_the_bytes_of_one_that_stops_the_session() {
    let (still, moving) = (temp_dir(), temp_dir());
    let mut engine = open(|_| {});
    let prompt = prompt(&engine, 400);
    let id = engine.open_session().unwrap();
    sync(&mut engine, id, &prompt[..100]);
    let mut quiet = Store::open(config(still.path()), &engine).unwrap();
    assert_eq!(save(&mut quiet, &mut engine, id, Moment::Evict), Saving::Started);
    quiet.close(&mut engine);
    let mut store = Store::open(config(moving.path()), &engine).unwrap();
    assert_eq!(save(&mut store, &mut engine, id, Moment::Evict), Saving::Started);
    let steps = decode_until_saved(&mut store, &mut engine, id, &prompt[100..]);
    assert!(steps > 2, "the save went on over {steps} steps");
    let read = |dir: &Path| std::fs::read(&files(dir)[0]).unwrap();
    assert!(read(still.path()) == read(moving.path()));
    // The slot is free again.
    engine.snapshot(id).unwrap();
    assert_eq!(store.take_notes(), Vec::<String>::new());
}

#[test]
fn without_a_spare_slot_the_state_is_read_at_once() {
    let dir = temp_dir();
    let mut engine = open(|o| o.snapshots = 0);
    let prompt = prompt(&engine, 50);
    let id = engine.open_session().unwrap();
    sync(&mut engine, id, &prompt);
    let mut store = Store::open(config(dir.path()), &engine).unwrap();
    assert_eq!(save(&mut store, &mut engine, id, Moment::Evict), Saving::Started);
    engine.reset(id).unwrap();
    store.close(&mut engine);
    assert_eq!((files(dir.path()).len(), store.take_notes().len()), (1, 0));
}

#[test]
fn a_session_that_is_cut_leaves_no_file_and_a_note() {
    let dir = temp_dir();
    let mut engine = open(|_| {});
    let prompt = prompt(&engine, 200);
    let id = engine.open_session().unwrap();
    sync(&mut engine, id, &prompt);
    let mut store = Store::open(config(dir.path()), &engine).unwrap();
    save(&mut store, &mut engine, id, Moment::Continued);
    store.pump(&mut engine);
    engine.reset(id).unwrap();
    store.pump(&mut engine);
    store.close(&mut engine);
    assert_eq!(files(dir.path()).len(), 0);
    assert_eq!(store.take_notes(), ["session not saved: the session changed before it was saved"]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "the lock alone is left");
    // Finished before it is cut, it is saved.
    sync(&mut engine, id, &prompt);
    assert_eq!(save(&mut store, &mut engine, id, Moment::Evict), Saving::Started);
    store.finish(&mut engine, id).unwrap();
    engine.reset(id).unwrap();
    store.close(&mut engine);
    assert_eq!((files(dir.path()).len(), store.take_notes().len()), (1, 0));
}

#[test]
fn a_second_save_waits_for_the_first() {
    let dir = temp_dir();
    let mut engine = open(|_| {});
    let prompt = prompt(&engine, 200);
    let id = engine.open_session().unwrap();
    let mut store = Store::open(config(dir.path()), &engine).unwrap();
    for end in [60, 120, 180] {
        sync(&mut engine, id, &prompt[..end]);
        assert_eq!(save(&mut store, &mut engine, id, Moment::Continued), Saving::Started);
        assert_eq!(store.last_stored(id), end);
    }
    store.close(&mut engine);
    assert_eq!((files(dir.path()).len(), store.take_notes().len()), (3, 0));
    assert_eq!(save(&mut store, &mut engine, id, Moment::Shutdown), Saving::Known);
    let short = engine.open_session();
    assert!(short.is_err(), "one session alone");
}
