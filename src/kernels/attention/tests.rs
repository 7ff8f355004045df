//! Tests of decode attention: against `ops::attend` over decoded rows, over lengths around pages and spans, types,
//! heads, and batches.

use super::*;
use crate::kernels::check::{self, Draw, Gpu};
use crate::kernels::control::Row;
use crate::kernels::kv::{KvType, Side};
use crate::kernels::kv_check::{BOUND, Cache, Layer, close, pairs, shape};
use crate::vulkan::lavapipe;

/// The paths that the device has.
fn paths(gpu: &Gpu) -> Vec<Path> {
    let mut paths = vec![Path::F32];
    if gpu.device().caps().has(Ability::Matrix) {
        paths.push(Path::Matrix);
    }
    paths
}

/// The kernels. CPU drivers multiply 8x8x8 with subgroups of 8, which nobody wants but tests.
fn kernels(device: &Arc<Device>, shape: AttentionShape, splits: u32, path: Path) -> Attention {
    let caps = device.caps();
    if path == Path::Matrix && caps.subgroup_size(32) == 8 {
        let common = select(&shape, caps).unwrap();
        let constants = MatrixConstants { common, m: 8, keys: 32 };
        assert!(constants.shared_bytes() <= caps.limits.shared_bytes);
        return Attention::matrix(device, shape, splits, constants).unwrap();
    }
    Attention::new(device, shape, splits, path).unwrap()
}

/// The largest error. On matrix units queries, keys, values and weights are rounded to 11 bits: a score around 1 is off
/// by about 2^-11, and so are weights and values, which are below 6.
fn bound(path: Path) -> f32 {
    if path == Path::Matrix { 6e-3 } else { BOUND }
}

/// A batch on one cache.
struct Problem {
    layer: Layer,
    cache: Cache,
    rows: Vec<Row>,
    proj: Vec<f32>,
    stride: u32,
    y_stride: u32,
    splits: u32,
}

impl Problem {
    /// Rows at these positions, each with pages of its own, in reverse order and behind one that nobody owns.
    fn draw(seed: u64, shape: AttentionShape, positions: &[u32], splits: u32) -> Self {
        println!("seed {seed}: {shape:?} at {positions:?}");
        let mut draw = Draw::new(seed);
        let layer = Layer::draw(&mut draw, shape);
        let pages: u32 = 1 + positions.iter().map(|pos| pos / 64 + 1).sum::<u32>();
        let mut cache = Cache::poisoned(shape.kv, pages as usize);
        let mut page = pages;
        let rows = positions.iter().map(|&pos| {
            page -= pos / 64 + 1;
            cache.fill(&mut draw, page as usize, pos as usize);
            Row { pos, page, span: span(pos + 1, splits), ..Row::default() }
        });
        let rows: Vec<Row> = rows.collect();
        let stride = shape.projection_width() + 8;
        let proj = draw.normals(rows.len() * stride as usize);
        let y_stride = shape.query_width() + 4;
        Self { layer, cache, rows, proj, stride, y_stride, splits }
    }

    /// Outputs, [`Gpu::POISON`] where nothing was written, and the cache.
    fn run(&self, gpu: &mut Gpu, path: Path) -> (Vec<u32>, Cache) {
        let device = Arc::clone(gpu.device());
        let rows = u32::try_from(self.rows.len()).unwrap();
        let kernel = kernels(&device, self.layer.shape, self.splits, path);
        let mut graph = Graph::new("attention");
        let cache = self.cache.upload(gpu, &mut graph);
        let values = gpu.output("values", usize::try_from(kernel.values_bytes(rows)).unwrap());
        let stats = gpu.output("stats", usize::try_from(kernel.stats_bytes(rows)).unwrap());
        let y = gpu.output("y", rows as usize * self.y_stride as usize * 4);
        let io = AttentionIo {
            control: gpu.input("control", &self.rows),
            proj: gpu.input("proj", &self.proj),
            stride: self.stride,
            values: values.slice(),
            stats: stats.slice(),
        };
        let layout = self.layer.shape.kv;
        let planes = |side| layout.planes(side, &cache.slice(side), self.cache.pages);
        let split = SplitIo {
            keys: planes(Side::Keys),
            values: planes(Side::Values),
            rope: gpu.input("rope", &self.layer.table()),
            q_norm: gpu.input("q_norm", &self.layer.q_norm),
            k_norm: gpu.input("k_norm", &self.layer.k_norm),
        };
        for slice in [&io.control, &io.proj, &split.rope, &split.q_norm, &split.k_norm] {
            graph.input(slice);
        }
        graph.level();
        kernel.record_split(&mut graph, "split", (rows, 64), &io, split);
        graph.level();
        kernel.record_reduce(&mut graph, "reduce", rows, &io, (y.slice(), self.y_stride));
        gpu.run(graph);
        (gpu.words(&y), cache.download(gpu, &self.cache))
    }

