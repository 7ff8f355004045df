//! Tests of the two prefill kernels together: `rope_kv`, then `flash` over what it stored.

use super::*;
use crate::kernels::check::{self, Draw, Gpu};
use crate::kernels::control::Row;
use crate::kernels::kv::{KvType, Side};
use crate::kernels::kv_check::{BOUND, Cache, Layer, close, pairs, quantised, shape};
use crate::kernels::rope::{RopeKv, RopeKvIo};
use crate::quant::f16_to_f32;

/// The paths that the device has.
fn paths(gpu: &Gpu) -> Vec<Path> {
    let mut paths = vec![Path::F32];
    if gpu.device().caps().has(Ability::Matrix) {
        paths.push(Path::Matrix);
    }
    paths
}

/// The kernel. CPU drivers multiply 8x8x8 with subgroups of 8, which nobody wants but tests.
fn kernel(device: &Arc<Device>, shape: AttentionShape, path: Path) -> Flash {
    if path == Path::Matrix && device.caps().subgroup_size(32) == 8 {
        return Flash::matrix(device, shape, MatrixConstants::new(&shape, 8, 8, 16).unwrap())
            .unwrap();
    }
    Flash::new(device, shape, path).unwrap()
}

/// The largest error. On matrix units queries, keys, values and weights are rounded to 11 bits: a score around 1 is off by
/// about 2^-11, and so are weights and values, which are below 6.
fn bound(path: Path) -> f32 {
    if path == Path::Matrix { 6e-3 } else { BOUND }
}

/// A chunk on one cache.
struct Problem {
    layer: Layer,
    cache: Cache,
    row: Row,
    /// Tokens that the recorded grid has room for.
    class: u32,
    proj: Vec<f32>,
    stride: u32,
    y_stride: u32,
}

/// Results as words, poison where nothing was written.
struct Done {
    q: Vec<u32>,
    y: Vec<u32>,
    cache: Cache,
}

impl Problem {
    fn draw(seed: u64, shape: AttentionShape, pos: u32, tokens: u32, class: u32) -> Self {
        println!("seed {seed}: {shape:?}, {tokens} tokens at {pos}");
        let mut draw = Draw::new(seed);
        let layer = Layer::draw(&mut draw, shape);
        let page = 2;
        let pages = page + (pos + class) as usize / 64 + 1;
        let mut cache = Cache::poisoned(shape.kv, pages);
        cache.fill(&mut draw, page, pos as usize);
        let row = Row {
            pos,
            tokens,
            page: u32::try_from(page).unwrap(),
            query_tokens: tokens,
            ..Row::default()
        };
        let stride = shape.projection_width() + 4;
        let proj = draw.normals(class as usize * stride as usize);
        Self { layer, cache, row, class, proj, stride, y_stride: shape.query_width() + 8 }
    }

