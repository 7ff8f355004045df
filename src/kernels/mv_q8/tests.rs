//! Tests of the mat-vec: against f64, over awkward shapes, every form, both programs and every cut of the same sums.

use super::choice::{Constants, choose, select};
use super::*;
use crate::kernels::check::{self, Draw, Gpu, Output as Buffer};
use crate::kernels::control::Row;
use crate::quant::{TensorType, dequantize};
use crate::vulkan::{Ability, lavapipe};

/// f32 products and sums: at most K/SG + 16 + log2(SG) roundings of 6e-8 stand between a product and
/// the result, all relative to the sum of the magnitudes; measured errors are a tenth of this.
const BOUND: f64 = 1e-5;
/// With matrices a weight and a value are rounded to f16, 2^-11 each, relative to the product.
const MATRIX_BOUND: f64 = 1.1e-3;
const EPS: f32 = 1e-6;

/// Random blocks in the file's layout. Every bit pattern of the codes is valid; scales are finite and
/// include zero, subnormal and, where they are to be `wide`, large ones.
fn blocks(draw: &mut Draw, count: usize, wide: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count * 34);
    for _ in 0..count {
        let scale = match draw.below(20) {
            0 => half::f16::ZERO,
            1 => half::f16::from_bits(3),
            2 if wide => half::f16::from_f32(-900.0),
            3 if wide => half::f16::MAX,
            _ => half::f16::from_f32(draw.normal() * 0.01),
        };
        bytes.extend(scale.to_le_bytes());
        bytes.extend((0..32).map(|_| u8::try_from(draw.below(256)).unwrap()));
    }
    bytes
}

/// One problem: weights, and a batch of vectors with their records.
#[derive(Clone)]
struct Problem {
    shape: Shape,
    mode: Mode,
    blocks: Vec<u8>,
    weights: Vec<f32>,
    x: Vec<f32>,
    norm_weight: Vec<f32>,
    /// `[batch][parts]`.
    squares: Vec<f32>,
    rows: Vec<Row>,
}

fn shape(rows: u32, k: u32, batch: u32) -> Shape {
    Shape { storage: Storage::Q8, rows, k, batch }
}

impl Problem {
    fn draw(seed: u64, shape: Shape) -> Self {
        Self::draw_for(Mode::Exact, seed, shape)
    }

    /// A problem with the weights of a model, whose size differs less, for [`Mode::Fast`].
    fn draw_for(mode: Mode, seed: u64, shape: Shape) -> Self {
        println!("seed {seed}: {shape:?}, {mode:?}");
        let mut draw = Draw::new(seed);
        let (k, batch) = (shape.k as usize, shape.batch as usize);
        let count = shape.rows as usize * k;
        let (mut packed, mut weights) = (Vec::new(), vec![0.0; count]);
        match shape.storage {
            Storage::Q8 => {
                packed = blocks(&mut draw, count / 32, mode == Mode::Exact);
                dequantize(TensorType::Q8_0, &packed, &mut weights);
            }
            Storage::F32 => weights = draw.activations(count),
        }
        let x = draw.activations(batch * k);
        let parts = [1, 3, 64, 300][usize::try_from(seed % 4).unwrap()];
        let mut squares = Vec::new();
        for x in x.chunks(k) {
            let mut sums: Vec<f32> =
                x.chunks(k.div_ceil(parts)).map(|c| c.iter().map(|v| v * v).sum()).collect();
            sums.resize(parts, 0.0);
            squares.extend(sums);
        }
        let norm_weight = draw.normals(k);
        let rows = (0..shape.batch)
            .map(|n| Row { pos: 5 + 3 * n, target: (n + 1) % 3, logits: n, ..Row::default() })
            .collect();
        Self { shape, mode, blocks: packed, weights, x, norm_weight, squares, rows }
    }

    /// Row `n` of the batch as a problem of its own.
    fn alone(&self, n: usize) -> Self {
        let cut = |v: &[f32]| {
            let len = v.len() / self.rows.len();
            v[n * len..][..len].to_vec()
        };
        let shape = Shape { batch: 1, ..self.shape };
        let (x, squares, rows) =
            (cut(&self.x), cut(&self.squares), vec![Row { logits: 0, ..self.rows[n] }]);
        Self { shape, x, squares, rows, ..self.clone() }
    }

    fn matrix(&self, gpu: &mut Gpu) -> Matrix {
        match self.shape.storage {
            Storage::F32 => Matrix::F32(gpu.input("weights", &self.weights)),
            Storage::Q8 => {
                let count = self.blocks.len() / 34;
                let (mut codes, mut scales) = (vec![0; count * 32], vec![0; count * 2]);
                repack(&self.blocks, &mut codes, &mut scales);
                let (codes, scales) = (gpu.input("codes", &codes), gpu.input("scales", &scales));
                Matrix::Q8(Planes { codes, scales })
            }
        }
    }

