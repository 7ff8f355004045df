//! Tests of the expert products: against f64, over formats, paths, sizes and distributions of slots.

use super::*;
use crate::kernels::check::{self, Draw, Gpu};
use crate::kernels::control::Row;
use crate::kernels::expert::samples::{blocks, choices, decoded, dot};
use crate::kernels::gemm::exponent;
use crate::kernels::moe_gu::table;
use crate::kernels::moe_plan::tests::Planned;
use crate::kernels::moe_plan::{MoePlan, PlanOperands, RowTiles};
use crate::vulkan::{Ability, Caps, lavapipe};
use half::f16;

/// Against the sum of magnitudes, as for the dense products, but weights of formats with minimums have mostly one
/// sign within a group: where the driver rounds towards zero, chains of packed f16 come out smaller by half of the
/// worst case of 16 roundings of 1e-3.
fn bound(path: Path) -> f64 {
    match path {
        Path::F32 => 1e-5,
        Path::Pk16 => 1e-2,
        // A rounded scale and a rounded weight; sums are f32.
        Path::Matrix => 3e-3,
    }
}

/// Values as a path stores them: rounded to f16 with a power of two for each run, or as they are.
struct Stored {
    values: Vec<f32>,
    factors: Vec<f32>,
    run: usize,
}

impl Stored {
    fn new(path: Path, mut values: Vec<f32>, run: usize) -> Self {
        let mut factors = vec![1.0; values.len().div_ceil(run)];
        if path.half() {
            for (run, factor) in values.chunks_mut(run).zip(&mut factors) {
                let most = run.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
                // The exponent of a normal number.
                let exponent = (most.max(1e-12).to_bits() >> 23).cast_signed() - 127;
                *factor = 2.0_f32.powi(exponent - 7);
                for v in run.iter_mut() {
                    *v = f16::from_f32(*v / *factor).to_f32();
                }
            }
        }
        Self { values, factors, run }
    }

    /// Uploads; rows past the end are NaN.
    fn upload(&self, gpu: &mut Gpu, path: Path, len: usize) -> Slice {
        let mut values = self.values.clone();
        values.resize(len, f32::NAN);
        if path.half() {
            let halves: Vec<u16> = values.iter().map(|&v| f16::from_f32(v).to_bits()).collect();
            gpu.input("rows", &halves)
        } else {
            gpu.input("rows", &values)
        }
    }

    fn upload_factors(&self, gpu: &mut Gpu, len: usize) -> Slice {
        let mut factors = self.factors.clone();
        factors.resize(len, f32::NAN);
        gpu.input("factors", &factors)
    }

    /// What a row stands for.
    fn row(&self, row: usize, width: usize) -> Vec<f64> {
        (row * width..(row + 1) * width)
            .map(|i| f64::from(self.values[i]) * f64::from(self.factors[i / self.run]))
            .collect()
    }
}

/// f32 or f16 values of an output, NaN where nothing was written.
fn floats(path: Path, words: &[u32]) -> Vec<f32> {
    if path.half() {
        let halves: &[u16] = bytemuck::cast_slice(words);
        halves.iter().map(|&h| f16::from_bits(h).to_f32()).collect()
    } else {
        words.iter().map(|&w| f32::from_bits(w)).collect()
    }
}

struct Problem {
    setup: Setup,
    tokens: usize,
    ids: Vec<u32>,
    matrices: [Vec<u8>; 2],
    /// Largest weight.
    largest: f32,
    x: Stored,
    route: Vec<f32>,
}

/// The outputs and the factors.
type Outputs = (Vec<u32>, Vec<f32>);