    /// Runs, and compares with the reference; returns what it ran.
    fn check(&self, gpu: &mut Gpu, path: Path) -> Vec<u32> {
        let (y, cache) = self.run(gpu, path);
        let (stride, width) = (self.stride as usize, self.layer.shape.query_width() as usize);
        let mut expected_cache = self.cache.clone();
        for (r, row) in self.rows.iter().enumerate() {
            let words = &y[r * self.y_stride as usize..][..self.y_stride as usize];
            assert!(words[width..].iter().all(|&w| w == Gpu::POISON), "past row {r}");
            if row.flags & Row::IDLE != 0 {
                assert!(words.iter().all(|&w| w == Gpu::POISON), "idle row {r}");
                continue;
            }
            let (pos, page) = (row.pos as usize, row.page as usize);
            let heads = self.layer.heads(&self.proj[r * stride..][..stride], pos);
            self.layer.check_row(&heads, &cache, page, pos);
            for side in [Side::Keys, Side::Values] {
                expected_cache.put_row(side, page, pos, &cache.row(side, page, pos));
            }
            let got: Vec<f32> = words[..width].iter().map(|&w| f32::from_bits(w)).collect();
            let expected = self.layer.attend(&heads, &cache, page, pos);
            close(&got, &expected, bound(path), &format!("row {r} at {pos}"));
        }
        assert!(cache == expected_cache, "something but the new rows was stored");
        y
    }
}

#[test]
fn all_types_at_lengths_around_a_page() {
    let Some(mut gpu) = check::gpu() else { return };
    for (seed, types) in (1..).zip(pairs()) {
        let shape = shape(16, 2, 64, types);
        let problem = Problem::draw(seed, shape, &[0, 62, 63, 64, 126, 199, 300, 1], 4);
        for path in paths(&gpu) {
            problem.check(&mut gpu, path);
        }
    }
}

#[test]
fn other_numbers_of_heads() {
    let Some(mut gpu) = check::gpu() else { return };
    let types = [KvType::Q8_0, KvType::Q4_0];
    for (seed, (heads, kv_heads, dims)) in
        (20..).zip([(1, 1, 64), (2, 2, 2), (4, 2, 64), (3, 1, 256), (12, 3, 32), (32, 4, 64)])
    {
        let shape = shape(heads, kv_heads, dims, types);
        let problem = Problem::draw(seed, shape, &[70, 5], 3);
        for path in paths(&gpu) {
            if path == Path::F32 || dims % 64 == 0 {
                problem.check(&mut gpu, path);
            }
        }
    }
}

fn batch_is_its_rows(gpu: &mut Gpu, batch: &Problem, seed: u64, path: Path) {
    let together = batch.check(gpu, path);
    let width = batch.y_stride as usize;
    for (r, row) in batch.rows.clone().into_iter().enumerate() {
        let at = r * batch.stride as usize;
        let single = Problem {
            layer: Layer::draw(&mut Draw::new(seed), batch.layer.shape),
            cache: batch.cache.clone(),
            rows: vec![row],
            proj: batch.proj[at..at + batch.stride as usize].to_vec(),
            ..*batch
        };
        let (alone, _) = single.run(gpu, path);
        assert!(alone == together[r * width..][..width], "row {r}");
    }
    // The number of splits that there is room for does not matter either, only the span.
    let roomy = Problem {
        layer: Layer::draw(&mut Draw::new(seed), batch.layer.shape),
        cache: batch.cache.clone(),
        rows: batch.rows.clone(),
        proj: batch.proj.clone(),
        splits: 9,
        ..*batch
    };
    assert!(roomy.run(gpu, path).0 == together);
}

#[test]
fn a_batch_has_the_bits_of_its_rows_and_idle_rows_do_nothing() {
    let Some(mut gpu) = check::gpu() else { return };
    for (seed, types) in [(30, [KvType::Q8_0, KvType::Q4_0]), (31, [KvType::F16, KvType::F16])] {
        let positions = [130, 0, 700, 64, 255, 9, 63, 320];
        let mut batch = Problem::draw(seed, shape(16, 2, 64, types), &positions, 5);
        batch.rows[3].flags = Row::IDLE;
        batch.rows[5].flags = Row::IDLE;
        for path in paths(&gpu) {
            batch_is_its_rows(&mut gpu, &batch, seed, path);
        }
    }
}

#[test]
fn large_scores_and_values_stay_finite() {
    let Some(mut gpu) = check::gpu() else { return };
    for (types, path) in pairs()
        .flat_map(|types| paths(&gpu).into_iter().map(move |p| (types, p)))
        .collect::<Vec<_>>()
    {
        let mut problem = Problem::draw(40, shape(4, 2, 64, types), &[100, 3], 2);
        // Scores of some hundred thousand: one key has all the weight.
        problem.layer.q_norm.fill(3e3);
        let width = problem.layer.shape.kv.kv_heads * HEAD_DIM;
        let at = problem.layer.shape.query_width() as usize * 2 + width;
        problem.proj[at..at + width].fill(3e4);
        let (y, _) = problem.run(&mut gpu, path);
        let written = y.iter().filter(|&&w| w != Gpu::POISON);
        assert!(written.map(|&w| f32::from_bits(w)).all(|v| v.abs() <= 3.1e4));
    }
}

#[test]
fn spans_are_whole_pages_of_a_rows_own_length() {
    for (n_kv, splits, expected) in [
        (1, 128, 64),
        (64, 128, 64),
        (8192, 128, 64),
        (8193, 128, 128),
        (262_144, 128, 2048),
        (262_144, 1, 262_144),
        (65, 1, 128),
    ] {
        assert_eq!(span(n_kv, splits), expected, "{n_kv} keys, {splits} splits");
        assert!(n_kv.div_ceil(expected) <= splits);
    }
    let mut h200 = lavapipe();
    h200.compute_units = Some(132);
    assert_eq!((splits(2, &h200), splits(2, &lavapipe())), (132, 32));
}
