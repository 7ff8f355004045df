//! How long the expert products of the published model take on this device, cut in several ways.

use super::*;
use crate::kernels::check::Draw;
use crate::kernels::control::Row;
use crate::kernels::expert::samples::choices;
use crate::kernels::mode::Mode;
use crate::kernels::moe_gu::table;
use crate::kernels::moe_plan::{BLOCK, MoePlan, PlanBytes, PlanOperands, RowTiles};
use crate::kernels::timing::Bench;
use crate::vulkan::Caps;

/// A chunk with a plan on the device.
struct Chunk {
    setup: Setup,
    ids: Vec<u32>,
}

impl Chunk {
    /// Every expert equally likely.
    fn draw(setup: Setup) -> Self {
        let tokens = setup.tokens as usize;
        Self { setup, ids: choices(&mut Draw::new(1), &setup.sizes, tokens) }
    }

    /// Runs the plan; its buffers hold data from then on.
    fn plan(&self, bench: &mut Bench, bn: u32, tiles: RowTiles) -> PlanSlices {
        let Setup { sizes, tokens, .. } = self.setup;
        let bytes = PlanBytes::new(&sizes, tokens, bn);
        let experts = sizes.experts as usize;
        let mut counts = vec![0_u32; usize::try_from(bytes.counts / 4).unwrap()];
        for (block, ids) in self.ids.chunks((BLOCK * sizes.used) as usize).enumerate() {
            for &id in ids {
                counts[block * experts + id as usize] += 1;
            }
        }
        let plan = PlanSlices {
            counts: bench.input(&counts),
            grids: bench.filled(bytes.grids),
            tiles: bench.filled(bytes.tiles),
            slots: bench.filled(bytes.slots),
        };
        let control = bench.input(&[Row { tokens, ..Row::default() }]);
        let ids = bench.input(&self.ids);
        let mut graph = Graph::new("plan");
        for slice in [&plan.counts, &control, &ids] {
            graph.input(slice);
        }
        graph.level();
        let kernel = MoePlan::new(bench.device(), &sizes, bn).unwrap();
        let io = PlanOperands { control, ids, plan: plan.clone() };
        kernel.record(&mut graph, "plan", tokens, tiles, io);
        bench.run(graph);
        plan
    }

    fn gate_up(&self, bench: &mut Bench, tile: ExpertTile) -> Result<f64, Error> {
        let Setup { sizes, format, path, tokens } = self.setup;
        let device = Arc::clone(bench.device());
        let kernel = GateUp::with_tile(&device, self.setup, tile)?;
        let row_tiles = RowTiles { first: kernel.row_tiles(), second: 1 };
        let plan = self.plan(bench, kernel.tile_slots(), row_tiles);
        let (slots, tokens) = (self.setup.slots(), u64::from(tokens));
        let bytes = self.setup.matrix_bytes(sizes.expert_ffn, sizes.hidden);
        let io = |bench: &mut Bench| GateUpOperands {
            gate: bench.filled(bytes),
            up: bench.filled(bytes),
            table: table(format).map(|t| bench.input(t)),
            exponent: 0,
            x: bench.filled(tokens * u64::from(sizes.hidden) * path.bytes()),
            factor: path.half().then(|| bench.filled(tokens * 4)),
            route: bench.filled(slots * 4),
            plan: plan.clone(),
            mid: bench.filled(slots * u64::from(sizes.expert_ffn) * path.bytes()),
            mid_factor: path.half().then(|| bench.filled(kernel.mid_factor_bytes())),
        };
        // Two sets of weights, more than caches hold.
        let sets = [io(bench), io(bench)];
        let nodes = if bench.is_gpu() { 6 } else { 1 };
        let mut graph = Graph::new("timing");
        for io in &sets {
            let held = [&io.gate, &io.up, &io.x, &io.route, &plan.tiles, &plan.slots, &plan.grids];
            held.into_iter().chain(&io.table).chain(&io.factor).for_each(|s| graph.input(s));
        }
        for i in 0..nodes {
            let io = &sets[i as usize % 2];
            let io = GateUpOperands {
                gate: io.gate.clone(),
                up: io.up.clone(),
                table: io.table.clone(),
                exponent: 0,
                x: io.x.clone(),
                factor: io.factor.clone(),
                route: io.route.clone(),
                plan: plan.clone(),
                mid: io.mid.clone(),
                mid_factor: io.mid_factor.clone(),
            };
            graph.level();
            kernel.record(&mut graph, "timed", io);
        }
        Ok(bench.time(graph, nodes))
    }

