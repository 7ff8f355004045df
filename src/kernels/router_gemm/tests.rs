//! Tests of the router of a chunk: choices against `ops` where they are clear, weights, counts, and logits that are
//! equal or not numbers.

use super::*;
use crate::kernels::check::{self, Draw, Gpu};
use crate::kernels::control::Row;
use crate::ops::route;

const EPS: f32 = 1e-6;

fn sizes(hidden: u32, experts: u32, used: u32) -> Sizes {
    Sizes { hidden, experts, used, expert_ffn: 64, shared_ffn: 64 }
}

/// A problem; logits are given or computed.
struct Problem {
    sizes: Sizes,
    class: u32,
    h: Vec<f32>,
    norm: Vec<f32>,
    gate: Vec<f32>,
    router: Vec<f32>,
}

/// What the kernels leave, for the tokens of the chunk.
struct Choice {
    logits: Vec<f32>,
    ids: Vec<u32>,
    route: Vec<f32>,
    sigma: Vec<f32>,
    counts: Vec<u32>,
}

impl Problem {
    fn draw(seed: u64, sizes: Sizes, class: u32, tokens: usize) -> Self {
        println!("seed {seed}: {sizes:?}, {tokens} of {class} tokens");
        let mut draw = Draw::new(seed);
        let hidden = sizes.hidden as usize;
        let h = draw.activations(tokens * hidden);
        let (norm, gate) = (draw.normals(hidden), draw.normals(hidden));
        let mut router = draw.normals(sizes.experts as usize * hidden);
        for w in &mut router {
            *w *= 0.05;
        }
        Self { sizes, class, h, norm, gate, router }
    }

    fn tokens(&self) -> usize {
        self.h.len() / self.sizes.hidden as usize
    }

    fn run(&self, gpu: &mut Gpu, path: Path, given: Option<&[f32]>) -> Choice {
        let Sizes { hidden, experts, used, .. } = self.sizes;
        let (class, n) = (self.class as usize, self.tokens());
        let tokens = u32::try_from(n).unwrap();
        let control = gpu.input("control", &[Row { tokens, ..Row::default() }]);
        let mut h = self.h.clone();
        h.resize(class * hidden as usize, f32::NAN);
        let h = gpu.input("h", &h);
        let (norm, gate) = (gpu.input("norm", &self.norm), gpu.input("gate", &self.gate));
        let router = gpu.input("router", &self.router);
        let mut scales: Vec<f32> = (0..n).map(|t| self.scale32(t)).collect();
        scales.resize(class, f32::NAN);
        let scale = gpu.input("scale", &scales);
        let mut graph = Graph::new("router");
        for slice in [&control, &h, &norm, &gate, &router, &scale] {
            graph.input(slice);
        }
        let kernel = RouterGemm::new(gpu.device(), &self.sizes, self.class, false, path).unwrap();
        let logits = match given {
            Some(values) => {
                let mut values = values.to_vec();
                values.resize(class * experts as usize, f32::NAN);
                gpu.update("logits", &values)
            }
            None => gpu.output("logits", class * experts as usize * 4),
        };
        if given.is_some() {
            graph.input(&logits.slice());
        } else {
            graph.level();
            let io = LogitsOperands {
                control: control.clone(),
                weights: Weights::F32(router),
                h: h.clone(),
                norm: Norm { weight: norm.clone(), scale },
                logits: logits.slice(),
            };
            kernel.record_logits(&mut graph, "logits", io);
        }
        graph.level();
        let blocks = self.class.div_ceil(BLOCK) as usize;
        let slots = class * used as usize;
        let (ids, weights) = (gpu.output("ids", slots * 4), gpu.output("route", slots * 4));
        let sigma = gpu.output("sigma", class * 4);
        let counts = gpu.output("counts", blocks * experts as usize * 4);
        let io = PickOperands {
            control,
            norm,
            gate,
            logits: logits.slice(),
            h,
            ids: ids.slice(),
            route: weights.slice(),
            sigma: sigma.slice(),
            counts: counts.slice(),
            eps: EPS,
        };
        kernel.record_pick(&mut graph, "pick", io);
        gpu.run(graph);
        let mut kept = |output, len: usize| {
            let words = gpu.words(output);
            assert!(words[len..].iter().all(|&w| w == Gpu::POISON), "written past the chunk");
            words[..len].to_vec()
        };
        let floats = |words: Vec<u32>| words.into_iter().map(f32::from_bits).collect::<Vec<_>>();
        let n_blocks = n.div_ceil(BLOCK as usize);
        let logits = kept(&logits, if given.is_some() { class } else { n } * experts as usize);
        Choice {
            logits: floats(logits),
            ids: kept(&ids, n * used as usize),
            route: floats(kept(&weights, n * used as usize)),
            sigma: floats(kept(&sigma, n)),
            counts: kept(&counts, n_blocks * experts as usize),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "as the device stores it")]
    fn scale32(&self, token: usize) -> f32 {
        self.scale(token) as f32
    }

    fn scale(&self, token: usize) -> f64 {
        let hidden = self.sizes.hidden as usize;
        let squares = self.h[token * hidden..][..hidden].iter().map(|v| f64::from(*v).powi(2));
        1.0 / (squares.sum::<f64>() / hidden as f64 + f64::from(EPS)).sqrt()
    }

