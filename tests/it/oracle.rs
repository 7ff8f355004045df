//! The CPU backend against exact mathematics and against itself (design decisions 18 and 19).

pub(crate) mod fixtures;
mod invariance;
pub(crate) mod run;
mod slots;

use fixtures::{LayerValues, Layers, MODELS, Prompt};
use q36::cpu::{Logits, Options, Step};
use q36::model::SlotId;
use q36::quant::TensorType;
use run::{Run, argmax, log_probabilities, options};
use std::sync::Mutex;

/// How far log-probabilities of the most likely tokens may be from exact mathematics.
struct Bound {
    /// How many of the most likely tokens are compared.
    top: usize,
    largest: f64,
    median: f64,
}

const QUALITY: Bound = Bound { top: 20, largest: 2e-3, median: 1e-3 };
const EIGHT_BIT: Bound = Bound { top: 10, largest: 0.25, median: 0.1 };
const SMALL_KV: Bound = Bound { top: 10, largest: 0.3, median: 0.1 };

/// Runs prompts, then their exact continuations, and compares: log-probabilities after the prompt with the bound, ids
/// at every step where the two best exact logits are further apart than twice the bound. Returns what to print.
fn check(name: &str, options: &Options, bound: &Bound, keep: impl Fn(&Prompt) -> bool) -> String {
    let Some((model, mut prompts)) = fixtures::load(name) else { return "skipped".to_owned() };
    prompts.retain(keep);
    let mut run = Run::new(&model, options.clone());
    let mut differences = Vec::new();
    for prompt in &prompts {
        run.restart();
        let own = log_probabilities(run.feed(&prompt.ids, options.chunk));
        let top = prompt.hf_top.iter().take(bound.top);
        let largest = top.map(|(id, exact)| (own[*id as usize] - exact).abs()).fold(0.0, f64::max);
        assert!(largest <= bound.largest, "{name} {}: off by {largest}", prompt.name);
        differences.push(largest);
        for (step, (id, margin)) in prompt.hf_greedy.iter().zip(&prompt.hf_margin).enumerate() {
            if *margin > 2.0 * bound.largest {
                let own = argmax(run.backend.logits());
                assert_eq!(own, *id as usize, "{name} {}, step {step}", prompt.name);
            }
            run.feed(&[*id], 1);
        }
    }
    differences.sort_by(f64::total_cmp);
    let (median, largest) =
        (differences[differences.len() / 2], differences[differences.len() - 1]);
    assert!(median <= bound.median, "{name}: median {median}");
    let (kv, mode) =
        ((options.kv_k, options.kv_v), if options.quality { "quality" } else { "fast" });
    let count = prompts.len();
    format!(
        "{name}, {mode}, {}/{} K/V, {count} prompts: median {median:.5}, largest {largest:.5}",
        kv.0, kv.1
    )
}

#[test]
fn quality_is_exact_q2() {
    println!("{}", check(MODELS[0], &options(true), &QUALITY, |_| true));
}

#[test]
fn quality_is_exact_q2_q4() {
    println!("{}", check(MODELS[1], &options(true), &QUALITY, |_| true));
}

#[test]
fn quality_is_exact_q8() {
    println!("{}", check(MODELS[2], &options(true), &QUALITY, |_| true));
}

#[test]
fn eight_bit_products_stay_close() {
    for name in MODELS {
        println!("{}", check(name, &options(false), &EIGHT_BIT, |_| true));
    }
}

#[test]
fn all_kv_types_stay_close() {
    const TYPES: [TensorType; 3] = [TensorType::F16, TensorType::Q8_0, TensorType::Q4_0];
    for kv_k in TYPES {
        for kv_v in TYPES {
            let options = Options { kv_k, kv_v, ..options(true) };
            println!("{}", check(MODELS[0], &options, &SMALL_KV, |prompt| prompt.ids.len() < 100));
        }
    }
    // The default of the GPU backend, on longer prompts too.
    let options = Options { kv_k: TensorType::Q8_0, kv_v: TensorType::Q4_0, ..options(true) };
    for name in MODELS {
        println!(
            "{}",
            check(name, &options, &SMALL_KV, |prompt| (100..1000).contains(&prompt.ids.len()))
        );
    }
}

#[test]
fn every_layer_is_exact() {
    let (model, prompts) = fixtures::load(MODELS[0]).expect("in this repository");
    let mut run = Run::new(&model, Options { chunk: 2048, ..options(true) });
    for expected in fixtures::layers() {
        let prompt =
            prompts.iter().find(|p| p.name == expected.name).expect("a prompt of the list");
        run.restart();
        check_layers(&mut run, &prompt.ids, &expected);
    }
}

fn check_layers(run: &mut Run, ids: &[u32], expected: &Layers) {
    let seen = Mutex::new(Vec::new());
    let step = Step {
        tokens: ids,
        pos: 0,
        source: run.slot,
        target: SlotId(1 - run.slot.0),
        logits: Logits::All,
        cancel: &|| false,
        tap: Some(&|_, rows| seen.lock().expect("one thread").push(rows.to_vec())),
    };
    run.backend.forward(&mut run.kv, &step).expect("a valid step");
    let mut rows = seen.into_inner().expect("one thread");
    // The fixture has the rows after the last norm in place of those after the last layer.
    rows.pop();
    rows.push(run.backend.hidden().to_vec());
    assert_eq!(rows.len(), expected.depths.len());
    let hidden = rows[0].len() / ids.len();
    for (rows, layer) in rows.iter().zip(&expected.depths) {
        check_rows(&expected.name, rows, hidden, layer);
    }

    let vocab = run.backend.model().shape.vocab;
    let rows: Vec<&[f32]> = run.backend.logits().chunks_exact(vocab).collect();
    let last = rows[rows.len() - 1];
    close(l2(last), expected.last_logits_l2, "logits");
    for (own, exact) in last.iter().zip(&expected.last_logits_first16) {
        close(f64::from(*own), *exact, "a logit");
    }
    assert_eq!(argmax(last), expected.last_logits_argmax);
    let nll = rows.iter().zip(&ids[1..]).map(|(row, next)| -log_probabilities(row)[*next as usize]);
    close(nll.sum::<f64>() / (ids.len() - 1) as f64, expected.mean_nll, "mean loss");
}

fn check_rows(name: &str, rows: &[f32], hidden: usize, expected: &LayerValues) {
    let what = format!("{name}, {}", expected.what);
    let last = &rows[rows.len() - hidden..];
    close(l2(last), expected.last_token_l2, &what);
    close(l2(rows), expected.all_tokens_l2, &what);
    // Single values may be near zero: the scale of the row decides.
    let scale = expected.last_token_l2 / (hidden as f64).sqrt();
    for (own, exact) in last.iter().zip(&expected.last_token_first16) {
        let off = (f64::from(*own) - exact).abs();
        assert!(off <= 1e-3 * scale.max(exact.abs()), "{what}: {own}, expected {exact}");
    }
}

fn l2(values: &[f32]) -> f64 {
    values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt()
}

fn close(own: f64, exact: f64, what: &str) {
    assert!((own - exact).abs() <= 1e-3 * exact.abs(), "{what}: {own}, expected {exact}");
}
