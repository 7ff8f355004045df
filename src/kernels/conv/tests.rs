//! Tests of the convolution of a chunk against the reference, token by token.

use super::*;
use crate::kernels::check::{Draw, Gpu, gpu};
use crate::kernels::control::Row;
use crate::kernels::recurrent::fixture::{Chunk, Layer, Token, assert_close, heads, join};

/// Four products, an exponential, a norm of 128 squares.
const BOUND: f32 = 4e-6;
/// The same, rounded to 11 bits.
const BOUND_16: f32 = 6e-4;

/// Values past the channels in a row of `u`.
const PADDING: usize = 36;

/// Results as words, and the rings of all slots.
fn run(case: &Chunk<'_>, gpu: &mut Gpu, form: Form, pad: u32) -> (Vec<u32>, Vec<f32>) {
    let heads = case.layer.heads;
    let stride = heads.channels() as usize + PADDING;
    let mut u = vec![f32::NAN; case.class as usize * stride];
    for (row, token) in u.chunks_exact_mut(stride).zip(case.tokens) {
        row[..token.u.len()].copy_from_slice(&token.u);
    }
    let bytes = (case.class * heads.channels() * form.bytes()) as usize;
    let conv = gpu.output("conv", bytes);
    let ring = gpu.update("ring", &join(case.slots).0);
    let io = ConvIo {
        control: gpu.input("control", &[case.row]),
        taps: gpu.input("taps", &case.layer.taps),
        u: gpu.input("u", &u),
        conv: conv.slice(),
        ring: ring.slice(),
    };
    let mut graph = Graph::new("conv_l2");
    for slice in [&io.control, &io.taps, &io.u, &io.ring] {
        graph.input(slice);
    }
    graph.level();
    let rows = Rows { u_stride: u32::try_from(stride).unwrap(), pad };
    let kernel = ConvL2::new(gpu.device(), form, heads, rows).unwrap();
    kernel.record(&mut graph, "conv_l2", case.class, io);
    gpu.run(graph);
    (gpu.words(&conv), gpu.read(&ring))
}

/// The used part of a result; zeros follow it up to a multiple of `pad` rows, and then nothing.
fn used(words: &[u32], row: usize, tokens: usize, pad: usize) -> &[u32] {
    let padded = tokens.next_multiple_of(pad) * row;
    assert!(words[tokens * row..padded].iter().all(|&w| w == 0), "rows of padding");
    assert!(words[padded..].iter().all(|&w| w == Gpu::POISON), "tokens past the end");
    &words[..tokens * row]
}

fn check(case: &Chunk<'_>, gpu: &mut Gpu) {
    let channels = case.layer.heads.channels() as usize;
    let (words, ring) = run(case, gpu, Form::F32, 1);
    let (halves, _) = run(case, gpu, Form::F16, 4);
    let found: Vec<f32> =
        used(&words, channels, case.tokens.len(), 1).iter().map(|&w| f32::from_bits(w)).collect();
    let rounded: Vec<f32> = used(&halves, channels / 2, case.tokens.len(), 4)
        .iter()
        .flat_map(|&w| [w & 0xffff, w >> 16])
        .map(|half| half::f16::from_bits(u16::try_from(half).unwrap()).to_f32())
        .collect();
    let (outcomes, slot) = case.expected();
    let expected: Vec<f32> = outcomes.iter().flat_map(|o| o.conv.clone()).collect();
    assert_close(&found, &expected, HEAD as usize, BOUND, "f32");
    assert_close(&rounded, &expected, HEAD as usize, BOUND_16, "f16");
    for (s, found) in ring.chunks_exact(slot.ring.len()).enumerate() {
        let changed = s == case.row.target as usize;
        let expected = if changed { &slot.ring } else { &case.slots[s].ring };
        assert_eq!(found, expected, "ring of slot {s}");
    }
}

#[test]
fn chunks_match_the_reference_and_leave_the_ring() {
    let Some(mut gpu) = gpu() else { return };
    for (seed, (key, value)) in (1..).zip([(1, 1), (2, 4), (16, 32)]) {
        let mut draw = Draw::new(seed);
        let layer = Layer::draw(heads(key, value), &mut draw);
        let slots = [layer.slot(&mut draw), layer.slot(&mut draw)];
        let counts: &[u32] = if key > 2 { &[9] } else { &[1, 2, 3, 4, 5, 8, 31, 32, 65] };
        for &n in counts {
            let tokens: Vec<Token> = (0..n).map(|_| layer.token(&mut draw)).collect();
            let class = n.next_multiple_of(4);
            for (target, class) in [(0, class), (1, class + 8)] {
                let row = Row { pos: n + 5, tokens: n, source: 0, target, ..Row::default() };
                println!("seed {seed}: {n} tokens of {class} to slot {target}");
                let case = Chunk { layer: &layer, class, row, slots: &slots, tokens: &tokens };
                check(&case, &mut gpu);
            }
        }
    }
}

#[test]
fn a_prompt_starts_from_zero_rows() {
    let Some(mut gpu) = gpu() else { return };
    let mut draw = Draw::new(9);
    let layer = Layer::draw(heads(2, 2), &mut draw);
    let slots = [layer.empty()];
    for n in [1, 2, 3, 6] {
        let tokens: Vec<Token> = (0..n).map(|_| layer.token(&mut draw)).collect();
        let row = Row { tokens: n, ..Row::default() };
        let case = Chunk { layer: &layer, class: 8, row, slots: &slots, tokens: &tokens };
        check(&case, &mut gpu);
    }
}
