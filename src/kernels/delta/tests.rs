//! Tests of the recurrence over a chunk against the reference, token by token.

use super::*;
use crate::kernels::check::{Draw, Gpu, gpu};
use crate::kernels::control::Row;
use crate::kernels::recurrent::fixture::{Chunk, Layer, Slot, Token, heads, join};
use crate::vulkan::lavapipe;

/// Sums of 128 products for every token, of terms no larger than the largest results of their head; what a state
/// carries on is never amplified.
const BOUND: f32 = 2e-5;

/// Results as words, and the states of all slots.
fn run(case: &Chunk<'_>, gpu: &mut Gpu, constants: Option<Constants>) -> (Vec<u32>, Vec<f32>) {
    let (heads, rows) = (case.layer.heads, case.rows(1));
    let o = gpu.output("o", (case.class * heads.inner()) as usize * 4);
    let state = gpu.update("state", &join(case.slots).1);
    let io = DeltaIo {
        control: gpu.input("control", &[case.row]),
        conv: gpu.input("conv", &rows.conv),
        log_decay: gpu.input("log decay", &rows.log_decay),
        beta: gpu.input("beta", &rows.beta),
        state: state.slice(),
        o: o.slice(),
    };
    let mut graph = Graph::new("delta");
    for slice in [&io.control, &io.conv, &io.log_decay, &io.beta, &io.state] {
        graph.input(slice);
    }
    graph.level();
    let device = Arc::clone(gpu.device());
    let constants = constants.unwrap_or_else(|| select(heads, device.caps()).unwrap());
    let kernel = DeltaSeq::with(&device, constants).unwrap();
    kernel.record(&mut graph, "delta", case.class, io);
    gpu.run(graph);
    (gpu.words(&o), gpu.read(&state))
}

fn check(case: &Chunk<'_>, gpu: &mut Gpu, constants: Option<Constants>) {
    let (o, states) = run(case, gpu, constants);
    case.check(&o, &states, case.tokens.len(), BOUND);
}

#[test]
fn chunks_match_the_reference() {
    let Some(mut gpu) = gpu() else { return };
    for (seed, (key, value)) in (1..).zip([(1, 1), (2, 4), (16, 32)]) {
        let mut draw = Draw::new(seed);
        let layer = Layer::draw(heads(key, value), &mut draw);
        let slots = [layer.slot(&mut draw), layer.slot(&mut draw)];
        let counts: &[u32] = if key > 2 { &[19] } else { &[1, 2, 3, 7, 8, 9, 31, 63, 65, 130] };
        for &n in counts {
            let tokens: Vec<Token> = (0..n).map(|_| layer.token(&mut draw)).collect();
            for (target, class) in [(0, n), (1, n + 3)] {
                let row = Row { pos: 40, tokens: n, source: 0, target, ..Row::default() };
                println!("seed {seed}: {n} tokens of {class} to slot {target}");
                let case = Chunk { layer: &layer, class, row, slots: &slots, tokens: &tokens };
                check(&case, &mut gpu, None);
            }
        }
    }
}

#[test]
fn bits_depend_neither_on_cuts_nor_on_slots() {
    let Some(mut gpu) = gpu() else { return };
    let mut draw = Draw::new(10);
    let layer = Layer::draw(heads(2, 4), &mut draw);
    let mut slots = [layer.slot(&mut draw), layer.slot(&mut draw)];
    let tokens: Vec<Token> = (0..21).map(|_| layer.token(&mut draw)).collect();
    let row = |pos: u32, count: usize, target| {
        let tokens = u32::try_from(count).unwrap();
        Row { pos: 40 + pos, tokens, source: 0, target, ..Row::default() }
    };
    let whole =
        Chunk { layer: &layer, class: 32, row: row(0, 21, 0), slots: &slots, tokens: &tokens };
    let (expected, after) = run(&whole, &mut gpu, None);
    let other = Chunk { row: row(0, 21, 1), ..whole };
    let (found, states) = run(&other, &mut gpu, None);
    let len = slots[0].state.len();
    assert!(found == expected && states[len..] == after[..len], "another slot");

    let inner = layer.heads.inner() as usize;
    let mut start = 0;
    for count in [1, 8, 12] {
        let part = &tokens[start..start + count];
        let row = row(u32::try_from(start).unwrap(), count, 0);
        let case = Chunk { layer: &layer, class: 16, row, slots: &slots, tokens: part };
        let (found, states) = run(&case, &mut gpu, None);
        let expected = &expected[start * inner..][..count * inner];
        assert!(found[..count * inner] == *expected, "{count} tokens from {start} on");
        let (_, slot) = case.expected();
        slots[0] = Slot { state: states[..len].to_vec(), ..slot };
        start += count;
    }
    assert!(slots[0].state == after[..len], "state after all");
}

#[test]
fn other_shapes_of_the_workgroup_stay_within_the_bound() {
    let Some(mut gpu) = gpu() else { return };
    let mut draw = Draw::new(11);
    let layer = Layer::draw(heads(1, 2), &mut draw);
    let slots = [layer.slot(&mut draw)];
    let tokens: Vec<Token> = (0..13).map(|_| layer.token(&mut draw)).collect();
    let row = Row { pos: 2, tokens: 13, ..Row::default() };
    let chosen = select(layer.heads, gpu.device().caps()).unwrap();
    for (workgroup, columns) in [(256, 2), (256, 4), (128, 1), (128, 4), (64, 2)] {
        let constants = Constants { workgroup, width: workgroup, columns, ..chosen };
        let case = Chunk { layer: &layer, class: 13, row, slots: &slots, tokens: &tokens };
        check(&case, &mut gpu, Some(constants));
    }
}

#[test]
fn constants_follow_the_device() {
    let c = select(Heads { key: 16, value: 32 }, &lavapipe()).unwrap();
    assert_eq!((c.workgroup, c.sg, c.group_columns()), (256, 8, 32));
    assert!(select(Heads { key: 2, value: 3 }, &lavapipe()).is_err());
}