    fn down(&self, bench: &mut Bench, tile: ExpertTile) -> Result<f64, Error> {
        let Setup { sizes, path, .. } = self.setup;
        let device = Arc::clone(bench.device());
        let mut first = Setup { format: TensorType::Q8_0, ..self.setup };
        first.sizes.hidden = 64;
        let of_64 = select(path, TensorType::Q8_0, 64, tile.tile.bn, device.caps());
        let fail = |why: String| Error::Pipeline { name: "down", why };
        let first = GateUp::with_tile(&device, first, of_64.map_err(fail)?)?;
        let kernel = Down::with_tile(&device, self.setup, &first, tile)?;
        let row_tiles = RowTiles { first: 1, second: kernel.row_tiles() };
        let plan = self.plan(bench, tile.tile.bn, row_tiles);
        let slots = self.setup.slots();
        let bytes = self.setup.matrix_bytes(sizes.hidden, sizes.expert_ffn);
        let weights = [bench.filled(bytes), bench.filled(bytes)];
        let mid = bench.filled(slots * u64::from(sizes.expert_ffn) * path.bytes());
        let mid_factor = path.half().then(|| bench.filled(first.mid_factor_bytes()));
        let down = bench.filled(slots * u64::from(sizes.hidden) * path.bytes());
        let nodes = if bench.is_gpu() { 6 } else { 1 };
        let mut graph = Graph::new("timing");
        let held = [&weights[0], &weights[1], &mid, &plan.tiles, &plan.slots, &plan.grids];
        held.into_iter().chain(&mid_factor).for_each(|slice| graph.input(slice));
        for i in 0..nodes {
            let io = DownOperands {
                weights: weights[i as usize % 2].clone(),
                exponent: 0,
                mid: mid.clone(),
                mid_factor: mid_factor.clone(),
                plan: plan.clone(),
                down: down.clone(),
            };
            graph.level();
            kernel.record(&mut graph, "timed", io);
        }
        Ok(bench.time(graph, nodes))
    }

    fn report(&self, bench: &mut Bench, second: bool, tile: ExpertTile) {
        let Setup { sizes, format, path, tokens } = self.setup;
        let result = if second { self.down(bench, tile) } else { self.gate_up(bench, tile) };
        let what = if second { "down" } else { "gate, up" };
        let head = format!("{what} {} x{tokens} {path:?}", format.name());
        match result {
            Ok(us) => {
                let products = if second { 1.0 } else { 2.0 };
                let work = f64::from(sizes.hidden) * f64::from(sizes.expert_ffn) * 2.0 * products;
                let tflops = work * self.setup.slots() as f64 / us / 1e6;
                println!("{head}: {us:8.1} us {tflops:6.1} TFLOP/s {tile:?}");
            }
            Err(e) => println!("{head}: {e} {tile:?}"),
        }
    }
}

/// Tiles worth comparing: subgroups, what each holds, together, columns of a step, parts, slabs.
fn matrix_tiles(caps: &Caps) -> Vec<ExpertTile> {
    let cuts = [
        ([4, 1], [32, 128], 32),
        ([4, 1], [32, 128], 16),
        ([4, 1], [32, 128], 64),
        ([4, 1], [32, 64], 32),
        ([4, 1], [32, 64], 16),
        ([4, 1], [32, 96], 32),
        ([2, 2], [64, 64], 32),
        ([2, 2], [64, 32], 32),
        ([4, 2], [32, 64], 32),
        ([4, 2], [32, 32], 32),
        ([8, 1], [32, 64], 32),
        ([2, 1], [32, 128], 32),
        ([2, 1], [64, 64], 32),
    ];
    let mut tiles = Vec::new();
    for (subgroups, [wm, wn], group) in cuts {
        for (bk, parts, raw_parts) in [(32, 1, 2), (32, 1, 1), (64, 1, 2), (64, 1, 1), (32, 2, 1)] {
            let tile = Tile::matrix(caps, subgroups, [wm, wn], group);
            tiles.push(ExpertTile { tile: Tile { bk, parts, ..tile }, raw_parts });
        }
    }
    tiles
}

#[test]
fn the_published_experts_are_timed() {
    let Some(mut bench) = Bench::open() else { return };
    let caps = bench.device().caps().clone();
    let path = Path::choose(Mode::Fast, &caps);
    let mut sizes = Sizes { hidden: 2048, experts: 256, used: 8, expert_ffn: 512, shared_ffn: 512 };
    let mut classes = vec![2048, 512, 128, 32];
    if !bench.is_gpu() {
        (sizes.hidden, sizes.experts, sizes.expert_ffn) = (256, 8, 256);
        classes = vec![1];
    }
    let (iq2, q2) = (TensorType::IQ2_XXS, TensorType::Q2_K);
    let formats = [(iq2, false), (q2, true), (TensorType::Q4_K, false), (TensorType::Q4_K, true)];
    for (format, second) in formats {
        for &tokens in &classes {
            let chunk = Chunk::draw(Setup { sizes, format, tokens, path });
            let k = if second { sizes.expert_ffn } else { sizes.hidden };
            let tile = select(path, format, k, tile_slots(path, &sizes, tokens), &caps).unwrap();
            chunk.report(&mut bench, second, tile);
        }
    }
    if path != Path::Matrix {
        return;
    }
    for (format, second) in [(iq2, false), (q2, true)] {
        for tokens in [2048, 512] {
            let chunk = Chunk::draw(Setup { sizes, format, tokens, path });
            for tile in matrix_tiles(&caps) {
                chunk.report(&mut bench, second, tile);
            }
        }
    }
}
