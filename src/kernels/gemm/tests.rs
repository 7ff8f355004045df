//! Tests of the dense products: against f64, over awkward shapes, every path, form and kind of weights.

use super::*;
use crate::kernels::check::{self, Draw, Gpu};
use crate::kernels::control::Row;
use crate::kernels::mode::Mode;
use crate::kernels::mv_q8::repack;
use crate::quant::{TensorType, dequantize};
use crate::vulkan::{Ability, lavapipe};
use half::f16;

/// Against the sum of magnitudes. f32: chains of K roundings of 6e-8 that mostly cancel. Packed f16: a rounded
/// weight, a product and 16 sums, each off by up to 1e-3 where the driver rounds towards zero, as it may and as
/// Mesa's CPU driver does; with short rows of mixed signs half of the worst case is seen.
fn bound(path: Path) -> f64 {
    match path {
        Path::F32 => 1e-5,
        Path::Pk16 => 4e-3,
        // One rounding of the weight, and of products where they are emulated; sums are f32.
        Path::Matrix => 2e-3,
    }
}

/// A problem, with the values that the device will see.
struct Problem {
    shape: Shape,
    kind: Kind,
    tokens: u32,
    stride: u32,
    /// `Q8_0` blocks, or f32 values.
    blocks: Vec<u8>,
    weights: Vec<f32>,
    x: Vec<f32>,
    factor: Vec<f32>,
    norm: Vec<f32>,
    before: Vec<f32>,
}

/// Random blocks; scales are finite and include zero, subnormal and large ones.
fn blocks(draw: &mut Draw, count: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count * 34);
    for _ in 0..count {
        let scale = match draw.below(40) {
            0 => f16::ZERO,
            1 => f16::from_bits(3),
            2 => f16::from_f32(-0.3),
            _ => f16::from_f32(draw.normal() * 0.01),
        };
        bytes.extend(scale.to_le_bytes());
        bytes.extend((0..32).map(|_| u8::try_from(draw.below(256)).unwrap()));
    }
    bytes
}

impl Problem {
    /// `tokens` of a class of `shape.tokens`.
    fn draw(seed: u64, shape: Shape, tokens: u32, kind: Kind) -> Self {
        println!("seed {seed}: {shape:?}, {tokens} tokens, {kind:?}");
        let mut draw = Draw::new(seed);
        let (rows, k, n) = (shape.rows as usize, shape.k as usize, tokens as usize);
        let mut weights = vec![0.0; rows * k];
        let bytes = if kind.q8 {
            let bytes = blocks(&mut draw, rows * k / 32);
            dequantize(TensorType::Q8_0, &bytes, &mut weights);
            bytes
        } else {
            weights.fill_with(|| draw.normal() * 0.02);
            bytemuck::cast_slice(&weights).to_vec()
        };
        let mut x = draw.activations(n * k);
        if kind.path.half() && kind.form != Form::Logits {
            for v in &mut x {
                *v = f16::from_f32(*v * 0.1).to_f32();
            }
        }
        let factor =
            (0..n).map(|_| 2.0_f32.powi(i32::try_from(draw.below(9)).unwrap() - 4)).collect();
        let columns = if kind.form == Form::SwiGlu { rows / 2 } else { rows };
        let stride = columns + usize::try_from(seed % 3).unwrap() * 5;
        let before = draw.normals(n * stride);
        let norm = draw.normals(k);
        let stride = u32::try_from(stride).unwrap();
        Self { shape, kind, tokens, stride, blocks: bytes, weights, x, factor, norm, before }
    }

