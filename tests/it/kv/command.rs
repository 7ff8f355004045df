//! `q36 kv` as a user meets it.

use std::path::Path;

use q36::engine::Engine as _;
use q36::kv::{Extras, Moment, Store, ToolBlock};
use serde_json::Value;

use super::background::config;
use super::{open, prompt, sync};
use crate::support::{Output, q36, temp_dir};

/// Three files of different lengths and reasons, written at 1000 seconds after 1970; their ids.
fn fill(dir: &Path) -> Vec<String> {
    let mut engine = open(|_| {});
    let prompt = prompt(&engine, 100);
    let id = engine.open_session().unwrap();
    let mut store = Store::open(config(dir), &engine).unwrap();
    let mut ids = Vec::new();
    for (end, moment) in [(30, Moment::Cold), (50, Moment::Continued), (70, Moment::Shutdown)] {
        sync(&mut engine, id, &prompt[..end]);
        let text = engine.tokenizer().text(&prompt[..end]).bytes;
        let tools = vec![ToolBlock { id: b"call_1".to_vec(), block: text[..9].to_vec() }];
        let extras = Extras { tools, ..Extras::default() };
        store.save(&mut engine, id, moment, &extras).unwrap();
        store.close(&mut engine);
        ids.push(q36::util::hex::sha1(&text));
    }
    ids
}

fn kv(dir: &Path, args: &[&str]) -> Output {
    let (action, rest) = args.split_first().unwrap();
    let line = ["kv", action, dir.to_str().unwrap()].into_iter().chain(rest.iter().copied());
    q36(line).env("COLUMNS", "100").run()
}

fn json(out: &Output) -> Value {
    serde_json::from_str(&out.stdout).unwrap()
}

#[test]
fn files_are_listed_shown_and_verified() {
    let dir = temp_dir();
    let ids = fill(dir.path());
    let list = kv(dir.path(), &["list"]).expect_status(0);
    let lines: Vec<&str> = list.stdout.lines().collect();
    assert!(lines[0].starts_with("id        reason "), "{}", lines[0]);
    assert_eq!(lines.len(), 4);
    for (id, reason) in ids.iter().zip(["cold", "continued", "shutdown"]) {
        let line = lines.iter().find(|l| l.starts_with(&id[..8])).expect("every file has a line");
        assert!(line.contains(reason) && line.contains("In the year 1000"), "{line}");
        assert!(line.chars().count() <= 100, "{line}");
    }
    assert!(list.stderr.starts_with("3 files, "), "{}", list.stderr);
    let report = json(&kv(dir.path(), &["list", "--json"]).expect_status(0));
    let files = report["files"].as_array().unwrap();
    let tokens: u64 = files.iter().map(|f| f["tokens"].as_u64().unwrap()).sum();
    assert_eq!((files.len(), tokens), (3, 150));
    assert!(
        files.iter().all(|f| f["status"] == "ok" && f["created"] == 1000 && f["kv_k"] == "f16")
    );

    let shown = kv(dir.path(), &["show", &ids[1][..6]]).expect_status(0).stdout;
    for part in
        ["reason      continued", "tokens      50", "tool call   call_1, 9 bytes", "   In the year"]
    {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    let text = kv(dir.path(), &["show", &ids[1][..6], "--text"]).expect_status(0).stdout;
    assert_eq!(q36::util::hex::sha1(text.as_bytes()), ids[1]);
    let shown = json(&kv(dir.path(), &["show", &ids[1], "--json"]).expect_status(0));
    assert_eq!(
        (&shown[0]["id"], &shown[0]["payload_version"]),
        (&ids[1].clone().into(), &2.into())
    );

    kv(dir.path(), &["verify"]).expect_status(0);
    let path = dir.path().join(format!("{}.kv", ids[0]));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[2000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    std::fs::write(dir.path().join("other.kv"), "no such file").unwrap();
    let verified = kv(dir.path(), &["verify"]).expect_status(1);
    assert!(verified.stdout.contains("damaged     the checksum of the payload does not match"));
    assert!(verified.stdout.contains("alien       not a KVC file"), "{}", verified.stdout);
    let one = path.to_str().unwrap();
    q36(["kv", "verify", one]).run().expect_status(1);
    let report = json(&kv(dir.path(), &["verify", "--json"]).expect_status(1));
    assert_eq!(report.as_array().unwrap().len(), 4);
}

#[test]
fn pruning_takes_what_was_asked_and_no_more() {
    let dir = temp_dir();
    let ids = fill(dir.path());
    let count = || std::fs::read_dir(dir.path()).unwrap().count() - 1;
    let dry = kv(dir.path(), &["prune", "--older-than", "30d", "--dry-run"]).expect_status(0);
    assert_eq!((dry.stdout.lines().count(), count()), (3, 3));
    kv(dir.path(), &["prune", "--damaged"]).expect_status(0);
    assert_eq!(count(), 3);
    let path = dir.path().join(format!("{}.kv", ids[0]));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.truncate(2000);
    std::fs::write(&path, bytes).unwrap();
    let damaged = kv(dir.path(), &["prune", "--damaged"]).expect_status(0);
    assert_eq!((damaged.stdout.trim(), count()), (path.to_str().unwrap(), 2));
    kv(dir.path(), &["prune", &ids[1][..10]]).expect_status(0);
    assert_eq!(count(), 1);
    kv(dir.path(), &["prune", "--older-than", "90000w"]).expect_status(0);
    assert_eq!(count(), 1);
    let all = json(&kv(dir.path(), &["prune", "--max-mb", "0", "--json"]).expect_status(0));
    assert_eq!((all["deleted"].as_array().unwrap().len(), count()), (1, 0));
}

#[test]
fn what_is_not_there_is_said() {
    let dir = temp_dir();
    let out = q36(["kv", "list"]).run().expect_status(0);
    assert!(out.stderr.starts_with("no saved sessions in "), "{}", out.stderr);
    let home = dir.path().join("kvcache");
    std::fs::create_dir(&home).unwrap();
    fill(&home);
    let out = q36(["kv", "list"]).env("Q36_HOME", dir.path()).run().expect_status(0);
    assert_eq!(out.stdout.lines().count(), 4);
    let message = |args: &[&str], status| kv(&home, args).expect_status(status).stderr;
    let missing = message(&["show", "zz"], 1);
    assert!(missing.contains("has a name that begins with `zz`\nhint: q36 kv list"), "{missing}");
    let rule = message(&["prune"], 2);
    assert!(rule.starts_with("q36 kv: prune needs a rule or a file\nhint: --older-than"), "{rule}");
    let flag = message(&["list", "--damaged"], 2);
    assert!(flag.starts_with("q36 kv: --damaged belongs to prune, not to list"), "{flag}");
    let show = message(&["show"], 2);
    assert!(show.starts_with("q36 kv: show needs a file"), "{show}");
    let age = message(&["prune", "--older-than", "soon"], 2);
    assert!(age.contains("invalid value for --older-than: soon"), "{age}");
    let nowhere = q36(["kv", "list", "/no/such/place"]).run().expect_status(1);
    assert!(nowhere.stderr.contains("there is no /no/such/place"), "{}", nowhere.stderr);
}