    fn cut(&self, gpu: &Gpu, form: Form) -> Cut {
        choose(form, self.shape, self.mode, gpu.device().caps()).unwrap()
    }

    fn with(&self, gpu: &Gpu, form: Form, cut: Cut) -> MatVec {
        MatVec::with(gpu.device(), form, self.shape, cut).unwrap()
    }

    fn exponent(&self) -> i32 {
        crate::kernels::gemm::exponent(self.weights.iter().fold(0.0, |most, w| most.max(w.abs())))
    }

    /// Runs a kernel whose other operands exist; `inputs` are those that hold data before.
    fn run(&self, gpu: &mut Gpu, kernel: &MatVec, output: Output, inputs: &[Slice]) {
        let control = gpu.input("control", &self.rows);
        let x = gpu.input("x", &self.x);
        let matrix = self.matrix(gpu);
        let mut graph = Graph::new("mv");
        for slice in inputs.iter().chain([&control, &x]) {
            graph.input(slice);
        }
        match &matrix {
            Matrix::Q8(planes) => [&planes.codes, &planes.scales].map(|s| graph.input(s)).len(),
            Matrix::F32(weights) => [weights].map(|s| graph.input(s)).len(),
        };
        let norm = (!matches!(kernel.form, Form::Plain | Form::Residual)).then(|| Norm {
            squares: gpu.input("squares", &self.squares),
            weight: gpu.input("weight", &self.norm_weight),
            eps: EPS,
        });
        for slice in norm.iter().flat_map(|n| [&n.squares, &n.weight]) {
            graph.input(slice);
        }
        graph.level();
        let exponent = self.exponent();
        kernel.record(&mut graph, "mv", Operands { control, matrix, x, exponent, norm, output });
        gpu.run(graph);
    }

    /// Rows of [`Form::Plain`] or [`Form::Norm`], as words.
    fn rows(&self, gpu: &mut Gpu, form: Form, cut: Cut) -> Vec<u32> {
        let kernel = self.with(gpu, form, cut);
        let y = gpu.output("y", (self.shape.rows * self.shape.batch * 4) as usize);
        self.run(gpu, &kernel, Output::Rows(y.slice()), &[]);
        gpu.words(&y)
    }

    /// Result and sum of magnitudes of each output, `[batch][rows]`: products and sums in f64.
    fn expected(&self, normed: bool) -> Vec<(f64, f64)> {
        let k = self.shape.k as usize;
        let parts = self.squares.len() / self.rows.len();
        let mut out = Vec::new();
        for (x, squares) in self.x.chunks(k).zip(self.squares.chunks(parts)) {
            let mut x: Vec<f64> = x.iter().map(|&v| f64::from(v)).collect();
            if normed {
                let sum: f64 = squares.iter().map(|&v| f64::from(v)).sum();
                let scale = 1.0 / (sum / k as f64 + f64::from(EPS)).sqrt();
                for (x, w) in x.iter_mut().zip(&self.norm_weight) {
                    *x *= scale * f64::from(*w);
                }
            }
            out.extend(self.weights.chunks(k).map(|row| {
                row.iter().zip(&x).fold((0.0, 0.0), |(sum, magnitude), (&w, x)| {
                    let product = f64::from(w) * x;
                    (sum + product, magnitude + product.abs())
                })
            }));
        }
        out
    }
}

/// How far a program may be off, relative to the magnitudes of the products.
fn bound(cut: &Cut) -> f64 {
    if matches!(cut, Cut::Matrix(_)) { MATRIX_BOUND } else { BOUND }
}

/// Rows against f64.
fn close(name: &str, found: &[u32], expected: &[(f64, f64)], bound: f64) {
    assert_eq!(found.len(), expected.len(), "{name}");
    let (mut error, mut power) = (0.0, 0.0);
    for (at, (&word, &(e, magnitude))) in found.iter().zip(expected).enumerate() {
        let y = f64::from(f32::from_bits(word));
        let off = (y - e).abs();
        assert!(off <= bound * magnitude + 1e-36, "{name}, output {at}: {y} for {e}");
        error += off * off;
        power += e * e;
    }
    // Independent roundings: far below the bound of a single row.
    // Few outputs may be small beside their products.
    let few = if found.len() < 100 { 100.0 } else { 1.0 };
    assert!(error <= 0.3 * few * bound * bound * power, "{name}: nmse {}", error / power);
}

fn check_rows(gpu: &mut Gpu, mode: Mode, seed: u64, shape: Shape) {
    let problem = Problem::draw_for(mode, seed, shape);
    for form in [Form::Plain, Form::Norm] {
        let cut = problem.cut(gpu, form);
        let found = problem.rows(gpu, form, cut);
        let name = format!("{form:?} {shape:?} {cut:?}");
        close(&name, &found, &problem.expected(form == Form::Norm), bound(&cut));
    }
}

