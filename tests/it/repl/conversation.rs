//! Transcript and reply on an engine: nothing is evaluated twice, and what is stopped leaves everything in order.

use std::sync::atomic::{AtomicUsize, Ordering};

use q36::chat::ThinkMode;
use q36::commands::run::repl::{Reply, Transcript};
use q36::engine::generate::{Finish, Next};
use q36::engine::sample::{Sampler, SamplerParams};
use q36::engine::{
    Anchors, BackendChoice, Context, Engine, ModelEngine, Options, Prepared, Reuse, SessionId,
    SyncControl, SyncReport, Target, Unattended,
};
use q36::tokenizer::TokenId;

use super::{OPENING, count, following};
use crate::support::scripted::ScriptedEngine;
use crate::support::tiny_model;

/// The opening of a reply with one.
const THINKING: &str = "<|im_start|>assistant\n<think>\n";

/// A conversation on an engine, as the program leads it, without a terminal.
struct Chat<E> {
    engine: E,
    session: SessionId,
    transcript: Transcript,
    mode: ThinkMode,
}

impl<E: Engine> Chat<E> {
    fn new(mut engine: E, system: &str, mode: ThinkMode) -> Self {
        let session = engine.open_session().unwrap();
        let transcript = Transcript::new(engine.tokenizer(), system, mode).unwrap();
        Self { engine, session, transcript, mode }
    }

    fn prefill(&mut self, control: &mut dyn SyncControl) -> SyncReport {
        let tokens = self.transcript.tokens();
        let borders = self.transcript.borders(self.engine.tokenizer());
        let target = Target { borders: &borders, ..Target::tokens(&tokens) };
        self.engine.sync_to(self.session, target, control).unwrap()
    }

    /// Answers the open turn with at most `limit` tokens, stops before token `stop`; `None` is stopped.
    fn answer(&mut self, limit: usize, stop: usize) -> (SyncReport, Option<Finish>) {
        let report = self.prefill(&mut Unattended);
        let greedy = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
        let sampler = Sampler::new(greedy, 1);
        let mut reply = Reply::begin(&mut self.engine, self.session, sampler, None, limit);
        let mut shown = 0;
        let finish = loop {
            if shown == stop {
                break None;
            }
            match reply.next(&mut self.engine).unwrap() {
                Next::End(finish) => break Some(finish),
                Next::Token(_) => shown += 1,
            }
        };
        reply.keep(self.engine.tokenizer(), &mut self.transcript);
        (report, finish)
    }

    fn ask(&mut self, text: &str) -> SyncReport {
        self.transcript.ask(self.engine.tokenizer(), text, self.mode).unwrap();
        self.answer(12, usize::MAX).0
    }

    fn retry(&mut self) -> SyncReport {
        assert!(self.transcript.ask_again(self.engine.tokenizer(), self.mode).unwrap());
        self.answer(12, usize::MAX).0
    }

    fn text(&self) -> String {
        String::from_utf8(self.engine.tokenizer().decode(&self.transcript.tokens())).unwrap()
    }
}

/// Says the control texts one after the other, then ends every turn at once.
fn scripted(replies: &'static [&'static str], mode: ThinkMode) -> Chat<ScriptedEngine> {
    let mut engine = ScriptedEngine::new(200, Box::new(|_| TokenId(0)));
    let tokenizer = engine.tokenizer();
    let end = tokenizer.special().im_end;
    let all = replies.iter().flat_map(|reply| tokenizer.encode_control(reply.as_bytes()));
    let all: Vec<TokenId> = all.collect();
    let mut script = all.into_iter();
    // By the number of evaluations with logits that are drawn from; a prompt is one.
    engine.set_script(Box::new(move |_| script.next().unwrap_or(end)));
    Chat::new(engine, "", mode)
}

#[test]
fn a_turn_evaluates_what_is_new() {
    let mut chat = scripted(&["Hello!<|im_end|>", "Bye.<|im_end|>"], ThinkMode::Off);
    let tokenizer = chat.engine.tokenizer();
    let expected = count(tokenizer, &format!("<|im_start|>user\nHi<|im_end|>\n{OPENING}"));
    let second = following(tokenizer, "And?", OPENING);
    let first = chat.ask("Hi");
    assert_eq!((first.reused, first.evaluated), (0, expected));
    let live = chat.engine.tokens(chat.session).len();
    let report = chat.ask("And?");
    assert_eq!((report.reuse, report.reused, report.evaluated), (Reuse::Live, live, second));
    let opening = |text: &str| format!("<|im_start|>user\n{text}<|im_end|>\n{OPENING}");
    let expected =
        format!("{}Hello!<|im_end|>\n{}Bye.<|im_end|>\n", opening("Hi"), opening("And?"));
    assert_eq!(chat.text(), expected);
}

#[test]
fn an_answer_that_is_stopped_stays_and_its_thought_is_closed() {
    for stop in 1..6 {
        let mut chat = scripted(&["So. Well then, let me see"], ThinkMode::On);
        let prompt = format!("<|im_start|>user\nHi<|im_end|>\n{THINKING}");
        chat.transcript.ask(chat.engine.tokenizer(), "Hi", ThinkMode::On).unwrap();
        let (_, finish) = chat.answer(50, stop);
        assert_eq!(finish, None);
        let said = chat.engine.tokenizer().encode_text(b"So. Well then, let me see");
        let said = String::from_utf8(chat.engine.tokenizer().decode(&said[..stop])).unwrap();
        assert_eq!(chat.text(), format!("{prompt}{said}\n</think>\n\n<|im_end|>\n"));
        // What was evaluated is what the next turn goes on from.
        let live = chat.engine.tokens(chat.session).len();
        assert_eq!(chat.ask("And?").reused, live);
    }
}