    /// Both kernels; the second once for each slice (first token, tokens) of the queries.
    fn run(&self, gpu: &mut Gpu, path: Path, slices: &[(u32, u32)]) -> Done {
        let (device, shape, n) = (Arc::clone(gpu.device()), self.layer.shape, self.class);
        let prepare = RopeKv::new(&device, shape, path).unwrap();
        let kernel = kernel(&device, shape, path);
        let mut graph = Graph::new("prefill attention");
        let cache = self.cache.upload(gpu, &mut graph);
        let planes = |side| shape.kv.planes(side, &cache.slice(side), self.cache.pages);
        let bytes = u64::from(n * shape.query_width()) * path.query_bytes();
        let q = gpu.output("q", usize::try_from(bytes).unwrap());
        let y = gpu.output("y", (n * self.y_stride * 4) as usize);
        let proj = gpu.input("proj", &self.proj);
        let io = RopeKvIo {
            control: gpu.input("control", &[self.row]),
            keys: planes(Side::Keys),
            values: planes(Side::Values),
            proj: proj.clone(),
            stride: self.stride,
            q: q.slice(),
            rope: gpu.input("rope", &self.layer.table()),
            q_norm: gpu.input("q_norm", &self.layer.q_norm),
            k_norm: gpu.input("k_norm", &self.layer.k_norm),
        };
        for slice in [&io.control, &io.proj, &io.rope, &io.q_norm, &io.k_norm] {
            graph.input(slice);
        }
        graph.level();
        prepare.record(&mut graph, "rope_kv", n, io);
        for &(query_first, query_tokens) in slices {
            let control = gpu.input("control", &[Row { query_first, query_tokens, ..self.row }]);
            graph.input(&control);
            graph.level();
            let io = FlashIo {
                control,
                keys: planes(Side::Keys),
                values: planes(Side::Values),
                q: q.slice(),
                proj: proj.clone(),
                stride: self.stride,
                y: y.slice(),
                y_stride: self.y_stride,
            };
            kernel.record(&mut graph, "flash", (n, n), io);
        }
        gpu.run(graph);
        Done { q: gpu.words(&q), y: gpu.words(&y), cache: cache.download(gpu, &self.cache) }
    }

    /// The queries as they should be, next to what there is.
    fn check_queries(&self, path: Path, q: &[u32], expected: &[f32]) {
        let values: Vec<f32> = match path {
            Path::F32 => q.iter().map(|&w| f32::from_bits(w)).collect(),
            Path::Matrix => bytemuck::cast_slice(q).iter().map(|&h| f16_to_f32(h)).collect(),
        };
        let off = if path == Path::Matrix { 6e-4 } else { 1e-6 };
        // Queries for matrix units are in the order of decoded codes: 0, 2, 1, 3.
        let swapped = path == Path::Matrix && self.layer.shape.kv.keys != KvType::F16;
        let order = if swapped { [0, 2, 1, 3] } else { [0, 1, 2, 3] };
        let expected = expected.chunks_exact(4).flat_map(|four| order.map(|i| four[i]));
        for (a, b) in values.iter().zip(expected) {
            assert!((a - b).abs() <= off * b.abs() + 1e-6, "query {a}, expected {b}");
        }
    }

    fn check(&self, gpu: &mut Gpu, path: Path) -> Done {
        let done = self.run(gpu, path, &[(0, self.row.tokens)]);
        let query_words = done.q.len() / self.class as usize;
        let width = self.layer.shape.query_width() as usize;
        let (stride, y_stride) = (self.stride as usize, self.y_stride as usize);
        let floats = |words: &[u32]| words.iter().map(|&w| f32::from_bits(w)).collect::<Vec<_>>();
        let (page, tokens) = (self.row.page as usize, self.row.tokens as usize);
        let mut expected_cache = self.cache.clone();
        for t in 0..tokens {
            let pos = self.row.pos as usize + t;
            let heads = self.layer.heads(&self.proj[t * stride..][..stride], pos);
            self.layer.check_row(&heads, &done.cache, page, pos);
            for side in [Side::Keys, Side::Values] {
                expected_cache.put_row(side, page, pos, &done.cache.row(side, page, pos));
            }
            let q: Vec<f32> = heads.q.concat().iter().map(|v| v / 16.0).collect();
            self.check_queries(path, &done.q[t * query_words..][..query_words], &q);
            let expected = self.layer.attend(&heads, &done.cache, page, pos);
            let y = &done.y[t * y_stride..][..y_stride];
            close(&floats(&y[..width]), &expected, bound(path), &format!("token {t} at {pos}"));
            assert!(y[width..].iter().all(|&w| w == Gpu::POISON), "past token {t}");
        }
        assert!(
            done.q[tokens * query_words..].iter().all(|&w| w == Gpu::POISON),
            "queries past the end"
        );
        assert!(done.y[tokens * y_stride..].iter().all(|&w| w == Gpu::POISON), "past the end");
        assert!(done.cache == expected_cache, "something but the new rows was stored");
        done
    }
}