#[test]
fn awkward_shapes() {
    let Some(mut gpu) = check::gpu() else { return };
    // Below, at and above: a chunk for each lane, a subgroup's rows, a workgroup's rows.
    let shapes = [
        (1, 32, 1),
        (3, 32, 8),
        (2, 96, 2),
        (5, 128, 4),
        (15, 160, 1),
        (17, 256, 8),
        (31, 480, 2),
        (33, 512, 4),
        (65, 1056, 8),
        (127, 64, 1),
        (257, 2048, 1),
        (1, 4096, 8),
        (9, 7680, 1),
        (9, 7680, 2),
    ];
    for (seed, (rows, k, batch)) in (1..).zip(shapes) {
        check_rows(&mut gpu, Mode::Exact, seed, shape(rows, k, batch));
        check_rows(&mut gpu, Mode::Fast, seed, shape(rows, k, batch));
        let storage = Storage::F32;
        check_rows(&mut gpu, Mode::Exact, seed, Shape { storage, ..shape(rows, k, batch) });
    }
}

/// One slice and several, also three, of rows that end within a matrix or fill several passes.
#[test]
fn awkward_shapes_of_matrices() {
    let Some(mut gpu) = check::gpu() else { return };
    let shapes = [(1, 256, 1), (17, 512, 2), (45, 768, 4), (100, 1024, 8), (33, 4096, 3)];
    for (seed, (rows, k, batch)) in (60..).zip(shapes) {
        let batch = if batch == 3 { 4 } else { batch };
        check_rows(&mut gpu, Mode::Fast, seed, shape(rows, k, batch));
    }
}

#[test]
fn real_shapes() {
    let Some(mut gpu) = check::gpu() else { return };
    // Recurrent input and output, attention input, shared expert (gate, down), alpha; a slab of the head.
    let shapes = [
        (12_352, 2048, 1),
        (2048, 4096, 1),
        (512, 2048, 8),
        (2048, 512, 4),
        (32, 2048, 2),
        (20_000, 256, 1),
    ];
    for (seed, (rows, k, batch)) in (100..).zip(shapes) {
        for mode in [Mode::Exact, Mode::Fast] {
            check_rows(&mut gpu, mode, seed, shape(rows, k, batch));
        }
    }
}

/// An output's bits depend on its row and vector alone: not on rows at a time, passes, chunks in flight, where x is
/// kept, the vectors or rows beside it.
#[test]
fn every_cut_gives_the_same_bits() {
    let Some(mut gpu) = check::gpu() else { return };
    for (k, storage, batch) in [
        (544, Storage::Q8, 1),
        (256, Storage::Q8, 1),
        (544, Storage::Q8, 2),
        (544, Storage::F32, 2),
    ] {
        let problem = Problem::draw(7, Shape { storage, ..shape(45, k, batch) });
        let chosen = select(Form::Norm, problem.shape, gpu.device().caps()).unwrap();
        let first = problem.rows(&mut gpu, Form::Norm, Cut::Lanes(chosen));
        close("first", &first, &problem.expected(true), BOUND);
        let in_regs = u32::from(k == 256);
        let all = k / choice::chunk(storage);
        let step = chosen.sg;
        for (r, t, u, block, stage_x, x_in_regs, nsg) in [
            (1, 1, 1, all, 1, 0, 4),
            (1, 3, 2, all, 1, in_regs, 1),
            (2, 1, 1, step, 1, 0, 2),
            (2, 2, 4, all, 0, 0, 8),
            (4, 4, 2, all, 0, in_regs, 8),
            (8, 1, 2, 2 * step, 1, 0, 4),
        ] {
            let workgroup = nsg * chosen.sg;
            let cut = Constants { workgroup, nsg, r, t, u, block, stage_x, x_in_regs, ..chosen };
            assert!(problem.rows(&mut gpu, Form::Norm, Cut::Lanes(cut)) == first, "{k}: {cut:?}");
        }
    }
}

#[test]
fn passes_of_matrices_do_not_change_bits() {
    let Some(mut gpu) = check::gpu() else { return };
    let problem = Problem::draw_for(Mode::Fast, 8, shape(100, 512, 2));
    let Some(chosen) = matrix::select(Form::Norm, problem.shape, gpu.device().caps()) else {
        return;
    };
    let first = problem.rows(&mut gpu, Form::Norm, Cut::Matrix(chosen));
    for t in [1, 2, 3, 4] {
        let cut = Cut::Matrix(matrix::Constants { t, ..chosen });
        assert!(problem.rows(&mut gpu, Form::Norm, cut) == first, "{cut:?}");
    }
}

