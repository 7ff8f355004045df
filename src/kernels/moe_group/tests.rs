//! Tests of grouped batches: the entries, and that a whole expert block has the bits of its rows by themselves.

use super::*;
use crate::kernels::check::{self, Draw, Gpu, Output as Buffer};
use crate::kernels::control::Row;
use crate::kernels::expert::samples::{blocks, choices};
use crate::kernels::expert::{Layout, Values};
use crate::kernels::moe_down::{MoeDown, MoeDownIo, Output};
use crate::kernels::moe_gu::{MoeGu, MoeGuIo, table};
use crate::kernels::mv_q8::{Planes, repack};
use crate::quant::TensorType;
use crate::vulkan::Ability;

/// A step whose rows share experts.
struct Problem {
    sizes: Sizes,
    layout: Layout,
    ids: Vec<u32>,
    rows: Vec<Row>,
}

fn problem(seed: u64, layout: Layout, rows: usize) -> Problem {
    println!("seed {seed}: {layout:?}, {rows} rows");
    // Few experts, so that most are chosen by several rows.
    let sizes = Sizes { hidden: 256, experts: 7, used: 3, expert_ffn: 256, shared_ffn: 128 };
    let ids = choices(&mut Draw::new(seed), &sizes, rows);
    let mut rows = vec![Row::default(); rows];
    if rows.len() > 2 {
        rows[1].flags = Row::IDLE;
    }
    Problem { sizes, layout, ids, rows }
}

/// Weights and inputs on the device.
struct Inputs {
    control: Slice,
    gate: Slice,
    up: Slice,
    down: Slice,
    shared: Planes,
    table: Option<Slice>,
    x: Slice,
    ids: Slice,
    route: Slice,
    shared_mid: Slice,
    sigma: Slice,
}

impl Inputs {
    fn new(gpu: &mut Gpu, problem: &Problem, draw: &mut Draw) -> Self {
        let Problem { sizes, layout, ids, rows } = problem;
        let wide = |n: u32| n as usize;
        let mut matrix = |format: TensorType, rows: u32, width: u32| {
            let count = wide(sizes.experts) * wide(rows) * wide(width) / format.block_len();
            blocks(draw, format, count)
        };
        let gate = matrix(layout.gate_up, sizes.expert_ffn, sizes.hidden);
        let up = matrix(layout.gate_up, sizes.expert_ffn, sizes.hidden);
        let down = matrix(layout.down, sizes.hidden, sizes.expert_ffn);
        let shared = blocks(draw, TensorType::Q8_0, wide(sizes.hidden * sizes.shared_ffn) / 32);
        let (mut codes, mut scales) = (vec![0; shared.len() / 34 * 32], vec![0; shared.len() / 17]);
        repack(&shared, &mut codes, &mut scales);
        let n = rows.len();
        Self {
            control: gpu.input("control", rows),
            gate: gpu.input("gate", &gate),
            up: gpu.input("up", &up),
            down: gpu.input("down", &down),
            shared: Planes {
                codes: gpu.input("codes", &codes),
                scales: gpu.input("scales", &scales),
            },
            table: table(layout.gate_up).map(|t| gpu.input("table", t)),
            // Any words are a vector, of floats or of bytes with scales.
            x: gpu.input("x", &draw.normals(n * wide(sizes.hidden))),
            ids: gpu.input("ids", ids),
            route: gpu.input("route", &draw.normals(ids.len())),
            shared_mid: gpu.input("shared_mid", &draw.normals(n * wide(sizes.shared_ffn))),
            sigma: gpu.input("sigma", &draw.normals(n)),
        }
    }

    fn declare(&self, graph: &mut Graph) {
        let planes = [&self.shared.codes, &self.shared.scales];
        let matrices = [&self.gate, &self.up, &self.down];
        let vectors = [&self.control, &self.x, &self.ids, &self.route, &self.shared_mid];
        for slice in planes.into_iter().chain(matrices).chain(vectors).chain([&self.sigma]) {
            graph.input(slice);
        }
        if let Some(table) = &self.table {
            graph.input(table);
        }
    }

    fn gate_up(&self, ids: &Slice, mid: &Slice) -> MoeGuIo {
        MoeGuIo {
            control: self.control.clone(),
            gate: self.gate.clone(),
            up: self.up.clone(),
            table: self.table.clone(),
            x: self.x.clone(),
            ids: ids.clone(),
            route: self.route.clone(),
            mid: mid.clone(),
        }
    }

    fn down(&self, ids: &Slice, mid: &Slice, target: Target) -> MoeDownIo {
        MoeDownIo {
            control: self.control.clone(),
            down: self.down.clone(),
            shared: self.shared.clone(),
            mid: mid.clone(),
            shared_mid: self.shared_mid.clone(),
            sigma: self.sigma.clone(),
            ids: ids.clone(),
            target,
        }
    }
}

/// The residual of a step and the partial sums of its squares; with `steered` the plain sum.
struct Outputs {
    target: Buffer,
    squares: Option<Buffer>,
}

impl Outputs {
    fn new(gpu: &mut Gpu, h: &[f32], partials: Option<usize>) -> Self {
        match partials {
            Some(n) => {
                Self { target: gpu.update("h", h), squares: Some(gpu.output("squares", n * 4)) }
            }
            None => Self { target: gpu.output("sum", h.len() * 4), squares: None },
        }
    }

    fn target(&self) -> Target {
        match &self.squares {
            Some(squares) => Target::Residual { h: self.target.slice(), squares: squares.slice() },
            None => Target::Plain(self.target.slice()),
        }
    }

    fn words(&self, gpu: &mut Gpu) -> (Vec<u32>, Option<Vec<u32>>) {
        (gpu.words(&self.target), self.squares.as_ref().map(|s| gpu.words(s)))
    }
}

