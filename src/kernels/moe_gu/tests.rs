//! Tests of the gate and up projection: against f64, over formats, shapes and batch sizes.

use super::*;
use crate::kernels::check::{self, Draw, Gpu};
use crate::kernels::control::Row;
use crate::kernels::expert::samples::{
    as_bytes, blocks, choices, decoded, dot, from_bytes, ordered, restored,
};
use crate::vulkan::{Ability, lavapipe};

/// f32 products and sums, at most 64 + K / (64 lanes) + log2(lanes) roundings of 6e-8 of the sum of magnitudes. A
/// format with minimums sums codes and minimums apart, whose magnitudes are at most some times the weight's.
const BOUND: f64 = 2e-5;

/// A rounding of activations to f16, eight products and sums in f16 one after the other, and two more: at most eleven
/// roundings of 2^-11, of which few point the same way.
const PACKED_BOUND: f64 = 2e-3;

/// One problem on the device.
struct Problem {
    sizes: Sizes,
    layout: Layout,
    gate: Vec<u8>,
    up: Vec<u8>,
    /// `[rows][hidden]`, plain.
    x: Vec<f32>,
    ids: Vec<u32>,
    route: Vec<f32>,
    rows: Vec<Row>,
}

impl Problem {
    fn draw(seed: u64, sizes: Sizes, format: TensorType, down: TensorType, rows: usize) -> Self {
        println!("seed {seed}: {sizes:?} {} for {}, {rows} rows", format.name(), down.name());
        let mut draw = Draw::new(seed);
        let per_row = sizes.hidden as usize / format.block_len();
        let count = (sizes.experts * sizes.expert_ffn) as usize * per_row;
        let slots = rows * sizes.used as usize;
        Self {
            sizes,
            layout: Layout { gate_up: format, down, values: Values::F32 },
            gate: blocks(&mut draw, format, count),
            up: blocks(&mut draw, format, count),
            x: draw.activations(rows * sizes.hidden as usize),
            ids: choices(&mut draw, &sizes, rows),
            route: (0..slots).map(|_| draw.normal().abs() / 4.0).collect(),
            rows: vec![Row::default(); rows],
        }
    }

    /// With activations in bytes.
    fn in_bytes(mut self) -> Self {
        self.layout.values = Values::I8;
        self
    }

    fn interface(&self, device: &Device) -> &'static Interface {
        let forms = FORMS.iter().find(|f| f.format == self.layout.gate_up).unwrap();
        match self.layout.values {
            Values::F32 | Values::F16 => &forms.f32,
            Values::I8 if device.caps().has(Ability::IntDot) => &forms.i8,
            Values::I8 => SOFT.iter().find(|i| i.variant.starts_with(forms.i8.variant)).unwrap(),
        }
    }

    /// The words of `mid` as the kernel leaves them, per row.
    fn run(&self, gpu: &mut Gpu, change: impl Fn(&mut Constants)) -> Vec<u32> {
        let device = Arc::clone(gpu.device());
        let mut constants = select(&self.sizes, self.layout, None, device.caps()).unwrap();
        change(&mut constants);
        let kernel = if self.layout.values == Values::F16 {
            MoeGu::new(&device, &self.sizes, self.layout, None).unwrap()
        } else {
            MoeGu::with(&device, self.layout.gate_up, self.interface(&device), constants).unwrap()
        };
        let (hidden, order) = (self.sizes.hidden as usize, Order::of(self.layout.gate_up));
        let x = match self.layout.values {
            Values::F32 | Values::F16 => ordered(&self.x, hidden, order),
            Values::I8 => as_bytes(&self.x, hidden, order).0,
        };
        let len = self.ids.len() * self.sizes.expert_ffn as usize;
        let mid = gpu.output("mid", len * 4);
        let mut graph = Graph::new("moe_gu");
        let io = MoeGuIo {
            control: gpu.input("control", &self.rows),
            gate: gpu.input("gate", &self.gate),
            up: gpu.input("up", &self.up),
            table: table(self.layout.gate_up).map(|t| gpu.input("table", t)),
            x: gpu.input("x", &x),
            ids: gpu.input("ids", &self.ids),
            route: gpu.input("route", &self.route),
            mid: mid.slice(),
        };
        for slice in [&io.control, &io.gate, &io.up, &io.x, &io.ids, &io.route] {
            graph.input(slice);
        }
        if let Some(table) = &io.table {
            graph.input(table);
        }
        graph.level();
        kernel.record(&mut graph, "moe_gu", io);
        gpu.run(graph);
        gpu.words(&mid)
    }

    /// Row `row` alone.
    fn single(&self, row: usize) -> Self {
        let part = |len: u32| row * len as usize..(row + 1) * len as usize;
        Self {
            gate: self.gate.clone(),
            up: self.up.clone(),
            x: self.x[part(self.sizes.hidden)].to_vec(),
            ids: self.ids[part(self.sizes.used)].to_vec(),
            route: self.route[part(self.sizes.used)].to_vec(),
            rows: vec![self.rows[row]],
            ..*self
        }
    }

    fn check(&self, words: &[u32]) {
        let (hidden, ffn) = (self.sizes.hidden as usize, self.sizes.expert_ffn as usize);
        let order = Order::of(self.layout.down);
        // Values and what rounding to bytes may change.
        let mid: Vec<(f32, f32)> = match self.layout.values {
            Values::F32 | Values::F16 => {
                let values: Vec<f32> = words.iter().map(|&w| f32::from_bits(w)).collect();
                restored(&values, ffn, order).into_iter().map(|v| (v, 0.0)).collect()
            }
            Values::I8 => from_bytes(words, ffn, order),
        };
        let x = match self.layout.values {
            Values::F32 | Values::F16 => self.x.clone(),
            Values::I8 => as_bytes(&self.x, hidden, Order::of(self.layout.gate_up)).1,
        };
        let (gate, up) =
            (decoded(self.layout.gate_up, &self.gate), decoded(self.layout.gate_up, &self.up));
        let bound = if self.layout.values == Values::F16 { PACKED_BOUND } else { BOUND };
        for (slot, (&id, &route)) in self.ids.iter().zip(&self.route).enumerate() {
            let row = slot / self.sizes.used as usize;
            let x: Vec<f64> = x[row * hidden..][..hidden].iter().map(|&v| f64::from(v)).collect();
            for i in 0..ffn {
                let at = (id as usize * ffn + i) * hidden;
                let (g, g_size) = dot(&gate[at..at + hidden], &x);
                let (u, u_size) = dot(&up[at..at + hidden], &x);
                let silu = g / (1.0 + (-g).exp());
                let expected = silu * u * f64::from(route);
                // |silu'| < 1.1; exp and the division add some roundings.
                let off = f64::from(route)
                    * (1.1 * bound * g_size * (u.abs() + bound * u_size)
                        + silu.abs() * bound * u_size);
                let (found, step) = mid[slot * ffn + i];
                let (found, off) = (f64::from(found), off + 0.501 * f64::from(step));
                assert!(
                    (found - expected).abs() <= off + 2e-6 * expected.abs() + 1e-36,
                    "slot {slot} row {i}: {found} for {expected}, allowed {off}"
                );
            }
        }
    }
}

