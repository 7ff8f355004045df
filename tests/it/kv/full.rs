//! A disk that fills up in the middle of a file: a note, no file, and generation goes on.

use std::path::Path;
use std::process::Command;

use q36::engine::Engine as _;
use q36::kv::{Extras, Moment, Store};

use super::background::config;
use super::{open, prompt, sync};
use crate::support::temp_dir;

/// Set for the process that cannot write large files: the directory it saves to.
const CHILD: &str = "Q36_TEST_KV_FULL";
/// What it says when all was as it should be.
const DONE: &str = "the session went on";

/// The process with the limit. A test like any other when nobody asks for it.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let dir = Path::new(&dir);
    let mut engine = open(|_| {});
    let prompt = prompt(&engine, 80);
    let id = engine.open_session().unwrap();
    let mut store = Store::open(config(dir), &engine).unwrap();
    sync(&mut engine, id, &prompt[..60]);
    store.save(&mut engine, id, Moment::Continued, &Extras::default()).unwrap();
    for &token in &prompt[60..] {
        engine.decode(&[(id, token)]).unwrap();
        store.pump(&mut engine);
    }
    store.close(&mut engine);
    let notes = store.take_notes();
    assert!(notes.len() == 1, "{notes:?}");
    assert!(notes[0].starts_with("session not saved: cannot write ") && notes[0].contains("large"));
    let left = std::fs::read_dir(dir).unwrap().count();
    assert_eq!((left, engine.tokens(id).len()), (1, 80), "the lock alone is left");
    engine.snapshot(id).unwrap();
    println!("\n{DONE}");
}

#[test]
fn a_write_that_fails_half_way_leaves_nothing_and_the_session_goes_on() {
    let dir = temp_dir();
    // Files end after 100 or 200 KiB, by the shell's idea of a block, with an error instead of a signal.
    let limited = "trap '' XFSZ; ulimit -f 200; exec \"$0\" --exact kv::full::child --nocapture";
    let out = Command::new("sh")
        .args(["-c", limited])
        .arg(std::env::current_exe().unwrap())
        .env(CHILD, dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && said.lines().any(|line| line == DONE), "{said}");
}