impl Problem {
    /// `second` is for a down projection: then x is mid.
    fn draw(seed: u64, setup: Setup, ids: Vec<u32>, second: bool) -> Self {
        let Setup { sizes, format, path, .. } = setup;
        let tokens = ids.len() / sizes.used as usize;
        println!("seed {seed}: {path:?} {} {sizes:?}, {tokens} tokens", format.name());
        let mut draw = Draw::new(seed);
        let (hidden, ffn) = (sizes.hidden as usize, sizes.expert_ffn as usize);
        let count = sizes.experts as usize * hidden * ffn / format.block_len();
        let matrices = if second {
            [blocks(&mut draw, format, count), Vec::new()]
        } else {
            [blocks(&mut draw, format, count), blocks(&mut draw, format, count)]
        };
        let x = if second {
            Stored::new(path, draw.activations(ids.len() * ffn), 64)
        } else {
            Stored::new(path, draw.activations(tokens * hidden), hidden)
        };
        let route = (0..ids.len()).map(|_| draw.normal().abs() / 4.0).collect();
        let weights = matrices.iter().flat_map(|m| decoded(format, m));
        let largest = weights.fold(0.0_f32, |m, w| m.max(w.abs()));
        Self { setup, tokens, ids, matrices, largest, x, route }
    }

    fn plan(&self, gpu: &mut Gpu, graph: &mut Graph, bn: u32, row_tiles: RowTiles) -> PlanSlices {
        let Setup { sizes, tokens: class, .. } = self.setup;
        let planned = Planned::new(gpu, &sizes, class, bn, &self.ids);
        let tokens = u32::try_from(self.tokens).unwrap();
        let control = gpu.input("control", &[Row { tokens, ..Row::default() }]);
        let mut ids = self.ids.clone();
        ids.resize((class * sizes.used) as usize, 0);
        let ids = gpu.input("ids", &ids);
        for slice in [&control, &ids, &planned.slices.counts] {
            graph.input(slice);
        }
        graph.level();
        let plan = planned.slices.clone();
        let kernel = MoePlan::new(gpu.device(), &sizes, bn).unwrap();
        let io = PlanOperands { control, ids, plan: plan.clone() };
        kernel.record(graph, "plan", class, row_tiles, io);
        plan
    }

    /// What the smallest numbers of f16 cost a sum with these activations, where the driver takes those below 2^-14
    /// for zero: weights relative to the largest of the tensor, and products.
    fn least(&self, row: usize, width: usize) -> f64 {
        if !self.setup.path.half() {
            return 0.0;
        }
        let stored = row * width..(row + 1) * width;
        let sum: f64 = stored
            .map(|i| {
                (f64::from(self.x.values[i]).abs() + 1.0)
                    * f64::from(self.x.factors[i / self.x.run])
            })
            .sum();
        // The exponent brings the largest weight to between 1/2 and 1.
        sum * f64::from(self.largest) * 2.0_f64.powi(-13)
    }

    fn gate_up(&self, gpu: &mut Gpu, tile: Option<ExpertTile>) -> (Outputs, u32) {
        let Setup { sizes, format, path, tokens: class } = self.setup;
        let device = Arc::clone(gpu.device());
        let kernel = match tile {
            Some(tile) => GateUp::with_tile(&device, self.setup, tile),
            None => GateUp::new(&device, self.setup),
        }
        .unwrap();
        let mut graph = Graph::new("gate_up");
        let row_tiles = RowTiles { first: kernel.row_tiles(), second: 1 };
        let plan = self.plan(gpu, &mut graph, kernel.tile_slots(), row_tiles);
        let (class, used) = (class as usize, sizes.used as usize);
        let mid_values = class * used * sizes.expert_ffn as usize;
        let mid = gpu.output("mid", mid_values * usize::try_from(path.bytes()).unwrap());
        let factors = usize::try_from(kernel.mid_factor_bytes()).unwrap();
        let mid_factor = gpu.output("mid_factor", factors);
        let mut route = self.route.clone();
        route.resize(class * used, f32::NAN);
        let io = GateUpOperands {
            gate: gpu.input("gate", &self.matrices[0]),
            up: gpu.input("up", &self.matrices[1]),
            table: table(format).map(|t| gpu.input("table", t)),
            exponent: exponent(self.largest),
            x: self.x.upload(gpu, path, class * sizes.hidden as usize),
            factor: path.half().then(|| self.x.upload_factors(gpu, class)),
            route: gpu.input("route", &route),
            plan,
            mid: mid.slice(),
            mid_factor: path.half().then(|| mid_factor.slice()),
        };
        for slice in [&io.gate, &io.up, &io.x, &io.route].into_iter().chain(&io.table) {
            graph.input(slice);
        }
        io.factor.iter().for_each(|slice| graph.input(slice));
        graph.level();
        kernel.record(&mut graph, "gate_up", io);
        gpu.run(graph);
        let factors = gpu.words(&mid_factor).into_iter().map(f32::from_bits).collect();
        ((gpu.words(&mid), factors), kernel.factor_rows())
    }

