//! Tests of the conversions: values against `ops`, factors as promised, rows past the chunk.

use super::*;
use crate::kernels::check::{self, Draw, Gpu};
use crate::kernels::control::Row;
use crate::ops::rms_norm;
use crate::vulkan::{Ability, lavapipe};
use half::f16;

const EPS: f32 = 1e-6;

/// As in `norm_cvt.rs`: sums of n squares, a root, four roundings.
const BOUND: f32 = 4e-6;
/// One rounding to f16, towards zero on some drivers.
const BOUND16: f32 = 1.0 / 1024.0 + BOUND;

struct Rows {
    /// As stored, without factors.
    x: Vec<f32>,
    factor: Vec<f32>,
    scale: Vec<f32>,
}

fn paths(gpu: &Gpu) -> Vec<Path> {
    let half = gpu.device().caps().has(Ability::Float16);
    if half { vec![Path::F32, Path::Pk16] } else { vec![Path::F32] }
}

fn halves(words: &[u32]) -> Vec<f32> {
    let halves: &[u16] = bytemuck::cast_slice(words);
    halves.iter().map(|&h| f16::from_bits(h).to_f32()).collect()
}

fn control(gpu: &mut Gpu, graph: &mut Graph, tokens: usize) -> Slice {
    let row = Row { tokens: u32::try_from(tokens).unwrap(), ..Row::default() };
    let control = gpu.input("control", &[row]);
    graph.input(&control);
    control
}

fn norm(gpu: &mut Gpu, path: Path, class: usize, h: &[f32], weight: &[f32]) -> Rows {
    let k = weight.len();
    let mut graph = Graph::new("norm_cvt");
    let control = control(gpu, &mut graph, h.len() / k);
    let mut padded = h.to_vec();
    padded.resize(class * k, f32::NAN);
    let (hb, wb) = (gpu.input("h", &padded), gpu.input("weight", weight));
    graph.input(&hb);
    graph.input(&wb);
    graph.level();
    let x = gpu.output("x", class * k * usize::try_from(path.bytes()).unwrap());
    let (scale, factor) = (gpu.output("scale", class * 4), gpu.output("factor", class * 4));
    let kernel = NormCvt::new(gpu.device(), u32::try_from(k).unwrap(), path).unwrap();
    let factors = path.half().then(|| factor.slice());
    let io = NormOperands {
        control,
        weight: wb,
        h: hb,
        x: x.slice(),
        scale: scale.slice(),
        factor: factors,
    };
    kernel.record(&mut graph, "norm_cvt", EPS, io);
    gpu.run(graph);
    let scale = gpu.read(&scale);
    if path.half() {
        Rows { x: halves(&gpu.words(&x)), factor: gpu.read(&factor), scale }
    } else {
        Rows { x: gpu.read(&x), factor: vec![1.0; class], scale }
    }
}

/// Largest value of a row at most 256 and above 64 (its largest weight need not meet its largest value).
fn check_factor(factor: f32, stored: &[f32]) {
    assert_eq!(factor.to_bits() & 0x7f_ffff, 0, "{factor} is a power of two");
    let most = stored.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
    assert!((64.0..=256.0).contains(&most), "{most}");
}

#[test]
fn norms_match() {
    let Some(mut gpu) = check::gpu() else { return };
    let shapes = [(1, 4, 1), (32, 36, 31), (2, 252, 2), (3, 2048, 2), (33, 256, 33), (2, 4096, 1)];
    for path in paths(&gpu) {
        for (seed, (class, k, n)) in (1..).zip(shapes) {
            println!("seed {seed}: {path:?} {n} of {class} rows of {k}");
            let mut draw = Draw::new(seed);
            let (h, weight) = (draw.activations(n * k), draw.normals(k));
            let rows = norm(&mut gpu, path, class, &h, &weight);
            let bound = if path.half() { BOUND16 } else { BOUND };
            for (t, h) in h.chunks(k).enumerate() {
                let mut expected = vec![0.0; k];
                rms_norm(h, &weight, EPS, &mut expected);
                let stored = &rows.x[t * k..][..k];
                let most = expected.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
                for (i, (&x, e)) in stored.iter().zip(expected).enumerate() {
                    let off = (x * rows.factor[t] - e).abs();
                    // The smallest f16 is 2^-24 of what is at least 128 for the largest value.
                    let least = if path.half() { most * 1e-9 } else { 1e-37 };
                    assert!(off <= bound * e.abs() + least, "row {t} value {i}");
                }
                if path.half() {
                    check_factor(rows.factor[t], stored);
                }
                let mean = h.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / k as f64;
                let scale = 1.0 / (mean + f64::from(EPS)).sqrt();
                assert!((f64::from(rows.scale[t]) / scale - 1.0).abs() < 4e-6);
            }
            assert!(
                rows.x[n * k..].iter().all(|v| v.to_bits() == 0),
                "rows past the chunk are zeros"
            );
            assert!(rows.factor[n..].iter().all(|f| f.to_bits() == 1.0_f32.to_bits()));
        }
    }
}

