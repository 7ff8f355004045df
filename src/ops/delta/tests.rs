//! Both forms of the recurrence against a published vector, against f64 and against each other.

use super::super::l2_norm;
use super::*;
use crate::util::rng::Rng;

/// Random tokens of one head: `[q, k, v]` rows, log decays and write strengths.
struct Data {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    log_decay: Vec<f32>,
    beta: Vec<f32>,
}

impl Data {
    fn random(tokens: usize, keys: usize, width: usize, fastest: f32, rng: &mut Rng) -> Self {
        let mut draw =
            |n: usize| -> Vec<f32> { (0..n).map(|_| rng.unit_f32() * 2.0 - 1.0).collect() };
        let (mut q, mut k) = (draw(tokens * keys), draw(tokens * keys));
        // Correlated keys: the hard case of the triangular solve.
        let common = draw(keys);
        for row in k.chunks_exact_mut(keys) {
            add_scaled(row, &common, 2.0);
            l2_norm(row, 1e-6, 1.0);
        }
        for row in q.chunks_exact_mut(keys) {
            l2_norm(row, 1e-6, 1.0 / (keys as f32).sqrt());
        }
        let v = draw(tokens * width);
        let log_decay = draw(tokens).iter().map(|x| -1e-3 - x.abs().powi(8) * fastest).collect();
        let beta = draw(tokens).iter().map(|x| x.abs()).collect();
        Self { q, k, v, log_decay, beta }
    }

    fn chunk(&self, tokens: std::ops::Range<usize>, keys: usize, width: usize) -> Chunk<'_> {
        let (from, to) = (tokens.start, tokens.end);
        Chunk {
            q: &self.q[from * keys..to * keys],
            k: &self.k[from * keys..to * keys],
            v: &self.v[from * width..to * width],
            log_decay: &self.log_decay[tokens.clone()],
            beta: &self.beta[tokens],
        }
    }
}

/// [`step`] token by token; out of place on odd tokens, which must not matter.
fn sequential(state: &mut Vec<f32>, c: &Chunk<'_>, keys: usize, width: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; c.v.len()];
    for t in 0..c.beta.len() {
        let token = Token {
            q: &c.q[t * keys..][..keys],
            k: &c.k[t * keys..][..keys],
            v: &c.v[t * width..][..width],
            decay: exp(c.log_decay[t]),
            beta: c.beta[t],
        };
        let row = &mut out[t * width..][..width];
        if t % 2 == 0 {
            step(None, state, &token, row);
        } else {
            let mut target = vec![f32::NAN; state.len()];
            step(Some(state), &mut target, &token, row);
            *state = target;
        }
    }
    out
}

/// The recurrence in f64.
fn exact(state: &mut [f64], c: &Chunk<'_>, keys: usize, width: usize) -> Vec<f64> {
    let mut out = Vec::new();
    for t in 0..c.beta.len() {
        let (q, k) = (&c.q[t * keys..][..keys], &c.k[t * keys..][..keys]);
        let decay = f64::from(c.log_decay[t]).exp();
        for s in state.iter_mut() {
            *s *= decay;
        }
        for j in 0..width {
            let column = |state: &[f64], x: &[f32]| -> f64 {
                x.iter().enumerate().map(|(i, x)| f64::from(*x) * state[i * width + j]).sum()
            };
            let d = f64::from(c.beta[t]) * (f64::from(c.v[t * width + j]) - column(state, k));
            for i in 0..keys {
                state[i * width + j] += f64::from(k[i]) * d;
            }
            out.push(column(state, q));
        }
    }
    out
}

fn largest_difference(a: &[f32], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| (f64::from(*x) - y).abs()).fold(0.0, f64::max)
}

const VECTOR_OUT: [[f64; 4]; 3] = [
    [0.05, 0.1, 0.15, 0.2],
    [0.350_991_749, 0.161_983_498, 0.404_975_247, 0.107_966_996],
    [-0.432_541_187, 0.327_681_469, 0.274_318_051, 1.132_468_475],
];