    fn check_gate_up(&self, (words, factors): &Outputs, factor_rows: u32) {
        let Setup { sizes, format, path, .. } = self.setup;
        let (hidden, ffn) = (sizes.hidden as usize, sizes.expert_ffn as usize);
        let [gate, up] = self.matrices.each_ref().map(|m| decoded(format, m));
        let mid = floats(path, words);
        let tiles = ffn.div_ceil(factor_rows as usize);
        let bound = bound(path);
        let leasts: Vec<f64> = (0..self.tokens).map(|t| self.least(t, hidden)).collect();
        for (slot, (&id, &route)) in self.ids.iter().zip(&self.route).enumerate() {
            let token = slot / sizes.used as usize;
            let x = self.x.row(token, hidden);
            let least_sum = leasts[token] / bound;
            for i in 0..ffn {
                let at = (id as usize * ffn + i) * hidden;
                let (g, g_size) = dot(&gate[at..at + hidden], &x);
                let (u, u_size) = dot(&up[at..at + hidden], &x);
                let (g_size, u_size) = (g_size + least_sum, u_size + least_sum);
                let silu = g / (1.0 + (-g).exp());
                let expected = silu * u * f64::from(route);
                let off = f64::from(route)
                    * bound
                    * (1.1 * g_size * (u.abs() + bound * u_size) + silu.abs() * u_size);
                let (mut found, mut least) = (f64::from(mid[slot * ffn + i]), 1e-36);
                if path.half() {
                    let factor = factors[slot * tiles + i / factor_rows as usize];
                    assert_eq!(factor.to_bits() & 0x7f_ffff, 0, "{factor} is a power of two");
                    assert!(found.abs() <= 256.0, "slot {slot} row {i}: {found}");
                    found *= f64::from(factor);
                    // An f16 near zero.
                    least = f64::from(factor) * 6e-8;
                }
                let rounding = if path.half() { 1e-3 } else { 2e-6 };
                assert!(
                    (found - expected).abs() <= off + rounding * expected.abs() + least,
                    "slot {slot} row {i}: {found} for {expected}, allowed {off}"
                );
            }
        }
        self.check_rest(words, ffn);
    }

    /// Slots past the chunk are not written.
    fn check_rest(&self, words: &[u32], width: usize) {
        let end = self.ids.len() * width * usize::try_from(self.setup.path.bytes()).unwrap() / 4;
        assert!(words[end..].iter().all(|&w| w == Gpu::POISON), "written past the chunk");
    }

    fn down(&self, gpu: &mut Gpu, tile: Option<ExpertTile>) -> Vec<u32> {
        let Setup { sizes, path, tokens: class, .. } = self.setup;
        let device = Arc::clone(gpu.device());
        // Any kernel whose outputs share factors by 64.
        let first = Setup { format: TensorType::Q8_0, ..self.setup };
        let slots = tile_slots(path, &sizes, class);
        let tile_of_64 = of_64(path, device.caps(), slots, 4, 1);
        let first = GateUp::with_tile(&device, first, tile_of_64).unwrap();
        let kernel = match tile {
            Some(tile) => Down::with_tile(&device, self.setup, &first, tile),
            None => Down::new(&device, self.setup, &first),
        }
        .unwrap();
        let mut graph = Graph::new("down");
        let row_tiles = RowTiles { first: 1, second: kernel.row_tiles() };
        let plan = self.plan(gpu, &mut graph, first.tile_slots(), row_tiles);
        let (slots, ffn) = ((class * sizes.used) as usize, sizes.expert_ffn as usize);
        let bytes = slots * sizes.hidden as usize * usize::try_from(path.bytes()).unwrap();
        let down = gpu.output("down", bytes);
        let factors = slots * ffn.div_ceil(64);
        let io = DownOperands {
            weights: gpu.input("weights", &self.matrices[0]),
            exponent: exponent(self.largest),
            mid: self.x.upload(gpu, path, slots * ffn),
            mid_factor: path.half().then(|| self.x.upload_factors(gpu, factors)),
            plan,
            down: down.slice(),
        };
        for slice in [&io.weights, &io.mid].into_iter().chain(&io.mid_factor) {
            graph.input(slice);
        }
        graph.level();
        kernel.record(&mut graph, "down", io);
        gpu.run(graph);
        gpu.words(&down)
    }