#[test]
fn rows_of_a_batch_have_the_bits_of_single_rows() {
    let Some(mut gpu) = check::gpu() else { return };
    for (mode, storage, rows, k) in [
        (Mode::Exact, Storage::Q8, 37, 2048),
        (Mode::Exact, Storage::Q8, 100, 352),
        (Mode::Exact, Storage::F32, 21, 512),
        (Mode::Fast, Storage::Q8, 37, 2048),
        (Mode::Fast, Storage::Q8, 130, 256),
    ] {
        for batch in [2, 4, 8] {
            let shape = Shape { storage, ..shape(rows, k, batch) };
            let mut problem = Problem::draw_for(mode, 31, shape);
            problem.rows[1].flags = Row::IDLE;
            let chosen = problem.cut(&gpu, Form::Norm);
            let found = problem.rows(&mut gpu, Form::Norm, chosen);
            for (n, found) in found.chunks(rows as usize).enumerate() {
                if n == 1 {
                    assert!(found.iter().all(|&w| w == Gpu::POISON), "an idle row was written");
                    continue;
                }
                let alone = problem.alone(n);
                let chosen = alone.cut(&gpu, Form::Norm);
                assert!(alone.rows(&mut gpu, Form::Norm, chosen) == found, "{batch}: row {n}");
            }
        }
    }
}

struct Recurrent {
    problem: Problem,
    conv: usize,
    inner: usize,
    heads: usize,
    a: Vec<f32>,
    dt: Vec<f32>,
}

/// Ring, z, decay, beta as words.
type Mixed = [Vec<u32>; 4];

impl Recurrent {
    fn draw(
        (mode, storage): (Mode, Storage),
        seed: u64,
        widths: [usize; 3],
        k: u32,
        batch: u32,
    ) -> Self {
        let [conv, inner, heads] = widths;
        let rows = u32::try_from(conv + inner + 2 * heads).unwrap();
        let problem = Problem::draw_for(mode, seed, Shape { storage, ..shape(rows, k, batch) });
        let mut draw = Draw::new(seed + 1000);
        let a = draw.normals(heads).iter().map(|v| -v.exp()).collect();
        let dt = draw.normals(heads);
        Self { problem, conv, inner, heads, a, dt }
    }

    fn run(&self, gpu: &mut Gpu) -> Mixed {
        let batch = self.problem.rows.len();
        let cut = self.problem.cut(gpu, Form::Recurrent);
        let kernel = self.problem.with(gpu, Form::Recurrent, cut);
        let [ring, z, decay, beta] =
            [3 * 4 * self.conv, batch * self.inner, batch * self.heads, batch * self.heads]
                .map(|len| gpu.output("out", len * 4));
        let (a, dt) = (gpu.input("a", &self.a), gpu.input("dt", &self.dt));
        let inputs = [a.clone(), dt.clone()];
        let gates = Gates { decay: decay.slice(), beta: beta.slice(), a, dt };
        let output = Output::Recurrent { ring: ring.slice(), z: z.slice(), gates };
        self.problem.run(gpu, &kernel, output, &inputs);
        [ring, z, decay, beta].map(|b| gpu.words(&b))
    }

    fn check(&self, found: &Mixed, bound: f64) {
        let expected = self.problem.expected(true);
        let height = self.conv + self.inner + 2 * self.heads;
        let [ring, z, decay, beta] = found;
        let mut written = 0;
        for (n, (row, record)) in expected.chunks(height).zip(&self.problem.rows).enumerate() {
            let (conv, rest) = row.split_at(self.conv);
            let (gate, rest) = rest.split_at(self.inner);
            let (alpha, beta_in) = rest.split_at(self.heads);
            let at = (record.target * 4 + record.pos % 4) as usize * self.conv;
            close("ring", &ring[at..][..self.conv], conv, bound);
            written += self.conv;
            let near = |found: u32, exact: f64, off: f64| {
                let found = f64::from(f32::from_bits(found));
                assert!((found - exact).abs() <= off + 1e-36, "row {n}: {found} for {exact}");
            };
            for (&found, &(e, m)) in z[n * self.inner..].iter().zip(gate) {
                // The slope of SiLU is at most 1.1; exp has a few units of error, more for large arguments.
                near(found, e / (1.0 + (-e).exp()), 1.2 * bound * m + 1e-5 * e.abs());
            }
            for (i, &(e, m)) in alpha.iter().enumerate() {
                let (a, t) = (f64::from(self.a[i]), e + f64::from(self.dt[i]));
                let log = a * (t.max(0.0) + (-t.abs()).exp().ln_1p());
                let off = log.exp() * (a.abs() * bound * m + 1e-5 * (1.0 + log.abs()));
                near(decay[n * self.heads + i], log.exp(), off.min(1.0));
            }
            for (i, &(e, m)) in beta_in.iter().enumerate() {
                near(beta[n * self.heads + i], 1.0 / (1.0 + (-e).exp()), bound * m + 1e-5);
            }
        }
        let left = ring.iter().filter(|&&w| w == Gpu::POISON).count();
        assert_eq!(left, ring.len() - written, "other rows of the ring stay");
    }
}

