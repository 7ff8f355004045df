//! How long the dense products of the published model take on this device, cut in several ways.

use super::*;
use crate::kernels::control::Row;
use crate::kernels::mode::Mode;
use crate::kernels::timing::Bench;
use crate::vulkan::Caps;

/// Microseconds of a product.
fn time(bench: &mut Bench, shape: Shape, path: Path, form: Form, tile: Tile) -> Result<f64, Error> {
    let kind = Kind { path, form, q8: true, factor: path.half() };
    let device = Arc::clone(bench.device());
    let kernel = Gemm::with_tile(&device, shape, kind, tile)?;
    let (rows, k, tokens) = (u64::from(shape.rows), u64::from(shape.k), u64::from(shape.tokens));
    let control = bench.input(&[Row { tokens: shape.tokens, ..Row::default() }]);
    let (codes, scales) = (bench.filled(rows * k), bench.filled(rows * k / 16));
    let x = bench.filled(tokens * k * path.bytes());
    let factor = path.half().then(|| bench.filled(tokens * 4));
    let out = bench.filled(tokens * rows * 4);
    let nodes = if bench.is_gpu() { 8 } else { 1 };
    let mut graph = Graph::new("timing");
    for slice in [&control, &codes, &scales, &x, &out].into_iter().chain(&factor) {
        graph.input(slice);
    }
    for _ in 0..nodes {
        let io = Operands {
            control: control.clone(),
            weights: Weights::Q8(Planes { codes: codes.clone(), scales: scales.clone() }),
            exponent: 0,
            x: x.clone(),
            factor: factor.clone(),
            norm: None,
            out: out.clone(),
            stride: if form == Form::SwiGlu { shape.rows / 2 } else { shape.rows },
        };
        graph.level();
        kernel.record(&mut graph, "timed", io);
    }
    Ok(bench.time(graph, nodes))
}

fn report(bench: &mut Bench, what: &str, shape: Shape, (path, form): (Path, Form), tile: Tile) {
    let flops = 2.0 * f64::from(shape.rows) * f64::from(shape.k) * f64::from(shape.tokens);
    let Shape { rows, k, tokens } = shape;
    match time(bench, shape, path, form, tile) {
        Ok(us) => {
            let tflops = flops / us / 1e6;
            println!(
                "{what} {rows}x{k} x{tokens} {path:?}: {us:8.1} us {tflops:6.1} TFLOP/s {tile:?}"
            );
        }
        Err(e) => println!("{what} {rows}x{k} x{tokens} {path:?}: {e} {tile:?}"),
    }
}

/// Tiles worth comparing: subgroups, what each holds, columns of a step, parts.
fn matrix_tiles(caps: &Caps) -> Vec<Tile> {
    let cuts = [
        ([2, 2], [64, 64]),
        ([2, 4], [64, 64]),
        ([4, 2], [64, 64]),
        ([2, 4], [64, 32]),
        ([4, 2], [32, 64]),
        ([2, 2], [64, 32]),
        ([2, 2], [32, 64]),
        ([4, 2], [64, 32]),
        ([2, 4], [32, 64]),
        ([4, 2], [32, 32]),
        ([2, 2], [64, 96]),
        ([2, 2], [96, 64]),
        ([1, 4], [128, 32]),
        ([4, 1], [32, 128]),
        ([2, 1], [64, 64]),
    ];
    let mut tiles = Vec::new();
    for (subgroups, [wm, wn]) in cuts {
        for (bk, parts) in [(32, 1), (32, 2), (64, 1), (64, 2)] {
            let tile = Tile::matrix(caps, subgroups, [wm, wn], wn);
            tiles.push(Tile { bk, parts, ..tile });
        }
    }
    tiles
}

#[test]
fn the_published_products_are_timed() {
    let Some(mut bench) = Bench::open() else { return };
    let caps = bench.device().caps().clone();
    let path = Path::choose(Mode::Fast, &caps);
    let store = (path, Form::Store);
    if !bench.is_gpu() {
        let shape = Shape { rows: 64, k: 64, tokens: 32 };
        return report(&mut bench, "small", shape, store, select(path, shape, &caps));
    }
    let shape = |rows, k, tokens| Shape { rows, k, tokens };
    let products = [
        ("recurrent in", shape(12_352, 2048, 2048), Form::Store),
        ("attention in", shape(9216, 2048, 2048), Form::Store),
        ("out", shape(2048, 4096, 2048), Form::Add),
        ("shared gate, up", shape(1024, 2048, 2048), Form::SwiGlu),
        ("shared down", shape(2048, 512, 2048), Form::Add),
    ];
    for (what, shape, form) in products {
        for tokens in [2048, 512, 128, 64, 32] {
            let shape = Shape { tokens, ..shape };
            report(&mut bench, what, shape, (path, form), select(path, shape, &caps));
        }
    }
    for (what, shape) in
        [("recurrent in", shape(12_352, 2048, 2048)), ("recurrent in", shape(12_352, 2048, 2048))]
    {
        report(&mut bench, what, shape, (Path::F32, Form::Store), select(Path::F32, shape, &caps));
        let half = Path::Pk16;
        report(&mut bench, what, shape, (half, Form::Store), select(half, shape, &caps));
    }
    if path != Path::Matrix {
        return;
    }
    for tile in matrix_tiles(&caps) {
        report(&mut bench, "cut", shape(12_352, 2048, 2048), store, tile);
    }
    for tile in matrix_tiles(&caps) {
        report(&mut bench, "cut", shape(2048, 4096, 2048), (path, Form::Add), tile);
    }
}
