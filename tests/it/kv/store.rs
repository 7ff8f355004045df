//! The directory: finding, loading, making room, sharing.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use q36::engine::{Engine as _, ModelEngine, SessionId};
use q36::kv::{
    self, Class, Config, Container, Error, Extensions, Extras, Fit, Limits, Moment, Prompt, Reason,
    Restored, Saving, Store, ToolBlock, VisibleKey,
};
use q36::tokenizer::TokenId;

use super::background::config;
use super::roundtrip::go_on;
use super::{open, prompt, sync};
use crate::support::temp_dir;

fn files(dir: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let mut files: Vec<_> = all.filter(|p| p.extension().is_some_and(|e| e == "kv")).collect();
    files.sort();
    files
}

/// Saves a session of these tokens and waits for the file.
fn store_session(
    (store, engine): (&mut Store, &mut ModelEngine),
    id: SessionId,
    tokens: &[TokenId],
    moment: Moment,
) {
    sync(engine, id, tokens);
    let saving = store.save(engine, id, moment, &Extras::default()).unwrap();
    assert_eq!(saving, Saving::Started);
    store.close(engine);
}

/// The rendered form of these tokens, looked up.
fn lookup(store: &mut Store, engine: &ModelEngine, tokens: &[TokenId]) -> Option<usize> {
    let text = engine.tokenizer().text(tokens);
    let prompt = Prompt { bytes: &text.bytes, markers: &text.markers, replayed: &[] };
    store.lookup(&prompt).map(|hit| hit.tokens())
}

fn restore(
    store: &mut Store,
    engine: &mut ModelEngine,
    id: SessionId,
    tokens: &[TokenId],
) -> Result<Restored, Error> {
    let text = engine.tokenizer().text(tokens);
    let prompt = Prompt { bytes: &text.bytes, markers: &text.markers, replayed: &[] };
    let hit = store.lookup(&prompt).expect("a file matches");
    store.restore(engine, id, hit)
}

#[test]
fn after_a_restart_only_new_tokens_are_evaluated() {
    let dir = temp_dir();
    let context = |o: &mut q36::engine::Options| {
        o.context = q36::engine::Context::Exactly(8192);
        o.chunk = Some(256);
    };
    let config = || Config { clock: || 1000, ..Config::new(dir.path().to_path_buf()) };
    let mut engine = open(context);
    let prompt = prompt(&engine, 6100);
    let id = engine.open_session().unwrap();
    let mut store = Store::open(config(), &engine).unwrap();
    // As a front end does: stop where the store wants to save, save, go on.
    let plan = q36::kv::Prefill { tokens: 6000, ..Default::default() };
    let stops = store.limits().stops(&plan);
    assert_eq!(
        stops.iter().map(|s| (s.tokens, s.moment)).collect::<Vec<_>>(),
        [(4096, Moment::Cold)]
    );
    store_session((&mut store, &mut engine), id, &prompt[..4096], Moment::Cold);
    sync(&mut engine, id, &prompt[..6000]);
    store_session((&mut store, &mut engine), id, &prompt[..6010], Moment::Shutdown);
    sync(&mut engine, id, &prompt);
    let expected = go_on(&mut engine, id, 2);
    drop((engine, store));

    let mut engine = open(context);
    let id = engine.open_session().unwrap();
    let mut store = Store::open(config(), &engine).unwrap();
    assert_eq!(store.index().len(), 2);
    let restored = restore(&mut store, &mut engine, id, &prompt).unwrap();
    assert_eq!((restored.tokens, restored.prefill), (6010, None));
    assert_eq!(store.last_stored(id), 6010);
    assert_eq!(sync(&mut engine, id, &prompt), 90);
    assert!(go_on(&mut engine, id, 2) == expected, "the same bits as without a restart");
    // A prompt that leaves the path earlier comes back to the earlier file.
    let mut other = prompt[..5000].to_vec();
    other[4500] = prompt[0];
    let restored = restore(&mut store, &mut engine, id, &other).unwrap();
    assert_eq!(restored.tokens, 4096);
    assert_eq!(sync(&mut engine, id, &other), 5000 - 4096);
    assert_eq!(lookup(&mut store, &engine, &prompt[..4095]), None);
    assert_eq!(store.take_notes(), Vec::<String>::new());
}