#[test]
fn recurrent_rows_go_where_they_belong() {
    let Some(mut gpu) = check::gpu() else { return };
    // Ranges that end inside a subgroup's rows; the demo model's; the real ratio.
    let cases = [
        (Mode::Exact, Storage::Q8, [13, 7, 3], 64, 1),
        (Mode::Exact, Storage::F32, [21, 10, 2], 96, 2),
        (Mode::Exact, Storage::Q8, [512, 256, 4], 256, 2),
        (Mode::Exact, Storage::Q8, [1024, 512, 32], 2048, 1),
        (Mode::Fast, Storage::Q8, [13, 7, 3], 256, 8),
        (Mode::Fast, Storage::Q8, [1024, 512, 32], 2048, 2),
    ];
    for (seed, (mode, storage, widths, k, batch)) in (300..).zip(cases) {
        let case = Recurrent::draw((mode, storage), seed, widths, k, batch);
        let cut = case.problem.cut(&gpu, Form::Recurrent);
        case.check(&case.run(&mut gpu), bound(&cut));
    }
}

#[test]
fn gates_recorded_apart_have_the_same_bits() {
    let Some(mut gpu) = check::gpu() else { return };
    let case = Recurrent::draw((Mode::Exact, Storage::F32), 9, [24, 16, 4], 64, 2);
    let together = case.run(&mut gpu);
    let k = 64;
    let part = |first: usize, rows: usize| Problem {
        shape: Shape { rows: u32::try_from(rows).unwrap(), ..case.problem.shape },
        weights: case.problem.weights[first * k..][..rows * k].to_vec(),
        ..case.problem.clone()
    };
    let mixer = part(0, 40);
    let kernel = mixer.with(&gpu, Form::Mixer, mixer.cut(&gpu, Form::Mixer));
    let (ring, z) = (gpu.output("ring", 3 * 4 * 24 * 4), gpu.output("z", 2 * 16 * 4));
    mixer.run(&mut gpu, &kernel, Output::Mixer { ring: ring.slice(), z: z.slice() }, &[]);
    let gates = part(40, 8);
    let kernel = gates.with(&gpu, Form::Gates, gates.cut(&gpu, Form::Gates));
    let (decay, beta) = (gpu.output("decay", 2 * 4 * 4), gpu.output("beta", 2 * 4 * 4));
    let (a, dt) = (gpu.input("a", &case.a), gpu.input("dt", &case.dt));
    let inputs = [a.clone(), dt.clone()];
    let output = Output::Gates(Gates { decay: decay.slice(), beta: beta.slice(), a, dt });
    gates.run(&mut gpu, &kernel, output, &inputs);
    assert!([ring, z, decay, beta].map(|b| gpu.words(&b)) == together);
}

/// New residual and partial sums.
fn residual(gpu: &mut Gpu, problem: &Problem, before: &[f32]) -> (Vec<u32>, Vec<u32>) {
    let kernel = problem.with(gpu, Form::Residual, problem.cut(gpu, Form::Residual));
    let h = gpu.update("h", before);
    let squares = gpu.output("squares", (kernel.partials() * problem.shape.batch * 4) as usize);
    let output = Output::Residual { h: h.slice(), squares: squares.slice() };
    problem.run(gpu, &kernel, output, &[h.slice()]);
    (gpu.words(&h), gpu.words(&squares))
}

