//! Tests of the gates.

use super::*;
use crate::kernels::check::{self, Draw, Gpu};
use crate::kernels::control::Row;
use crate::ops;

/// Exponentials may be off by 3 + 2|x| units of 6e-8, |x| up to 20 where they matter.
const BOUND: f32 = 4e-6;

fn run(gpu: &mut Gpu, form: Form, rows: &[Row], count: u32, heads: u32, stride: u32) {
    let mut draw = Draw::new(u64::from(count * heads));
    let len = (count * stride) as usize;
    let many = |draw: &mut Draw, n: usize, by: f32| -> Vec<f32> {
        draw.normals(n).iter().map(|v| v * by).collect()
    };
    let alpha = many(&mut draw, len, 8.0);
    let raw = many(&mut draw, len, 5.0);
    let a: Vec<f32> = draw.normals(heads as usize).iter().map(|v| -v.abs() - 1e-3).collect();
    let dt = many(&mut draw, heads as usize, 3.0);
    let bytes = (count * heads * 4) as usize;
    let (decay, beta) = (gpu.output("decay", bytes), gpu.output("beta", bytes));
    let io = GatesIo {
        control: gpu.input("control", rows),
        a: gpu.input("a", &a),
        dt: gpu.input("dt", &dt),
        alpha: gpu.input("alpha", &alpha),
        raw: gpu.input("raw", &raw),
        decay: decay.slice(),
        beta: beta.slice(),
    };
    let mut graph = Graph::new("gates");
    for slice in [&io.control, &io.a, &io.dt, &io.alpha, &io.raw] {
        graph.input(slice);
    }
    graph.level();
    let strides = Strides { alpha: stride, beta: stride };
    Gates::new(gpu.device(), form, heads, strides).unwrap().record(&mut graph, "gates", count, io);
    gpu.run(graph);
    let (decay, beta) = (gpu.words(&decay), gpu.words(&beta));
    for (i, (decay, beta)) in decay.into_iter().zip(beta).enumerate() {
        let (row, head) = (i / heads as usize, i % heads as usize);
        let used = match form {
            Form::Chunk => row < rows[0].tokens as usize,
            Form::Step => rows[row].flags & Row::IDLE == 0,
        };
        if !used {
            assert_eq!((decay, beta), (Gpu::POISON, Gpu::POISON), "row {row} is not used");
            continue;
        }
        let at = row * stride as usize + head;
        let g = ops::log_decay(a[head], alpha[at], dt[head]);
        let expected = if form == Form::Step { ops::exp(g) } else { g };
        let pairs = [(decay, expected), (beta, ops::sigmoid(raw[at]))];
        for (found, expected) in pairs.map(|(bits, e)| (f32::from_bits(bits), e)) {
            // A factor's own exponent carries the error of the log decay.
            let slack = if form == Form::Step { 1.0 + g.abs() } else { 1.0 };
            let off = (found - expected).abs();
            assert!(
                off <= BOUND * slack * expected.abs() + 1e-37,
                "{form:?} {row} {head}: {found} for {expected}"
            );
        }
    }
}

#[test]
fn tokens_and_rows_match_the_reference() {
    let Some(mut gpu) = check::gpu() else { return };
    for (count, tokens, heads, stride) in [(1, 1, 1, 1), (32, 31, 4, 4), (130, 130, 32, 96)] {
        let rows = [Row { tokens, ..Row::default() }];
        run(&mut gpu, Form::Chunk, &rows, count, heads, stride);
    }
    let mut rows = [Row::default(); 8];
    rows[3].flags = Row::IDLE;
    run(&mut gpu, Form::Step, &rows, 8, 32, 64);
    run(&mut gpu, Form::Step, &rows[..1], 1, 4, 4);
}
