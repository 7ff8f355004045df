//! All ways to the device end in the same bytes.

use super::*;
use crate::graph::{Request, Setup};
use crate::kernels::check;
use std::path::Path;
use std::sync::Arc;

/// What every buffer of the weights holds.
fn contents(gpu: &mut Gpu, model: &Arc<Model>, way: Way, stage_bytes: usize) -> (Vec<u8>, Loaded) {
    let arena = Arena::new(&gpu.device, "weights", Residence::Device, 32 << 20);
    let mut heard = (0, 0);
    let progress = &mut |done, total| {
        heard = (done, total);
        true
    };
    let source = Source::File(model);
    let (mut weights, loaded) = load(gpu, source, &arena, (way, stage_bytes), progress).unwrap();
    assert_eq!(heard, (model.file.tensor_bytes(), model.file.tensor_bytes()), "progress");
    let mut all = Vec::new();
    for slice in weights.slices() {
        let start = slice.offset / 4 * 4;
        let end = (slice.offset + slice.bytes).next_multiple_of(4);
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        gpu.queue.download(&slice.buffer.slice(start, end - start), &mut bytes).unwrap();
        let skipped = usize::try_from(slice.offset - start).unwrap();
        all.extend_from_slice(&bytes[skipped..][..usize::try_from(slice.bytes).unwrap()]);
    }
    all.extend(weights.exponents().iter().flat_map(|e| e.to_le_bytes()));
    (all, loaded)
}

#[test]
fn every_way_gives_the_same_bytes() {
    let Ok(mut gpu) = Gpu::open(Request::Any, Setup::default()) else {
        return check::skip("needs a Vulkan device");
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/q36-tiny.gguf");
    let model = Arc::new(Model::open(&path).unwrap());
    let (expected, loaded) = contents(&mut gpu, &model, Way::Cached, STAGE_BYTES);
    assert_eq!((loaded.how, loaded.in_place), ("from the page cache", 0));
    let banks = |layer: &crate::model::Layer| {
        let moe = &layer.moe;
        [&moe.gate, &moe.up, &moe.down].map(|e| (e.expert_bytes * e.count) as u64)
    };
    let experts: u64 = model.weights.layers.iter().flat_map(banks).sum();
    for way in [Way::Direct, Way::InPlace, Way::Auto, Way::Cached] {
        for stage_bytes in [50_000, STAGE_BYTES] {
            let (found, loaded) = contents(&mut gpu, &model, way, stage_bytes);
            assert!(found == expected, "{way:?} in pieces of {stage_bytes}");
            let can = gpu.caps().has(Ability::HostImport);
            let kept = match way {
                Way::InPlace if gpu.is_cpu() && can => experts,
                Way::InPlace | Way::Auto => loaded.in_place,
                Way::Direct | Way::Cached => 0,
            };
            assert_eq!(loaded.in_place, kept, "{way:?}: {loaded:?}");
        }
    }
}

#[test]
fn the_page_cache_is_used_where_it_helps() {
    const GIB: u64 = 1 << 30;
    // Beside a card: when it has the file, or has room for it.
    assert!(!prefers_direct(Kind::Discrete, 11 * GIB, 0.0, 64 * GIB));
    assert!(!prefers_direct(Kind::Discrete, 11 * GIB, 1.0, GIB));
    assert!(prefers_direct(Kind::Discrete, 11 * GIB, 0.5, 16 * GIB));
    // Where the memory is one, never.
    assert!(prefers_direct(Kind::Integrated, 11 * GIB, 1.0, 64 * GIB));
}

#[test]
fn a_plain_copy_has_a_rate() {
    let Ok(mut gpu) = Gpu::open(Request::Any, Setup::default()) else {
        return check::skip("needs a Vulkan device");
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/q36-tiny.gguf");
    let model = Model::open(&path).unwrap();
    assert!(copy_rate(&mut gpu, &model).unwrap().unwrap() > 1e6);
}

#[test]
fn blocks_are_allocated_ahead_and_no_more_of_them() {
    const BLOCK: u64 = 1 << 20;
    let Ok(gpu) = Gpu::open(Request::Any, Setup::default()) else {
        return check::skip("needs a Vulkan device");
    };
    let new = || Arena::new(&gpu.device, "test", Residence::Device, BLOCK).expecting(5 * BLOCK);
    let arena = new();
    assert!(!arena.grow_ahead().unwrap(), "before the kind of memory is known");
    // Two to a block, so the last of ten waits for the fifth block.
    let buffer = || arena.buffer("half", BLOCK / 2);
    let all = ahead(&arena, || Ok((0..10).map(|_| buffer()).collect::<Result<Vec<_>, _>>()?));
    assert_eq!(all.unwrap().len(), 10);
    assert_eq!((arena.reserved().0, arena.used().0), (5 * BLOCK, 0), "given back");
    let arena = new();
    let held = arena.buffer("half", BLOCK / 2).unwrap();
    for _ in 0..4 {
        assert!(arena.grow_ahead().unwrap());
    }
    assert!(!arena.grow_ahead().unwrap(), "all that is expected");
    assert_eq!((arena.reserved().0, arena.used().0), (5 * BLOCK, held.bytes()));
    assert!(matches!(ahead(&arena, || Err::<(), _>(Error::Interrupted)), Err(Error::Interrupted)));
}
