//! `q36 bench`: the flow at a frontier on a scripted engine, and the command on the demo model.

use std::fs;
use std::path::Path;

use q36::bench::{Bench, lanes};
use q36::engine::{Engine as _, Unattended};
use q36::tokenizer::TokenId;
use serde_json::Value;

use crate::support::scripted::ScriptedEngine;
use crate::support::{Cut, Output, q36, temp_dir};

const MODEL: &str = "models/q36-tiny.gguf";
const HEADER: &str = "ctx_tokens,prefill_tokens,prefill_tps,gen_tokens,gen_tps,kvcache_bytes";

fn ids(list: impl IntoIterator<Item = u32>) -> Vec<TokenId> {
    list.into_iter().map(TokenId).collect()
}

#[test]
fn a_frontier_is_left_as_it_was_found() {
    // Whatever was drawn ends the turn; all of it is fed all the same.
    let mut engine = ScriptedEngine::new(64, Box::new(|_| TokenId(0)));
    let end = engine.tokenizer().special().im_end;
    engine.set_script(Box::new(move |_| end));
    let prompt = ids(10..18);
    let mut bench = Bench::new(&mut engine, lanes(&prompt, 1), 2).unwrap();
    let session = bench.first_session();
    let first = bench.visit(3, &mut Unattended).unwrap().unwrap();
    assert_eq!(bench.engine().tokens(session), &prompt[..3]);
    let second = bench.visit(8, &mut Unattended).unwrap().unwrap();
    bench.reset().unwrap();
    let again = bench.visit(3, &mut Unattended).unwrap().unwrap();
    let counts = [first, second, again].map(|m| (m.ctx_tokens, m.prefill_tokens, m.gen_tokens));
    assert_eq!(counts, [(3, 3, 2), (8, 5, 2), (3, 3, 2)]);
    assert_eq!(first.kvcache_bytes, again.kvcache_bytes);
    assert!(first.kvcache_bytes > first.recurrent_bytes && first.recurrent_bytes > 0);
    let fed = [&prompt[..3], &[end, end], &prompt[3..], &[end, end], &prompt[..3], &[end, end]];
    assert_eq!(engine.evaluated, fed.concat());
}

#[test]
fn sessions_generate_together_and_each_from_its_own_place() {
    let mut engine = ScriptedEngine::new(64, Box::new(|tokens| TokenId(1000 + tokens[0].0)));
    let mut bench = Bench::new(&mut engine, lanes(&ids(0..4), 2), 1).unwrap();
    let visit = bench.visit(3, &mut Unattended).unwrap().unwrap();
    assert_eq!((visit.sessions, visit.prefill_tokens), (2, 3));
    assert_eq!(engine.evaluated, ids([0, 1, 2, 2, 3, 0, 1000, 1002]));
}

#[test]
fn without_generation_nothing_is_remembered() {
    let mut engine = ScriptedEngine::new(64, Box::new(|_| TokenId(5)));
    let mut bench = Bench::new(&mut engine, lanes(&ids(0..4), 1), 0).unwrap();
    let visit = bench.visit(4, &mut Unattended).unwrap().unwrap();
    assert!(visit.decode.is_zero() && visit.kvcache_bytes > 0);
    assert_eq!(engine.evaluated, ids(0..4));
}

/// A folder with a text that is long enough for the runs below.
fn folder() -> tempfile::TempDir {
    let dir = temp_dir();
    fs::write(dir.path().join("p.txt"), "The capital of France is Paris. ".repeat(40)).unwrap();
    dir
}

/// Three frontiers, 32, 48 and 64 tokens.
fn bench(dir: &Path, args: &[&str]) -> Output {
    let prompt = dir.join("p.txt");
    let text = prompt.to_str().unwrap();
    let fixed = ["bench", "-q", "--cpu", "-m", MODEL, "--prompt-file", text, "--ctx-start", "32"];
    let steps = ["--ctx-max", "64", "--step-incr", "16"];
    let few = if args.contains(&"-n") { &[][..] } else { &["-n", "3"] };
    q36([&fixed[..], &steps, few, args].concat()).run()
}

