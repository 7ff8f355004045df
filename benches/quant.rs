//! Speed of the block formats: weight bytes per second of `matvec` out of memory, operations per second
//! of `matmul` out of the cache, and of the vector operations of attention.
//!
//! Everything runs on one thread but the copies named so; a multiplication and an addition are two
//! operations. The buffer is 1 GiB, so that no cache of today holds it.

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use q36::quant::{
    Activation, Forms, Isa, TensorType, axpy_kv, dot_f32, dot_kv, isa, matmul, matvec, quantize,
    quantize_kv, select_isa,
};
use q36::util::rng::Rng;

/// Values in a row: the hidden size of the published model.
const COLS: usize = 2048;
/// Bytes of the large buffer.
const LARGE_BYTES: usize = 1 << 30;
/// Rows of the matrix that is multiplied with many activations: what one thread gets of a layer.
const ROWS: usize = 512;

const TYPES: [TensorType; 8] = [
    TensorType::Q8_0,
    TensorType::IQ2_XXS,
    TensorType::Q2_K,
    TensorType::Q4_K,
    TensorType::Q5_K,
    TensorType::Q6_K,
    TensorType::F16,
    TensorType::F32,
];

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    copies(&mut criterion);
    products(&mut criterion);
    vectors(&mut criterion);
    criterion.final_summary();
}

/// Values without structure.
fn noise(n: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::new(seed);
    (0..n).map(|_| rng.unit_f32() - 0.5).collect()
}

/// `rows` weight rows: sixteen real ones, repeated.
fn weights(ty: TensorType, rows: usize) -> Vec<u8> {
    let row_bytes = ty.row_bytes(COLS).expect("whole blocks");
    let x = noise(16 * COLS, 1);
    let mut some = vec![0; 16 * row_bytes];
    for (x, row) in x.chunks_exact(COLS).zip(some.chunks_exact_mut(row_bytes)) {
        if quantize(ty, x, Some(&vec![1.0; COLS]), row).is_err() {
            // Types without a quantizer: any bytes will do, with scales of moderate size.
            for (b, v) in row.iter_mut().zip(x.iter().cycle()) {
                *b = v.to_bits().to_le_bytes()[1] & 0x3F;
            }
        }
    }
    let mut all = Vec::with_capacity(rows * row_bytes);
    while all.len() < rows * row_bytes {
        all.extend_from_slice(&some[..some.len().min(rows * row_bytes - all.len())]);
    }
    all
}

/// What the memory can do: a copy reads and writes every byte, which counts once here.
fn copies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("copy");
    let bytes = LARGE_BYTES / 2;
    group.throughput(Throughput::Bytes(bytes as u64));
    let from = vec![1u8; bytes];
    let mut to = vec![0u8; bytes];
    let most = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for threads in [1, most] {
        group.bench_function(BenchmarkId::from_parameter(threads), |bench| {
            bench.iter(|| {
                let part = bytes / threads;
                std::thread::scope(|scope| {
                    for (to, from) in to.chunks_mut(part).zip(from.chunks(part)) {
                        scope.spawn(|| black_box(to).copy_from_slice(black_box(from)));
                    }
                });
            });
        });
    }
    group.finish();
}

fn products(criterion: &mut Criterion) {
    for ty in TYPES {
        let x = Activation::new(&noise(COLS, 2), Forms::of(ty));
        let rows = LARGE_BYTES / ty.row_bytes(COLS).expect("whole blocks");
        let w = weights(ty, rows);
        let mut group = criterion.benchmark_group("matvec");
        group.throughput(Throughput::Bytes(w.len() as u64));
        for isa in Isa::available().filter(|&isa| isa != Isa::Scalar) {
            on_isa(&mut group, ty, isa, |bench| {
                let mut out = vec![0.0; rows];
                bench.iter(|| matvec(ty, black_box(&w), COLS, black_box(&x), &mut out));
            });
        }
        let row_bytes = w.len() / rows;
        group.bench_function(format!("{ty}/two threads"), |bench| {
            let mut out = vec![0.0; rows];
            bench.iter(|| {
                std::thread::scope(|scope| {
                    let half = rows.div_ceil(2);
                    for (out, w) in out.chunks_mut(half).zip(w.chunks(half * row_bytes)) {
                        scope.spawn(|| matvec(ty, black_box(w), COLS, black_box(&x), out));
                    }
                });
            });
        });
        group.finish();
        many(criterion, ty, &w[..ROWS * row_bytes]);
    }
}

/// Prefill: from one activation to as many as a task takes at a time.
fn many(criterion: &mut Criterion, ty: TensorType, w: &[u8]) {
    let mut group = criterion.benchmark_group("matmul");
    for tokens in [1, 2, 3, 8, 16, 64] {
        let xs: Vec<_> = (0..tokens)
            .map(|seed| Activation::new(&noise(COLS, seed + 3), Forms::of(ty)))
            .collect();
        let xs: Vec<_> = xs.iter().collect();
        group.throughput(Throughput::Elements((2 * ROWS * COLS * xs.len()) as u64));
        group.bench_function(format!("{ty}/{tokens}"), |bench| {
            let mut out = vec![0.0; ROWS * xs.len()];
            bench.iter(|| matmul(ty, black_box(w), COLS, black_box(&xs), &mut out));
        });
    }
    group.finish();
}

fn on_isa(
    group: &mut BenchmarkGroup<'_, WallTime>,
    ty: TensorType,
    with: Isa,
    run: impl FnMut(&mut criterion::Bencher<'_>),
) {
    let usual = isa();
    assert!(select_isa(with), "{with} is available");
    group.bench_function(format!("{ty}/{with}"), run);
    select_isa(usual);
}

/// Attention over stored rows of one head, 256 values each.
fn vectors(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("row");
    let (k, q) = (noise(256, 4), noise(256, 5));
    group.throughput(Throughput::Elements(512));
    group.bench_function("dot_f32", |bench| bench.iter(|| dot_f32(black_box(&k), black_box(&q))));
    for ty in [TensorType::F16, TensorType::Q8_0, TensorType::Q4_0] {
        let mut row = vec![0; ty.row_bytes(256).expect("whole blocks")];
        quantize_kv(ty, &k, &mut row);
        group.bench_function(format!("dot_kv/{ty}"), |bench| {
            bench.iter(|| dot_kv(ty, black_box(&row), black_box(&q)));
        });
        let mut y = q.clone();
        group.bench_function(format!("axpy_kv/{ty}"), |bench| {
            bench.iter(|| axpy_kv(ty, black_box(1e-9), black_box(&row), black_box(&mut y)));
        });
    }
    let mut row = Activation::empty(Forms { q8_0: true, q8_k: true });
    let x = noise(COLS, 6);
    group.throughput(Throughput::Elements(COLS as u64));
    group.bench_function("activation", |bench| bench.iter(|| row.set(black_box(&x))));
    group.finish();
}