    fn check_down(&self, words: &[u32]) {
        let Setup { sizes, format, path, .. } = self.setup;
        let (hidden, ffn) = (sizes.hidden as usize, sizes.expert_ffn as usize);
        let weights = decoded(format, &self.matrices[0]);
        let down = floats(path, words);
        let unit = if path.half() { 16.0 } else { 1.0 };
        for (slot, &id) in self.ids.iter().enumerate() {
            let (x, least) = (self.x.row(slot, ffn), self.least(slot, ffn));
            for i in 0..hidden {
                let (sum, size) = dot(&weights[(id as usize * hidden + i) * ffn..][..ffn], &x);
                let found = f64::from(down[slot * hidden + i]) * unit;
                let rounding = if path.half() { 1e-3 * sum.abs() + 1e-6 } else { 0.0 };
                let off = bound(path) * size + least + rounding + 1e-36;
                assert!(
                    (found - sum).abs() <= off,
                    "slot {slot} row {i}: {found} for {sum}, allowed {off}"
                );
            }
        }
        self.check_rest(words, hidden);
    }
}

fn setup(path: Path, format: TensorType, block: [u32; 4], class: u32) -> Setup {
    let [hidden, experts, used, expert_ffn] = block;
    let sizes = Sizes { hidden, experts, used, expert_ffn, shared_ffn: 64 };
    Setup { sizes, format, tokens: class, path }
}

#[test]
fn gate_and_up_of_all_formats() {
    let Some(mut gpu) = check::gpu() else { return };
    let formats = [
        TensorType::IQ2_XXS,
        TensorType::Q4_K,
        TensorType::Q8_0,
        TensorType::Q2_K,
        TensorType::Q5_K,
        TensorType::Q6_K,
    ];
    for path in Path::all(gpu.device().caps()) {
        for (seed, format) in (1..).zip(formats) {
            let setup = setup(path, format, [512, 6, 3, 96], 32);
            let ids = choices(&mut Draw::new(seed), &setup.sizes, 31);
            let problem = Problem::draw(seed, setup, ids, false);
            let (found, rows) = problem.gate_up(&mut gpu, None);
            problem.check_gate_up(&found, rows);
        }
    }
}

#[test]
fn down_of_all_formats() {
    let Some(mut gpu) = check::gpu() else { return };
    let formats =
        [TensorType::Q2_K, TensorType::Q4_K, TensorType::Q8_0, TensorType::Q5_K, TensorType::Q6_K];
    for path in Path::all(gpu.device().caps()) {
        for (seed, format) in (10..).zip(formats) {
            let setup = setup(path, format, [192, 6, 3, 512], 32);
            let ids = choices(&mut Draw::new(seed), &setup.sizes, 31);
            let problem = Problem::draw(seed, setup, ids, true);
            problem.check_down(&problem.down(&mut gpu, None));
        }
    }
}

/// Experts with no slot, one, a full tile, one more, all.
#[test]
fn any_distribution_of_slots() {
    let Some(mut gpu) = check::gpu() else { return };
    for path in Path::all(gpu.device().caps()) {
        for (seed, tokens) in (20..).zip([1, 16, 17, 33, 63, 64, 65, 129]) {
            let class = if tokens > 64 { 160 } else { 64 };
            let setup = setup(path, TensorType::IQ2_XXS, [256, 7, 2, 64], class);
            // All choose expert 3; the other place goes to 0 and, now and then, 6.
            let ids = (0..tokens).flat_map(|t| [3, if t % 16 == 5 { 6 } else { 0 }]).collect();
            let problem = Problem::draw(seed, setup, ids, false);
            let (found, rows) = problem.gate_up(&mut gpu, None);
            problem.check_gate_up(&found, rows);
            let setup = Setup { format: TensorType::Q2_K, ..setup };
            let sizes = Sizes { hidden: 64, expert_ffn: 256, ..setup.sizes };
            let second = Setup { sizes, ..setup };
            let problem = Problem::draw(seed, second, problem.ids, true);
            problem.check_down(&problem.down(&mut gpu, None));
        }
    }
}