#[test]
fn all_types() {
    let Some(mut gpu) = check::gpu() else { return };
    for path in paths(&gpu) {
        for (seed, types) in (1..).zip(pairs()) {
            Problem::draw(seed, shape(16, 2, 64, types), 60, 9, 16).check(&mut gpu, path);
        }
    }
}

#[test]
fn awkward_lengths_and_heads() {
    let Some(mut gpu) = check::gpu() else { return };
    let types = [KvType::Q8_0, KvType::Q4_0];
    let cases = [
        (4, 2, 0, 1, 16),
        (4, 2, 0, 31, 32),
        (4, 2, 0, 32, 32),
        (4, 2, 31, 33, 64),
        (4, 2, 190, 67, 128),
        (16, 2, 0, 65, 128),
        (3, 1, 5, 23, 32),
        (1, 1, 64, 64, 64),
        (40, 5, 3, 4, 16),
    ];
    for (seed, (heads, kv_heads, pos, tokens, class)) in (20..).zip(cases) {
        let shape = shape(heads, kv_heads, 64, types);
        for path in paths(&gpu) {
            Problem::draw(seed, shape, pos, tokens, class).check(&mut gpu, path);
        }
    }
}

#[test]
fn slices_of_the_queries_and_shorter_chunks_have_the_bits_of_the_whole() {
    let Some(mut gpu) = check::gpu() else { return };
    for path in paths(&gpu) {
        let whole = Problem::draw(40, shape(8, 2, 64, [KvType::Q8_0, KvType::Q4_0]), 50, 45, 64);
        let done = whole.check(&mut gpu, path);
        let sliced = whole.run(&mut gpu, path, &[(33, 12), (0, 7), (7, 26)]);
        assert!(sliced.y == done.y);

        // The same tokens as two chunks.
        let (stride, y_stride) = (whole.stride as usize, whole.y_stride as usize);
        let part = |cache: &Cache, first: u32, tokens: u32| Problem {
            layer: Layer::draw(&mut Draw::new(40), whole.layer.shape),
            cache: cache.clone(),
            row: Row { pos: 50 + first, tokens, query_tokens: tokens, ..whole.row },
            class: 32,
            proj: whole.proj[first as usize * stride..][..32 * stride].to_vec(),
            ..whole
        };
        let first = part(&whole.cache, 0, 20).run(&mut gpu, path, &[(0, 20)]);
        assert!(first.y[..20 * y_stride] == done.y[..20 * y_stride]);
        let second = part(&first.cache, 20, 25).run(&mut gpu, path, &[(0, 25)]);
        assert!(second.y[..25 * y_stride] == done.y[20 * y_stride..45 * y_stride]);
        assert!(second.cache == done.cache);
    }
}

/// Inputs that come out of norm and rotation as they are, so that even K is known to the bit: values of one magnitude at position 0,
/// times any weight.
#[test]
fn stored_rows_have_the_bits_of_the_cpus_quantisers() {
    let Some(mut gpu) = check::gpu() else { return };
    for (seed, types) in (60..).zip(pairs()) {
        let shape = AttentionShape { eps: 0.0, ..shape(2, 2, 64, types) };
        let mut problem = Problem::draw(seed, shape, 0, 64, 64);
        let mut draw = Draw::new(seed);
        // Blocks from tiny to huge; ties of magnitude and of rounding among them.
        let mut values = |n: usize| -> Vec<f32> {
            let scale = |draw: &mut Draw| 10f32.powi(i32::try_from(draw.below(8)).unwrap() - 5);
            let block = |draw: &mut Draw| {
                let (scale, whole) = (scale(draw), draw.below(3) == 0);
                let one = |v: f32| if whole { (v * 2.0).round() } else { v };
                draw.normals(32).into_iter().map(|v| one(v) * scale).collect::<Vec<_>>()
            };
            (0..n / 32).flat_map(|_| block(&mut draw)).collect()
        };
        problem.layer.k_norm = values(HEAD_DIM);
        let (stride, width) = (problem.stride as usize, 2 * HEAD_DIM);
        let at = 2 * problem.layer.shape.query_width() as usize;
        for row in problem.proj.chunks_exact_mut(stride) {
            row[at..at + width].iter_mut().for_each(|k| *k = k.signum());
            row[at + width..at + 2 * width].copy_from_slice(&values(width));
        }
        let done = problem.run(&mut gpu, Path::F32, &[(0, 64)]);
        for (t, row) in problem.proj.chunks_exact(stride).enumerate() {
            let v = quantised(types[1], &row[at + width..at + 2 * width]);
            assert!(done.cache.row(Side::Values, 2, t) == v, "{types:?}: V of token {t}");
            let heads = problem.layer.heads(row, 0);
            if t == 0 {
                let k = quantised(types[0], &heads.k);
                assert!(done.cache.row(Side::Keys, 2, 0) == k, "{types:?}: K");
            }
        }
    }
}

