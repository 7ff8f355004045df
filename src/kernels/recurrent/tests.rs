//! Tests of the decode step against `ops`, over heads, slots and companions.

use super::fixture::{EPS, Layer, Slot, Token, assert_close, heads, join, split};
use super::*;
use crate::kernels::check::{self, Draw, Gpu};
use crate::kernels::control::Row;
use crate::ops;
use crate::vulkan::lavapipe;

const D: usize = HEAD as usize;

/// Sums of 128 products, two of them one after the other, and norms of as many squares: a few dozen roundings of
/// 6e-8, of terms no larger than the largest results of their head.
const BOUND: f32 = 1e-5;

/// Rows of a step and what they do.
struct Step<'a> {
    layer: &'a Layer,
    rows: Vec<(Row, Token)>,
    slots: Vec<Slot>,
}

/// Results of a step: `y` as words, and the slots.
struct Done {
    y: Vec<u32>,
    slots: Vec<Slot>,
}

fn row(pos: u32, source: u32, target: u32) -> Row {
    Row { pos, tokens: 1, source, target, ..Row::default() }
}

impl Step<'_> {
    const PADDING: usize = 64;

    fn stride(&self) -> usize {
        self.layer.heads.inner() as usize + Self::PADDING
    }

    /// Puts the raw rows where the projection leaves them, and runs.
    fn run(&self, gpu: &mut Gpu, parts: Option<u32>) -> Done {
        let (layer, heads) = (self.layer, self.layer.heads);
        let mut slots = self.slots.clone();
        for (row, token) in self.rows.iter().filter(|r| r.0.flags & Row::IDLE == 0) {
            let at = row.pos as usize % TAPS as usize * token.u.len();
            slots[row.target as usize].ring[at..][..token.u.len()].copy_from_slice(&token.u);
        }
        let (ring, state) = join(&slots);
        let of = |f: fn(&Token) -> Vec<f32>| -> Vec<f32> {
            self.rows.iter().flat_map(|r| f(&r.1)).collect()
        };
        let records: Vec<Row> = self.rows.iter().map(|r| r.0).collect();
        let device = Arc::clone(gpu.device());
        let stride = u32::try_from(self.stride()).unwrap();
        let mut constants = select(heads, stride, device.caps()).unwrap();
        if let Some(parts) = parts {
            constants = Constants { parts, workgroup: parts * HEAD, ..constants };
        }
        let kernel = RecCore::with(&device, constants).unwrap();
        let ring = gpu.update("ring", &ring);
        let state = gpu.update("state", &state);
        let y = gpu.output("y", self.rows.len() * self.stride() * 4);
        let io = RecCoreIo {
            control: gpu.input("control", &records),
            taps: gpu.input("taps", &layer.taps),
            norm: gpu.input("norm", &layer.norm),
            ring: ring.slice(),
            state: state.slice(),
            z: gpu.input("z", &of(|t| t.z.iter().map(|&z| ops::silu(z)).collect())),
            decay: gpu.input("decay", &of(|t| t.log_decay.iter().map(|&g| ops::exp(g)).collect())),
            beta: gpu.input("beta", &of(|t| t.beta.clone())),
            y: y.slice(),
        };
        let mut graph = Graph::new("rec_core");
        let reads = [&io.control, &io.taps, &io.norm, &io.ring, &io.state, &io.z, &io.decay];
        reads.into_iter().chain([&io.beta]).for_each(|slice| graph.input(slice));
        graph.level();
        let rows = u32::try_from(self.rows.len()).unwrap();
        kernel.record(&mut graph, "rec_core", rows, EPS, io);
        gpu.run(graph);
        let slots = split(&gpu.read(&ring), &gpu.read(&state), self.slots.len());
        Done { y: gpu.words(&y), slots }
    }

    /// Runs and compares rows, states and rings with the reference.
    fn check(&self, gpu: &mut Gpu) -> Done {
        let done = self.run(gpu, None);
        let mut expected = self.slots.clone();
        for ((row, token), y) in self.rows.iter().zip(done.y.chunks(self.stride())) {
            if row.flags & Row::IDLE != 0 {
                assert!(y.iter().all(|&w| w == Gpu::POISON), "an idle row was written");
                continue;
            }
            let (y, padding) = y.split_at(self.stride() - Self::PADDING);
            assert!(padding.iter().all(|&w| w == Gpu::POISON), "padding was written");
            let mut slot = self.slots[row.source as usize].clone();
            let outcome = self.layer.advance(&mut slot, row.pos, token);
            let y: Vec<f32> = y.iter().map(|&w| f32::from_bits(w)).collect();
            assert_close(&y, &outcome.y, D, BOUND, "y");
            expected[row.target as usize] = slot;
        }
        for (s, (found, expected)) in done.slots.iter().zip(&expected).enumerate() {
            assert_close(&found.state, &expected.state, D * D, BOUND, &format!("state {s}"));
        }
        done
    }
}

#[test]
fn rows_match_the_reference_whatever_their_heads_positions_and_slots() {
    let Some(mut gpu) = check::gpu() else { return };
    for (seed, heads) in (1..).zip([heads(1, 1), heads(2, 4), heads(3, 3), heads(16, 32)]) {
        println!("seed {seed}: {heads:?}");
        let mut draw = Draw::new(seed);
        let layer = Layer::draw(heads, &mut draw);
        let slots = if heads.value > 4 { 3 } else { 9 };
        let slots: Vec<Slot> = (0..slots).map(|_| layer.slot(&mut draw)).collect();
        let mut rows = vec![row(5, 0, 0), row(1_000_003, 1, 2)];
        if slots.len() > 3 {
            let idle = Row { flags: Row::IDLE, ..row(7, 3, 4) };
            rows.extend([idle, row(2, 3, 3), row(16, 4, 5), row(31, 4, 6)]);
        }
        let rows = rows.into_iter().map(|row| (row, layer.token(&mut draw))).collect();
        Step { layer: &layer, rows, slots }.check(&mut gpu);
    }
}