#[test]
fn extremes_stay_finite() {
    let Some(mut gpu) = check::gpu() else { return };
    let k = 256;
    for path in paths(&gpu) {
        let mut h = vec![0.0_f32; 3 * k];
        h[k..2 * k].fill(1e18);
        h[2 * k] = -3e-20;
        let rows = norm(&mut gpu, path, 3, &h, &vec![1.0; k]);
        assert!(rows.x[..k].iter().all(|v| v.to_bits() == 0));
        let ones = rows.x[k..2 * k].iter().map(|v| v * rows.factor[1]);
        assert!(ones.into_iter().all(|v| (v - 1.0).abs() < 1e-3));
        let tiny = f64::from(rows.x[2 * k]) * f64::from(rows.factor[2]);
        assert!((tiny + 3e-17).abs() < 1e-19, "epsilon rules a tiny row: {tiny:e}");
    }
}

#[test]
fn conversions_match() {
    let Some(mut gpu) = check::gpu() else { return };
    if !gpu.device().caps().has(Ability::Float16) {
        return;
    }
    for (seed, (class, k, n, stride)) in
        (1..).zip([(32, 64, 31, 64), (3, 256, 3, 300), (2, 4096, 1, 4096)])
    {
        println!("seed {seed}: {n} of {class} rows of {k}");
        let mut draw = Draw::new(seed);
        let (mut y, mut multiplier) = (draw.activations(class * stride), draw.normals(class));
        y[n * stride..].fill(f32::NAN);
        multiplier[n..].fill(f32::NAN);
        for multiply in [false, true] {
            let mut graph = Graph::new("cvt");
            let control = control(&mut gpu, &mut graph, n);
            let (yb, mb) = (gpu.input("y", &y), gpu.input("multiplier", &multiplier));
            graph.input(&yb);
            graph.input(&mb);
            graph.level();
            let (x, factor) = (gpu.output("x", class * k * 2), gpu.output("factor", class * 4));
            let kernel = Cvt::new(gpu.device(), u32::try_from(k).unwrap(), multiply).unwrap();
            let io = CvtOperands {
                control,
                y: yb,
                stride: u32::try_from(stride).unwrap(),
                x: x.slice(),
                factor: factor.slice(),
                multiplier: multiply.then_some(mb),
            };
            kernel.record(&mut graph, "cvt", io);
            gpu.run(graph);
            let (x, factor) = (halves(&gpu.words(&x)), gpu.read(&factor));
            for t in 0..n {
                let stored = &x[t * k..][..k];
                let by = if multiply { multiplier[t] } else { 1.0 };
                check_factor(factor[t] / by, stored);
                for (&x, &y) in stored.iter().zip(&y[t * stride..]) {
                    assert!((x * factor[t] - y * by).abs() <= BOUND16 * (y * by).abs() + 1e-6);
                }
            }
            assert!(
                x[n * k..].iter().all(|v| v.to_bits() == 0)
                    && factor[n..].iter().all(|f| f.to_bits() == 1.0_f32.to_bits())
            );
        }
    }
}

#[test]
fn workgroups_follow_the_device() {
    let caps = lavapipe();
    assert_eq!(select(2048, &caps), Ok((256, 8)));
    assert_eq!(select(36, &caps), Ok((16, 8)));
    assert!(select(30, &caps).is_err() && select(0, &caps).is_err());
}