const FORMATS: [TensorType; 6] = [
    TensorType::IQ2_XXS,
    TensorType::Q2_K,
    TensorType::Q4_K,
    TensorType::Q5_K,
    TensorType::Q6_K,
    TensorType::Q8_0,
];

fn small() -> Sizes {
    Sizes { hidden: 256, experts: 5, used: 3, expert_ffn: 256, shared_ffn: 64 }
}

#[test]
fn every_format_in_both_orders() {
    let Some(mut gpu) = check::gpu() else { return };
    for (seed, format) in (1..).zip(FORMATS) {
        for (down, hidden) in [(TensorType::Q4_K, 256), (TensorType::Q2_K, 768)] {
            let sizes = Sizes { hidden, expert_ffn: 256, experts: 3, used: 2, ..small() };
            let problem = Problem::draw(seed, sizes, format, down, 1);
            problem.check(&problem.run(&mut gpu, |_| {}));
        }
    }
}

#[test]
fn activations_in_bytes() {
    let Some(mut gpu) = check::gpu() else { return };
    for (seed, (format, down, hidden)) in (10..).zip([
        (TensorType::IQ2_XXS, TensorType::Q2_K, 256),
        (TensorType::IQ2_XXS, TensorType::Q8_0, 2048),
        (TensorType::Q4_K, TensorType::Q6_K, 768),
    ]) {
        let sizes = Sizes { hidden, expert_ffn: 256, experts: 3, used: 2, ..small() };
        let problem = Problem::draw(seed, sizes, format, down, 2).in_bytes();
        let words = problem.run(&mut gpu, |_| {});
        problem.check(&words);
        let one = problem.single(1).run(&mut gpu, |_| {});
        assert!(words[words.len() / 2..] == one, "{}", format.name());
    }
}

#[test]
fn packed_pairs() {
    let Some(mut gpu) = check::gpu() else { return };
    if !gpu.device().caps().has(Ability::Float16) {
        return;
    }
    let (format, q2, q8) = (TensorType::IQ2_XXS, TensorType::Q2_K, TensorType::Q8_0);
    let cases =
        [(256, 256, 2, q2, 1), (768, 64, 3, q8, 2), (2048, 512, 2, q2, 1), (512, 192, 5, q8, 3)];
    for (seed, (hidden, expert_ffn, used, down, rows)) in (60..).zip(cases) {
        let sizes = Sizes { hidden, experts: 5, used, expert_ffn, shared_ffn: 64 };
        let mut problem = Problem::draw(seed, sizes, format, down, rows);
        problem.layout.values = Values::F16;
        let words = problem.run(&mut gpu, |_| {});
        problem.check(&words);
        let last = problem.single(rows - 1).run(&mut gpu, |_| {});
        assert!(words.ends_with(&last), "a row of a batch has the bits of a row alone");
    }
}

