//! The whole model on a Vulkan device against exact mathematics, and against itself (design decisions 18 and 19).
//! Any device will do; Mesa's CPU driver is enough, and takes part with few of the prompts.

mod engine;
mod failures;
mod limits;
mod loss;
mod run;
mod sieve;
mod state;
mod steering;
mod stop;

use crate::oracle::fixtures::{self, MODELS, Prompt};
use crate::oracle::run::{argmax, log_probabilities};
use q36::engine::{BackendChoice, Context, ModelEngine, Options, Prepared};
use q36::quant::TensorType;
use run::{Run, setup};

/// The demo model on the device, in f16 rows; `None`, said aloud, where there is no device.
fn open_engine(change: impl FnOnce(&mut Options)) -> Option<ModelEngine> {
    let mut options = Options::new(crate::support::tiny_model());
    options.backend = BackendChoice::Vulkan;
    options.context = Context::Exactly(1024);
    (options.kv_k, options.kv_v) = (Some(F16), Some(F16));
    change(&mut options);
    match Prepared::new(options) {
        Ok(prepared) => Some(prepared.open(&mut |_, _| true).expect("the demo model fits")),
        Err(why) => {
            crate::support::skip(&format!("needs a Vulkan device: {why}"));
            None
        }
    }
}

/// How far log-probabilities of the most likely tokens may be from exact mathematics.
struct Bound {
    top: usize,
    largest: f64,
}

/// Design decision 19.
const QUALITY: Bound = Bound { top: 20, largest: 2e-3 };
const FAST: Bound = Bound { top: 10, largest: 0.1 };
const SMALL_KV: Bound = Bound { top: 10, largest: 0.3 };

/// Prompts in chunks of at most `chunk` tokens, then their exact continuations one token at a time.
fn check(name: &str, setup: &run::Setup, bound: &Bound, keep: impl Fn(&Prompt) -> bool) {
    let Some((model, mut prompts)) = fixtures::load(name) else { return };
    let Some(mut run) = Run::new(&model, setup) else { return };
    prompts.retain(|prompt| keep(prompt) && (run.is_fast() || prompt.ids.len() < 200));
    let mut differences = Vec::new();
    for prompt in &prompts {
        run.restart();
        let own = log_probabilities(&run.feed(&prompt.ids, setup.chunk));
        let top = prompt.hf_top.iter().take(bound.top);
        let largest = top.map(|(id, exact)| (own[*id as usize] - exact).abs()).fold(0.0, f64::max);
        assert!(largest <= bound.largest, "{name} {}: off by {largest}", prompt.name);
        differences.push(largest);
        let steps = if run.is_fast() { usize::MAX } else { 4 };
        let exact = prompt.hf_greedy.iter().zip(&prompt.hf_margin).take(steps);
        for (step, (id, margin)) in exact.enumerate() {
            if *margin > 2.0 * bound.largest {
                let own = argmax(&run.logits());
                assert_eq!(own, *id as usize, "{name} {}, step {step}", prompt.name);
            }
            run.feed(&[*id], 1);
        }
    }
    let largest = differences.iter().copied().fold(0.0, f64::max);
    println!("{name}, {setup:?}: {} prompts, largest {largest:.5}", differences.len());
}

const F16: TensorType = TensorType::F16;

#[test]
fn f32_arithmetic_is_exact() {
    for name in MODELS {
        check(name, &setup(true, F16, F16), &QUALITY, |_| true);
    }
}

#[test]
fn fast_arithmetic_stays_close() {
    for name in MODELS {
        check(name, &setup(false, F16, F16), &FAST, |_| true);
    }
}

#[test]
fn all_kv_types_stay_close() {
    const TYPES: [TensorType; 3] = [TensorType::F16, TensorType::Q8_0, TensorType::Q4_0];
    for kv_k in TYPES {
        for kv_v in TYPES {
            let short = |prompt: &Prompt| prompt.ids.len() < 60;
            check(MODELS[0], &setup(false, kv_k, kv_v), &SMALL_KV, short);
        }
    }
}

#[test]
fn chunks_of_any_size_stay_close() {
    for chunk in [1, 7, 64, 512, 2048] {
        let setup = run::Setup { chunk, ..setup(false, F16, F16) };
        check(MODELS[0], &setup, &FAST, |prompt| (60..1500).contains(&prompt.ids.len()));
    }
}

#[test]
fn a_row_of_a_batch_has_the_bits_of_a_row_alone() {
    let (model, prompts) = fixtures::load(MODELS[0]).expect("in this repository");
    let prompt = |i: usize| &prompts[i % prompts.len()].ids;
    let mut setup = setup(false, TensorType::Q8_0, TensorType::Q4_0);
    setup.sessions = 8;
    let Some(mut run) = Run::new(&model, &setup) else { return };
    for size in [2, 3, 4, 8] {
        let starts: Vec<&[u32]> = (0..size).map(|i| &prompt(i)[..5 + 2 * i]).collect();
        let alone: Vec<_> = starts.iter().map(|start| run.alone(start, &[11, 7])).collect();
        let together = run.together(&starts, &[11, 7]);
        for (row, (a, b)) in alone.iter().zip(&together).enumerate() {
            assert!(a == b, "row {row} of {size}");
        }
    }
}

#[test]
fn same_cuts_give_the_same_bits() {
    let (model, prompts) = fixtures::load(MODELS[0]).expect("in this repository");
    let Some(mut run) = Run::new(&model, &setup(false, F16, F16)) else { return };
    let ids = &prompts[0].ids;
    let mut once = || {
        run.restart();
        run.feed(ids, 16)
    };
    let first = once();
    assert!(first == once(), "a second run gave other bits");
}

#[test]
fn validation_is_silent_over_a_whole_prompt() {
    let (model, prompts) = fixtures::load(MODELS[0]).expect("in this repository");
    let Some(mut run) = Run::new(&model, &setup(false, F16, F16)) else { return };
    run.feed(&prompts[0].ids, 64);
    run.feed(&[11], 1);
    let messages = run.messages();
    assert!(messages.is_empty(), "{}", messages.join("\n"));
}