/// A slot's bits depend on the path: not on the tile, the class, the other slots or the run.
#[test]
fn every_tile_gives_the_same_bits() {
    let Some(mut gpu) = check::gpu() else { return };
    for path in Path::all(gpu.device().caps()) {
        let setup = setup(path, TensorType::Q4_K, [256, 4, 2, 96], 32);
        let ids = choices(&mut Draw::new(40), &setup.sizes, 29);
        let problem = Problem::draw(40, setup, ids, false);
        let caps = gpu.device().caps().clone();
        let (first, _) = problem.gate_up(&mut gpu, Some(of_64(path, &caps, 32, 4, 1)));
        for (slots, wn, raw_parts) in [(32, 4, 1), (16, 2, 1), (16, 4, 1), (16, 4, 2)] {
            let tile = of_64(path, &caps, slots, wn, raw_parts);
            let (found, _) = problem.gate_up(&mut gpu, Some(tile));
            assert!(found.0 == first.0, "{path:?}: {tile:?}");
        }
        let tile = match path {
            Path::Matrix => Tile::matrix(&caps, [1, 2], [32, 16], 16),
            Path::F32 | Path::Pk16 => Tile::micro(32, 16, 4, 4),
        };
        let double = ExpertTile { tile: Tile { parts: 2, ..tile }, raw_parts: 2 };
        let (found, rows) = problem.gate_up(&mut gpu, Some(double));
        problem.check_gate_up(&found, rows);
        if path == Path::F32 {
            assert!(found.0 == first.0);
        }
    }
}

/// A tile of 64 outputs, with `wn` slots for each invocation where there are no matrices.
fn of_64(path: Path, caps: &Caps, slots: u32, wn: u32, raw_parts: u32) -> ExpertTile {
    let tile = match path {
        Path::F32 => Tile::micro(64, slots, wn, wn),
        Path::Pk16 => Tile::micro(128, slots, wn, wn),
        Path::Matrix => Tile::matrix(caps, [4, 1], [32, slots], slots.min(32)),
    };
    ExpertTile { tile, raw_parts }
}

#[test]
fn tiles_fit_devices() {
    let caps = lavapipe().with(Ability::Float16);
    let all = [
        TensorType::IQ2_XXS,
        TensorType::Q2_K,
        TensorType::Q4_K,
        TensorType::Q5_K,
        TensorType::Q6_K,
        TensorType::Q8_0,
    ];
    let mut wide = caps.clone().with(Ability::Matrix);
    (wide.subgroups.min, wide.subgroups.max, wide.limits.shared_bytes) = (32, 32, 48 << 10);
    for (path, caps) in [(Path::F32, &caps), (Path::Pk16, &caps), (Path::Matrix, &wide)] {
        for format in all {
            for slots in [16, 32, 64, 128] {
                if slots == 128 && path != Path::Matrix {
                    continue;
                }
                let tile = select(path, format, 2048, slots, caps).unwrap();
                assert!(tile.tile.bn == slots && tile.tile.workgroup <= 256, "{tile:?}");
                assert!(tile.holds_pairs(path, caps), "{tile:?}");
            }
        }
        assert!(select(path, TensorType::Q4_K, 128, 16, caps).is_err());
        assert!(select(path, TensorType::IQ2_S, 256, 16, caps).is_err());
    }
    let tile = select(Path::Matrix, TensorType::IQ2_XXS, 2048, 128, &wide).unwrap();
    assert_eq!((tile.tile.bm, tile.raw_parts), (128, 2), "decoded once, loaded ahead");
    let sizes = setup(Path::F32, TensorType::Q4_K, [2048, 256, 8, 512], 1).sizes;
    let slots = |path| [32, 256, 512, 1024, 2048].map(|tokens| tile_slots(path, &sizes, tokens));
    assert_eq!(slots(Path::Pk16), [16, 16, 32, 64, 64]);
    assert_eq!(slots(Path::Matrix), [16, 16, 64, 64, 128]);
}
