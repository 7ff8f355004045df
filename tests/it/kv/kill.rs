//! Processes that are killed while they save: whatever they left, every file is whole or ignored, and what was saved
//! before is still there.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use q36::engine::Engine as _;
use q36::kv::{Container, Extras, Moment, Prompt, Store};
use q36::util::rng::Rng;

use super::background::config;
use super::{open, prompt, sync};
use crate::support::temp_dir;

/// Set for the process that is to be killed: the directory it saves to.
const CHILD: &str = "Q36_TEST_KV_CHILD";
/// How often a process is killed; 200 is the whole test.
const ROUNDS: &str = "Q36_TEST_KILLS";
const DEFAULT_ROUNDS: usize = 12;
/// What the process says before each save.
const SAVING: &str = "saving";

/// The process that saves until it dies. A test like any other when nobody asks for it.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let mut engine = open(|o| o.threads = Some(1));
    let prompt = prompt(&engine, 500);
    let id = engine.open_session().unwrap();
    let mut store = Store::open(config(Path::new(&dir)), &engine).unwrap();
    let mut rng = Rng::new(u64::from(std::process::id()));
    let mut below = |n: u64| usize::try_from(rng.next_u64() % n).unwrap();
    loop {
        // A conversation: load what there is, go on a little, save on the way, be replaced by another.
        let end = 20 + below(100);
        let text = engine.tokenizer().text(&prompt[..end]);
        let known = Prompt { bytes: &text.bytes, markers: &text.markers, replayed: &[] };
        if let Some(hit) = store.lookup(&known) {
            store.restore(&mut engine, id, hit).unwrap();
        }
        sync(&mut engine, id, &prompt[..end]);
        println!("\n{SAVING}");
        store.save(&mut engine, id, Moment::Continued, &Extras::default()).unwrap();
        for step in 0..below(12) {
            engine.decode(&[(id, prompt[end + step])]).unwrap();
            store.pump(&mut engine);
        }
        println!("\n{SAVING}");
        store.save(&mut engine, id, Moment::Evict, &Extras::default()).unwrap();
        if below(4) == 0 {
            store.close(&mut engine);
        } else {
            store.finish(&mut engine, id).unwrap();
        }
        engine.reset(id).unwrap();
    }
}

/// A process that saves, and the other end of its output: without that it would end by itself.
struct Saver {
    child: Child,
    _output: BufReader<ChildStdout>,
}

/// One that has begun its `saves`-th save just now.
fn spawn(dir: &Path, saves: usize) -> Saver {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kv::kill::child", "--nocapture"])
        .env(CHILD, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let begun = output
        .by_ref()
        .lines()
        .filter(|line| line.as_ref().is_ok_and(|line| line == SAVING))
        .take(saves);
    assert_eq!(begun.count(), saves, "the child saves for ever");
    Saver { child, _output: output }
}

/// Every file that has the name of a saved session is whole.
fn verify(dir: &Path) -> usize {
    let mut whole = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "kv") {
            continue;
        }
        let mut file = Container::open(std::fs::File::open(&path).unwrap())
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let dropped = file.verify(None).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert!(dropped.is_empty(), "{}: {dropped:?}", path.display());
        whole += 1;
    }
    whole
}

#[test]
fn a_kill_at_any_moment_costs_nothing_that_was_saved() {
    let rounds = std::env::var(ROUNDS).ok().and_then(|n| n.parse().ok()).unwrap_or(DEFAULT_ROUNDS);
    let dir = temp_dir();
    let mut engine = open(|_| {});
    let prompt = prompt(&engine, 500);
    let id = engine.open_session().unwrap();
    // A good state that is longer than all that the children save.
    let mut store = Store::open(config(dir.path()), &engine).unwrap();
    sync(&mut engine, id, &prompt[..400]);
    store.save(&mut engine, id, Moment::Cold, &Extras::default()).unwrap();
    store.close(&mut engine);
    let text = engine.tokenizer().text(&prompt);
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let mut known = 0;
    for round in 0..rounds {
        // Now and then three at once.
        let count = if round % 5 == 4 { 3 } else { 1 };
        let saves = 1 + usize::try_from(rng.next_u64() % 4).unwrap();
        let mut children: Vec<Saver> = (0..count).map(|_| spawn(dir.path(), saves)).collect();
        // A save takes a few milliseconds; some of these moments are after it.
        std::thread::sleep(Duration::from_micros(rng.next_u64() % 12_000));
        for saver in &mut children {
            saver.child.kill().unwrap();
            saver.child.wait().unwrap();
        }
        let whole = verify(dir.path());
        assert!(whole >= known, "round {round}: {whole} files where there were {known}");
        known = whole;
        let mut store = Store::open(config(dir.path()), &engine).unwrap();
        let left = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, whole + 1, "beside the files only the lock is left");
        let prompt = Prompt { bytes: &text.bytes, markers: &text.markers, replayed: &[] };
        let hit = store.lookup(&prompt).expect("the good state is there");
        assert_eq!(store.restore(&mut engine, id, hit).unwrap().tokens, 400, "round {round}");
        assert!(store.take_notes().is_empty());
    }
    assert!(known > 1, "the children saved nothing");
    println!("{rounds} kills, {known} files");
}
