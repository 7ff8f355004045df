//! What a step finds among the logits of a sequence that has its own mask and addends.

use super::run::{Run, setup};
use crate::oracle::fixtures::{self, MODELS};
use q36::graph::{Rules, Sieve};
use q36::quant::TensorType;

/// About forty of the best.
fn forty<'a>(rules: Option<&'a Rules<'a>>) -> Sieve<'a> {
    Sieve { margin: f32::INFINITY, top_k: 40, rules, ..Sieve::default() }
}

#[test]
fn candidates_are_found_under_a_sequences_own_rules() {
    let (model, prompts) = fixtures::load(MODELS[0]).expect("in this repository");
    let Some(mut run) = Run::new(&model, &setup(false, TensorType::F16, TensorType::F16)) else {
        return;
    };
    run.feed(&prompts[0].ids, 64);
    let vocab = model.shape.vocab;
    let plain = run.found(11, forty(None));
    assert!(plain.rows.len() >= 40 && plain.floor > f32::NEG_INFINITY && plain.sum > 1.0);
    // Every other id, and the best of them pushed down.
    let mask = vec![0x5555_5555_5555_5555; vocab.div_ceil(64)];
    for (version, addends) in [(1, &[][..]), (2, &[(100, 4.0), (102, -2.5)]), (3, &[])] {
        let rules = Rules { version, mask: (version < 3).then_some(&mask), addends };
        let found = run.found(11, forty(Some(&rules)));
        let row = run.logits();
        let seen = |id: usize| {
            let addend = addends.iter().find(|(at, _)| *at as usize == id).map_or(0.0, |a| a.1);
            row[id] + addend
        };
        let allowed = (0..vocab).filter(|id| version == 3 || id % 2 == 0);
        let expected: Vec<(u32, f32)> = allowed
            .map(|id| (u32::try_from(id).expect("a small vocabulary"), seen(id)))
            .filter(|(_, logit)| *logit >= found.floor)
            .collect();
        assert!(found.rows == expected, "rules {version}");
        let first = |a: (u32, f32), b: &(u32, f32)| if b.1 > a.1 { *b } else { a };
        assert_eq!(found.best, Some(expected.iter().fold(expected[0], first)), "rules {version}");
    }
    let messages = run.messages();
    assert!(messages.is_empty(), "{}", messages.join("\n"));
}
