//! Tests of the chunked delta rule against the reference, token by token.

use super::*;
use crate::kernels::check::{Draw, Gpu, gpu};
use crate::kernels::control::Row;
use crate::kernels::recurrent::fixture::{Chunk, Layer, Token, heads, join};
use crate::vulkan::lavapipe;

/// The decay of a block is summed in f32, up to -10^3 with an error of 3e-5, which differences of two sums keep.
const BOUND: f32 = 1e-4;
/// Operands have 11 bits, and a difference of two products goes through the inverse.
const BOUND_16: f32 = 1e-2;

/// Results as words, and the states of all slots.
fn run(case: &Chunk<'_>, gpu: &mut Gpu, operands: Operands) -> (Vec<u32>, Vec<f32>) {
    let (heads, class, rows) = (case.layer.heads, case.class, case.rows(BLOCK as usize));
    let kernel = DeltaChunk::new(gpu.device(), heads, operands).unwrap();
    let bytes = |n: u64| usize::try_from(n).unwrap();
    let o = gpu.output("o", (class * heads.inner()) as usize * 4);
    let state = gpu.update("state", &join(case.slots).1);
    let scratch = gpu.output("scratch", bytes(kernel.scratch_bytes(class)));
    let tails = gpu.output("tails", bytes(kernel.tail_bytes(class)));
    let (control, conv) = (gpu.input("control", &[case.row]), conv(gpu, &rows.conv, operands));
    let prep = PrepIo {
        control: control.clone(),
        conv: conv.clone(),
        log_decay: gpu.input("log decay", &rows.log_decay),
        beta: gpu.input("beta", &rows.beta),
        scratch: scratch.slice(),
        tails: tails.slice(),
    };
    let scan = ScanIo {
        control,
        conv,
        scratch: scratch.slice(),
        tails: tails.slice(),
        state: state.slice(),
        o: o.slice(),
    };
    let mut graph = Graph::new("delta");
    for slice in [&prep.control, &prep.conv, &prep.log_decay, &prep.beta, &scan.state] {
        graph.input(slice);
    }
    graph.level();
    kernel.record_prep(&mut graph, "prep", class, prep);
    graph.level();
    kernel.record_scan(&mut graph, "scan", class, scan);
    gpu.run(graph);
    gpu.words(&scratch);
    gpu.words(&tails);
    (gpu.words(&o), gpu.read(&state))
}

fn conv(gpu: &mut Gpu, values: &[f32], operands: Operands) -> Slice {
    match operands {
        Operands::F32 => gpu.input("conv", values),
        Operands::Matrix => {
            let halves: Vec<half::f16> = values.iter().map(|&v| half::f16::from_f32(v)).collect();
            gpu.input("conv", &halves)
        }
    }
}

/// Every form that the device has, against the reference.
fn check(case: &Chunk<'_>, gpu: &mut Gpu) {
    let written = case.tokens.len().next_multiple_of(BLOCK as usize);
    let (o, states) = run(case, gpu, Operands::F32);
    case.check(&o, &states, written, BOUND);
    if Operands::preferred(gpu.device().caps(), Mode::Fast).is_some() {
        let (o, states) = run(case, gpu, Operands::Matrix);
        case.check(&o, &states, written, BOUND_16);
    }
}

#[test]
fn chunks_match_the_reference() {
    let Some(mut gpu) = gpu() else { return };
    for (seed, (key, value)) in (1..).zip([(1, 1), (2, 4), (16, 32)]) {
        let mut draw = Draw::new(seed);
        let layer = Layer::draw(heads(key, value), &mut draw);
        let slots = [layer.slot(&mut draw), layer.slot(&mut draw)];
        let counts: &[u32] = match key {
            1 => &[1, 2, 3, 31, 63, 64, 65, 130],
            2 => &[100],
            _ => &[70],
        };
        for &n in counts {
            let tokens: Vec<Token> = (0..n).map(|_| layer.token(&mut draw)).collect();
            let class = n.next_multiple_of(BLOCK);
            // The published heads take their time on a CPU.
            for target in u32::from(key > 2)..2 {
                let class = class + target * BLOCK;
                let row = Row { pos: 40, tokens: n, source: 0, target, ..Row::default() };
                println!("seed {seed}: {n} tokens of {class} to slot {target}");
                check(
                    &Chunk { layer: &layer, class, row, slots: &slots, tokens: &tokens },
                    &mut gpu,
                );
            }
        }
    }
}

#[test]
fn another_slot_gives_the_bits_of_the_same_slot() {
    let Some(mut gpu) = gpu() else { return };
    let mut draw = Draw::new(9);
    let layer = Layer::draw(heads(1, 2), &mut draw);
    let slots = [layer.slot(&mut draw), layer.slot(&mut draw)];
    let tokens: Vec<Token> = (0..67).map(|_| layer.token(&mut draw)).collect();
    let row = |target| Row { tokens: 67, source: 0, target, ..Row::default() };
    let case = Chunk { layer: &layer, class: 128, row: row(0), slots: &slots, tokens: &tokens };
    let (o, states) = run(&case, &mut gpu, Operands::F32);
    let (other, others) = run(&Chunk { row: row(1), ..case }, &mut gpu, Operands::F32);
    let len = slots[0].state.len();
    assert!(o == other && states[..len] == others[len..] && others[..len] == slots[0].state);
}

#[test]
fn devices_with_matrix_units_use_them_in_fast_mode() {
    let plain = lavapipe();
    let able = plain.clone().with(Ability::Float16).with(Ability::Matrix);
    assert_eq!(Operands::preferred(&plain, Mode::Fast), None);
    assert_eq!(Operands::preferred(&able, Mode::Exact), None);
    assert_eq!(Operands::preferred(&able, Mode::Fast), Some(Operands::Matrix));
    let c = select(Heads { key: 16, value: 32 }, &plain).unwrap();
    assert_eq!((c.workgroup, c.sg), (64, 8));
}
