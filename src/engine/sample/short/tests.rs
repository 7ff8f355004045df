//! Short lists against whole rows. The lists are made as a device makes them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::engine::sample::Penalties;
use crate::tokenizer::TokenMask;

/// What a device finds: see the kernels' `head`. `error` is how far its sum of weights is off, relative to it.
fn found(row: &[f32], allowed: &TokenMask, rules: &DrawRules, ask: Ask, error: f64) -> Shortlist {
    let mut seen = row.to_vec();
    for &(id, addend) in rules.addends() {
        if let Some(logit) = seen.get_mut(id.index()) {
            *logit += addend;
        }
    }
    let ids = (0u32..).zip(&seen).map(|(id, &logit)| (TokenId(id), logit));
    let all: Vec<(TokenId, f32)> = ids.filter(|(id, _)| allowed.contains(*id)).collect();
    let best = all.iter().fold(all[0], |a, &b| if b.1 > a.1 { b } else { a });
    let bin = |logit: f32| ((best.1 - logit) * 64.0).clamp(0.0, 2047.0).floor();
    let mut last = 2047.0;
    if ask.top_k > 0 {
        let mut bins: Vec<f32> = all.iter().map(|(_, logit)| bin(*logit)).collect();
        bins.sort_by(f32::total_cmp);
        last = bins.get(ask.top_k - 1).copied().unwrap_or(last);
    }
    let is_wanted =
        |&&(_, logit): &&(TokenId, f32)| logit >= best.1 - ask.margin && bin(logit) <= last;
    let tokens: Vec<_> = all.iter().filter(is_wanted).copied().collect();
    if ask.margin == f32::NEG_INFINITY || tokens.len() > ROOM {
        return Shortlist { best: Some(best), floor: f32::INFINITY, ..Shortlist::default() };
    }
    let inverse = f64::from(ask.inverse_temperature);
    let sum: f64 = all.iter().map(|(_, l)| (f64::from(l - best.1) * inverse).exp()).sum();
    let least = tokens.iter().fold(f32::INFINITY, |least, t| least.min(t.1));
    let is_cut = ask.top_k > 0 && tokens.len() >= ask.top_k;
    let floor = if is_cut { least } else { best.1 - ask.margin };
    #[expect(clippy::cast_possible_truncation, reason = "as a device rounds it")]
    let weight = Some(((sum * (1.0 + error)) as f32, ask.inverse_temperature));
    Shortlist { best: Some(best), tokens, floor, weight }
}

fn row() -> impl Strategy<Value = Vec<f32>> {
    let logit = prop_oneof![
        6 => (-40i8..40).prop_map(|n| f32::from(n) / 8.0),
        6 => -30.0f32..10.0,
        1 => prop::sample::select(&[-0.0f32, 0.0, 9.0, 9.0][..]),
    ];
    prop::collection::vec(logit, 1..3000)
}

fn params() -> impl Strategy<Value = SamplerParams> {
    let temperature = prop_oneof![1 => Just(0.0f32), 8 => 0.05..3.0f32];
    let top_k = prop_oneof![Just(0usize), 1..60usize, Just(2000)];
    let top_p = prop_oneof![Just(1.0f32), 0.01..1.0f32];
    let min_p = prop_oneof![Just(0.0f32), 0.0..1.0f32];
    (temperature, top_k, top_p, min_p).prop_map(|(temperature, top_k, top_p, min_p)| {
        SamplerParams { temperature, top_k, top_p, min_p }
    })
}

fn rules() -> impl Strategy<Value = DrawRules> {
    let addends = prop::collection::vec((0u32..3000, -20.0f32..20.0), 0..20);
    let repetition = prop_oneof![4 => Just(1.0f32), 2 => 1.0..2.0f32, 1 => 0.5..1.0f32];
    (addends, repetition, 0u32..200).prop_map(|(addends, repetition, seen)| {
        let seen: BTreeMap<TokenId, u32> = (0..seen).map(|id| (TokenId(id * 3), 1)).collect();
        let penalties = Penalties { repetition, ..Penalties::default() };
        let addends = addends.into_iter().map(|(id, addend)| (TokenId(id), addend));
        DrawRules::default().add_to(addends).penalise(penalties, &seen)
    })
}