    /// The whole output, rows of the class, as words.
    fn run(&self, gpu: &mut Gpu, tile: Option<Tile>) -> Vec<u32> {
        let Shape { rows, k, tokens: class } = self.shape;
        let control = Row { tokens: self.tokens, ..Row::default() };
        let control = gpu.input("control", &[control]);
        // Rows past the last token are NaN: nothing may come of them.
        let mut x = self.x.clone();
        x.resize((class * k) as usize, f32::NAN);
        let x = if self.kind.path.half() && self.kind.form != Form::Logits {
            let halves: Vec<u16> = x.iter().map(|&v| f16::from_f32(v).to_bits()).collect();
            gpu.input("x", &halves)
        } else {
            gpu.input("x", &x)
        };
        let mut graph = Graph::new("gemm");
        let weights = if self.kind.q8 {
            let count = self.blocks.len() / 34;
            let (mut codes, mut scales) = (vec![0; count * 32], vec![0; count * 2]);
            repack(&self.blocks, &mut codes, &mut scales);
            let (codes, scales) = (gpu.input("codes", &codes), gpu.input("scales", &scales));
            graph.input(&codes);
            graph.input(&scales);
            Weights::Q8(Planes { codes, scales })
        } else {
            let weights = gpu.input("weights", &self.weights);
            graph.input(&weights);
            Weights::F32(weights)
        };
        let mut factor = self.factor.clone();
        factor.resize(class as usize, f32::NAN);
        let factor = self.kind.factor.then(|| gpu.input("factor", &factor));
        let norm = (self.kind.form == Form::Logits).then(|| gpu.input("norm", &self.norm));
        let scales = vec![0.7_f32; class as usize];
        let scales = norm.is_some().then(|| gpu.input("scales", &scales));
        let bytes = (class * self.stride) as usize * 4;
        let out = if self.kind.form == Form::Add {
            let mut before: Vec<u32> = self.before.iter().map(|v| v.to_bits()).collect();
            before.resize(bytes / 4, Gpu::POISON);
            gpu.update("out", &before)
        } else {
            gpu.output("out", bytes)
        };
        for slice in [&control, &x].into_iter().chain(&factor).chain(&norm).chain(&scales) {
            graph.input(slice);
        }
        if self.kind.form == Form::Add {
            graph.input(&out.slice());
        }
        graph.level();
        let largest = self.weights.iter().fold(0.0_f32, |m, w| m.max(w.abs()));
        let io = Operands {
            control,
            weights,
            exponent: exponent(largest),
            x,
            factor,
            norm: norm.zip(scales).map(|(weight, scale)| Norm { weight, scale }),
            out: out.slice(),
            stride: self.stride,
        };
        assert!(rows > 0);
        let device = Arc::clone(gpu.device());
        let gemm = match tile {
            Some(tile) => Gemm::with_tile(&device, self.shape, self.kind, tile),
            None => Gemm::new(&device, self.shape, self.kind),
        };
        let gemm = gemm.unwrap();
        gemm.record(&mut graph, "gemm", io);
        gpu.run(graph);
        gpu.words(&out)
    }

    /// Sum and sum of magnitudes.
    fn sum(&self, token: usize, row: usize) -> (f64, f64) {
        let k = self.shape.k as usize;
        let (x, w) = (&self.x[token * k..][..k], &self.weights[row * k..][..k]);
        let factor = if self.kind.factor { f64::from(self.factor[token]) } else { 1.0 };
        let logits = self.kind.form == Form::Logits;
        x.iter().zip(w).enumerate().fold((0.0, 0.0), |(sum, magnitude), (i, (&x, &w))| {
            let norm = if logits { f64::from(self.norm[i]) } else { 1.0 };
            let product = f64::from(x) * f64::from(w) * factor * norm;
            (sum + product, magnitude + product.abs())
        })
    }

