//! How long the published model's products take on this device, cut in several ways: printed, for whoever chooses
//! constants (`cargo test --release -- --nocapture mv_q8::timing`). On a device that does not tell its compute
//! units, such as a CPU, one small product shows that the measurement works.
//!
//! Weights are copies side by side, far larger than any cache together, and every dispatch takes the next one. The
//! time is that of a graph of many dispatches with barriers between them, as in a decode step, divided by their
//! number. It needs a device without validation and bounds checks, hence not the one of the other tests.

use super::choice::{Constants, select};
use super::*;
use crate::kernels::control::Row;
use crate::vulkan::{
    Arena, DeviceInfo, Instance, Options, Patience, Queue, Rank, Request, Residence, Validation,
    choose,
};
use std::time::Instant;

struct Bench {
    queue: Queue,
    arena: Arena,
}

/// Bytes of weights that no cache holds.
const COLD_BYTES: u64 = 400 << 20;

impl Bench {
    fn open() -> Option<Self> {
        let instance = Instance::new(Validation::Off).ok()?;
        let devices = instance.devices().ok()?;
        let infos: Vec<DeviceInfo> = devices.iter().map(|d| d.info.clone()).collect();
        let index = choose(&infos, Request::Any, &Rank::default()).ok()?;
        let (device, queue) = Device::open(&devices[index], &Options::default()).ok()?;
        let arena = Arena::new(&device, "timing", Residence::Device, 64 << 20);
        Some(Self { queue, arena })
    }

    /// A buffer of repetitions of a pattern: small normal numbers, whatever the type.
    fn filled(&mut self, bytes: u64) -> Slice {
        let words: Vec<u32> =
            (0..1 << 16).map(|i: u32| 0x2c01_2b03 ^ ((i * 7919) & 0x00ff_01ff)).collect();
        let pattern = self.arena.buffer("pattern", 1 << 18).unwrap().all();
        self.queue.upload(&pattern, bytemuck::cast_slice(&words)).unwrap();
        let buffer = self.arena.buffer("filled", bytes).unwrap();
        self.queue.replicate(&pattern, &buffer.all()).unwrap();
        buffer.all()
    }

    /// Microseconds of a dispatch.
    fn time(&mut self, form: Form, shape: Shape, cut: Cut) -> f64 {
        let kernel = MatVec::with(self.queue.device(), form, shape, cut).unwrap();
        let (rows, k, batch) = (u64::from(shape.rows), u64::from(shape.k), u64::from(shape.batch));
        let copies = (COLD_BYTES / (rows * k)).clamp(1, 48);
        let codes = self.filled(copies * rows * k);
        let scales = self.filled(copies * rows * k / 16);
        let control = self.arena.buffer("control", 256 * batch).unwrap().all();
        self.queue
            .upload(
                &control,
                bytemuck::bytes_of(&Row::default()).repeat(shape.batch as usize).as_slice(),
            )
            .unwrap();
        let x = self.filled(batch * k * 4);
        let norm =
            Norm { squares: self.filled(batch * 256 * 4), weight: self.filled(k * 4), eps: 1e-6 };
        let normed = !matches!(form, Form::Plain | Form::Residual);
        let output = self.output(form, shape, &kernel);
        let nodes = copies.max(64);
        let mut graph = Graph::new("timing");
        let held = [&codes, &scales, &control, &x, &norm.squares, &norm.weight];
        for slice in held {
            graph.input(slice);
        }
        match &output {
            Output::Residual { h, .. } => graph.input(h),
            Output::Head(head) => [&head.mask, &head.bias].into_iter().for_each(|s| graph.input(s)),
            Output::Rows(_)
            | Output::Recurrent { .. }
            | Output::Mixer { .. }
            | Output::Gates(_) => {}
        }
        for i in 0..nodes {
            let copy = i % copies;
            let codes = codes.buffer.slice(copy * rows * k, rows * k);
            let scales = scales.buffer.slice(copy * rows * k / 16, rows * k / 16);
            let io = Operands {
                control: control.clone(),
                matrix: Matrix::Q8(Planes { codes, scales }),
                x: x.clone(),
                exponent: 0,
                norm: normed.then(|| norm.clone()),
                output: output.clone(),
            };
            graph.level();
            kernel.record(&mut graph, "timed", io);
        }
        let recorded = graph.record(self.queue.device()).unwrap();
        let mut best = f64::INFINITY;
        for _ in 0..40 {
            let start = Instant::now();
            self.queue.run(&recorded, &Patience::default()).unwrap();
            best = best.min(start.elapsed().as_secs_f64());
        }
        best * 1e6 / nodes as f64
    }