#[test]
fn an_answer_that_is_stopped_while_its_thought_is_being_closed_is_closed_once() {
    // The end of the turn inside the thought makes the controller close it: a newline, the marker, a newline pair.
    for stop in 2..6 {
        let mut chat = scripted(&["So<|im_end|>"], ThinkMode::On);
        chat.transcript.ask(chat.engine.tokenizer(), "Hi", ThinkMode::On).unwrap();
        chat.answer(50, stop);
        let expected =
            format!("<|im_start|>user\nHi<|im_end|>\n{THINKING}So\n</think>\n\n<|im_end|>\n");
        assert_eq!(chat.text(), expected, "stopped before token {stop}");
    }
}

#[test]
fn a_message_without_any_answer_is_taken_back() {
    let mut chat = scripted(&["Hello!<|im_end|>"], ThinkMode::Off);
    chat.ask("Hi");
    let before = chat.transcript.clone();
    chat.transcript.ask(chat.engine.tokenizer(), "And?", ThinkMode::Off).unwrap();
    let (_, finish) = chat.answer(50, 0);
    assert_eq!((finish, &chat.transcript), (None, &before));
    // Stopping another answer before it begins leaves the one that was there.
    chat.transcript.ask_again(chat.engine.tokenizer(), ThinkMode::Off).unwrap();
    chat.answer(50, 0);
    assert_eq!(chat.transcript, before);
}

/// The demo model, with states to go back to as the program keeps them, or without.
fn demo(anchors: usize) -> Chat<ModelEngine> {
    let mut options = Options::new(tiny_model());
    options.backend = BackendChoice::Cpu;
    options.context = Context::Exactly(256);
    options.anchors = Anchors { slots: anchors, spacing: 16 };
    let engine = Prepared::new(options).unwrap().open(&mut |_, _| true).unwrap();
    Chat::new(engine, "You are a helpful assistant.", ThinkMode::Off)
}

const FRANCE: &str = "What is the capital of France?";
const SUM: &str = "What is 17 + 25?";
const ITALY: &str = "What is the capital of Italy?";

#[test]
fn going_back_costs_what_is_new_and_gives_what_a_fresh_start_gives() {
    let mut chat = demo(4);
    chat.ask(FRANCE);
    chat.ask(SUM);
    let tokenizer = chat.engine.tokenizer();
    let opening = count(tokenizer, OPENING);
    let question = count(tokenizer, &format!("<|im_start|>user\n{ITALY}<|im_end|>\n{OPENING}"));
    let thinking = count(tokenizer, THINKING);
    let answered = chat.transcript.clone();

    let report = chat.retry();
    assert_eq!((report.reuse, report.evaluated), (Reuse::Anchor, opening));
    assert_eq!(chat.transcript, answered, "greedily the answer is the same");
    // In another mode only the opening is another, too.
    chat.mode = ThinkMode::On;
    let report = chat.retry();
    assert_eq!((report.reuse, report.evaluated), (Reuse::Anchor, thinking));
    chat.mode = ThinkMode::Off;

    chat.transcript.undo().unwrap();
    let report = chat.ask(ITALY);
    assert_eq!((report.reuse, report.evaluated), (Reuse::Anchor, question));
    let found = chat.transcript.tokens();

    // All of it taken back, the system text is evaluated still.
    chat.transcript.clear();
    let report = chat.ask(ITALY);
    assert_eq!((report.reuse, report.evaluated), (Reuse::Anchor, question));

    let mut fresh = demo(0);
    fresh.ask(FRANCE);
    fresh.ask(ITALY);
    assert_eq!(fresh.transcript.tokens(), found);
}

/// Stops a prompt after so many tokens of it.
struct StopAt {
    tokens: usize,
    done: AtomicUsize,
}

impl SyncControl for StopAt {
    fn progress(&mut self, done: usize, _total: usize) {
        self.done.store(done, Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        self.done.load(Ordering::Relaxed) >= self.tokens
    }
}

#[test]
fn a_prompt_that_is_stopped_is_gone_on_with() {
    let mut chat = demo(4);
    chat.ask(FRANCE);
    let before = chat.transcript.clone();
    chat.transcript.ask(chat.engine.tokenizer(), SUM, ThinkMode::Off).unwrap();
    let report = chat.prefill(&mut StopAt { tokens: 1, done: AtomicUsize::new(0) });
    assert!(report.cancelled && report.evaluated > 0 && report.evaluated < report.total());
    chat.transcript.withdraw();
    assert_eq!(chat.transcript, before);
    // The same message again: what was evaluated is not evaluated again.
    let again = chat.ask(SUM);
    assert_eq!(again.reuse, Reuse::Live);
    assert_eq!(again.evaluated, report.total() - report.evaluated);
    let found = chat.transcript.tokens();
    let mut fresh = demo(0);
    fresh.ask(FRANCE);
    fresh.ask(SUM);
    assert_eq!(fresh.transcript.tokens(), found);
}
