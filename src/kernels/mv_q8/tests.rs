//! Tests of the `Q8_0` mat-vec: against f64, over awkward shapes and every form of the same sum.

use super::*;
use crate::kernels::check::{self, Draw, Gpu};
use crate::quant::dequantize;
use crate::vulkan::{Ability, lavapipe};

/// f32 products and sums: at most K/SG + 16 + log2(SG) roundings of 6e-8 stand between a product and
/// the result, all relative to the sum of the magnitudes; measured errors are a tenth of this.
const BOUND: f64 = 1e-5;

/// Random blocks in the file's layout. Every bit pattern of the codes is valid; scales are finite and
/// include zero, subnormal and large ones.
fn blocks(draw: &mut Draw, count: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count * 34);
    for _ in 0..count {
        let scale = match draw.below(20) {
            0 => half::f16::ZERO,
            1 => half::f16::from_bits(3),
            2 => half::f16::from_f32(-900.0),
            3 => half::f16::MAX,
            _ => half::f16::from_f32(draw.normal() * 0.01),
        };
        bytes.extend(scale.to_le_bytes());
        bytes.extend((0..32).map(|_| u8::try_from(draw.below(256)).unwrap()));
    }
    bytes
}

/// Result and sum of magnitudes of each row: exactly decoded weights, products and sums in f64.
fn reference(blocks: &[u8], x: &[f64]) -> Vec<(f64, f64)> {
    let mut weights = vec![0.0; x.len()];
    let mut row = |bytes: &[u8]| {
        dequantize(TensorType::Q8_0, bytes, &mut weights);
        weights.iter().zip(x).fold((0.0, 0.0), |(sum, magnitude), (&w, x)| {
            let product = f64::from(w) * x;
            (sum + product, magnitude + product.abs())
        })
    };
    blocks.chunks(x.len() / 32 * 34).map(&mut row).collect()
}

/// One problem on the device.
struct Problem {
    rows: u32,
    k: u32,
    blocks: Vec<u8>,
    x: Vec<f32>,
    /// Norm weight and partial sums of squares.
    norm: Option<(Vec<f32>, Vec<f32>)>,
}

const EPS: f32 = 1e-6;

impl Problem {
    fn draw(seed: u64, rows: u32, k: u32) -> Self {
        println!("seed {seed}: {rows}x{k}");
        let mut draw = Draw::new(seed);
        let blocks = blocks(&mut draw, (rows * k / 32) as usize);
        Self { rows, k, blocks, x: draw.activations(k as usize), norm: None }
    }

    /// With a norm whose sum of squares comes in `parts`.
    fn normed(mut self, parts: usize) -> Self {
        let mut draw = Draw::new(u64::from(self.k));
        let per_part = self.x.len().div_ceil(parts);
        let mut squares: Vec<f32> =
            self.x.chunks(per_part).map(|c| c.iter().map(|v| v * v).sum()).collect();
        squares.resize(parts, 0.0);
        self.norm = Some((draw.normals(self.x.len()), squares));
        self
    }

    fn run(&self, gpu: &mut Gpu, constants: Constants) -> Vec<f32> {
        let count = self.blocks.len() / 34;
        let (mut codes, mut scales) = (vec![0; count * 32], vec![0; count * 2]);
        repack(&self.blocks, &mut codes, &mut scales);
        let codes = gpu.input("codes", &codes);
        let scales = gpu.input("scales", &scales);
        let x = gpu.input("x", &self.x);
        let y = gpu.output("y", self.rows as usize * 4);
        let mut graph = Graph::new("mv_q8");
        let mut form = &PLAIN;
        let norm = self.norm.as_ref().map(|(weight, squares)| {
            form = &NORM;
            let (squares, weight) = (gpu.input("squares", squares), gpu.input("weight", weight));
            Norm { squares, weight, eps: EPS }
        });
        for slice in [&codes, &scales, &x] {
            graph.input(slice);
        }
        for slice in norm.iter().flat_map(|n| [&n.squares, &n.weight]) {
            graph.input(slice);
        }
        graph.level();
        let device = Arc::clone(gpu.device());
        let kernel = MvQ8::with(&device, form, self.rows, constants).unwrap();
        let io = Operands { matrix: Planes { codes, scales }, x, y: y.slice(), norm };
        kernel.record(&mut graph, "mv_q8", io, device.caps());
        gpu.run(graph);
        gpu.read(&y)
    }

    fn expected(&self) -> Vec<(f64, f64)> {
        let mut x: Vec<f64> = self.x.iter().map(|&v| f64::from(v)).collect();
        if let Some((weight, squares)) = &self.norm {
            let sum: f64 = squares.iter().map(|&v| f64::from(v)).sum();
            let scale = 1.0 / (sum / f64::from(self.k) + f64::from(EPS)).sqrt();
            for (x, w) in x.iter_mut().zip(weight) {
                *x *= scale * f64::from(*w);
            }
        }
        reference(&self.blocks, &x)
    }