    fn output(&mut self, form: Form, shape: Shape, kernel: &MatVec) -> Output {
        let (rows, batch) = (u64::from(shape.rows), u64::from(shape.batch));
        match form {
            Form::Residual => Output::Residual {
                h: self.filled(batch * rows * 4),
                squares: self.filled(batch * u64::from(kernel.partials()) * 4),
            },
            Form::Head => Output::Head(Head {
                logits: self.filled(batch * rows * 4),
                pairs: self.filled(batch * u64::from(kernel.groups()) * 8),
                mask: self.filled(rows.div_ceil(32) * 4),
                bias: self.filled(8),
                first_row: 0,
            }),
            Form::Plain | Form::Norm | Form::Recurrent | Form::Mixer | Form::Gates => {
                Output::Rows(self.filled(batch * rows * 4))
            }
        }
    }

    /// Prints the times with matrices, where the device has them.
    fn matrices(&mut self, name: &str, form: Form, shape: Shape, bytes: f64) -> bool {
        let Some(chosen) = matrix::select(form, shape, self.queue.device().caps()) else {
            return false;
        };
        for t in [1, 2, 3, 4, 6, 8] {
            let us = self.time(form, shape, Cut::Matrix(matrix::Constants { t, ..chosen }));
            let mark = if t == chosen.t { "<- chosen" } else { "" };
            println!(
                "{name} x{}: {us:7.2} us {:5.0} GB/s  matrices nsg {} T {t} {mark}",
                shape.batch,
                bytes / us / 1e3,
                chosen.nsg
            );
        }
        true
    }

    /// Prints the time of the chosen cut and of others.
    fn compare(&mut self, name: &str, form: Form, shape: Shape) {
        let caps = self.queue.device().caps().clone();
        let chosen = select(form, shape, &caps).unwrap();
        let bytes = f64::from(shape.rows) * f64::from(shape.k) * 34.0 / 32.0;
        let report = |bench: &mut Self, mark: &str, c: Constants| {
            let us = bench.time(form, shape, Cut::Lanes(c));
            let Constants { nsg, r, t, u, block, stage_x, x_in_regs, .. } = c;
            println!(
                "{name} x{}: {us:7.2} us {:5.0} GB/s  nsg {nsg} R {r} T {t} U {u} block {block} stage {stage_x} \
                 regs {x_in_regs} {mark}",
                shape.batch,
                bytes / us / 1e3,
            );
        };
        report(self, "<- chosen in lanes", chosen);
        let has_matrices = self.matrices(name, form, shape, bytes);
        if caps.compute_units.is_none() || has_matrices {
            return;
        }
        let steps = (shape.k / 16).div_ceil(chosen.sg);
        let whole = chosen.block * 16 == shape.k;
        for nsg in [4, 8, 16] {
            for (r, t, u) in [
                (1, 1, 4),
                (1, 1, 8),
                (2, 1, 1),
                (2, 1, 2),
                (2, 1, 4),
                (4, 1, 1),
                (4, 1, 2),
                (4, 2, 2),
                (8, 1, 1),
            ] {
                let rounds = form != Form::Residual || (nsg * r * t) % PART_ROWS == 0;
                let blocks = chosen.block.is_multiple_of(chosen.sg * u) || whole;
                let groups = shape.rows.div_ceil(nsg * r * t);
                let c =
                    Constants { workgroup: nsg * chosen.sg, nsg, r, t, u, x_in_regs: 0, ..chosen };
                let useful = u <= steps && (t == 1 || whole) && groups >= 64 && c != chosen;
                if rounds && blocks && useful {
                    report(self, "", c);
                }
            }
        }
        report(self, "", Constants { stage_x: 0, x_in_regs: 0, block: shape.k / 16, ..chosen });
    }
}

#[test]
fn the_published_products_are_timed() {
    let Some(mut bench) = Bench::open() else { return };
    let shape = |rows, k, batch| Shape { storage: Storage::Q8, rows, k, batch };
    if bench.queue.device().caps().compute_units.is_none() {
        return bench.compare("small", Form::Residual, shape(64, 128, 1));
    }
    for batch in [1, 2, 4, 8] {
        bench.compare("recurrent in", Form::Norm, shape(12_352, 2048, batch));
        bench.compare("attention in", Form::Norm, shape(9216, 2048, batch));
        bench.compare("out", Form::Residual, shape(2048, 4096, batch));
    }
    bench.compare("head", Form::Head, shape(248_320, 2048, 1));
    bench.compare("head", Form::Head, shape(248_320, 2048, 8));
}