/// The numeric check of model.md 3.3.
fn vector() -> Data {
    Data {
        k: vec![0.6, 0.8, 0.0, 0.0, 0.0, 0.6, 0.8, 0.0, 0.5, 0.5, 0.5, 0.5],
        q: vec![0.5, -0.25, 0.75, 0.1, 0.2, 0.4, -0.6, 0.8, -0.3, 0.9, 0.1, -0.2],
        v: vec![1.0, 2.0, 3.0, 4.0, -1.0, 0.5, 0.0, 2.0, 0.25, -0.75, 1.5, -2.0],
        beta: vec![0.5, 0.9, 0.25],
        log_decay: vec![-0.1, -0.7, -0.02],
    }
}

#[test]
fn both_forms_give_the_published_vector() {
    let data = vector();
    let chunk = data.chunk(0..3, 4, 4);
    let by_step = sequential(&mut vec![0.0; 16], &chunk, 4, 4);
    let mut by_chunk = vec![f32::NAN; 12];
    chunked(&mut [0.0; 16], &chunk, &mut by_chunk);
    assert!(largest_difference(&by_step, VECTOR_OUT.as_flattened()) < 2e-7, "{by_step:?}");
    assert!(largest_difference(&by_chunk, VECTOR_OUT.as_flattened()) < 2e-7, "{by_chunk:?}");
}

#[test]
fn both_forms_stay_close_to_f64() {
    let mut rng = Rng::new(7);
    for (keys, width) in [(1, 1), (3, 5), (16, 33), (128, 128)] {
        for fastest in [0.1, 60.0] {
            let tokens = 150;
            let data = Data::random(tokens, keys, width, fastest, &mut rng);
            let whole = data.chunk(0..tokens, keys, width);
            let mut truth = vec![0.0f64; keys * width];
            let expected = exact(&mut truth, &whole, keys, width);

            let mut state = vec![0.0; keys * width];
            let out = sequential(&mut state, &whole, keys, width);
            assert!(largest_difference(&out, &expected) < 2e-6, "step {keys}x{width}");
            assert!(largest_difference(&state, &truth) < 4e-6, "state of step {keys}x{width}");

            // 64 + 64 + a ragged tail.
            let mut state = vec![0.0; keys * width];
            let mut out = Vec::new();
            for from in (0..tokens).step_by(64) {
                let to = (from + 64).min(tokens);
                let mut rows = vec![f32::NAN; (to - from) * width];
                chunked(&mut state, &data.chunk(from..to, keys, width), &mut rows);
                out.extend(rows);
            }
            assert!(largest_difference(&out, &expected) < 2e-6, "chunked {keys}x{width}");
            assert!(largest_difference(&state, &truth) < 4e-6, "state of chunked {keys}x{width}");
        }
    }
}

#[test]
fn in_place_and_out_of_place_give_the_same_bits() {
    let mut rng = Rng::new(3);
    let (keys, width) = (16, 37);
    let data = Data::random(1, keys, width, 1.0, &mut rng);
    let source: Vec<f32> = (0..keys * width).map(|_| rng.unit_f32()).collect();
    let token = Token { q: &data.q, k: &data.k, v: &data.v, decay: 0.9, beta: data.beta[0] };
    let (mut in_place, mut target) = (source.clone(), vec![f32::NAN; source.len()]);
    let (mut a, mut b) = (vec![f32::NAN; width], vec![f32::NAN; width]);
    let before = source.clone();
    step(None, &mut in_place, &token, &mut a);
    step(Some(&source), &mut target, &token, &mut b);
    assert_eq!(a, b);
    assert_eq!(in_place, target);
    assert_eq!(source, before);
}

#[test]
fn decay_is_never_above_one_and_keeps_small_steps() {
    assert!(log_decay(-1.0, -30.0, 0.0) < 0.0);
    assert!((log_decay(-2.0, 0.5, 0.25) + 2.0 * 0.75f32.exp().ln_1p()).abs() < 1e-6);
    assert_eq!(log_decay(-2.0, 25.0, 5.0), -60.0);
}
