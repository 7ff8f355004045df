//! Stopping in the middle: soon, and with everything that was committed.

use super::failures::has_device;
use super::open_engine;
use crate::support::{Cut, q36};
use q36::engine::{Engine as _, SyncControl, Unattended};
use q36::tokenizer::TokenId;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const COMMON: [&str; 10] =
    ["run", "--vulkan", "-m", "models/q36-tiny.gguf", "--temp", "0", "-sys", "", "--nothink", "-p"];

/// Far more than a slice: a CPU driver compiles when a pipeline first runs, and machines do other work.
const SOON: Duration = Duration::from_secs(30);

#[test]
fn ctrl_c_ends_a_prompt() {
    if !has_device() {
        return;
    }
    let text = "The fox went to the river to drink. There it met a bear. ".repeat(320);
    let args = [&COMMON[..], &[&text, "-c", "8192", "--prefill-chunk", "128"]].concat();
    let begun = |said: &str| said.contains("input tokens: 0/");
    let out = q36(args).interrupt_at(begun).run().expect_status(130);
    assert_eq!(out.stdout.trim(), "");
    assert!(out.stderr.contains("ended by: interrupted"), "{}", out.stderr);
    assert!(!out.stderr.contains("(100.0%)"), "{}", out.stderr);
    let time = out.to_end.expect("a signal was sent");
    println!("ended {time:?} after the signal");
    assert!(time < SOON, "ended {time:?} after the signal");
}

#[test]
fn ctrl_c_ends_a_reply() {
    if !has_device() {
        return;
    }
    let args = [&COMMON[..], &["Tell me a long story", "-n", "400", "-c", "1024"]].concat();
    let out = q36(args).cut(Cut { after_bytes: 3, interrupt: true }).run().expect_status(130);
    assert!(out.stdout.ends_with('\n'), "{}", out.stdout);
    assert!(out.stderr.contains("ended by: interrupted"), "{}", out.stderr);
}

/// Stops when it is asked for the nth time.
struct Stop {
    asked: AtomicUsize,
    at: usize,
}

impl SyncControl for Stop {
    fn progress(&mut self, _done: usize, _total: usize) {}

    fn cancelled(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) + 1 >= self.at
    }
}

#[test]
fn what_was_committed_stays_and_the_rest_follows_with_the_same_bits() {
    let Some(mut engine) = open_engine(|o| o.chunk = Some(64)) else { return };
    let text =
        "The fox went to the river to drink. There it met a bear, who had waited. ".repeat(14);
    let prompt: Vec<TokenId> = engine.tokenizer().encode_text(text.as_bytes());
    assert!(prompt.len() > 250, "{} tokens", prompt.len());
    let id = engine.open_session().unwrap();
    engine.sync(id, &prompt, &mut Unattended).unwrap();
    let expected = engine.logits(id).unwrap().unwrap().to_vec();
    // How often a host is asked that never stops: at least once between two chunks, at most for every slice.
    let mut never = Stop { asked: AtomicUsize::new(0), at: usize::MAX };
    engine.reset(id).unwrap();
    engine.sync(id, &prompt, &mut never).unwrap();
    let asked = never.asked.into_inner();
    assert!(asked >= prompt.len() / 64, "asked {asked} times");
    let stops = [1, asked / 3, asked / 2, asked];
    let mut kept = Vec::new();
    for at in stops {
        engine.reset(id).unwrap();
        let report =
            engine.sync(id, &prompt, &mut Stop { asked: AtomicUsize::new(0), at }).unwrap();
        assert!(report.cancelled, "asked for the {at}th time of {asked}");
        let held = engine.tokens(id).len();
        assert_eq!(report.evaluated, held);
        assert!(held.is_multiple_of(64) && held < prompt.len(), "{held} tokens");
        assert!(engine.logits(id).unwrap().is_none() || held > 0);
        kept.push(held);
        let report = engine.sync(id, &prompt, &mut Unattended).unwrap();
        assert_eq!((report.reused, report.evaluated), (held, prompt.len() - held));
        assert!(engine.logits(id).unwrap().unwrap() == expected, "other bits after {held} tokens");
    }
    assert!(kept.is_sorted() && kept[0] < kept[3], "{kept:?}");
}
