//! Tests of the router and the shared expert: against f64 and `ops::route`, over shapes, forms and batch sizes.

use super::*;
use crate::kernels::check::{self, Draw, Gpu};
use crate::kernels::expert::samples::{blocks, decoded, dot, from_bytes, restored};
use crate::kernels::mv_q8::repack;
use crate::ops::route;
use crate::quant::TensorType;
use crate::vulkan::lavapipe;

/// f32 products and sums: K / SG + log2(SG) roundings of 6e-8 of the sum of magnitudes and those of the norm.
const BOUND: f64 = 2e-5;
const EPS: f32 = 1e-6;
const X: (Order, Values) = (Order::Plain, Values::F32);

/// One problem on the device.
struct Problem {
    sizes: Sizes,
    form: Form,
    order: Order,
    values: Values,
    /// f32 values, or blocks as in a file.
    router: (Vec<f32>, Vec<u8>),
    gate: Vec<f32>,
    shared: Vec<u8>,
    weight: Vec<f32>,
    h: Vec<f32>,
    rows: Vec<Row>,
}

/// Words of x, logits, `shared_mid`, sigma, ids, route.
type Left = [Vec<u32>; 6];

/// Partial sums of squares of each row.
const PARTS: usize = 37;

impl Problem {
    fn draw(seed: u64, sizes: Sizes, form: Form, rows: usize) -> Self {
        println!("seed {seed}: {sizes:?} {form:?}, {rows} rows");
        let mut draw = Draw::new(seed);
        let wide = |n: u32| n as usize;
        let (hidden, experts) = (wide(sizes.hidden), wide(sizes.experts));
        let router = match form {
            Form::F32 => (draw.normals(experts * hidden), Vec::new()),
            Form::Q8 => {
                let bytes = blocks(&mut draw, TensorType::Q8_0, experts * hidden / 32);
                (decoded(TensorType::Q8_0, &bytes), bytes)
            }
        };
        Self {
            sizes,
            form,
            order: if hidden.is_multiple_of(256) { Order::Interleaved } else { Order::Plain },
            values: Values::F32,
            router,
            gate: draw.normals(hidden),
            shared: blocks(&mut draw, TensorType::Q8_0, 2 * wide(sizes.shared_ffn) * hidden / 32),
            weight: draw.normals(hidden),
            h: draw.activations(rows * hidden),
            rows: vec![Row::default(); rows],
        }
    }

    /// Sums of squares in parts, as a kernel before would leave them.
    fn squares(&self) -> Vec<f32> {
        let mut squares = Vec::new();
        for row in self.h.chunks(self.sizes.hidden as usize) {
            let part = row.len().div_ceil(PARTS);
            squares.extend(row.chunks(part).map(|c| c.iter().map(|v| v * v).sum::<f32>()));
            squares.resize(squares.len().next_multiple_of(PARTS), 0.0);
        }
        squares
    }