#[test]
fn residuals_are_added_and_their_squares_summed() {
    let Some(mut gpu) = check::gpu() else { return };
    let cases = [
        (Mode::Exact, Storage::Q8, 2048, 4096, 1),
        (Mode::Exact, Storage::Q8, 45, 96, 4),
        (Mode::Exact, Storage::F32, 256, 512, 2),
        (Mode::Fast, Storage::Q8, 2048, 4096, 2),
        (Mode::Fast, Storage::Q8, 45, 256, 8),
    ];
    for (seed, (mode, storage, rows, k, batch)) in (400..).zip(cases) {
        let shape = Shape { storage, ..shape(rows, k, batch) };
        let mut problem = Problem::draw_for(mode, seed, shape);
        let bound = bound(&problem.cut(&gpu, Form::Residual));
        if batch > 1 {
            problem.rows[1].flags = Row::IDLE;
        }
        let before = Draw::new(seed + 1).normals((rows * batch) as usize);
        let (h, squares) = residual(&mut gpu, &problem, &before);
        let parts = squares.len() / batch as usize;
        let height = rows as usize;
        let expected = problem.expected(false);
        for n in 0..batch as usize {
            let (h, before) = (&h[n * height..][..height], &before[n * height..][..height]);
            let squares = &squares[n * parts..][..parts];
            if problem.rows[n].flags == Row::IDLE {
                assert!(h.iter().zip(before).all(|(h, b)| *h == b.to_bits()));
                assert!(squares.iter().all(|&w| w == Gpu::POISON));
                continue;
            }
            let sums = expected[n * height..].iter().zip(before);
            let sums: Vec<_> =
                sums.map(|(e, &b)| (e.0 + f64::from(b), e.1 + f64::from(b.abs()))).collect();
            close("residual", h, &sums, bound);
            for (part, values) in squares.iter().zip(h.chunks(8)) {
                let exact: f64 = values.iter().map(|&v| f64::from(f32::from_bits(v)).powi(2)).sum();
                let found = f64::from(f32::from_bits(*part));
                assert!((found - exact).abs() <= 1e-6 * exact, "{found} for {exact}");
            }
            let alone = problem.alone(n);
            let (h1, squares1) = residual(&mut gpu, &alone, before);
            assert!(h1 == h && squares1 == squares, "row {n} of {batch}");
        }
    }
}

/// Logits and pairs, of a matrix bound in slabs of `slab` rows.
fn head(gpu: &mut Gpu, problem: &Problem, mask: &[u32], bias: &[[u32; 2]]) -> (Vec<u32>, Vec<u32>) {
    let kernel = problem.with(gpu, Form::Head, problem.cut(gpu, Form::Head));
    let batch = problem.shape.batch;
    let logits = gpu.output("logits", (problem.shape.rows * batch * 4) as usize);
    let pairs = gpu.output("pairs", (kernel.groups() * batch * 8) as usize);
    let head = Head {
        logits: logits.slice(),
        pairs: pairs.slice(),
        mask: gpu.input("mask", mask),
        bias: gpu.input("bias", bias),
        first_row: 0,
    };
    let inputs = [head.mask.clone(), head.bias.clone()];
    problem.run(gpu, &kernel, Output::Head(head), &inputs);
    (gpu.words(&logits), gpu.words(&pairs))
}

/// The pair that wins, as `pick` takes it.
fn best(pairs: &[u32]) -> (f32, u32) {
    pairs.chunks(2).map(|p| (f32::from_bits(p[0]), p[1])).fold((f32::NEG_INFINITY, 0), |a, b| {
        if b.0 > a.0 || (b.0.total_cmp(&a.0).is_eq() && b.1 < a.1) { b } else { a }
    })
}

#[test]
fn the_head_finds_the_best_as_sampling_sees_it() {
    let Some(mut gpu) = check::gpu() else { return };
    for (mode, rows, k, batch) in [
        (Mode::Exact, 1000, 64, 1),
        (Mode::Exact, 333, 256, 4),
        (Mode::Fast, 333, 256, 4),
        (Mode::Fast, 4096, 512, 2),
    ] {
        let shape = shape(rows, k, batch);
        let mut problem = Problem::draw_for(mode, 500 + u64::from(rows), shape);
        let bound = bound(&problem.cut(&gpu, Form::Head));
        let words = rows.div_ceil(32);
        // Mask 0 allows everything, mask 1 every third id.
        let mut mask = vec![u32::MAX; words as usize];
        mask.extend(
            (0..words).map(|w| (0..32).map(|b| u32::from((w * 32 + b) % 3 == 0) << b).sum::<u32>()),
        );
        let bias = [
            [7, 0x7f00_0000],
            [3, 4e4f32.to_bits()],
            [9, (-4e4f32).to_bits()],
            [rows - 1, 1e30f32.to_bits()],
        ];
        let last = problem.rows.last_mut().unwrap();
        (last.mask, last.bias, last.bias_len) = (words, 1, 3);
        let (logits, pairs) = head(&mut gpu, &problem, &mask, &bias);
        let (height, groups) = (rows as usize, pairs.len() / batch as usize);
        close("logits", &logits, &problem.expected(true), bound);
        for (n, row) in problem.rows.iter().enumerate() {
            let logits = &logits[n * height..][..height];
            let mut top = (f32::NEG_INFINITY, 0);
            for (id, &word) in (0..).zip(logits) {
                let mut value = f32::from_bits(word);
                let pairs = &bias[row.bias as usize..][..row.bias_len as usize];
                value += pairs.iter().find(|p| p[0] == id).map_or(0.0, |p| f32::from_bits(p[1]));
                if mask[(row.mask + id / 32) as usize] >> (id % 32) & 1 == 1 && value > top.0 {
                    top = (value, id);
                }
            }
            let pairs = &pairs[n * groups..][..groups];
            assert_eq!(best(pairs), top, "row {n}");
            if n == 0 {
                let (l1, p1) = head(&mut gpu, &problem.alone(n), &mask, &bias);
                assert!(l1 == logits);
                assert_eq!(best(&p1), top);
            }
        }
    }
}

