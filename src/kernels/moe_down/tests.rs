//! Tests of the down projection: against f64, over formats, shapes, targets and batch sizes.

use super::*;
use crate::kernels::check::{self, Draw, Gpu};
use crate::kernels::control::Row;
use crate::kernels::expert::Order;
use crate::kernels::expert::samples::{as_bytes, blocks, choices, decoded, dot, ordered};
use crate::kernels::mv_q8::repack;
use crate::vulkan::{Ability, lavapipe};

/// As for the gate and up projection.
const BOUND: f64 = 2e-5;

/// Roundings of activations and of chains of eight products in f16, as for the gate and up projection; what is
/// rounded is up to seven times a scale where weights are up to three.
const PACKED_BOUND: f64 = 5e-3;

fn layout(down: TensorType, values: Values) -> Layout {
    Layout { gate_up: TensorType::IQ2_XXS, down, values }
}

/// One problem on the device.
struct Problem {
    sizes: Sizes,
    format: TensorType,
    values: Values,
    down: Vec<u8>,
    shared: Vec<u8>,
    /// `[rows][used][expert_ffn]`, plain.
    mid: Vec<f32>,
    shared_mid: Vec<f32>,
    sigma: Vec<f32>,
    ids: Vec<u32>,
    h: Vec<f32>,
    rows: Vec<Row>,
}

/// What the kernel leaves: the target, and the sums of squares unless steered.
type Left = (Vec<u32>, Option<Vec<u32>>);

impl Problem {
    fn draw(seed: u64, sizes: Sizes, format: TensorType, rows: usize) -> Self {
        println!("seed {seed}: {sizes:?} {}, {rows} rows", format.name());
        let mut draw = Draw::new(seed);
        let wide = |n: u32| n as usize;
        let per_row = wide(sizes.expert_ffn) / format.block_len();
        let shared = wide(sizes.hidden) * wide(sizes.shared_ffn) / 32;
        let ids = choices(&mut draw, &sizes, rows);
        Self {
            sizes,
            format,
            values: Values::F32,
            down: blocks(&mut draw, format, wide(sizes.experts * sizes.hidden) * per_row),
            shared: blocks(&mut draw, TensorType::Q8_0, shared),
            mid: draw.activations(ids.len() * wide(sizes.expert_ffn)),
            shared_mid: draw.activations(rows * wide(sizes.shared_ffn)),
            sigma: draw.normals(rows),
            h: draw.normals(rows * wide(sizes.hidden)),
            ids,
            rows: vec![Row::default(); rows],
        }
    }

    fn layout(&self) -> Layout {
        layout(self.format, self.values)
    }

