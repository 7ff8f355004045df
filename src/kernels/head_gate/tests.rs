//! Tests of the head norm and gate.

use super::*;
use crate::kernels::check::{Draw, Gpu, gpu};
use crate::kernels::control::Row;
use crate::kernels::recurrent::fixture::EPS;
use crate::ops;
use crate::vulkan::Ability;

const D: usize = HEAD as usize;

/// A sum of 128 squares, a root, four products, and the exponential of a gate.
const BOUND: f32 = 4e-6;

/// A problem: as many heads and tokens of a class.
#[derive(Clone, Copy)]
struct Case {
    heads: u32,
    class: u32,
    tokens: u32,
    gate: Gate,
}

/// Values past the heads in a row of `z` and of `y`.
const PADDING: (usize, usize) = (32, 64);

impl Case {
    fn inner(self) -> usize {
        self.heads as usize * D
    }

    /// `o`, the norm, `z`; the first head reads nothing but zeros.
    fn draw(self) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
        let mut draw = Draw::new(u64::from(self.class + self.heads));
        let n = self.class as usize;
        let mut o = draw.normals(n * self.inner());
        o[..D].fill(0.0);
        (o, draw.normals(D), draw.normals(n * (self.inner() + PADDING.0)))
    }

    /// Rows of the chunk.
    fn expected(self) -> Vec<f32> {
        let (o, norm, z) = self.draw();
        let (inner, z_stride) = (self.inner(), self.inner() + PADDING.0);
        let mut y = vec![0.0; self.tokens as usize * inner];
        for (i, y) in y.chunks_exact_mut(D).enumerate() {
            let (t, at) = (i * D / inner, i * D % inner);
            let z = &z[t * z_stride + at..][..D];
            ops::gated_rms_norm(&o[i * D..][..D], &norm, z, EPS, y);
        }
        y
    }

    /// Words of the rows and of the factors.
    fn run(self, gpu: &mut Gpu, form: Form) -> (Vec<u32>, Vec<u32>) {
        let (o, norm, z) = self.draw();
        let given = match self.gate {
            Gate::Raw => z,
            Gate::Activated => z.into_iter().map(ops::silu).collect(),
        };
        let strides = Strides {
            z: u32::try_from(self.inner() + PADDING.0).unwrap(),
            y: u32::try_from(self.inner() + PADDING.1).unwrap(),
        };
        let size = if form == Form::F16 { 2 } else { 4 };
        let y = gpu.output("y", (self.class * strides.y) as usize * size);
        let factors = gpu.output("factors", self.class as usize * 4);
        let io = HeadGateIo {
            control: gpu.input("control", &[Row { tokens: self.tokens, ..Row::default() }]),
            norm: gpu.input("norm", &norm),
            o: gpu.input("o", &o),
            z: gpu.input("z", &given),
            y: y.slice(),
            factors: (form == Form::F16).then(|| factors.slice()),
        };
        let mut graph = Graph::new("head_gate");
        for slice in [&io.control, &io.norm, &io.o, &io.z] {
            graph.input(slice);
        }
        graph.level();
        let kernel = HeadGate::new(gpu.device(), form, self.heads, self.gate, strides).unwrap();
        kernel.record(&mut graph, "head_gate", self.class, EPS, io);
        gpu.run(graph);
        (gpu.words(&y), gpu.words(&factors))
    }

    fn check(self, gpu: &mut Gpu) {
        let (inner, expected) = (self.inner(), self.expected());
        let (words, _) = self.run(gpu, Form::F32);
        for (t, row) in words.chunks_exact(inner + PADDING.1).enumerate() {
            let (row, padding) = row.split_at(inner);
            assert!(padding.iter().all(|&w| w == Gpu::POISON), "token {t}: padding");
            if t >= self.tokens as usize {
                assert!(row.iter().all(|&w| w == 0), "token {t} is past the chunk");
                continue;
            }
            for (&bits, e) in row.iter().zip(&expected[t * inner..]) {
                let off = (f32::from_bits(bits) - e).abs();
                assert!(off <= BOUND * e.abs() + 1e-30, "token {t}: {off} of {e}");
            }
        }
        if gpu.device().caps().has(Ability::Float16) {
            self.check_halves(gpu, &expected);
        }
    }

    fn check_halves(self, gpu: &mut Gpu, expected: &[f32]) {
        let inner = self.inner();
        let (words, factors) = self.run(gpu, Form::F16);
        let stride = inner + PADDING.1;
        let rows = words.chunks_exact(stride / 2);
        for (t, (row, factor)) in rows.zip(factors).enumerate() {
            let factor = f32::from_bits(factor);
            let halves = row[..inner / 2].iter().flat_map(|&w| [w & 0xffff, w >> 16]);
            let found: Vec<f32> = halves
                .map(|h| half::f16::from_bits(u16::try_from(h).unwrap()).to_f32() * factor)
                .collect();
            if t >= self.tokens as usize {
                assert!(found.iter().all(|&v| v == 0.0), "token {t} is past the chunk");
                continue;
            }
            let expected = &expected[t * inner..][..inner];
            let largest = expected.iter().fold(0.0f32, |a, v| a.max(v.abs()));
            let used = largest / factor;
            assert!(used <= 256.0 && (used >= 127.0 || largest == 0.0), "{used} of 256");
            for (f, e) in found.iter().zip(expected) {
                // 11 bits, and the smallest f16 above zero of the scaled row.
                let bound = 6e-4 * e.abs() + factor * 6e-8;
                assert!((f - e).abs() <= bound, "token {t}: {f} for {e}");
            }
        }
    }
}

#[test]
fn tokens_match_the_reference() {
    let Some(mut gpu) = gpu() else { return };
    for (class, tokens, heads) in [(1, 1, 1), (5, 3, 3), (32, 32, 4), (17, 16, 32), (2, 2, 48)] {
        for gate in [Gate::Raw, Gate::Activated] {
            println!("{tokens} of {class} tokens, {heads} heads, {gate:?}");
            Case { heads, class, tokens, gate }.check(&mut gpu);
        }
    }
}
