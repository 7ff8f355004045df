//! The engine on a Vulkan device: what `engine` checks on the CPU, and draws from what the device finds.

use crate::engine::anchors;
use crate::engine::prefill;
use crate::support::{self, tiny_model};
use q36::engine::sample::{DrawRules, Penalties, Sampler, SamplerParams};
use q36::engine::{
    BackendChoice, BackendKind, Context, Engine, ModelEngine, Options, Prepared, SessionId,
    Unattended,
};
use q36::tokenizer::{TokenId, TokenMask};
use q36::util::rng::Rng;
use std::collections::BTreeMap;

fn options(change: &dyn Fn(&mut Options)) -> Options {
    let mut options = Options::new(tiny_model());
    options.context = Context::Exactly(256);
    options.chunk = Some(32);
    options.backend = BackendChoice::Vulkan;
    change(&mut options);
    options
}

fn open(change: &dyn Fn(&mut Options)) -> ModelEngine {
    Prepared::new(options(change)).unwrap().open(&mut |_, _| true).unwrap()
}

/// Runs a check where there is a device; says so where there is none.
fn check(check: impl FnOnce(prefill::Open<'_>)) {
    match Prepared::new(options(&|_| {})) {
        Ok(_) => check(&open),
        Err(why) => support::skip(&format!("needs a Vulkan device: {why}")),
    }
}

#[test]
fn companions_of_a_prompt_change_no_bit() {
    check(prefill::companions_change_no_bit);
}

#[test]
fn a_prompt_given_up_keeps_what_was_committed() {
    check(prefill::giving_up_keeps_what_was_committed);
}

#[test]
fn a_session_in_a_prompt_refuses_steps() {
    check(prefill::a_session_in_a_prompt_refuses_steps);
}

#[test]
fn dropped_reasoning_costs_the_reply() {
    check(anchors::dropped_reasoning_costs_the_reply);
}

#[test]
fn edits_restart_at_the_turn_before() {
    check(anchors::edits_restart_at_the_turn_before);
}

#[test]
fn a_cut_reply_keeps_its_prompt() {
    check(anchors::a_cut_reply_keeps_its_prompt);
}

#[test]
fn the_budget_is_kept_and_the_oldest_go_first() {
    check(anchors::the_budget_is_kept_and_the_oldest_go_first);
}

#[test]
fn more_sessions_than_a_step_takes_decode_in_groups() {
    check(|open| {
        let mut engine = open(&|o| (o.sessions, o.context) = (11, Context::Exactly(64)));
        let token = |n: usize| TokenId(u32::try_from(300 + n).unwrap());
        let ids: Vec<SessionId> = (0..11).map(|_| engine.open_session().unwrap()).collect();
        let mut run = |group: usize| {
            for (n, &id) in ids.iter().enumerate() {
                engine.reset(id).unwrap();
                engine.sync(id, &[token(n)], &mut Unattended).unwrap();
            }
            for step in 0..2 {
                let steps: Vec<_> =
                    ids.iter().enumerate().map(|(n, &id)| (id, token(2 * n + step))).collect();
                steps.chunks(group).for_each(|steps| engine.decode(steps).unwrap());
            }
            let mut row = |&id: &SessionId| -> Vec<u32> {
                let row = engine.logits(id).unwrap().expect("the session has logits");
                row.iter().map(|v| v.to_bits()).collect()
            };
            ids.iter().map(&mut row).collect::<Vec<_>>()
        };
        assert!(run(11) == run(1), "a row's bits depend on its company");
    });
}

/// Ways to draw, from the ones that candidates always decide to the ones that they never do.
fn parameters(rng: &mut Rng) -> SamplerParams {
    let mut pick = |all: &[f32]| all[usize::try_from(rng.next_u64() % all.len() as u64).unwrap()];
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole numbers from a list"
    )]
    let top_k = pick(&[0.0, 0.0, 1.0, 20.0, 200.0, 2000.0]) as usize;
    SamplerParams {
        temperature: pick(&[0.0, 0.3, 0.7, 1.0, 1.6]),
        top_k,
        top_p: pick(&[1.0, 1.0, 0.5, 0.95]),
        min_p: pick(&[0.0, 0.05, 0.05, 0.3]),
    }
}

fn one_in(rng: &mut Rng, n: u64) -> bool {
    rng.next_u64().is_multiple_of(n)
}

