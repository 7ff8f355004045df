//! How long the published model's decode attention takes on this device: printed, for whoever chooses constants
//! (`cargo test --release -- --nocapture attention::timing`). On a device that does not tell its compute units, such
//! as a CPU, one short row shows that the measurement works.

use super::*;
use crate::kernels::control::Row;
use crate::kernels::expert::bench::Bench;
use crate::kernels::kv::{KvLayout, KvType};
use crate::kernels::rope::table;
use crate::vulkan::Graph;

/// Caches that together are more than any cache of the device holds.
const COLD_BYTES: u64 = 200 << 20;

fn published(keys: KvType, values: KvType) -> AttentionShape {
    let kv = KvLayout { keys, values, kv_heads: 2 };
    AttentionShape { heads: 16, rope_dims: 64, eps: 1e-6, kv }
}

/// K and V of several layers, each for `pages` pages.
fn caches(bench: &mut Bench, layout: &KvLayout, pages: usize) -> Vec<[KvPlanes; 2]> {
    let bytes = layout.page_bytes(Side::Keys) + layout.page_bytes(Side::Values);
    let copies = (COLD_BYTES / (bytes * pages as u64)).clamp(1, 64);
    let mut cache = |side| {
        let slice = bench.filled(layout.buffer_bytes(side, pages));
        layout.planes(side, &slice, pages)
    };
    (0..copies).map(|_| [Side::Keys, Side::Values].map(&mut cache)).collect()
}

/// Microseconds of both dispatches, `rows` rows of `keys` keys each.
fn time(bench: &mut Bench, kernel: &Attention, (rows, keys): (u32, u32)) -> [f64; 2] {
    let shape = kernel.shape;
    let pages = keys.div_ceil(64);
    let caches = caches(bench, &shape.kv, (pages * rows) as usize);
    let row = |r| Row {
        pos: keys - 1,
        tokens: 1,
        page: r * pages,
        span: span(keys, kernel.splits()),
        ..Row::default()
    };
    let stride = shape.projection_width();
    let io = AttentionIo {
        control: bench.uploaded(&(0..rows).map(row).collect::<Vec<_>>()),
        proj: bench.filled(u64::from(rows * stride) * 4),
        stride,
        values: bench.filled(kernel.values_bytes(rows)),
        stats: bench.filled(kernel.stats_bytes(rows)),
    };
    let rope = bench.uploaded(&table(keys as usize, 64, 1e7));
    let [q_norm, k_norm] = [(); 2].map(|()| bench.filled(1024));
    let y = bench.filled(u64::from(rows * shape.query_width()) * 4);
    let mut held = vec![&io.control, &io.proj, &io.values, &io.stats, &rope, &q_norm, &k_norm];
    for [keys, values] in &caches {
        held.extend([&keys.codes, &keys.scales, &values.codes, &values.scales]);
    }
    let split = bench.time(&held, |graph: &mut Graph, i| {
        let [keys_planes, values] = caches[i % caches.len()].clone();
        let (rope, q_norm, k_norm) = (rope.clone(), q_norm.clone(), k_norm.clone());
        let split = SplitIo { keys: keys_planes, values, rope, q_norm, k_norm };
        kernel.record_split(graph, "split", (rows, keys), &io, split);
    });
    let reduce = bench.time(&held, |graph: &mut Graph, _| {
        kernel.record_reduce(graph, "reduce", rows, &io, (y.clone(), shape.query_width()));
    });
    [split, reduce]
}

#[test]
fn decode_attention_is_timed() {
    let Some(mut bench) = Bench::open() else { return };
    let (device, caps) = (bench.device(), bench.caps());
    let real = caps.compute_units.is_some();
    let pairs: &[[KvType; 2]] = if real {
        &[[KvType::Q8_0, KvType::Q4_0], [KvType::F16, KvType::F16]]
    } else {
        &[[KvType::Q8_0, KvType::Q4_0]]
    };
    for &[keys, values] in pairs {
        let shape = published(keys, values);
        for path in [Path::F32, Path::Matrix] {
            if path == Path::Matrix && select_matrix(&shape, &caps).is_err() {
                continue;
            }
            let chosen = splits(2, &caps);
            let lengths: &[u32] = if real { &[64, 2048, 8192, 32_768, 131_072] } else { &[64] };
            for splits in [chosen, 66, 256] {
                let kernel = Attention::new(&device, shape, splits, path).unwrap();
                for &length in lengths {
                    for rows in [1, 8] {
                        if rows == 8 && (length > 32_768 || splits != chosen || !real) {
                            continue;
                        }
                        let [split, reduce] = time(&mut bench, &kernel, (rows, length));
                        let row = shape.kv.row_bytes(Side::Keys) + shape.kv.row_bytes(Side::Values);
                        let bytes = row as f64 * f64::from(length) * f64::from(rows);
                        println!(
                            "attention {path:?} {keys:?}/{values:?} {rows} x {length}, {splits} splits: split {split:7.2} us {:5.0} GB/s, reduce {reduce:6.2} us",
                            bytes / split / 1e3
                        );
                    }
                }
                if !real {
                    return;
                }
            }
        }
    }
}