#[test]
fn hits_are_counted_in_place() {
    static NOW: AtomicU64 = AtomicU64::new(1000);
    let dir = temp_dir();
    let mut engine = open(|_| {});
    let prompt = prompt(&engine, 100);
    let id = engine.open_session().unwrap();
    let clock = || NOW.load(Ordering::Relaxed);
    let mut store = Store::open(Config { clock, ..config(dir.path()) }, &engine).unwrap();
    store_session((&mut store, &mut engine), id, &prompt[..50], Moment::Cold);
    let before = std::fs::read(&files(dir.path())[0]).unwrap();
    NOW.store(5000, Ordering::Relaxed);
    for _ in 0..2 {
        restore(&mut store, &mut engine, id, &prompt).unwrap();
    }
    let after = std::fs::read(&files(dir.path())[0]).unwrap();
    let changed: Vec<usize> = (0..before.len()).filter(|&i| before[i] != after[i]).collect();
    assert!(changed.iter().all(|at| (12..16).contains(at) || (32..40).contains(at)), "{changed:?}");
    let mut file = Container::open(std::fs::File::open(&files(dir.path())[0]).unwrap()).unwrap();
    assert_eq!((file.header().hits, file.header().last_used), (2, 5000));
    assert_eq!((file.header().created, file.header().reason), (1000, Reason::Cold));
    file.verify(None).unwrap();
}

#[test]
fn letters_of_a_marker_are_no_marker() {
    let dir = temp_dir();
    let mut engine = open(|_| {});
    let id = engine.open_session().unwrap();
    let mut store = Store::open(config(dir.path()), &engine).unwrap();
    let text =
        "<|im_start|>user\nTell me about the fox and the bear and the river.<|im_end|>\n and on";
    let control = engine.tokenizer().encode_control(text.as_bytes());
    let spelled = engine.tokenizer().encode_text(text.as_bytes());
    store_session((&mut store, &mut engine), id, &control, Moment::Cold);
    let prompts = [&control, &spelled].map(|ids| [&ids[..], &control[3..6]].concat());
    assert_eq!(lookup(&mut store, &engine, &prompts[0]), Some(control.len()));
    assert_eq!(
        lookup(&mut store, &engine, &prompts[1]),
        None,
        "the same bytes, not the same markers"
    );
    let bytes = engine.tokenizer().text(&prompts[1]).bytes;
    let all = 0..bytes.len();
    let replayed = Prompt { bytes: &bytes, markers: &[], replayed: std::slice::from_ref(&all) };
    assert!(store.lookup(&replayed).is_some(), "either form will do in a replayed call");
}

#[test]
fn damaged_files_go_and_foreign_ones_stay() {
    let dir = temp_dir();
    let mut engine = open(|_| {});
    let prompt = prompt(&engine, 100);
    let id = engine.open_session().unwrap();
    let mut store = Store::open(config(dir.path()), &engine).unwrap();
    for end in [40, 60] {
        store_session((&mut store, &mut engine), id, &prompt[..end], Moment::Continued);
    }
    assert_eq!(lookup(&mut store, &engine, &prompt), Some(60));
    // A bit of the longer one's payload.
    let text = engine.tokenizer().text(&prompt[..60]).bytes;
    let path = dir.path().join(format!("{}.kv", q36::util::hex::sha1(&text)));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[3000] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let error = restore(&mut store, &mut engine, id, &prompt).unwrap_err();
    assert!(error.to_string().starts_with("cannot load "), "{error}");
    assert!(engine.tokens(id).is_empty() && engine.logits(id).unwrap().is_none());
    assert!(!path.exists());
    let notes = store.take_notes();
    assert!(
        notes.len() == 1 && notes[0].ends_with("the checksum of the payload does not match"),
        "{notes:?}"
    );
    assert_eq!(restore(&mut store, &mut engine, id, &prompt).unwrap().tokens, 40);
    // Of another model, and not a KVC file at all.
    bytes[3000] ^= 1;
    bytes[20] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let alien = dir.path().join(format!("{}.kv", "ab".repeat(20)));
    std::fs::write(&alien, "notes of somebody else").unwrap();
    // Cut short, it is known all the same: it takes room.
    std::fs::write(dir.path().join(format!("{}.kv", "cd".repeat(20))), &bytes[..2000]).unwrap();
    let mut other = Store::open(config(dir.path()), &engine).unwrap();
    assert_eq!(lookup(&mut other, &engine, &prompt), Some(40));
    assert!(path.exists() && alien.exists() && other.take_notes().is_empty());
    let fit = |bytes| other.index().iter().find(|e| e.bytes == bytes).map(|e| e.fit.clone());
    assert!(matches!(fit(2000), Some(Fit::Refused(Class::Damaged, _))), "{:?}", fit(2000));
    // Whoever it belongs to, it is not ours to delete.
    assert!(matches!(fit(bytes.len() as u64), Some(Fit::Refused(..))));
}