/// Runs the block both ways and compares every word.
fn compare(gpu: &mut Gpu, problem: &Problem, steered: bool) {
    let Problem { sizes, layout, ids, rows } = problem;
    let device = Arc::clone(gpu.device());
    let (n, batch) = (rows.len(), u32::try_from(rows.len()).unwrap());
    let mut draw = Draw::new(99);
    let inputs = Inputs::new(gpu, problem, &mut draw);
    let h = draw.normals(n * sizes.hidden as usize);
    let mid_bytes = ids.len() * sizes.expert_ffn as usize * 4;
    let output = if steered { Output::Plain } else { Output::Residual };
    let singly = MoeDown::new(&device, sizes, *layout, output).unwrap();
    let partials = (!steered).then(|| singly.partials() as usize * n);

    let mid = gpu.output("mid", mid_bytes);
    let out = Outputs::new(gpu, &h, partials);
    let mut graph = Graph::new("singly");
    inputs.declare(&mut graph);
    graph.input(&out.target.slice());
    graph.level();
    let gate_up = MoeGu::new(&device, sizes, *layout, None).unwrap();
    gate_up.record(&mut graph, "gate up", inputs.gate_up(&inputs.ids, &mid.slice()));
    graph.level();
    let io = inputs.down(&inputs.ids, &mid.slice(), out.target());
    singly.record(&mut graph, "down", io);
    gpu.run(graph);
    let expected = (gpu.words(&mid), out.words(gpu));

    let group = MoeGroup::new(&device, sizes, batch).unwrap();
    let entries = gpu.output("entries", usize::try_from(group.bytes()).unwrap());
    let mid = gpu.output("mid", mid_bytes);
    let parts = gpu.output("parts", n * (sizes.used as usize + 1) * sizes.hidden as usize * 4);
    let out = Outputs::new(gpu, &h, partials);
    let mut graph = Graph::new("grouped");
    inputs.declare(&mut graph);
    graph.input(&out.target.slice());
    graph.level();
    let (control, ids) = (inputs.control.clone(), inputs.ids.clone());
    group.record(&mut graph, "group", control.clone(), ids, entries.slice());
    graph.level();
    let gate_up = MoeGu::new(&device, sizes, *layout, Some(batch)).unwrap();
    gate_up.record(&mut graph, "gate up", inputs.gate_up(&entries.slice(), &mid.slice()));
    graph.level();
    let down = MoeDown::new(&device, sizes, *layout, Output::Parts(batch)).unwrap();
    let io = inputs.down(&entries.slice(), &mid.slice(), Target::Parts(parts.slice()));
    down.record(&mut graph, "down", io);
    graph.level();
    let sum = MoeSum::new(&device, sizes, *layout, batch, steered).unwrap();
    let sigma = inputs.sigma.clone();
    let io = MoeSumIo { control, parts: parts.slice(), sigma, target: out.target() };
    sum.record(&mut graph, "sum", io);
    gpu.run(graph);
    assert!(expected.0 == gpu.words(&mid), "mid");
    assert!(expected.1 == out.words(gpu), "target or squares");
}

#[test]
fn a_grouped_batch_has_the_bits_of_its_rows() {
    let Some(mut gpu) = check::gpu() else { return };
    let (iq2, q2, q4) = (TensorType::IQ2_XXS, TensorType::Q2_K, TensorType::Q4_K);
    let cases = [(iq2, q2, 2, false), (iq2, q2, 4, true), (q4, q4, 8, false)];
    for (seed, (gate_up, down, rows, steered)) in (1..).zip(cases) {
        let layout = Layout { gate_up, down, values: Values::F32 };
        compare(&mut gpu, &problem(seed, layout, rows), steered);
        if gpu.device().caps().has(Ability::Float16) {
            let layout = Layout { values: Values::F16, ..layout };
            compare(&mut gpu, &problem(seed, layout, rows), steered);
        }
        if gpu.device().caps().has(Ability::IntDot) {
            let layout = Layout { values: Values::I8, ..layout };
            compare(&mut gpu, &problem(seed, layout, rows), steered);
        }
    }
}

#[test]
fn entries_are_sorted_and_complete() {
    let Some(mut gpu) = check::gpu() else { return };
    let device = Arc::clone(gpu.device());
    for (seed, rows) in (10..).zip([1, 2, 4, 8]) {
        let layout =
            Layout { gate_up: TensorType::Q4_K, down: TensorType::Q4_K, values: Values::F32 };
        let Problem { sizes, ids, rows, .. } = problem(seed, layout, rows);
        let group = MoeGroup::new(&device, &sizes, u32::try_from(rows.len()).unwrap()).unwrap();
        let entries = gpu.output("entries", usize::try_from(group.bytes()).unwrap());
        let (control, input) = (gpu.input("control", &rows), gpu.input("ids", &ids));
        let mut graph = Graph::new("group");
        graph.input(&control);
        graph.input(&input);
        graph.level();
        group.record(&mut graph, "group", control, input, entries.slice());
        gpu.run(graph);
        let mut expected = std::collections::BTreeMap::new();
        for (i, &id) in ids.iter().enumerate() {
            let (row, slot) = (i / sizes.used as usize, i % sizes.used as usize);
            if rows[row].flags & Row::IDLE == 0 {
                let slot = u32::try_from(slot + 1).unwrap();
                *expected.entry(id).or_insert(0) |= slot << (4 * row);
            }
        }
        let mut expected: Vec<u32> = expected.into_iter().flat_map(|(e, s)| [e, s]).collect();
        expected.resize(ids.len() * 2, 0);
        assert_eq!(gpu.words(&entries), expected);
    }
}