#[test]
fn the_head_breaks_ties_downwards_and_reports_what_is_not_finite() {
    let Some(mut gpu) = check::gpu() else { return };
    let mut problem = Problem::draw(11, Shape { storage: Storage::F32, ..shape(700, 32, 1) });
    // Every row of weights alike: every logit alike.
    let row = problem.weights[..32].to_vec();
    problem.weights.chunks_mut(32).for_each(|w| w.copy_from_slice(&row));
    let mut mask = vec![u32::MAX; 22];
    mask[0] = 0xffff_fff0;
    let (_, pairs) = head(&mut gpu, &problem, &mask, &[[0, 0]]);
    assert_eq!(best(&pairs).1, 4);
    let all = |mask: &[u32], weight: f32, gpu: &mut Gpu| {
        let mut problem = problem.clone();
        problem.x.fill(1.0);
        problem.squares.fill(1.0);
        problem.norm_weight.fill(1.0);
        problem.weights.fill(0.5);
        problem.weights[650 * 32] = weight;
        head(gpu, &problem, mask, &[[0, 0]]).1
    };
    let failed = |pairs: &[u32]| pairs.chunks(2).any(|p| p[1] == u32::MAX);
    assert!(failed(&all(&mask, f32::NAN, &mut gpu)));
    assert!(failed(&all(&mask, f32::INFINITY, &mut gpu)));
    assert!(!failed(&all(&mask, f32::NEG_INFINITY, &mut gpu)));
    let none = all(&[0; 22], 0.0, &mut gpu);
    assert_eq!(best(&none), (f32::NEG_INFINITY, 0), "nothing is allowed");
}

#[test]
fn slabs_cover_the_matrix_and_start_aligned() {
    assert_eq!(slabs(Storage::Q8, 5000, 2048, 4 << 30), vec![0..5000; 1]);
    assert_eq!(slabs(Storage::Q8, 5000, 2048, 5 << 20), [0..2048, 2048..4096, 4096..5000]);
    assert_eq!(slabs(Storage::F32, 2000, 2048, 8 << 20), [0..1024, 1024..2000]);
}

#[test]
fn slabs_give_what_the_whole_gives() {
    let Some(mut gpu) = check::gpu() else { return };
    let problem = Problem::draw(77, Shape { storage: Storage::F32, ..shape(2500, 32, 2) });
    let mask = vec![u32::MAX; 79];
    let whole = head(&mut gpu, &problem, &mask, &[[0, 0]]);
    let kernel = problem.with(&gpu, Form::Head, problem.cut(&gpu, Form::Head));
    let logits = gpu.output("logits", 2500 * 2 * 4);
    let pairs = gpu.output("pairs", (kernel.groups() * 2 * 8) as usize);
    let inputs = [
        gpu.input("control", &problem.rows),
        gpu.input("x", &problem.x),
        gpu.input("squares", &problem.squares),
        gpu.input("weight", &problem.norm_weight),
        gpu.input("mask", &mask),
        gpu.input("bias", &[[0u32; 2]]),
        gpu.input("weights", &problem.weights),
    ];
    let mut graph = Graph::new("slabs");
    for slice in &inputs {
        graph.input(slice);
    }
    let [control, x, squares, weight, mask, bias, weights] = inputs;
    for rows in slabs(Storage::F32, 2500, 32, 128 << 10) {
        let (first_row, count) = (rows.start, u64::from(rows.end - rows.start));
        graph.level();
        let offset = weights.offset + u64::from(first_row) * 128;
        let matrix = Matrix::F32(weights.buffer.slice(offset, count * 128));
        let norm = Norm { squares: squares.clone(), weight: weight.clone(), eps: EPS };
        let (mask, bias) = (mask.clone(), bias.clone());
        let head = Head { logits: logits.slice(), pairs: pairs.slice(), mask, bias, first_row };
        let (control, x, output) = (control.clone(), x.clone(), Output::Head(head));
        let io = Operands { control, matrix, x, exponent: 0, norm: Some(norm), output };
        kernel.record(&mut graph, &format!("rows from {first_row}"), io);
    }
    gpu.run(graph);
    let found: [&Buffer; 2] = [&logits, &pairs];
    assert!(found.map(|b| gpu.words(b)) == [whole.0, whole.1]);
}