#[test]
fn a_sequence_from_nothing_and_its_rings_match() {
    let Some(mut gpu) = check::gpu() else { return };
    let mut draw = Draw::new(20);
    let layer = Layer::draw(heads(2, 4), &mut draw);
    let mut reference = layer.empty();
    let mut slots = vec![layer.empty(), layer.slot(&mut draw)];
    let mut source = 0;
    for pos in 0..11 {
        // Now in place, now to the other slot, whose old contents must not matter.
        let target = if pos % 3 == 2 { 1 - source } else { source };
        let token = layer.token(&mut draw);
        let step = Step { layer: &layer, rows: vec![(row(pos, source, target), token)], slots };
        let done = step.check(&mut gpu);
        layer.advance(&mut reference, pos, &step.rows[0].1);
        slots = done.slots;
        // The three rows that the next step reads.
        let channels = layer.heads.channels() as usize;
        for back in 0..3.min(pos + 1) {
            let at = (pos - back) as usize % 4 * channels;
            let (found, expected) = (&slots[target as usize].ring, &reference.ring);
            assert_eq!(found[at..][..channels], expected[at..][..channels], "pos {pos}, {back}");
        }
        source = target;
    }
}

#[test]
fn another_slot_gives_the_bits_of_the_same_slot_and_keeps_the_source() {
    let Some(mut gpu) = check::gpu() else { return };
    let mut draw = Draw::new(30);
    let layer = Layer::draw(heads(2, 4), &mut draw);
    let slots = vec![layer.slot(&mut draw), layer.slot(&mut draw)];
    let token = layer.token(&mut draw);
    for pos in [0, 1, 2, 3, 4] {
        let step = |target| Step {
            layer: &layer,
            rows: vec![(row(pos, 0, target), token.clone())],
            slots: slots.clone(),
        };
        let (same, other) = (step(0).run(&mut gpu, None), step(1).run(&mut gpu, None));
        assert_eq!(same.y, other.y, "pos {pos}");
        assert_eq!(same.slots[0].state, other.slots[1].state, "pos {pos}");
        assert_eq!(other.slots[0], slots[0], "the source changed");
        let channels = layer.heads.channels() as usize;
        for back in 0..3 {
            let at = (pos + 4 - back) as usize % 4 * channels;
            let rings = (&same.slots[0].ring[at..], &other.slots[1].ring[at..]);
            assert_eq!(rings.0[..channels], rings.1[..channels], "pos {pos}, {back} back");
        }
    }
}

#[test]
fn a_row_does_not_depend_on_its_company() {
    let Some(mut gpu) = check::gpu() else { return };
    let mut draw = Draw::new(40);
    let layer = Layer::draw(heads(2, 4), &mut draw);
    let slots: Vec<Slot> = (0..8).map(|_| layer.slot(&mut draw)).collect();
    let rows: Vec<(Row, Token)> = (0..8)
        .map(|r| (row(3 + r, r, r), layer.token(&mut draw)))
        .map(|(row, token)| (Row { flags: u32::from(row.target == 5), ..row }, token))
        .collect();
    let all = Step { layer: &layer, rows: rows.clone(), slots: slots.clone() };
    let together = all.run(&mut gpu, None);
    for (r, one) in rows.into_iter().enumerate().filter(|(r, _)| *r != 5) {
        let alone = Step { layer: &layer, rows: vec![one], slots: slots.clone() };
        let done = alone.run(&mut gpu, None);
        assert_eq!(done.y, together.y[r * all.stride()..][..all.stride()], "row {r}");
        assert_eq!(done.slots[r], together.slots[r], "row {r}");
    }
    assert_eq!(together.slots[5], slots[5], "an idle row wrote");
}

#[test]
fn fewer_parts_stay_within_the_bound() {
    let Some(mut gpu) = check::gpu() else { return };
    let mut draw = Draw::new(50);
    let layer = Layer::draw(heads(1, 2), &mut draw);
    let slots = vec![layer.slot(&mut draw)];
    let rows = vec![(row(9, 0, 0), layer.token(&mut draw))];
    let step = Step { layer: &layer, rows, slots };
    let (whole, halves) = (step.run(&mut gpu, Some(1)), step.check(&mut gpu));
    assert_close(&whole.slots[0].state, &halves.slots[0].state, D * D, BOUND, "state");
}

#[test]
fn constants_follow_the_device() {
    let published = Heads { key: 16, value: 32 };
    let c = select(published, 4096, &lavapipe()).unwrap();
    assert_eq!((c.workgroup, c.sg, c.parts), (256, 8, 2));
    let mut wide = lavapipe();
    (wide.subgroups.min, wide.subgroups.max) = (32, 32);
    let c = select(published, 4096, &wide).unwrap();
    assert_eq!((c.workgroup, c.sg, c.parts), (512, 32, 4));
    assert!(select(Heads { key: 3, value: 4 }, 4096, &wide).is_err());
    assert!(select(published, 4095, &wide).is_err());
    assert_eq!((published.channels(), published.inner()), (8192, 4096));
}