#[test]
fn packed_workgroups_follow_the_compute_units() {
    let sizes = Sizes { hidden: 2048, experts: 256, used: 8, expert_ffn: 512, shared_ffn: 512 };
    let layout =
        Layout { gate_up: TensorType::IQ2_XXS, down: TensorType::Q2_K, values: Values::F16 };
    let mut caps = lavapipe();
    (caps.subgroups.min, caps.subgroups.max, caps.limits.shared_bytes) = (32, 64, 64 << 10);
    for (units, subgroups, t) in [(40, 26, 2), (24, 29, 3)] {
        caps.compute_units = Some(units);
        let c = packed::select(&sizes, layout, None, &caps).unwrap();
        assert_eq!((c.workgroup, c.t, c.copies, c.groups()), (subgroups * 32, t, 8, units));
        let c = packed::select(&sizes, layout, Some(8), &caps).unwrap();
        assert_eq!((c.workgroup, c.copies, c.groups()), (512, 4, 256));
    }
}

#[test]
fn awkward_shapes() {
    let Some(mut gpu) = check::gpu() else { return };
    // Rows of one unit, of a number of units that is no power of two; widths that end inside a workgroup.
    for (seed, (hidden, expert_ffn, used)) in
        (20..).zip([(64, 64, 1), (192, 128, 8), (320, 64, 2), (1088, 192, 3)])
    {
        let sizes = Sizes { hidden, experts: 9, used, expert_ffn, shared_ffn: 64 };
        let problem = Problem::draw(seed, sizes, TensorType::Q8_0, TensorType::Q8_0, 1);
        problem.check(&problem.run(&mut gpu, |_| {}));
    }
}

#[test]
fn real_width() {
    let Some(mut gpu) = check::gpu() else { return };
    let sizes = Sizes { hidden: 2048, experts: 2, used: 2, expert_ffn: 512, shared_ffn: 512 };
    for (seed, format) in (30..).zip([TensorType::IQ2_XXS, TensorType::Q4_K]) {
        let problem = Problem::draw(seed, sizes, format, TensorType::Q2_K, 1);
        problem.check(&problem.run(&mut gpu, |_| {}));
    }
}

#[test]
fn constants_do_not_change_bits() {
    let Some(mut gpu) = check::gpu() else { return };
    for format in [TensorType::IQ2_XXS, TensorType::Q4_K] {
        let problem = Problem::draw(40, small(), format, TensorType::Q4_K, 1);
        let expected = problem.run(&mut gpu, |_| {});
        for r in [1, 3, 4] {
            let words = problem.run(&mut gpu, |c| {
                c.r = r;
                c.shared_grid = r % 2;
                c.workgroup = 2 * c.sg;
            });
            assert!(words == expected, "{} R {r}", format.name());
        }
    }
}

#[test]
fn a_row_of_a_batch_has_the_bits_of_a_row_alone() {
    let Some(mut gpu) = check::gpu() else { return };
    for (seed, (format, rows)) in
        (50..).zip([(TensorType::IQ2_XXS, 2), (TensorType::IQ2_XXS, 8), (TensorType::Q4_K, 4)])
    {
        let mut problem = Problem::draw(seed, small(), format, TensorType::Q2_K, rows);
        problem.rows[1].flags = Row::IDLE;
        let batch = problem.run(&mut gpu, |_| {});
        let len = batch.len() / rows;
        for (row, words) in batch.chunks(len).enumerate() {
            if row == 1 {
                assert!(words.iter().all(|&w| w == Gpu::POISON), "an idle row writes nothing");
            } else {
                let alone = problem.single(row).run(&mut gpu, |_| {});
                assert!(words == alone, "{} row {row} of {rows}", format.name());
            }
        }
    }
}

#[test]
fn constants_follow_the_device() {
    let sizes = Sizes { hidden: 2048, experts: 256, used: 8, expert_ffn: 512, shared_ffn: 512 };
    let caps = lavapipe();
    let layout =
        Layout { gate_up: TensorType::IQ2_XXS, down: TensorType::Q2_K, values: Values::F32 };
    let c = select(&sizes, layout, None, &caps).unwrap();
    assert_eq!((c.workgroup, c.sg, c.lanes, c.order), (256, 8, 8, 1));
    assert_eq!((c.grouped, c.nt), (0, 1));
    let mut wide = caps;
    (wide.subgroups.min, wide.subgroups.max) = (32, 64);
    let c = select(&sizes, layout, Some(4), &wide).unwrap();
    assert_eq!((c.workgroup, c.sg, c.lanes, c.group_pairs()), (256, 64, 32, 16));
    assert_eq!((c.grouped, c.nt), (1, 4));
    assert!(select(&sizes, layout, Some(9), &wide).is_err());
    assert!(select(&Sizes { hidden: 192, ..sizes }, layout, None, &wide).is_err());
    assert!(select(&Sizes { expert_ffn: 64, ..sizes }, layout, None, &wide).is_err());
}
