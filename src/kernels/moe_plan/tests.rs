//! Tests of the plan: every slot once, by expert and token, in tiles that cover it.

use super::*;
use crate::kernels::check::{self, Draw, Gpu, Output};
use crate::kernels::control::Row;
use crate::kernels::expert::samples::choices;

/// The buffers of a plan, and what the counting kernel would have left.
pub(in crate::kernels) struct Planned {
    pub(in crate::kernels) slices: PlanSlices,
    grids: Output,
    tiles: Output,
    slots: Output,
}

impl Planned {
    /// Uploads the counts of `ids`, of fewer tokens than the class.
    pub(in crate::kernels) fn new(
        gpu: &mut Gpu,
        sizes: &Sizes,
        tokens: u32,
        bn: u32,
        ids: &[u32],
    ) -> Self {
        let bytes = PlanBytes::new(sizes, tokens, bn);
        let mut counts = vec![0xffff_ffff_u32; usize::try_from(bytes.counts / 4).unwrap()];
        let experts = sizes.experts as usize;
        for (block, ids) in ids.chunks((BLOCK * sizes.used) as usize).enumerate() {
            let counts = &mut counts[block * experts..][..experts];
            counts.fill(0);
            for &id in ids {
                counts[id as usize] += 1;
            }
        }
        let output = |gpu: &mut Gpu, name, bytes| gpu.output(name, usize::try_from(bytes).unwrap());
        let grids = output(gpu, "grids", bytes.grids);
        let tiles = output(gpu, "tiles", bytes.tiles);
        let slots = output(gpu, "slots", bytes.slots);
        let slices = PlanSlices {
            counts: gpu.input("counts", &counts),
            grids: grids.slice(),
            tiles: tiles.slice(),
            slots: slots.slice(),
        };
        Self { slices, grids, tiles, slots }
    }
}

fn check_plan(gpu: &mut Gpu, sizes: &Sizes, class: u32, bn: u32, ids: &[u32]) {
    let used = sizes.used as usize;
    let tokens = u32::try_from(ids.len() / used).unwrap();
    let planned = Planned::new(gpu, sizes, class, bn, ids);
    let mut padded = ids.to_vec();
    padded.resize(class as usize * used, 0xffff_ffff);
    let control = gpu.input("control", &[Row { tokens, ..Row::default() }]);
    let ids_slice = gpu.input("ids", &padded);
    let mut graph = Graph::new("moe_plan");
    for slice in [&control, &ids_slice, &planned.slices.counts] {
        graph.input(slice);
    }
    graph.level();
    let plan = MoePlan::new(gpu.device(), sizes, bn).unwrap();
    let row_tiles = RowTiles { first: 7, second: 9 };
    let io = PlanOperands { control, ids: ids_slice, plan: planned.slices.clone() };
    plan.record(&mut graph, "moe_plan", class, row_tiles, io);
    gpu.run(graph);

    let slots = gpu.words(&planned.slots);
    let mut expected: Vec<u32> = (0..u32::try_from(ids.len()).unwrap()).collect();
    expected.sort_by_key(|&slot| ids[slot as usize]);
    assert_eq!(slots[..ids.len()], expected);
    assert!(slots[ids.len()..].iter().all(|&s| s == Gpu::POISON));

    let grids = gpu.words(&planned.grids);
    let second = usize::try_from(SECOND_GRID / 4).unwrap();
    let count = grids[1];
    assert_eq!((grids[0], grids[2]), (7, 1));
    assert_eq!(grids[second..][..3], [9, count, 1]);

    let tiles = gpu.words(&planned.tiles);
    let mut at = 0;
    let mut last: Option<(u32, u32)> = None;
    for tile in tiles.chunks(4).take(count as usize) {
        let [expert, first, n, zero] = tile else { panic!("tiles are four words") };
        assert_eq!((*first, *zero), (at, 0), "tiles cover the positions in order");
        assert!(*n > 0 && *n <= bn);
        for &slot in &slots[at as usize..(at + n) as usize] {
            assert_eq!(ids[slot as usize], *expert);
        }
        // Only an expert's last tile is not a multiple of 16.
        if let Some((before, n)) = last {
            assert!(before != *expert || n.is_multiple_of(16));
        }
        last = Some((*expert, *n));
        at += n;
    }
    assert_eq!(at as usize, ids.len());
    let used_experts = ids.iter().collect::<std::collections::BTreeSet<_>>();
    let fewest: usize = used_experts
        .iter()
        .map(|e| ids.iter().filter(|id| id == e).count().div_ceil(bn as usize))
        .sum();
    assert_eq!(count as usize, fewest, "no more tiles than needed");
    assert!(tiles[count as usize * 4..].iter().all(|&w| w == Gpu::POISON));
}

fn sizes(experts: u32, used: u32) -> Sizes {
    Sizes { hidden: 64, experts, used, expert_ffn: 64, shared_ffn: 64 }
}

#[test]
fn slots_are_sorted_and_tiles_cover_them() {
    let Some(mut gpu) = check::gpu() else { return };
    let shapes = [
        (16, 8, 32, 31, 16),
        (256, 8, 64, 33, 16),
        (5, 3, 128, 127, 32),
        (8, 8, 256, 250, 64),
        (256, 8, 512, 512, 32),
        (17, 1, 32, 1, 16),
    ];
    for (seed, (experts, used, class, tokens, bn)) in (1..).zip(shapes) {
        println!("seed {seed}: {used} of {experts}, {tokens} of {class} tokens, tiles of {bn}");
        let sizes = sizes(experts, used);
        let ids = choices(&mut Draw::new(seed), &sizes, tokens);
        check_plan(&mut gpu, &sizes, class, bn, &ids);
    }
}

/// All tokens choose the same experts, others none.
#[test]
fn experts_may_have_all_tokens_or_none() {
    let Some(mut gpu) = check::gpu() else { return };
    let sizes = sizes(256, 8);
    for tokens in [1, 63, 64, 65, 129] {
        let ids: Vec<u32> = (0..tokens).flat_map(|_| [255, 0, 7, 100, 101, 31, 32, 33]).collect();
        check_plan(&mut gpu, &sizes, 256, 64, &ids);
    }
}

#[test]
fn an_empty_chunk_has_an_empty_grid() {
    let Some(mut gpu) = check::gpu() else { return };
    check_plan(&mut gpu, &sizes(16, 8), 32, 16, &[]);
}

#[test]
fn buffers_are_large_enough() {
    let bytes = PlanBytes::new(&sizes(256, 8), 2048, 64);
    assert_eq!((bytes.counts, bytes.slots), (64 * 256 * 4, 16_384 * 4));
    assert_eq!(bytes.tiles, (256 + 256) * 16);
    assert_eq!(PlanBytes::new(&sizes(256, 8), 1, 16).tiles, 8 * 16);
}