    fn run(&self, gpu: &mut Gpu, fused: bool) -> Left {
        let device = Arc::clone(gpu.device());
        let rows = u32::try_from(self.rows.len()).unwrap();
        let constants =
            select(&self.sizes, rows, (self.order, self.values), device.caps()).unwrap();
        let kernel = Router::with(&device, self.form, fused, constants).unwrap();
        let planes = |gpu: &mut Gpu, bytes: &[u8]| {
            let (mut codes, mut scales) =
                (vec![0; bytes.len() / 34 * 32], vec![0; bytes.len() / 17]);
            repack(bytes, &mut codes, &mut scales);
            Planes { codes: gpu.input("codes", &codes), scales: gpu.input("scales", &scales) }
        };
        let n = self.rows.len();
        let bytes = |width: u32| n * width as usize * 4;
        let x = gpu.output("x", bytes(self.sizes.hidden));
        let logits = gpu.output("logits", bytes(self.sizes.experts));
        let shared_mid = gpu.output("shared_mid", bytes(self.sizes.shared_ffn));
        let sigma = gpu.output("sigma", bytes(1));
        let ids = gpu.output("ids", bytes(self.sizes.used));
        let weights = gpu.output("route", bytes(self.sizes.used));
        let counter = gpu.update("counter", &[0_u32]);
        let choice = Choice { ids: ids.slice(), route: weights.slice(), counter: counter.slice() };
        let mut graph = Graph::new("router");
        let router = match self.form {
            Form::F32 => {
                let matrix = gpu.input("router", &self.router.0);
                graph.input(&matrix);
                Matrix::F32(matrix)
            }
            Form::Q8 => {
                let planes = planes(gpu, &self.router.1);
                graph.input(&planes.codes);
                graph.input(&planes.scales);
                Matrix::Q8(planes)
            }
        };
        let io = RouterIo {
            control: gpu.input("control", &self.rows),
            router,
            gate: gpu.input("gate", &self.gate),
            shared: planes(gpu, &self.shared),
            norm: Norm {
                squares: gpu.input("squares", &self.squares()),
                weight: gpu.input("weight", &self.weight),
                eps: EPS,
            },
            h: gpu.input("h", &self.h),
            x: x.slice(),
            logits: logits.slice(),
            shared_mid: shared_mid.slice(),
            sigma: sigma.slice(),
        };
        let shared = [&io.shared.codes, &io.shared.scales];
        let others = [&io.control, &io.gate, &io.norm.squares, &io.norm.weight, &io.h];
        for slice in shared.into_iter().chain(others) {
            graph.input(slice);
        }
        graph.input(&choice.counter);
        graph.level();
        let control = io.control.clone();
        kernel.record(&mut graph, "router", io, &choice);
        assert_eq!(kernel.is_fused(), fused);
        if !fused {
            graph.level();
            kernel.record_choice(&mut graph, "choice", (control, logits.slice()), &choice);
        }
        gpu.run(graph);
        assert_eq!(gpu.words(&counter), [0], "ready for the next run");
        [x, logits, shared_mid, sigma, ids, weights].map(|output| gpu.words(&output))
    }

    /// Row `row` alone.
    fn single(&self, row: usize) -> Self {
        let hidden = self.sizes.hidden as usize;
        Self {
            router: self.router.clone(),
            gate: self.gate.clone(),
            shared: self.shared.clone(),
            weight: self.weight.clone(),
            h: self.h[row * hidden..][..hidden].to_vec(),
            rows: vec![self.rows[row]],
            ..*self
        }
    }

    fn check(&self, left: &Left) {
        let wide = |n: u32| n as usize;
        let (hidden, experts) = (wide(self.sizes.hidden), wide(self.sizes.experts));
        let ffn = wide(self.sizes.shared_ffn);
        let [x, logits, mid, sigma, _, weights] = left
            .each_ref()
            .map(|words| words.iter().map(|&w| f32::from_bits(w)).collect::<Vec<f32>>());
        let mid = restored(&mid, ffn, Order::Plain);
        // Values and what rounding to bytes may change.
        let x: Vec<(f32, f32)> = match self.values {
            Values::F32 | Values::F16 => {
                restored(&x, hidden, self.order).into_iter().map(|v| (v, 0.0)).collect()
            }
            Values::I8 => from_bytes(&left[0], hidden, self.order),
        };
        let shared = decoded(TensorType::Q8_0, &self.shared);
        for (row, h) in self.h.chunks(hidden).enumerate() {
            let exact: Vec<f64> = h.iter().map(|&v| f64::from(v)).collect();
            let mean = exact.iter().map(|v| v * v).sum::<f64>() / f64::from(self.sizes.hidden);
            let factor = 1.0 / (mean + f64::from(EPS)).sqrt();
            let exact: Vec<f64> =
                exact.iter().zip(&self.weight).map(|(h, &w)| h * f64::from(w) * factor).collect();
            for (i, (&(found, step), &e)) in x[row * hidden..].iter().zip(&exact).enumerate() {
                let allowed = 4e-6 * e.abs() + 0.501 * f64::from(step) + 1e-36;
                assert!((f64::from(found) - e).abs() <= allowed, "x {i}: {found} for {e}");
            }
            for e in 0..experts {
                let (sum, size) = dot(&self.router.0[e * hidden..][..hidden], &exact);
                let found = f64::from(logits[row * experts + e]);
                assert!((found - sum).abs() <= BOUND * size, "logit {e}: {found} for {sum}");
            }
            let chosen = row * wide(self.sizes.used)..(row + 1) * wide(self.sizes.used);
            let mut expected = (vec![0; chosen.len()], vec![0.0; chosen.len()]);
            route(&logits[row * experts..][..experts], &mut expected.0, &mut expected.1).unwrap();
            assert_eq!(left[4][chosen.clone()], expected.0);
            for (found, expected) in weights[chosen].iter().zip(&expected.1) {
                assert!((found - expected).abs() <= 1e-6, "{found} for {expected}");
            }
            let (sum, size) = dot(&self.gate, &exact);
            let off = (f64::from(sigma[row]) - 1.0 / (1.0 + (-sum).exp())).abs();
            assert!(off <= 0.25 * BOUND * size + 1e-6, "sigma off {off}");
            for i in 0..ffn {
                let (g, g_size) = dot(&shared[2 * i * hidden..][..hidden], &exact);
                let (u, u_size) = dot(&shared[(2 * i + 1) * hidden..][..hidden], &exact);
                let silu = g / (1.0 + (-g).exp());
                let off = (f64::from(mid[row * ffn + i]) - silu * u).abs();
                let allowed = 1.1 * BOUND * g_size * (u.abs() + BOUND * u_size)
                    + silu.abs() * (BOUND * u_size + 2e-6 * u.abs());
                assert!(off <= allowed + 1e-36, "shared {i}: off {off}, allowed {allowed}");
            }
        }
    }
}