#[test]
fn room_is_made_before_writing() {
    let dir = temp_dir();
    let mut engine = open(|_| {});
    let prompt = prompt(&engine, 300);
    let id = engine.open_session().unwrap();
    let mut store = Store::open(config(dir.path()), &engine).unwrap();
    store_session((&mut store, &mut engine), id, &prompt[..50], Moment::Cold);
    let size = std::fs::metadata(&files(dir.path())[0]).unwrap().len();
    let budget = Config { budget_bytes: 3 * size + size / 2, ..config(dir.path()) };
    let mut store = Store::open(budget.clone(), &engine).unwrap();
    for end in [60, 70, 80] {
        store_session((&mut store, &mut engine), id, &prompt[..end], Moment::Continued);
    }
    let used: u64 = files(dir.path()).iter().map(|f| std::fs::metadata(f).unwrap().len()).sum();
    assert!(used <= budget.budget_bytes && files(dir.path()).len() == 3);
    let kept: Vec<_> = [50, 60, 70, 80]
        .into_iter()
        .filter(|&end| lookup(&mut store, &engine, &prompt[..end]) == Some(end))
        .collect();
    assert_eq!(kept, [50, 70, 80], "the cold one and the longest of the path");
    // Whatever the present request begins with stays, so there is no room.
    lookup(&mut store, &engine, &prompt);
    let other: Vec<_> = prompt.iter().rev().copied().take(90).collect();
    sync(&mut engine, id, &other);
    store.save(&mut engine, id, Moment::Evict, &Extras::default()).unwrap();
    store.close(&mut engine);
    let notes = store.take_notes();
    assert!(notes.len() == 1 && notes[0].contains("in files that must stay"), "{notes:?}");
    let small = Config { budget_bytes: size / 2, ..config(dir.path()) };
    let mut store = Store::open(small, &engine).unwrap();
    store.save(&mut engine, id, Moment::Evict, &Extras::default()).unwrap();
    store.close(&mut engine);
    let notes = store.take_notes();
    assert!(notes.len() == 1 && notes[0].contains("exceeds the budget"), "{notes:?}");
    assert_eq!(files(dir.path()).len(), 3);
}

#[test]
fn a_prompt_that_is_saved_twice_keeps_its_beginning() {
    let dir = temp_dir();
    let mut engine = open(|_| {});
    let prompt = prompt(&engine, 300);
    let others: Vec<_> = prompt.iter().rev().copied().collect();
    let id = engine.open_session().unwrap();
    let mut store = Store::open(config(dir.path()), &engine).unwrap();
    // Longer, so worth more than what comes next.
    store_session((&mut store, &mut engine), id, &others[..200], Moment::Evict);
    let size = std::fs::metadata(&files(dir.path())[0]).unwrap().len();
    let budget = Config { budget_bytes: 5 * size / 2, ..config(dir.path()) };
    let mut store = Store::open(budget, &engine).unwrap();
    store_session((&mut store, &mut engine), id, &prompt[..40], Moment::Continued);
    store_session((&mut store, &mut engine), id, &prompt[..250], Moment::Continued);
    assert_eq!(files(dir.path()).len(), 2);
    assert_eq!(lookup(&mut store, &engine, &prompt[..40]), Some(40), "it was written last");
    assert_eq!(lookup(&mut store, &engine, &others), None);
}