    fn interface(&self, device: &Device, steered: bool) -> &'static Interface {
        let forms = FORMS.iter().find(|f| f.format == self.format).unwrap();
        match (self.values, steered) {
            (Values::F16, _) if is_packed(self.layout()) => &PACKED[usize::from(steered)],
            (Values::F32 | Values::F16, false) => &forms.f32,
            (Values::F32 | Values::F16, true) => &forms.f32_plain,
            (Values::I8, false) if device.caps().has(Ability::IntDot) => &forms.i8,
            (Values::I8, false) => &SOFT,
            (Values::I8, true) => &forms.i8_plain,
        }
    }

    fn run(&self, gpu: &mut Gpu, steered: bool, change: impl Fn(&mut Constants)) -> Left {
        let device = Arc::clone(gpu.device());
        let mut constants = select(&self.sizes, self.layout(), None, device.caps()).unwrap();
        change(&mut constants);
        let interface = self.interface(&device, steered);
        let kernel = MoeDown {
            pipeline: interface.pipeline(&device, &[constants], constants.sg).unwrap(),
            constants,
            format: self.format,
            output: if steered { Output::Plain } else { Output::Residual },
        };
        let (mut codes, mut scales) =
            (vec![0; self.shared.len() / 34 * 32], vec![0; self.shared.len() / 17]);
        repack(&self.shared, &mut codes, &mut scales);
        let order = Order::of(self.format);
        let ffn = self.sizes.expert_ffn as usize;
        let mid = match self.values {
            Values::F32 | Values::F16 => ordered(&self.mid, ffn, order),
            Values::I8 => as_bytes(&self.mid, ffn, order).0,
        };
        let shared_mid = ordered(&self.shared_mid, self.sizes.shared_ffn as usize, Order::Plain);
        let h = gpu.update("h", &self.h);
        let sum = gpu.output("sum", self.h.len() * 4);
        let partials = kernel.partials() as usize * self.rows.len();
        let squares = gpu.output("squares", partials * 4);
        let target = if steered {
            Target::Plain(sum.slice())
        } else {
            Target::Residual { h: h.slice(), squares: squares.slice() }
        };
        let io = MoeDownIo {
            control: gpu.input("control", &self.rows),
            down: gpu.input("down", &self.down),
            shared: Planes {
                codes: gpu.input("codes", &codes),
                scales: gpu.input("scales", &scales),
            },
            mid: gpu.input("mid", &mid),
            shared_mid: gpu.input("shared_mid", &shared_mid),
            sigma: gpu.input("sigma", &self.sigma),
            ids: gpu.input("ids", &self.ids),
            target,
        };
        let mut graph = Graph::new("moe_down");
        let planes = [&io.shared.codes, &io.shared.scales];
        let others = [&io.control, &io.down, &io.mid, &io.shared_mid, &io.sigma, &io.ids];
        for slice in planes.into_iter().chain(others).chain([&h.slice()]) {
            graph.input(slice);
        }
        graph.level();
        kernel.record(&mut graph, "moe_down", io);
        gpu.run(graph);
        if steered { (gpu.words(&sum), None) } else { (gpu.words(&h), Some(gpu.words(&squares))) }
    }

    /// Row `row` alone.
    fn single(&self, row: usize) -> Self {
        let part = |len: u32| row * len as usize..(row + 1) * len as usize;
        let Sizes { hidden, used, expert_ffn, shared_ffn, .. } = self.sizes;
        Self {
            down: self.down.clone(),
            shared: self.shared.clone(),
            mid: self.mid[part(used * expert_ffn)].to_vec(),
            shared_mid: self.shared_mid[part(shared_ffn)].to_vec(),
            sigma: vec![self.sigma[row]],
            ids: self.ids[part(used)].to_vec(),
            h: self.h[part(hidden)].to_vec(),
            rows: vec![self.rows[row]],
            ..*self
        }
    }

    fn check(&self, (words, squares): &Left) {
        let wide = |n: u32| n as usize;
        let Sizes { hidden, used, expert_ffn, shared_ffn, .. } = self.sizes;
        let (hidden, used, ffn) = (wide(hidden), wide(used), wide(expert_ffn));
        let down = decoded(self.format, &self.down);
        let shared = decoded(TensorType::Q8_0, &self.shared);
        let exact = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
        let mid = match self.values {
            Values::F32 | Values::F16 => exact(&self.mid),
            Values::I8 => exact(&as_bytes(&self.mid, ffn, Order::of(self.format)).1),
        };
        let bound = if is_packed(self.layout()) { PACKED_BOUND } else { BOUND };
        let shared_mid = exact(&self.shared_mid);
        let found: Vec<f64> = words.iter().map(|&w| f64::from(f32::from_bits(w))).collect();
        for (row, &sigma) in self.sigma.iter().enumerate() {
            for i in 0..hidden {
                let at = i * wide(shared_ffn);
                let x = &shared_mid[row * wide(shared_ffn)..][..wide(shared_ffn)];
                let (mut sum, mut size) = dot(&shared[at..at + wide(shared_ffn)], x);
                sum *= f64::from(sigma);
                size *= f64::from(sigma.abs());
                for slot in row * used..(row + 1) * used {
                    let at = (wide(self.ids[slot]) * hidden + i) * ffn;
                    let (s, m) = dot(&down[at..at + ffn], &mid[slot * ffn..][..ffn]);
                    (sum, size) = (sum + s, size + m);
                }
                if squares.is_some() {
                    let h = f64::from(self.h[row * hidden + i]);
                    (sum, size) = (sum + h, size + h.abs());
                }
                let off = (found[row * hidden + i] - sum).abs();
                assert!(off <= bound * size + 1e-36, "row {row} value {i}: off {off} of {size}");
            }
            let Some(squares) = squares else { continue };
            let parts = squares.len() / self.rows.len();
            let total: f64 =
                squares[row * parts..][..parts].iter().map(|&w| f64::from(f32::from_bits(w))).sum();
            let expected: f64 = found[row * hidden..][..hidden].iter().map(|v| v * v).sum();
            assert!((total - expected).abs() <= 1e-6 * expected, "{total} for {expected}");
        }
    }
}

const FORMATS: [TensorType; 5] =
    [TensorType::Q2_K, TensorType::Q4_K, TensorType::Q5_K, TensorType::Q6_K, TensorType::Q8_0];

fn small() -> Sizes {
    Sizes { hidden: 64, experts: 9, used: 8, expert_ffn: 256, shared_ffn: 256 }
}

#[test]
fn every_format_and_target() {
    let Some(mut gpu) = check::gpu() else { return };
    for (seed, format) in (1..).zip(FORMATS) {
        for (steered, expert_ffn) in [(false, 512), (true, 256)] {
            let problem = Problem::draw(seed, Sizes { expert_ffn, ..small() }, format, 1);
            problem.check(&problem.run(&mut gpu, steered, |_| {}));
        }
    }
}

#[test]
fn activations_in_bytes() {
    let Some(mut gpu) = check::gpu() else { return };
    for (seed, expert_ffn) in (10..).zip([256, 768]) {
        let sizes = Sizes { expert_ffn, ..small() };
        let mut problem = Problem::draw(seed, sizes, TensorType::Q2_K, 1);
        problem.values = Values::I8;
        problem.check(&problem.run(&mut gpu, false, |_| {}));
    }
}