fn sizes(hidden: u32, experts: u32, shared_ffn: u32) -> Sizes {
    Sizes { hidden, experts, used: 2, expert_ffn: 64, shared_ffn }
}

#[test]
fn awkward_and_real_shapes() {
    let Some(mut gpu) = check::gpu() else { return };
    let shapes = [(64, 2, 64), (192, 5, 64), (256, 16, 128), (1088, 31, 64), (2048, 256, 512)];
    for (seed, (hidden, experts, shared_ffn)) in (1..).zip(shapes) {
        for form in [Form::F32, Form::Q8] {
            let problem = Problem::draw(seed, sizes(hidden, experts, shared_ffn), form, 1);
            let left = problem.run(&mut gpu, true);
            problem.check(&left);
            assert!(left == problem.run(&mut gpu, false), "the choice as its own dispatch");
        }
    }
}

#[test]
fn normalised_rows_in_bytes() {
    let Some(mut gpu) = check::gpu() else { return };
    for (seed, hidden) in (10..).zip([64, 256, 2048]) {
        let mut problem = Problem::draw(seed, sizes(hidden, 4, 128), Form::F32, 2);
        problem.values = Values::I8;
        problem.check(&problem.run(&mut gpu, true));
    }
}

#[test]
fn a_row_of_a_batch_has_the_bits_of_a_row_alone() {
    let Some(mut gpu) = check::gpu() else { return };
    for (seed, (form, rows)) in (20..).zip([(Form::F32, 2), (Form::Q8, 4), (Form::F32, 8)]) {
        let mut problem = Problem::draw(seed, sizes(1088, 16, 64), form, rows);
        problem.rows[1].flags = Row::IDLE;
        let batch = problem.run(&mut gpu, rows != 2);
        for row in 0..rows {
            let alone = (row != 1).then(|| problem.single(row).run(&mut gpu, true));
            for (i, all) in batch.iter().enumerate() {
                let mine = &all[all.len() / rows * row..][..all.len() / rows];
                match &alone {
                    Some(alone) => assert!(mine == alone[i], "output {i} of row {row} of {rows}"),
                    None => assert!(mine.iter().all(|&w| w == Gpu::POISON), "an idle row"),
                }
            }
        }
    }
}

