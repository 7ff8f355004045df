//! The reply loop on a scripted engine: thinking, limits, what is evaluated.

use q36::chat::{Budget, CloseKind, Show, ThinkOptions};
use q36::engine::generate::{Finish, Generation, Next, ends_inside_thought};
use q36::engine::sample::{Sampler, SamplerParams};
use q36::engine::{Engine, SessionId, Unattended};
use q36::tokenizer::TokenId;

use crate::support::scripted::ScriptedEngine;

const PROMPT: &str = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n";

/// An engine that continues [`PROMPT`] with `reply`, a control text, then with end tokens.
fn engine(ctx: usize, reply: &str) -> (ScriptedEngine, SessionId, Vec<TokenId>) {
    let mut engine = ScriptedEngine::new(ctx, Box::new(|_| TokenId(0)));
    let prompt = engine.tokenizer().encode_control(PROMPT.as_bytes());
    let reply = engine.tokenizer().encode_control(reply.as_bytes());
    let end = engine.tokenizer().special().im_end;
    // By the number of calls, not by position: what a controller feeds is not what was sampled.
    let mut script = reply.into_iter();
    engine.set_script(Box::new(move |_| script.next().unwrap_or(end)));
    let session = engine.open_session().unwrap();
    engine.sync(session, &prompt, &mut Unattended).unwrap();
    (engine, session, prompt)
}

struct Reply {
    thought: String,
    hidden: String,
    answer: String,
    finish: Finish,
    close: Option<CloseKind>,
}

fn reply(
    engine: &mut ScriptedEngine,
    session: SessionId,
    options: ThinkOptions,
    limit: usize,
) -> Reply {
    let greedy = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
    let sampler = Sampler::new(greedy, 1);
    let mut generation = Generation::new(engine, session, sampler, options, limit);
    let mut text = [Vec::new(), Vec::new(), Vec::new()];
    let finish = loop {
        match generation.next(engine).unwrap() {
            Next::End(finish) => break finish,
            Next::Token(fed) => {
                let part = match fed.show {
                    Show::Thought => 0,
                    Show::Hidden => 1,
                    Show::Answer => 2,
                };
                text[part].extend_from_slice(engine.tokenizer().bytes(fed.id));
            }
        }
    };
    let [thought, hidden, answer] = text.map(|t| String::from_utf8(t).unwrap());
    let close = generation.think().closed().map(|e| e.kind);
    Reply { thought, hidden, answer, finish, close }
}

const THINKING: ThinkOptions = ThinkOptions { thinking: true, budget: None, recover_calls: false };

#[test]
fn a_thought_and_an_answer_are_told_apart() {
    let (mut engine, session, prompt) = engine(100, "So.\n</think>\n\nHello!");
    assert!(ends_inside_thought(&engine, &prompt));
    let r = reply(&mut engine, session, THINKING, 50);
    assert_eq!((r.thought.as_str(), r.answer.as_str()), ("So.\n", "\n\nHello!"));
    assert_eq!((r.finish, r.close), (Finish::Stop, Some(CloseKind::Natural)));
}

#[test]
fn an_end_inside_the_thought_opens_the_answer_instead() {
    // The script's own tokens go on behind the closing that the controller feeds: three more calls.
    let (mut engine, session, _) = engine(100, "So<|im_end|>");
    let r = reply(&mut engine, session, THINKING, 50);
    assert_eq!((r.thought.as_str(), r.hidden.as_str()), ("So", "\n</think>\n\n"));
    assert_eq!((r.finish, r.close), (Finish::Stop, Some(CloseKind::End)));
    let special = engine.tokenizer().special();
    assert!(engine.evaluated.contains(&special.think_end), "the close token reaches the model");
    assert!(!engine.evaluated.ends_with(&[special.im_end]), "the end of the turn does not");
}

#[test]
fn a_budget_ends_the_thought() {
    let (mut engine, session, _) = engine(200, &"word ".repeat(100));
    let budget = Some(Budget { tokens: 10, soft: 0, hard: 0, top_rank: 1 });
    let r = reply(&mut engine, session, ThinkOptions { budget, ..THINKING }, 40);
    assert_eq!(r.close, Some(CloseKind::Hard));
    assert!(!r.answer.is_empty(), "generation goes on behind it");
    assert_eq!(r.finish, Finish::Length);
}

#[test]
fn limits_stop_before_the_context_is_full_and_evaluate_nothing_in_vain() {
    let (mut engine, session, prompt) = engine(100, &"word ".repeat(200));
    let r = reply(&mut engine, session, ThinkOptions::default(), 7);
    assert_eq!(r.finish, Finish::Length);
    assert_eq!(engine.evaluated.len(), prompt.len() + 6, "the last token is not evaluated");

    let ctx = prompt.len() + 6;
    let (mut engine, session, _) = self::engine(ctx, &"word ".repeat(200));
    let r = reply(&mut engine, session, ThinkOptions::default(), 50);
    assert_eq!(r.finish, Finish::ContextFull);
    assert!(engine.tokens(session).len() < ctx);
}