    fn check(&self, out: &[u32]) {
        let exact = self.kind.form == Form::Logits;
        let bound = if exact { bound(Path::F32) } else { bound(self.kind.path) };
        let columns = match self.kind.form {
            Form::SwiGlu => self.shape.rows / 2,
            Form::Store | Form::Add | Form::Logits => self.shape.rows,
        } as usize;
        let stride = self.stride as usize;
        let mut worst = 0.0_f64;
        for (t, line) in out.chunks(stride).enumerate() {
            for (r, &word) in line.iter().enumerate() {
                let at = t * stride + r;
                if t >= self.tokens as usize || r >= columns {
                    let kept = t < self.tokens as usize && self.kind.form == Form::Add;
                    let expected = if kept { self.before[at].to_bits() } else { Gpu::POISON };
                    assert_eq!(word, expected, "token {t} column {r} is no output");
                    continue;
                }
                let got = f64::from(f32::from_bits(word));
                let (expected, magnitude) = match self.kind.form {
                    Form::Store | Form::Logits => self.sum(t, r),
                    Form::Add => {
                        let (sum, magnitude) = self.sum(t, r);
                        let before = f64::from(self.before[at]);
                        (sum + before, magnitude + before.abs())
                    }
                    Form::SwiGlu => {
                        let (gate, gate_magnitude) = self.sum(t, 2 * r);
                        let (up, up_magnitude) = self.sum(t, 2 * r + 1);
                        let silu = gate / (1.0 + (-gate).exp());
                        // The slope of silu is at most 1.1.
                        (
                            silu * up,
                            1.1 * gate_magnitude * (up.abs() + bound * up_magnitude)
                                + silu.abs() * up_magnitude,
                        )
                    }
                };
                let off = (got - expected).abs() / (magnitude + 1e-30);
                worst = worst.max(off);
                assert!(off <= bound, "token {t} column {r}: {got} for {expected}, {off:e}");
            }
        }
        println!("worst {worst:e}");
    }
}

fn kind(path: Path, form: Form, q8: bool) -> Kind {
    Kind { path, form, q8, factor: path.half() }
}

#[test]
fn awkward_shapes() {
    let Some(mut gpu) = check::gpu() else { return };
    // Rows, K, class, tokens: around tiles of 64 and 128 rows, of 32, 64 and 128 tokens, of 32 columns.
    let shapes = [
        (1, 32, 32, 1),
        (63, 64, 32, 31),
        (65, 96, 64, 33),
        (64, 256, 64, 63),
        (130, 160, 128, 65),
        (127, 512, 128, 127),
        (257, 256, 512, 129),
        (34, 1024, 32, 32),
        (20, 4096, 32, 3),
    ];
    for path in Path::all(gpu.device().caps()) {
        for (seed, (rows, k, class, tokens)) in (1..).zip(shapes) {
            let shape = Shape { rows, k, tokens: class };
            let q8 = seed % 3 != 0;
            for form in [Form::Store, Form::Add] {
                let problem = Problem::draw(seed, shape, tokens, kind(path, form, q8));
                problem.check(&problem.run(&mut gpu, None));
            }
        }
    }
}

#[test]
fn pairs_of_rows_become_swiglu() {
    let Some(mut gpu) = check::gpu() else { return };
    for path in Path::all(gpu.device().caps()) {
        for (seed, (rows, k, class, tokens)) in
            (20..).zip([(2, 32, 32, 1), (62, 64, 32, 31), (66, 256, 64, 33), (1024, 256, 128, 70)])
        {
            let shape = Shape { rows, k, tokens: class };
            let mut problem =
                Problem::draw(seed, shape, tokens, kind(path, Form::SwiGlu, seed % 2 == 0));
            for v in &mut problem.factor {
                *v *= 0.25;
            }
            problem.check(&problem.run(&mut gpu, None));
        }
    }
}

#[test]
fn logits_are_of_the_stream_times_the_norm() {
    let Some(mut gpu) = check::gpu() else { return };
    let shapes = [(16, 256, 32, 31), (256, 512, 64, 33), (5, 32, 32, 2)];
    for path in Path::all(gpu.device().caps()) {
        for (seed, (rows, k, class, tokens)) in (30..).zip(shapes) {
            let shape = Shape { rows, k, tokens: class };
            let kind = Kind { factor: false, ..kind(path, Form::Logits, seed % 2 == 0) };
            if path != Path::Pk16 {
                let problem = Problem::draw(seed, shape, tokens, kind);
                problem.check(&problem.run(&mut gpu, None));
            }
        }
    }
}