/// The choice for rows of logits; `None` for rows that wrote nothing.
fn choose(gpu: &mut Gpu, logits: &[f32], rows: &[Row], used: u32) -> Vec<(Vec<u32>, Vec<f32>)> {
    let n = rows.len();
    let experts = u32::try_from(logits.len() / n).unwrap();
    let sizes = Sizes { used, ..sizes(64, experts, 64) };
    let device = Arc::clone(gpu.device());
    let batch = u32::try_from(n).unwrap();
    let constants = select(&sizes, batch, X, device.caps()).unwrap();
    let kernel = Router::with(&device, Form::F32, false, constants).unwrap();
    let counter = gpu.input("counter", &[0_u32]);
    let chosen = n * used as usize;
    let (ids, weights) = (gpu.output("ids", chosen * 4), gpu.output("route", chosen * 4));
    let (control, logits) = (gpu.input("control", rows), gpu.input("logits", logits));
    let mut graph = Graph::new("top_k");
    graph.input(&control);
    graph.input(&logits);
    graph.level();
    let choice = Choice { ids: ids.slice(), route: weights.slice(), counter };
    kernel.record_choice(&mut graph, "choice", (control, logits), &choice);
    gpu.run(graph);
    let (ids, weights) = (gpu.words(&ids), gpu.words(&weights));
    let weights: Vec<f32> = weights.into_iter().map(f32::from_bits).collect();
    let per_row = used as usize;
    ids.chunks(per_row)
        .zip(weights.chunks(per_row))
        .map(|(i, w)| (i.to_vec(), w.to_vec()))
        .collect()
}

#[test]
fn the_choice_is_that_of_the_cpu() {
    let Some(mut gpu) = check::gpu() else { return };
    for (seed, (experts, used, rows)) in
        (30..).zip([(8, 8, 1), (16, 8, 2), (256, 8, 4), (256, 8, 8), (300, 3, 1), (5, 1, 1)])
    {
        println!("seed {seed}: {used} of {experts}, {rows} rows");
        let mut draw = Draw::new(seed);
        // Few values, so that there are ties, of both signs of zero too; and some that are not finite.
        let logits: Vec<f32> = (0..experts * rows)
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
        let found = choose(&mut gpu, &logits, &vec![Row::default(); rows], used);
        for (logits, (ids, weights)) in logits.chunks(experts).zip(found) {
            let mut expected = (vec![0; used as usize], vec![0.0; used as usize]);
            route(logits, &mut expected.0, &mut expected.1).unwrap();
            assert_eq!(ids, expected.0);
            for (found, expected) in weights.iter().zip(&expected.1) {
                assert!((found - expected).abs() <= 1e-6, "{found} for {expected}");
            }
        }
    }
}

#[test]
fn without_a_choice_ids_are_experts_and_weights_are_not_numbers() {
    let Some(mut gpu) = check::gpu() else { return };
    let mut logits = vec![f32::NAN; 3 * 16];
    logits[5] = 1.0;
    logits[16..32].fill(2.5);
    let mut rows = vec![Row::default(); 4];
    rows[3].flags = Row::IDLE;
    logits.extend([f32::INFINITY; 16]);
    let found = choose(&mut gpu, &logits, &rows, 8);
    assert_eq!(found[0].0, [5, 0, 1, 2, 3, 4, 6, 7]);
    assert!(found[0].1.iter().all(|w| w.is_nan()));
    assert_eq!(found[1].0, [0, 1, 2, 3, 4, 5, 6, 7]);
    let eighth = 0.125_f32.to_bits();
    assert!(found[1].1.iter().all(|w| w.to_bits() == eighth), "{:?}", found[1].1);
    assert!(found[2].1.iter().all(|w| w.is_nan()));
    assert!(found[3].0.iter().all(|&id| id == Gpu::POISON), "an idle row writes nothing");
}

#[test]
fn constants_follow_the_device() {
    let published = Sizes { used: 8, expert_ffn: 512, ..sizes(2048, 256, 512) };
    let caps = lavapipe();
    let c = select(&published, 8, X, &caps).unwrap();
    assert_eq!((c.workgroup, c.sg, c.block), (32, 8, 512));
    assert_eq!(select(&published, 1, X, &caps).unwrap().block, 2048);
    assert!(select(&published, 3, X, &caps).is_err());
    let small = Sizes { hidden: 256, ..published };
    let mut wide = caps;
    (wide.subgroups.min, wide.subgroups.max) = (32, 32);
    assert_eq!(select(&small, 8, X, &wide).unwrap().block, 512);
}