#[test]
fn packed_pairs() {
    let Some(mut gpu) = check::gpu() else { return };
    if !gpu.device().caps().has(Ability::Float16) {
        return;
    }
    for (seed, (hidden, expert_ffn, used, steered)) in
        (60..).zip([(64, 256, 8, false), (128, 768, 3, true), (64, 512, 8, false)])
    {
        let sizes = Sizes { hidden, used, expert_ffn, ..small() };
        let mut problem = Problem::draw(seed, sizes, TensorType::Q2_K, 2);
        problem.values = Values::F16;
        let left = problem.run(&mut gpu, steered, |_| {});
        problem.check(&left);
        let last = problem.single(1).run(&mut gpu, steered, |_| {});
        assert!(left.0.ends_with(&last.0), "a row of a batch has the bits of a row alone");
    }
}

#[test]
fn awkward_shapes() {
    let Some(mut gpu) = check::gpu() else { return };
    for (seed, (hidden, expert_ffn, shared_ffn, used)) in
        (20..).zip([(64, 64, 64, 1), (192, 192, 512, 3), (128, 576, 64, 5), (64, 128, 1088, 8)])
    {
        let sizes = Sizes { hidden, experts: 9, used, expert_ffn, shared_ffn };
        let problem = Problem::draw(seed, sizes, TensorType::Q8_0, 1);
        problem.check(&problem.run(&mut gpu, false, |_| {}));
    }
}

#[test]
fn real_width() {
    let Some(mut gpu) = check::gpu() else { return };
    let sizes = Sizes { hidden: 2048, experts: 3, used: 2, expert_ffn: 512, shared_ffn: 512 };
    let problem = Problem::draw(30, sizes, TensorType::Q2_K, 1);
    problem.check(&problem.run(&mut gpu, false, |_| {}));
}

#[test]
fn constants_do_not_change_bits() {
    let Some(mut gpu) = check::gpu() else { return };
    for format in [TensorType::Q2_K, TensorType::Q4_K] {
        let problem = Problem::draw(40, small(), format, 1);
        let expected = problem.run(&mut gpu, true, |_| {});
        // Rows after each other of as many as lie beside each other in a subgroup; fewer than those there cannot be.
        for (times, subgroups) in [(1, 3), (2, 1), (4, 9), (4, 4)] {
            let left = problem.run(&mut gpu, true, |c| {
                c.rows = times * c.beside();
                c.workgroup = subgroups * c.sg;
            });
            let name = format.name();
            assert!(left == expected, "{name}, {times} times, {subgroups} subgroups");
        }
    }
}

#[test]
fn a_row_of_a_batch_has_the_bits_of_a_row_alone() {
    let Some(mut gpu) = check::gpu() else { return };
    for (seed, (format, rows)) in
        (50..).zip([(TensorType::Q2_K, 2), (TensorType::Q2_K, 8), (TensorType::Q4_K, 4)])
    {
        let mut problem = Problem::draw(seed, small(), format, rows);
        problem.rows[1].flags = Row::IDLE;
        let (h, squares) = problem.run(&mut gpu, false, |_| {});
        let squares = squares.unwrap();
        let parts = squares.len() / rows;
        for row in 0..rows {
            let h = &h[row * 64..][..64];
            let squares = &squares[row * parts..][..parts];
            if row == 1 {
                let before = problem.h[64..128].iter().map(|v| v.to_bits());
                assert!(h.iter().copied().eq(before), "an idle row keeps its residual");
                assert!(squares.iter().all(|&w| w == Gpu::POISON));
            } else {
                let (alone, sums) = problem.single(row).run(&mut gpu, false, |_| {});
                let same = h == alone && squares == sums.unwrap();
                assert!(same, "{} row {row} of {rows}", format.name());
            }
        }
    }
}

#[test]
fn constants_follow_the_device() {
    let sizes = Sizes { hidden: 2048, experts: 256, used: 8, expert_ffn: 512, shared_ffn: 512 };
    let caps = lavapipe();
    let q2 = layout(TensorType::Q2_K, Values::F32);
    let c = select(&sizes, q2, None, &caps).unwrap();
    assert_eq!((c.workgroup, c.sg, c.lanes, c.rows), (72, 8, 8, 2));
    let mut wide = caps;
    (wide.subgroups.min, wide.subgroups.max) = (32, 32);
    let c = select(&sizes, q2, None, &wide).unwrap();
    assert_eq!((c.workgroup, c.sg, c.lanes, c.rows), (288, 32, 8, 8));
    let few = Sizes { expert_ffn: 256, ..sizes };
    let c = select(&few, q2, None, &wide).unwrap();
    assert_eq!((c.lanes, c.shared_lanes, c.rows), (4, 8, 16));
    (wide.subgroups.min, wide.subgroups.max) = (32, 64);
    let c = select(&sizes, layout(TensorType::Q2_K, Values::F16), None, &wide).unwrap();
    assert_eq!((c.workgroup, c.sg, c.lanes, c.rows), (288, 32, 8, 16));
    // Layers of other formats beside it leave as many partial sums.
    for format in FORMS.map(|f| f.format) {
        let other = select(&sizes, layout(format, Values::F16), None, &wide).unwrap();
        assert_eq!(other.rows, c.rows, "{}", format.name());
    }
    assert!(select(&Sizes { expert_ffn: 192, ..sizes }, q2, None, &wide).is_err());
}