#[test]
fn a_full_disk_is_a_note_and_generation_goes_on() {
    let dir = temp_dir();
    let mut engine = open(|_| {});
    let prompt = prompt(&engine, 60);
    let id = engine.open_session().unwrap();
    let full = Config { free_bytes: |_| Ok(1000), ..config(dir.path()) };
    let mut store = Store::open(full, &engine).unwrap();
    sync(&mut engine, id, &prompt[..50]);
    store.save(&mut engine, id, Moment::Evict, &Extras::default()).unwrap();
    for &token in &prompt[50..] {
        engine.decode(&[(id, token)]).unwrap();
        store.pump(&mut engine);
    }
    store.close(&mut engine);
    let notes = store.take_notes();
    assert!(notes.len() == 1 && notes[0].contains("1000 B are free on the disk of"), "{notes:?}");
    assert_eq!(files(dir.path()).len(), 0);
    // The directory itself goes away under a save.
    let gone = dir.path().join("below");
    let mut store = Store::open(config(&gone), &engine).unwrap();
    std::fs::remove_dir_all(&gone).unwrap();
    store.save(&mut engine, id, Moment::Evict, &Extras::default()).unwrap();
    store.close(&mut engine);
    let notes = store.take_notes();
    assert!(notes.len() == 1 && notes[0].starts_with("session not saved: "), "{notes:?}");
    assert_eq!(engine.tokens(id).len(), 60);
}

#[test]
fn a_directory_that_cannot_be_written_is_read() {
    // Nobody can make files here, whoever runs the tests.
    let dir = Path::new("/proc/self");
    let mut engine = open(|_| {});
    let prompt = prompt(&engine, 60);
    let id = engine.open_session().unwrap();
    let mut store = Store::open(config(dir), &engine).unwrap();
    let notes = store.take_notes();
    assert!(notes.len() == 1, "{notes:?}");
    assert!(
        notes[0].starts_with("sessions are not saved: cannot write to /proc/self: "),
        "{notes:?}"
    );
    sync(&mut engine, id, &prompt);
    let saving = store.save(&mut engine, id, Moment::Shutdown, &Extras::default()).unwrap();
    assert_eq!((saving, lookup(&mut store, &engine, &prompt)), (Saving::Skipped, None));
    let nowhere = Store::open(config(Path::new("/proc/self/new")), &engine).unwrap_err();
    assert_eq!(nowhere.to_string(), "cannot use /proc/self/new for saved sessions");
}

#[test]
fn a_file_of_the_same_text_gets_new_tool_calls_and_keeps_its_state() {
    let dir = temp_dir();
    let mut engine = open(|_| {});
    let prompt = prompt(&engine, 60);
    let id = engine.open_session().unwrap();
    let mut store = Store::open(config(dir.path()), &engine).unwrap();
    store_session((&mut store, &mut engine), id, &prompt, Moment::Cold);
    let text = engine.tokenizer().text(&prompt).bytes;
    let tool = |id: &str, block: &[u8]| ToolBlock { id: id.into(), block: block.to_vec() };
    let extras = |tools| Extras { tools, title: Some(b"A title".to_vec()), ..Extras::default() };
    let save = |store: &mut Store, engine: &mut ModelEngine, tools| {
        let saving = store.save(engine, id, Moment::Evict, &extras(tools)).unwrap();
        store.close(engine);
        saving
    };
    let first = vec![tool("call_1", &text[10..30]), tool("call_2", b"not in the text")];
    assert_eq!(save(&mut store, &mut engine, first.clone()), Saving::Started);
    assert_eq!(save(&mut store, &mut engine, first), Saving::Known);
    let second = vec![tool("call_3", &text[..9])];
    assert_eq!(save(&mut store, &mut engine, second), Saving::Started);
    assert_eq!(files(dir.path()).len(), 1);
    let mut file = Container::open(std::fs::File::open(&files(dir.path())[0]).unwrap()).unwrap();
    assert_eq!(file.verify(None).unwrap(), Vec::<String>::new());
    let (sections, _) = file.sections().unwrap();
    let ids: Vec<_> = sections.tools.iter().map(|t| t.id.as_slice()).collect();
    assert_eq!(
        (ids, sections.title.as_deref()),
        (vec![&b"call_3"[..], b"call_1"], Some(&b"A title"[..]))
    );
    assert_eq!(file.header().reason, Reason::Cold);
    assert_eq!(store.with_tool(b"call_1").map(|e| e.header.tokens), Some(60));
    assert_eq!(store.with_tool(b"call_2").map(|e| e.header.tokens), None);
    restore(&mut store, &mut engine, id, &prompt).unwrap();
}

