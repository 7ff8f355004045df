//! A row's bits depend on its own tokens alone.

use super::fixtures::{self, MODELS};
use super::run::{Run, bits, options};
use proptest::prelude::*;
use q36::cpu::{Logits, Options};
use q36::model::{Model, SlotId};
use q36::quant::TensorType;
use std::sync::{Arc, LazyLock};

const KV: [TensorType; 3] = [TensorType::F16, TensorType::Q8_0, TensorType::Q4_0];

/// The demo model and the ids of a prompt of it.
fn prompt(name: &str) -> (Arc<Model>, Vec<u32>) {
    let (model, prompts) = fixtures::load(MODELS[0]).expect("in this repository");
    let prompt = prompts.into_iter().find(|p| p.name == name).expect("a prompt of the list");
    (model, prompt.ids)
}

/// Logits after the prompt and after each of three more tokens.
fn logits(model: &Arc<Model>, ids: &[u32], chunk: usize, options: Options) -> Vec<u32> {
    let mut run = Run::new(model, options);
    let mut all = bits(run.feed(ids, chunk));
    for id in [11, 7, 300] {
        all.extend(bits(run.feed(&[id], 1)));
    }
    all
}

fn check(quality: bool) {
    // Long enough for attention to merge two spans of keys.
    let (model, ids) = prompt("recall-2000");
    let ids = &ids[..1200];
    let with = |chunk: usize, threads: usize| {
        let options = Options { threads, chunk: chunk.max(512), ..options(quality) };
        logits(&model, ids, chunk, options)
    };
    let expected = with(2048, 2);
    for (chunk, threads) in [(1, 2), (7, 3), (64, 1), (512, 2), (512, 3), (2048, 1)] {
        assert!(with(chunk, threads) == expected, "chunks of {chunk}, {threads} threads");
    }
}

#[test]
fn chunks_and_threads_do_not_show_in_quality_bits() {
    check(true);
}

#[test]
fn chunks_and_threads_do_not_show_in_fast_bits() {
    check(false);
}

/// Logits of every token, in steps of the given lengths (the last one repeated).
fn all_logits(model: &Arc<Model>, ids: &[u32], cuts: &[usize], options: Options) -> Vec<u32> {
    let mut run = Run::new(model, options);
    let (mut rest, mut all) = (ids, Vec::new());
    let mut cuts = cuts.iter().copied();
    let mut size = 1;
    while !rest.is_empty() {
        size = cuts.next().unwrap_or(size).min(rest.len());
        let (now, later) = rest.split_at(size);
        let target = SlotId(1 - run.slot.0);
        all.extend(bits(run.step(now, target, Logits::All)));
        rest = later;
    }
    all
}

static SHORT: LazyLock<(Arc<Model>, Vec<u32>)> = LazyLock::new(|| prompt("choice"));

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_gives_the_same_rows(
        cuts in prop::collection::vec(1usize..20, 1..12),
        threads in 1usize..4,
        (kv_k, kv_v) in (prop::sample::select(&KV[..]), prop::sample::select(&KV[..])),
        quality in any::<bool>(),
    ) {
        let (model, ids) = &*SHORT;
        let options = Options { kv_k, kv_v, chunk: 64, ..options(quality) };
        let expected = all_logits(model, ids, &[64], options.clone());
        let cut = all_logits(model, ids, &cuts, Options { threads, ..options });
        prop_assert!(cut == expected);
    }
}