/// What decode stores and computes at the end of a prompt is what prefill does.
#[test]
fn prefill_and_decode_agree() {
    use crate::kernels::attention::{Attention, AttentionIo, SplitIo, span};
    let Some(mut gpu) = check::gpu() else { return };
    for (seed, types) in (80..).zip(pairs()) {
        let problem = Problem::draw(seed, shape(16, 2, 64, types), 100, 30, 32);
        let done = problem.run(&mut gpu, Path::F32, &[(0, 30)]);
        // The last token again, as a decode step over the cache of the others.
        let last = Row { pos: 129, span: span(130, 4), ..problem.row };
        let before = Problem { row: Row { tokens: 29, ..problem.row }, ..problem };
        let cache = before.run(&mut gpu, Path::F32, &[(0, 29)]).cache;
        let (shape, device) = (before.layer.shape, Arc::clone(gpu.device()));
        let kernel = Attention::new(&device, shape, 4, Path::F32).unwrap();
        let mut graph = Graph::new("decode");
        let on_device = cache.upload(&mut gpu, &mut graph);
        let planes = |side| shape.kv.planes(side, &on_device.slice(side), cache.pages);
        let stride = before.stride as usize;
        let values = gpu.output("values", usize::try_from(kernel.values_bytes(1)).unwrap());
        let stats = gpu.output("stats", usize::try_from(kernel.stats_bytes(1)).unwrap());
        let y = gpu.output("y", shape.query_width() as usize * 4);
        let io = AttentionIo {
            control: gpu.input("control", &[last]),
            proj: gpu.input("proj", &before.proj[29 * stride..30 * stride]),
            stride: before.stride,
            values: values.slice(),
            stats: stats.slice(),
        };
        let split = SplitIo {
            keys: planes(Side::Keys),
            values: planes(Side::Values),
            rope: gpu.input("rope", &before.layer.table()),
            q_norm: gpu.input("q_norm", &before.layer.q_norm),
            k_norm: gpu.input("k_norm", &before.layer.k_norm),
        };
        for slice in [&io.control, &io.proj, &split.rope, &split.q_norm, &split.k_norm] {
            graph.input(slice);
        }
        graph.level();
        kernel.record_split(&mut graph, "split", (1, 130), &io, split);
        graph.level();
        kernel.record_reduce(&mut graph, "reduce", 1, &io, (y.slice(), shape.query_width()));
        gpu.run(graph);
        assert!(on_device.download(&mut gpu, &cache) == done.cache, "{types:?}");
        let width = shape.query_width() as usize;
        let at = 29 * before.y_stride as usize;
        let expected: Vec<f32> =
            done.y[at..at + width].iter().map(|&w| f32::from_bits(w)).collect();
        close(&gpu.read(&y), &expected, BOUND, &format!("{types:?}"));
    }
}