#[test]
fn a_visible_text_finds_a_state_with_more_in_it() {
    let dir = temp_dir();
    let mut engine = open(|_| {});
    let prompt = prompt(&engine, 80);
    let id = engine.open_session().unwrap();
    let mut store = Store::open(config(dir.path()), &engine).unwrap();
    sync(&mut engine, id, &prompt);
    let shown = engine.tokenizer().text(&[&prompt[..20], &prompt[40..]].concat());
    let key = VisibleKey {
        text: shown.bytes.clone(),
        markers: shown.markers,
        kind: Extensions::THINKING_VISIBLE,
    };
    let extras = Extras { key: Some(key), ..Extras::default() };
    store.save(&mut engine, id, Moment::Evict, &extras).unwrap();
    store.close(&mut engine);
    let rendered = [&shown.bytes[..], b" and the next question"].concat();
    let hit = store.lookup(&Prompt { bytes: &rendered, markers: &[], replayed: &[] }).unwrap();
    let restored = store.restore(&mut engine, id, hit).unwrap();
    assert_eq!((restored.text_bytes, restored.tokens), (shown.bytes.len(), 80));
    assert_eq!(engine.tokens(id), prompt);
}

#[test]
fn a_long_file_goes_once_a_longer_one_is_there() {
    let dir = temp_dir();
    let mut engine = open(|_| {});
    let prompt = prompt(&engine, 300);
    let id = engine.open_session().unwrap();
    let limits = Limits { cold_max_tokens: 100, ..config(dir.path()).limits };
    let mut store = Store::open(Config { limits, ..config(dir.path()) }, &engine).unwrap();
    store_session((&mut store, &mut engine), id, &prompt[..150], Moment::Evict);
    restore(&mut store, &mut engine, id, &prompt).unwrap();
    assert_eq!(files(dir.path()).len(), 1, "kept until its successor is written");
    store_session((&mut store, &mut engine), id, &prompt[..200], Moment::Evict);
    assert_eq!(files(dir.path()).len(), 1);
    assert_eq!(lookup(&mut store, &engine, &prompt), Some(200));
}

#[test]
fn stores_of_one_directory_see_each_other() {
    let dir = temp_dir();
    let mut engine = open(|_| {});
    let prompt = prompt(&engine, 200);
    let id = engine.open_session().unwrap();
    let mut stores = [0; 3].map(|_| Store::open(config(dir.path()), &engine).unwrap());
    for (i, end) in [60, 90, 120].into_iter().enumerate() {
        store_session((&mut stores[i], &mut engine), id, &prompt[..end], Moment::Continued);
        for store in &mut stores {
            assert_eq!(lookup(store, &engine, &prompt), Some(end));
        }
    }
    // A file that another process deletes is a miss, and an open one stays readable.
    let text = engine.tokenizer().text(&prompt);
    let prompt_of = Prompt { bytes: &text.bytes, markers: &text.markers, replayed: &[] };
    let hit = stores[0].lookup(&prompt_of).unwrap();
    for file in files(dir.path()) {
        std::fs::remove_file(file).unwrap();
    }
    let restored = stores[0].restore(&mut engine, id, hit).unwrap();
    assert_eq!((restored.tokens, engine.tokens(id).len()), (120, 120));
    assert_eq!(lookup(&mut stores[1], &engine, &prompt), None);
}

#[test]
fn a_session_that_a_user_saved_keeps_its_file_when_it_is_saved_again() {
    let dir = temp_dir();
    let mut engine = open(|_| {});
    let prompt = prompt(&engine, 80);
    let id = engine.open_session().unwrap();
    let mut store = Store::open(config(dir.path()), &engine).unwrap();
    let title = b"About a fox".to_vec();
    for (end, moment) in [(5, Moment::AgentSession), (40, Moment::AgentSession)] {
        sync(&mut engine, id, &prompt[..end]);
        let extras = Extras { title: Some(title.clone()), created: Some(77), ..Extras::default() };
        assert_eq!(store.save(&mut engine, id, moment, &extras).unwrap(), Saving::Started);
        store.close(&mut engine);
    }
    let path =
        dir.path().join(format!("{}.kv", q36::util::hex::encode(&kv::session_name(&title, 77))));
    assert_eq!(files(dir.path()), std::slice::from_ref(&path));
    engine.reset(id).unwrap();
    let loaded = kv::load_file(&mut engine, id, &path).unwrap();
    assert_eq!((loaded.tokens.len(), loaded.sections.title), (40, Some(title)));
    assert_eq!(lookup(&mut store, &engine, &prompt), None, "it is the user's, not a cache");
}