proptest! {
    #[test]
    fn a_short_list_gives_the_token_of_the_row_or_none(
        row in row(),
        params in params(),
        rules in rules(),
        seed: u64,
        holes in prop::collection::vec(0u32..3000, 0..30),
        error in -5e-6..5e-6f64,
    ) {
        let mut allowed = TokenMask::all(row.len());
        for hole in holes {
            allowed.remove(TokenId(hole));
        }
        prop_assume!(!allowed.is_empty());
        let list = found(&row, &allowed, &rules, Sampler::ask(params, &rules), error);
        let mut short = Sampler::new(params, seed);
        let mut whole = short.clone();
        let drawn = short.sample_short(&list, &rules);
        if let Some(drawn) = drawn {
            prop_assert_eq!(Ok(drawn), whole.sample_by(&row, &allowed, &rules));
        }
        // As many random numbers were used as tokens were drawn.
        let next = |sampler: &mut Sampler| sampler.rng.unit_f32();
        prop_assert_eq!(next(&mut short).to_bits(), next(&mut whole).to_bits());
    }
}

/// A row as models make them: a few likely tokens, and many unlikely ones.
fn usual(seed: u64) -> Vec<f32> {
    let mut rng = crate::util::rng::Rng::new(seed);
    let mut row: Vec<f32> = (0..20_000).map(|_| 6.0 * rng.unit_f32() - 6.0).collect();
    for rank in 0..60u8 {
        let place = usize::try_from(rng.next_u64() % 20_000).expect("a small number");
        row[place] = 12.0 - f32::from(rank) / 6.0 - rng.unit_f32();
    }
    row
}

#[test]
fn the_usual_ways_to_draw_are_decided_by_short_lists() {
    let plain = DrawRules::default();
    let seen = (0..300).map(|id| (TokenId(id), 1)).collect();
    let repeated = Penalties { repetition: 1.1, presence: 0.5, ..Penalties::default() };
    let penalised = DrawRules::default().penalise(repeated, &seen);
    let publisher = SamplerParams { temperature: 1.0, top_k: 20, top_p: 0.95, min_p: 0.0 };
    let default = SamplerParams::default();
    let nucleus = SamplerParams { temperature: 0.7, top_k: 0, top_p: 0.9, min_p: 0.0 };
    let greedy = SamplerParams { temperature: 0.0, ..default };
    let cases = [
        (publisher, &plain),
        (publisher, &penalised),
        (default, &plain),
        (nucleus, &plain),
        (greedy, &plain),
        (greedy, &penalised),
    ];
    for (case, (params, rules)) in cases.into_iter().enumerate() {
        let mut decided = 0;
        for seed in 0..50 {
            let row = usual(seed);
            let allowed = TokenMask::all(row.len());
            let list = found(&row, &allowed, rules, Sampler::ask(params, rules), 1e-6);
            let mut sampler = Sampler::new(params, seed);
            decided += usize::from(sampler.sample_short(&list, rules).is_some());
        }
        assert!(decided >= 45, "case {case}: {decided} of 50 draws were decided");
    }
}

#[test]
fn a_list_under_a_narrow_mask_decides_everything() {
    let mut mask = TokenMask::none(20_000);
    (0..900).for_each(|id| mask.insert(TokenId(id * 20)));
    let rules = DrawRules::default().allow(mask.clone());
    let all = SamplerParams { temperature: 1.3, top_k: 0, top_p: 1.0, min_p: 0.0 };
    for params in [all, SamplerParams { top_p: 0.99, ..all }, SamplerParams { top_k: 1000, ..all }]
    {
        for seed in 0..20 {
            let row = usual(seed);
            let ask = Sampler::ask(params, &rules);
            let list = found(&row, &mask, &rules, ask, 0.0);
            let mut short = Sampler::new(params, seed);
            let mut whole = short.clone();
            let drawn = short.sample_short(&list, &rules).expect("the list is complete");
            assert_eq!(Ok(drawn), whole.sample_by(&row, &mask, &rules));
        }
    }
}