    /// Ids and weights against `ops` on the device's own logits: the choice itself is exact.
    fn check_choice(&self, found: &Choice) {
        let (experts, used) = (self.sizes.experts as usize, self.sizes.used as usize);
        for t in 0..self.tokens() {
            let scale = self.scale32(t);
            let raw = &found.logits[t * experts..][..experts];
            let scaled: Vec<f32> = raw.iter().map(|l| l * scale).collect();
            let (mut ids, mut weights) = (vec![0; used], vec![0.0; used]);
            route(raw, &mut ids, &mut weights).unwrap();
            assert_eq!(found.ids[t * used..][..used], ids, "token {t}");
            let chosen: Vec<f32> = ids.iter().map(|&e| scaled[e as usize]).collect();
            route(&chosen, &mut vec![0; used], &mut weights).unwrap();
            for (j, (f, e)) in found.route[t * used..].iter().zip(&weights).enumerate() {
                // The exponential of logits of some hundreds, off by 6e-8 of them.
                assert!((f - e).abs() <= 3e-5, "token {t} place {j}: {f} for {e}");
            }
        }
        let slots = BLOCK as usize * used;
        for (block, counts) in found.counts.chunks(experts).enumerate() {
            let ids = found.ids.chunks(slots).nth(block).unwrap();
            for (e, &count) in counts.iter().enumerate() {
                let expected = ids.iter().filter(|&&id| id as usize == e).count();
                assert_eq!(count as usize, expected, "block {block} expert {e}");
            }
        }
    }
}

#[test]
fn choices_are_those_of_the_formulas() {
    let Some(mut gpu) = check::gpu() else { return };
    let shapes = [
        (64, 16, 8, 32, 31),
        (256, 256, 8, 64, 33),
        (2048, 64, 8, 32, 5),
        (32, 9, 3, 128, 127),
        (256, 100, 8, 64, 64),
        (32, 8, 8, 32, 1),
    ];
    let matrix = Path::all(gpu.device().caps()).contains(&Path::Matrix);
    let paths: &[Path] = if matrix { &[Path::F32, Path::Matrix] } else { &[Path::F32] };
    let cases = paths.iter().flat_map(|&path| (1..).zip(shapes).map(move |case| (path, case)));
    for (path, (seed, (hidden, experts, used, class, n))) in cases {
        let problem = Problem::draw(seed, sizes(hidden, experts, used), class, n);
        let found = problem.run(&mut gpu, path, None);
        problem.check_choice(&found);
        let hidden = hidden as usize;
        for t in 0..n {
            let scale = problem.scale(t);
            let x: Vec<f64> = problem.h[t * hidden..][..hidden]
                .iter()
                .zip(&problem.norm)
                .map(|(h, w)| f64::from(*h) * f64::from(*w))
                .collect();
            let dot = |row: &[f32]| {
                x.iter().zip(row).fold((0.0, 0.0), |(sum, size), (x, w)| {
                    let product = x * f64::from(*w);
                    (sum + product, size + product.abs())
                })
            };
            for e in 0..experts as usize {
                let (sum, size) = dot(&problem.router[e * hidden..][..hidden]);
                let off = f64::from(found.logits[t * experts as usize + e]) - sum;
                assert!(off.abs() <= 1e-5 * size, "token {t} expert {e}");
            }
            let (sum, size) = dot(&problem.gate);
            let expected = 1.0 / (1.0 + (-sum * scale).exp());
            let off = (f64::from(found.sigma[t]) - expected).abs();
            assert!(off <= 2e-6 + 1e-5 * size * scale, "token {t}: sigma");
        }
        let again = problem.run(&mut gpu, path, None);
        assert!(again.ids == found.ids && again.route == found.route, "the same bits");
    }
}

#[test]
fn equal_logits_and_ones_that_are_not_finite() {
    let Some(mut gpu) = check::gpu() else { return };
    for (seed, (experts, used, n)) in (20..).zip([(16, 8, 33), (256, 8, 40), (20, 1, 7)]) {
        let problem = Problem::draw(seed, sizes(32, experts, used), 64, n);
        let mut draw = Draw::new(seed);
        let logits: Vec<f32> = (0..n * experts as usize)
            .map(|_| match draw.below(if experts < 17 { 10 } else { 14 }) {
                0 => -0.0,
                1 => 0.0,
                10 => f32::NAN,
                11 => f32::INFINITY,
                12 => f32::NEG_INFINITY,
                13 => f32::from_bits(0xffff_ffff),
                v => (v as f32 - 5.0) / 2.0,
            })
            .collect();
        let found = problem.run(&mut gpu, Path::F32, Some(&logits));
        problem.check_choice(&found);
    }
}

#[test]
fn without_a_choice_ids_are_experts_and_weights_are_not_numbers() {
    let Some(mut gpu) = check::gpu() else { return };
    let problem = Problem::draw(30, sizes(32, 16, 8), 32, 3);
    let mut logits = vec![f32::NAN; 3 * 16];
    logits[5] = 1.0;
    logits[16..32].fill(2.5);
    logits[32..].fill(f32::INFINITY);
    let found = problem.run(&mut gpu, Path::F32, Some(&logits));
    assert_eq!(found.ids[..8], [5, 0, 1, 2, 3, 4, 6, 7]);
    assert_eq!(found.ids[8..16], [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(found.ids[16..], [0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(found.route[..8].iter().chain(&found.route[16..]).all(|w| w.is_nan()));
    assert!(
        found.route[8..16].iter().all(|w| w.to_bits() == 0.125_f32.to_bits()),
        "{:?}",
        &found.route[8..16]
    );
}