/// An f32 caller may fold a factor in.
#[test]
fn factors_work_without_halves() {
    let Some(mut gpu) = check::gpu() else { return };
    let shape = Shape { rows: 40, k: 64, tokens: 64 };
    let kind = Kind { factor: true, ..kind(Path::F32, Form::Add, true) };
    let problem = Problem::draw(40, shape, 50, kind);
    problem.check(&problem.run(&mut gpu, None));
}

/// The bits of a sum depend on the path and on K: not on the tile, other rows or tokens, or the run.
#[test]
fn every_tile_gives_the_same_bits() {
    let Some(mut gpu) = check::gpu() else { return };
    for path in Path::all(gpu.device().caps()) {
        let shape = Shape { rows: 90, k: 256, tokens: 64 };
        let problem = Problem::draw(51, shape, 45, kind(path, Form::Store, true));
        let first = problem.run(&mut gpu, None);
        problem.check(&first);
        assert!(problem.run(&mut gpu, None) == first, "{path:?}: a second run");
        let caps = gpu.device().caps().clone();
        let tiles = if path == Path::Matrix {
            vec![
                Tile::matrix(&caps, [2, 1], [16, 32], 16),
                Tile::matrix(&caps, [1, 2], [64, 16], 16),
                Tile { parts: 2, ..Tile::matrix(&caps, [2, 2], [32, 32], 32) },
                Tile { bk: 64, ..Tile::matrix(&caps, [2, 1], [32, 32], 32) },
            ]
        } else {
            vec![
                Tile::micro(64, 32, 2, 1),
                Tile::micro(32, 64, 8, 2),
                Tile { parts: 2, ..Tile::micro(64, 16, 2, 1) },
            ]
        };
        for tile in tiles {
            assert!(problem.run(&mut gpu, Some(tile)) == first, "{path:?}: {tile:?}");
        }
        let few = Problem { tokens: 7, ..problem };
        let out = few.run(&mut gpu, None);
        assert_eq!(out[..7 * few.stride as usize], first[..7 * few.stride as usize], "{path:?}");
    }
}

#[test]
fn idle_chunks_write_nothing() {
    let Some(mut gpu) = check::gpu() else { return };
    let shape = Shape { rows: 8, k: 32, tokens: 32 };
    let problem = Problem::draw(60, shape, 0, kind(Path::F32, Form::Store, true));
    problem.check(&problem.run(&mut gpu, None));
}

#[test]
fn exponents_bring_weights_below_one() {
    for (largest, e) in [(1.0, -1), (0.75, 0), (0.5, 0), (0.49, 1), (3.0, -2), (0.0, 0)] {
        assert_eq!(exponent(largest), e, "{largest}");
    }
    assert_eq!((power_of_two(3), power_of_two(-2), power_of_two(0)), (8.0, 0.25, 1.0));
    assert_eq!(exponent(f32::INFINITY), 0);
}

#[test]
fn tiles_fit_devices() {
    let caps = lavapipe().with(Ability::Float16);
    let mut wide = caps.clone().with(Ability::Matrix);
    (wide.subgroups.min, wide.subgroups.max, wide.limits.shared_bytes) = (32, 32, 48 << 10);
    for (path, caps) in [(Path::F32, &caps), (Path::Pk16, &caps), (Path::Matrix, &wide)] {
        for tokens in [1, 32, 33, 64, 65, 2048] {
            let tile = select(path, Shape { rows: 64, k: 2048, tokens }, caps);
            assert_eq!(tile.check(path, 2048, 0, caps), Ok(()));
            assert!(tile.workgroup <= 256, "{tile:?}");
            assert!(tile.check(path, 2040, 0, caps).is_err());
        }
    }
    assert_eq!(Path::choose(Mode::Fast, &lavapipe()), Path::F32);
    assert_eq!(Path::choose(Mode::Fast, &caps), Path::Pk16);
    assert_eq!(Path::choose(Mode::Fast, &wide), Path::Matrix);
    assert_eq!(Path::choose(Mode::Exact, &wide), Path::F32);
}