#[track_caller]
fn table(text: &str) -> Vec<Vec<String>> {
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

#[test]
fn a_table_has_a_row_for_each_frontier() {
    let dir = folder();
    let out = bench(dir.path(), &[]).expect_status(0);
    assert_eq!(out.stderr, "");
    let rows = table(&out.stdout);
    assert_eq!(rows[0].join(","), HEADER);
    assert_eq!(rows.len(), 4);
    for (row, (ctx, new)) in rows[1..].iter().zip([("32", "32"), ("48", "16"), ("64", "16")]) {
        assert_eq!((row[0].as_str(), row[1].as_str(), row[3].as_str()), (ctx, new, "3"));
        for rate in [&row[2], &row[4]] {
            assert!(rate.parse::<f64>().unwrap() > 0.0, "{row:?}");
            assert_eq!(rate.split_once('.').unwrap().1.len(), 2, "{row:?}");
        }
    }
    // K and V rows grow with the context; the recurrent state is there from the start.
    let bytes = |row: usize| rows[row][5].parse::<u64>().unwrap();
    let per_token = (bytes(2) - bytes(1)) / 16;
    assert_eq!(bytes(3) - bytes(2), 16 * per_token);
    assert!(per_token > 0 && bytes(1) > 32 * per_token);
    let idle = table(&bench(dir.path(), &["-n", "0"]).expect_status(0).stdout);
    assert_eq!((idle[3][3].as_str(), idle[3][4].as_str()), ("0", "0.00"));
    assert_eq!(idle[3][5], rows[3][5]);
}

#[test]
fn what_was_measured_on_what_is_told_when_asked() {
    let dir = folder();
    let csv = dir.path().join("t.csv");
    let csv_arg = csv.to_str().unwrap();
    let args = ["--csv", csv_arg, "--json", "--meta", "--repeat", "2", "--warmup"];
    let out = bench(dir.path(), &[&args[..], &["--concurrency", "2"]].concat()).expect_status(0);
    let text = fs::read_to_string(&csv).unwrap();
    assert!(text.starts_with("# q36: 0.") && text.contains("\n# flags: bench -q --cpu"), "{text}");
    let rows = table(&text);
    assert!(rows[0].join(",").starts_with(&format!("{HEADER},prefill_tps_min,")), "{text}");
    assert_eq!((rows.len(), rows[3].len()), (4, rows[0].len()));
    assert_eq!(rows[3].last().unwrap(), "2");
    let json: Value = serde_json::from_str(&out.stdout).unwrap();
    assert_eq!((&json["complete"], &json["sessions"]), (&true.into(), &2.into()));
    assert_eq!(json["fingerprint"].as_str().unwrap().len(), 40);
    let row = &json["rows"][2];
    assert_eq!((&row["ctx_tokens"], &row["repeat"]), (&64.into(), &2.into()));
    let rates = ["gen_tps_min", "gen_tps", "gen_tps_max"].map(|name| row[name].as_f64().unwrap());
    assert!(rates[0] <= rates[1] && rates[1] <= rates[2], "{rates:?}");
}

#[test]
fn gates_and_comparisons_decide_the_status() {
    let dir = folder();
    let old = |name: &str, rates: &str| {
        let path = dir.path().join(name);
        fs::write(&path, format!("{HEADER}\n48,16,{rates},1\n")).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (slow, fast) = (old("slow.csv", "0.01,3,0.01"), old("fast.csv", "1e9,3,1e9"));
    let check = |args: &[&str], code: i32, text: &str| {
        let out = bench(dir.path(), args).expect_status(code);
        assert!(out.stderr.contains(text), "{args:?}: {}", out.stderr);
        assert_eq!(out.stdout.lines().count(), 4, "the table is there all the same");
    };
    check(&["--gate-prefill", "0.01", "--gate-decode", "0.01"], 0, "");
    check(&["--gate-prefill", "999999"], 1, "too slow: prefill at 32: ");
    check(&["--gate-decode", "999999"], 1, "too slow: decode at 64: ");
    check(&["--compare", &slow, "--min-ratio", "1"], 0, "change against");
    check(&["--compare", &fast], 0, "-100.0 %");
    check(&["--compare", &fast, "--min-ratio", "0.9"], 1, "too slow: decode at 48: 0.000 times");
    let chart = dir.path().join("chart.svg");
    check(&["--compare", &slow, "--repeat", "2", "--svg", chart.to_str().unwrap()], 0, "change");
    let chart = fs::read_to_string(chart).unwrap();
    // Two curves of three points, and the old table's one row.
    let count = |part: &str| chart.matches(part).count();
    assert_eq!((count("<circle"), count("<path"), count("q36-tiny")), (8, 4, 2), "{chart}");
    let other = dir.path().join("other.csv");
    fs::write(&other, format!("{HEADER}\n7,7,1,3,1,1\n")).unwrap();
    check(&["--compare", other.to_str().unwrap()], 1, "has none of the measured frontiers");
}

#[test]
fn mistakes_are_found_before_anything_is_measured() {
    let dir = folder();
    let p = dir.path().join("p.txt");
    let p = p.to_str().unwrap();
    let check = |args: &[&str], code: i32, text: &str| {
        let out = q36([&["bench", "-q"], args].concat()).run().expect_status(code);
        assert!(out.stderr.contains(text), "{args:?}: {}", out.stderr);
        assert_eq!(out.stdout, "");
    };
    check(&[], 2, "give exactly one of --prompt-file, --chat-prompt-file and --synthetic");
    check(&["--prompt-file", p, "--synthetic"], 2, "give exactly one of");
    check(&["--prompt-file", p, "--layers", "4"], 2, "--layers needs --synthetic");
    check(&["--synthetic", "--layers", "41"], 2, "invalid value for --layers: 41");
    check(&["--synthetic", "-m", MODEL], 2, "--synthetic takes no --model");
    check(&["--prompt-file", p, "-sys", "x"], 2, "--system needs --chat-prompt-file");
    check(&["--prompt-file", "/nonexistent"], 2, "cannot read /nonexistent");
    check(&["--prompt-file", p, "--ctx-max", "64"], 2, "--ctx-start 2048 is above --ctx-max 64");
    check(&["--prompt-file", p, "--ctx-alloc", "32896"], 2, "--ctx-alloc 32896 must exceed");
    check(&["--prompt-file", p, "--min-ratio", "1"], 2, "--min-ratio needs --compare");
    check(&["--prompt-file", p, "-n", "0", "--gate-decode", "1"], 2, "--gate-decode needs");
    check(&["--prompt-file", p, "--compare", p], 2, "there is no column ctx_tokens");
    check(&["--prompt-file", p, "--dump-frontier-logits-dir", p], 2, "is no folder");
    check(&["--prompt-file", p, "-m", MODEL, "--cpu"], 2, "32897 tokens exceeds the model's 8192");
    let long = ["--prompt-file", p, "-m", MODEL, "--cpu", "--ctx-max", "4000", "--tokens", "8"];
    check(&long, 1, "tokens are fewer than --ctx-max 4000");
}

#[test]
fn logits_at_the_frontiers_are_those_of_the_prompt() {
    let dir = folder();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let args = ["--dump-frontier-logits-dir", dir.path().to_str().unwrap()];
    bench(dir.path(), &args).expect_status(0);
    let read = |name: &str| -> Value {
        serde_json::from_slice(&fs::read(dir.path().join(name)).unwrap()).unwrap()
    };
    let last = read("frontier_000064.logits.json");
    assert_eq!((&last["source"], &last["frontier_tokens"]), (&"q36-bench".into(), &64.into()));
    assert_eq!(last["argmax_id"], last["argmax_token"]["id"]);
    // The same again without anything generated in between.
    let none = dir.path().join("none");
    fs::create_dir(&none).unwrap();
    let args = ["--dump-frontier-logits-dir", &path("none"), "-n", "0"];
    bench(dir.path(), &args).expect_status(0);
    for name in ["frontier_000032.logits.json", "frontier_000064.logits.json"] {
        assert_eq!(read(name)["logits"], read(&format!("none/{name}"))["logits"], "{name}");
    }
}

#[test]
fn ctrl_c_keeps_the_rows_that_are_written() {
    let dir = folder();
    let prompt = dir.path().join("p.txt");
    let text = prompt.to_str().unwrap();
    let fixed = ["bench", "-q", "--cpu", "-m", MODEL, "--chat-prompt-file", text];
    let endless = ["--ctx-start", "16", "--ctx-max", "200", "--step-incr", "1", "-n", "200"];
    let run = q36([&fixed[..], &endless, &["-sys", "Be brief."]].concat());
    let after_bytes = HEADER.len() + 20;
    let out = run.cut(Cut { after_bytes, interrupt: true }).run().expect_status(130);
    let rows = table(&out.stdout);
    assert!(rows.len() >= 2 && rows[1][0] == "16", "{}", out.stdout);
    assert!(rows.iter().all(|row| row.len() == 6), "{}", out.stdout);
}

#[test]
fn made_up_weights_need_a_device() {
    let out = q36(["bench", "--synthetic", "--layers", "4", "--cpu"]).run().expect_status(1);
    assert!(out.stderr.contains("random weights"), "{}", out.stderr);
}

#[test]
fn a_prompt_beside_sessions_is_told_in_step_times() {
    let dir = folder();
    let beside = ["--beside", "2", "--repeat", "2"];
    let out = bench(dir.path(), &[&beside[..], &["--json"]].concat()).expect_status(0);
    let runs: Vec<Value> = out.stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(runs.len(), 2);
    for run in &runs {
        assert_eq!((&run["prefill_tokens"], &run["sessions"]), (&64.into(), &2.into()));
        let number = |times: &str, name: &str| run[times][name].as_f64().unwrap();
        assert!(number("quiet_ms", "median") > 0.0 && number("step_ms", "count") >= 1.0);
        for times in ["quiet_ms", "step_ms", "slice_ms"] {
            assert!(number(times, "median") <= number(times, "p99"), "{run}");
            assert!(number(times, "p99") <= number(times, "max"), "{run}");
        }
        assert!(run["prefill_tps"].as_f64().unwrap() > 0.0, "{run}");
    }
    let table = bench(dir.path(), &beside).expect_status(0).stdout;
    assert!(table.starts_with("64 tokens beside 2 sessions: "), "{table}");
    let slow = bench(dir.path(), &[&beside[..], &["--gate-step", "0"]].concat()).expect_status(1);
    assert!(slow.stderr.contains("too slow: a step in a hundred"), "{}", slow.stderr);
    let odd = bench(dir.path(), &["--beside", "2", "--concurrency", "2"]).expect_status(2);
    assert!(odd.stderr.contains("--concurrency belongs to the sweep"), "{}", odd.stderr);
}

#[test]
fn tables_are_drawn_and_compared_without_a_model() {
    let dir = temp_dir();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let wide = "prefill_tps_min,prefill_tps_max,gen_tps_min,gen_tps_max";
    fs::write(
        at("old.csv"),
        format!("{HEADER}\n512,512,400.00,8,40.00,1\n1024,512,300.00,8,30.00,1\n"),
    )
    .unwrap();
    let rows = "512,512,440.00,8,44.00,1,400.00,500.00,44.00,44.00\n1024,512,300.00,8,0.00,1,300.00,300.00,0.00,0.00\n";
    fs::write(at("new.csv"), format!("# q36\n{HEADER},{wide}\n{rows}")).unwrap();
    let out = q36(["plot", &at("new.csv"), &at("old.csv")]).run().expect_status(0);
    let lines: Vec<Vec<&str>> =
        out.stdout.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[1].join(" "), "512 +10.0 % (+0.0 to +25.0) +10.0 %");
    assert_eq!(lines[2].join(" "), "1024 +0.0 % -");
    let svg = fs::read_to_string(at("new_ts.svg")).unwrap();
    assert!(svg.contains("<title>new</title>") && svg.contains("prefill old"), "{svg}");
    q36(["plot", &at("old.csv"), "--out", &at("a.svg"), "--title", "a & b"]).run().expect_status(0);
    assert!(fs::read_to_string(at("a.svg")).unwrap().contains("<title>a &amp; b</title>"));
}

#[test]
fn what_cannot_be_drawn_is_told() {
    let dir = temp_dir();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("one.csv"), format!("{HEADER}\n512,512,400.00,8,40.00,1\n")).unwrap();
    fs::write(at("none.csv"), "a,b\n1,2\n").unwrap();
    for (file, said) in [
        ("one.csv", "a curve takes at least 2 rows, found 1"),
        ("none.csv", "there is no column ctx_tokens"),
        ("missing.csv", "cannot read"),
    ] {
        let out = q36(["plot", &at(file)]).run().expect_status(2);
        assert!(out.stderr.contains(said) && out.stderr.contains(file), "{}", out.stderr);
    }
}