#[test]
fn planes_hold_every_byte_of_the_blocks() {
    let bytes: Vec<u8> = (0..34 * 5).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let (mut codes, mut scales) = (vec![0; 32 * 5], vec![0; 2 * 5]);
    repack(&bytes, &mut codes, &mut scales);
    for b in 0..5 {
        assert_eq!(scales[b * 2..][..2], bytes[b * 34..][..2]);
        assert_eq!(codes[b * 32..][..32], bytes[b * 34 + 2..][..32]);
    }
}

#[test]
fn constants_follow_shape_and_device() {
    let wide = |sg: u32, units| {
        let mut caps = lavapipe();
        caps.subgroups.min = sg.min(32);
        caps.subgroups.max = sg;
        caps.compute_units = Some(units);
        caps.limits.shared_bytes = 48 << 10;
        caps
    };
    // A BC-250: 64 rows for each workgroup where that makes enough of them; x in registers up to 2048.
    let bc250 = wide(64, 40);
    let c = select(Form::Norm, shape(12_352, 2048, 1), &bc250).unwrap();
    assert_eq!((c.workgroup, c.sg, c.r, c.t, c.u, c.x_in_regs), (256, 64, 4, 4, 2, 1));
    assert_eq!(choice::grid(12_352_u32.div_ceil(c.group_rows()), 65_535), [193, 1, 1]);
    // A wide card with subgroups of 32 gets more, smaller workgroups, and rows of the residual by eight.
    let h200 = wide(32, 132);
    let c = select(Form::Recurrent, shape(12_352, 2048, 1), &h200).unwrap();
    assert_eq!((c.workgroup, c.r, c.t, c.u), (256, 2, 1, 4));
    let c = select(Form::Residual, shape(2048, 4096, 1), &h200).unwrap();
    assert_eq!((c.group_rows(), c.u, c.block), (8, 8, 256));
    let c = select(Form::Residual, shape(2048, 4096, 8), &h200).unwrap();
    assert_eq!((c.r, c.block, c.stage_x), (2, 64, 1));
    // Without a choice of subgroup size: the driver's.
    let fixed = lavapipe().without(&[Ability::SubgroupSize]);
    assert_eq!(select(Form::Plain, shape(64, 256, 1), &fixed).unwrap().sg, 8);
    for (rows, k, batch) in [(0, 32, 1), (1, 0, 1), (1, 48, 1), (1, 32, 3)] {
        assert!(select(Form::Plain, shape(rows, k, batch), &lavapipe()).is_err());
    }
    // The head: more workgroups than one dimension holds.
    assert_eq!(choice::grid(3880, 1000), [970, 4, 1]);
    assert_eq!(choice::grid(1000, 1000), [1000, 1, 1]);
}

#[test]
fn constants_of_matrices_follow_shape_and_device() {
    let mut h200 = lavapipe().with(Ability::Matrix).with(Ability::MatrixThin);
    (h200.subgroups.min, h200.subgroups.max) = (32, 32);
    h200.compute_units = Some(132);
    h200.limits.shared_bytes = 48 << 10;
    let chosen = |form, shape| {
        let c = matrix::select(form, shape, &h200)?;
        Some((c.workgroup, c.nsg, c.t))
    };
    // Two workgroups for each unit; one where they are large.
    assert_eq!(chosen(Form::Recurrent, shape(12_352, 2048, 1)), Some((256, 8, 3)));
    assert_eq!(chosen(Form::Residual, shape(2048, 4096, 1)), Some((512, 16, 1)));
    assert_eq!(chosen(Form::Head, shape(248_320, 2048, 1)), Some((256, 8, 8)));
    // Slabs begin at whole workgroups, whatever the vocabulary.
    for rows in [4096, 20_000, 50_000, 100_000, 248_320] {
        let c = matrix::select(Form::Head, shape(rows, 2048, 1), &h200).unwrap();
        assert!(
            slabs(Storage::Q8, rows, 2048, 8 << 20)[1..]
                .iter()
                .all(|slab| slab.start.is_multiple_of(c.group_rows()))
        );
    }
    // The program may not depend on the batch.
    for batch in [2, 4, 8] {
        for (form, rows, k) in [(Form::Norm, 9216, 2048), (Form::Residual, 2048, 4096)] {
            assert_eq!(chosen(form, shape(rows, k, batch)), chosen(form, shape(rows, k, 1)));
        }
    }
    assert_eq!(chosen(Form::Norm, shape(64, 544, 1)), None, "no whole slices");
    assert_eq!(chosen(Form::Norm, Shape { storage: Storage::F32, ..shape(64, 512, 1) }), None);
    assert_eq!(matrix::select(Form::Norm, shape(64, 512, 1), &lavapipe()), None);
    let exact = choose(Form::Norm, shape(64, 512, 1), Mode::Exact, &h200).unwrap();
    assert!(matches!(exact, Cut::Lanes(_)));
}