    fn check(&self, y: &[f32]) {
        let expected = self.expected();
        let (mut error, mut power) = (0.0, 0.0);
        for (row, (&y, (e, magnitude))) in y.iter().zip(&expected).enumerate() {
            let off = (f64::from(y) - e).abs();
            assert!(
                off <= BOUND * magnitude + 1e-37,
                "row {row} of {}x{}: {y} for {e}",
                self.rows,
                self.k
            );
            error += off * off;
            power += e * e;
        }
        // Independent roundings: far below the bound of a single row.
        assert!(error <= 1e-11 * power, "nmse {}", error / power);
    }
}

#[test]
fn awkward_shapes() {
    let Some(mut gpu) = check::gpu() else { return };
    let caps = gpu.device().caps().clone();
    // Below, at and above: a chunk for each lane, a subgroup's rows, a workgroup's rows.
    let shapes = [
        (1, 32),
        (3, 32),
        (2, 96),
        (5, 128),
        (15, 160),
        (16, 256),
        (17, 256),
        (31, 480),
        (33, 512),
        (63, 544),
        (64, 1024),
        (65, 1056),
        (127, 64),
        (1, 2048),
        (257, 2048),
        (1, 4096),
        (9, 7680),
    ];
    for (seed, (rows, k)) in (1..).zip(shapes) {
        let problem = Problem::draw(seed, rows, k);
        let constants = select(rows, k, &caps).unwrap();
        problem.check(&problem.run(&mut gpu, constants));
        let parts = [1, 3, 128, 256, 300][usize::try_from(seed).unwrap() % 5];
        let problem = problem.normed(parts);
        problem.check(&problem.run(&mut gpu, constants));
    }
}

#[test]
fn real_shapes() {
    let Some(mut gpu) = check::gpu() else { return };
    let caps = gpu.device().caps().clone();
    // Recurrent input and output, attention input, shared expert (gate, down), alpha; a slab of the head.
    let shapes =
        [(12_352, 2048), (2048, 4096), (512, 2048), (2048, 512), (32, 2048), (20_000, 256)];
    for (seed, (rows, k)) in (100..).zip(shapes) {
        let problem = Problem::draw(seed, rows, k);
        problem.check(&problem.run(&mut gpu, select(rows, k, &caps).unwrap()));
    }
}

/// A row's bits depend on the row and x alone: not on rows at a time, passes, where x is kept, or the
/// rows beside it.
#[test]
fn every_form_gives_the_same_bits() {
    let Some(mut gpu) = check::gpu() else { return };
    let caps = gpu.device().caps().clone();
    for (k, in_regs) in [(544, false), (224, true)] {
        let problem = Problem::draw(7, 45, k).normed(5);
        let chosen = select(45, k, &caps).unwrap();
        let first = problem.run(&mut gpu, chosen);
        problem.check(&first);
        for (r, t, x_in_regs) in [(1, 1, 0), (1, 3, 1), (2, 1, 1), (3, 2, 0), (4, 4, 1), (8, 1, 0)]
        {
            let x_in_regs = u32::from(in_regs) * x_in_regs;
            let y = problem.run(&mut gpu, Constants { r, t, x_in_regs, ..chosen });
            assert!(y == first, "K {k}, R {r}, T {t}, x in registers {x_in_regs}");
        }
        let row_bytes = k as usize / 32 * 34;
        let alone = Problem { rows: 1, blocks: problem.blocks[..row_bytes].to_vec(), ..problem };
        assert_eq!(alone.run(&mut gpu, chosen)[0].to_bits(), first[0].to_bits());
    }
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
        caps
    };
    // A BC-250: 64 rows for each workgroup where that makes enough of them; x in registers up to 2048.
    let bc250 = wide(64, 40);
    let c = select(12_352, 2048, &bc250).unwrap();
    assert_eq!((c.workgroup, c.sg, c.r, c.t, c.x_in_regs), (256, 64, 4, 4, 1));
    assert_eq!(grid(12_352_u32.div_ceil(c.group_rows()), &bc250), [193, 1, 1]);
    let c = select(2048, 4096, &bc250).unwrap();
    assert_eq!((c.r, c.t, c.x_in_regs), (4, 1, 0));
    // A wide card with subgroups of 32 gets more, smaller workgroups.
    let c = select(2048, 2048, &wide(32, 132)).unwrap();
    assert_eq!((c.workgroup, c.r, c.t, c.x_in_regs), (128, 1, 1, 0));
    // Without a choice of subgroup size: the driver's.
    let fixed = lavapipe().without(&[Ability::SubgroupSize]);
    assert_eq!(select(64, 256, &fixed).unwrap().sg, 8);
    for (rows, k) in [(0, 32), (1, 0), (1, 48), (1, 8192)] {
        assert!(select(rows, k, &lavapipe()).is_err(), "{rows}x{k}");
    }
    // The head: more workgroups than one dimension holds.
    let mut narrow = lavapipe();
    narrow.limits.grid[0] = 1000;
    assert_eq!(grid(3880, &narrow), [970, 4, 1]);
    assert_eq!(grid(1000, &narrow), [1000, 1, 1]);
}