/// Rules of every kind, alone and together.
fn rules(rng: &mut Rng, vocab: usize, history: &[TokenId]) -> DrawRules {
    let mut rules = DrawRules::default();
    if one_in(rng, 4) {
        let mut mask = TokenMask::none(vocab);
        let keep_one_of = [2, 3, 50][usize::try_from(rng.next_u64() % 3).unwrap()];
        for id in (0..vocab).filter(|_| one_in(rng, keep_one_of)) {
            mask.insert(TokenId(u32::try_from(id).unwrap()));
        }
        rules = rules.allow(mask);
    }
    if one_in(rng, 4) {
        let mut token = || TokenId(u32::try_from(rng.next_u64() % vocab as u64).unwrap());
        let ids: Vec<TokenId> = (0..40).map(|_| token()).collect();
        rules = rules.add_to(ids.into_iter().map(|id| (id, rng.unit_f32() * 20.0 - 10.0)));
    }
    let mut seen: BTreeMap<TokenId, u32> = BTreeMap::new();
    for &id in history {
        *seen.entry(id).or_default() += 1;
    }
    let mut penalties = Penalties::default();
    if one_in(rng, 2) {
        (penalties.presence, penalties.frequency) = (0.6, 0.3);
    }
    if one_in(rng, 4) {
        penalties.repetition = [1.1, 1.3, 0.9][usize::try_from(rng.next_u64() % 3).unwrap()];
    }
    rules.penalise(penalties, &seen)
}

/// Draws any token.
const EVEN: SamplerParams = SamplerParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0 };

/// The token that the CPU draws from the whole row.
fn expected(
    engine: &mut ModelEngine,
    id: SessionId,
    sampler: &mut Sampler,
    rules: &DrawRules,
) -> TokenId {
    let mut allowed = engine.tokenizer().drawable().clone();
    if let Some(mask) = rules.allowed() {
        allowed.intersect(mask);
    }
    let row = engine.logits(id).unwrap().expect("the session has logits");
    sampler.sample_by(row, &allowed, rules).expect("some logit is finite")
}

#[test]
fn draws_from_candidates_are_those_from_whole_rows() {
    check(|open| {
        let mut engine = open(&|o| o.sessions = 2);
        assert_eq!(engine.info().backend, BackendKind::Vulkan);
        let vocab = engine.info().vocab;
        let text = b"The fox went to the river to drink. There it met a bear, who had been waiting all day.";
        let prompt = engine.tokenizer().encode_text(text);
        let mut rng = Rng::new(2);
        println!("seed 2");
        // Another session leaves its own rules on the device.
        let other = engine.open_session().unwrap();
        engine.set_rules(other, rules(&mut rng, vocab, &prompt)).unwrap();
        engine.sync(other, &prompt[..4], &mut Unattended).unwrap();
        let id = engine.open_session().unwrap();
        let mut fed = prompt[..8].to_vec();
        for step in 0..120 {
            let params = parameters(&mut rng);
            let rules = rules(&mut rng, vocab, &fed);
            engine.expect_draws(id, params);
            engine.set_rules(id, rules.clone()).unwrap();
            // A chunk of the prompt, or a step with the other session in it.
            if step % 10 == 0 {
                fed.extend_from_slice(&prompt[8..12]);
                fed.truncate(200);
                engine.sync(id, &fed, &mut Unattended).unwrap();
            } else {
                let token = prompt[step % prompt.len()];
                engine.decode(&[(other, token), (id, token)]).unwrap();
                fed.push(token);
            }
            let mut ours = Sampler::new(params, step as u64);
            let mut theirs = ours.clone();
            let before = engine.draws();
            let drawn = engine.sample(id, &mut ours).unwrap();
            let after = engine.draws();
            assert_eq!(after.short + after.fetched, before.short + before.fetched + 1);
            let expected = expected(&mut engine, id, &mut theirs, &rules);
            assert_eq!(drawn, expected, "step {step}: {params:?}");
            // Both have used as many random numbers.
            let flat = vec![0.0; vocab];
            let next = [&mut ours, &mut theirs].map(|sampler| {
                sampler.set_params(EVEN);
                sampler.sample(&flat, &TokenMask::all(vocab)).unwrap()
            });
            assert_eq!(next[0], next[1], "step {step}");
        }
        let draws = engine.draws();
        println!("{draws:?}");
        assert!(draws.short > 2 * draws.fetched, "{draws:?}");
        // Rules that come after the step: the row is brought to the host, and they hold all the same.
        let greedy = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
        engine.expect_draws(id, greedy);
        engine.set_rules(id, DrawRules::default()).unwrap();
        engine.decode(&[(id, prompt[0])]).unwrap();
        let best = engine.sample(id, &mut Sampler::new(greedy, 1)).unwrap();
        let without = DrawRules::default().add_to([(best, -1e6)]);
        engine.set_rules(id, without).unwrap();
        let next = engine.sample(id, &mut Sampler::new(greedy, 1)).unwrap();
        assert_ne!(best, next);
        assert_eq!(engine.draws().fetched, draws.fetched + 1);
        let nothing = DrawRules::default().allow(TokenMask::none(vocab));
        assert!(engine.set_rules(id, nothing).is_err());
    });
}
