//! How long the published model's prefill attention takes on this device: printed, for whoever chooses constants
//! (`cargo test --release -- --nocapture flash::timing`). On a device that does not tell its compute units, such as
//! a CPU, one short chunk shows that the measurement works.

use super::*;
use crate::kernels::control::Row;
use crate::kernels::expert::bench::Bench;
use crate::kernels::kv::{KvLayout, KvType, Side};
use crate::kernels::rope::{RopeKv, RopeKvIo, table};
use crate::vulkan::Graph;

/// Microseconds of `rope_kv` and of `flash` for `n` tokens at `pos`.
fn time(
    bench: &mut Bench,
    (prepare, kernel): (&RopeKv, &Flash),
    shape: AttentionShape,
    (n, pos): (u32, u32),
) -> [f64; 2] {
    let pages = (pos + n).div_ceil(64) as usize;
    let mut planes = |side| {
        let slice = bench.filled(shape.kv.buffer_bytes(side, pages));
        shape.kv.planes(side, &slice, pages)
    };
    let [keys, values] = [Side::Keys, Side::Values].map(&mut planes);
    let row = Row { pos, tokens: n, query_tokens: n, ..Row::default() };
    let control = bench.uploaded(&[row]);
    let (stride, width) = (shape.projection_width(), shape.query_width());
    let proj = bench.filled(u64::from(n * stride) * 4);
    let q = bench.filled(u64::from(n * width) * kernel.path.query_bytes());
    let y = bench.filled(u64::from(n * width) * 4);
    let rope = bench.uploaded(&table((pos + n) as usize, 64, 1e7));
    let [q_norm, k_norm] = [(); 2].map(|()| bench.filled(1024));
    let held = [
        &control,
        &proj,
        &q,
        &rope,
        &q_norm,
        &k_norm,
        &keys.codes,
        &keys.scales,
        &values.codes,
        &values.scales,
    ];
    let prepared = bench.time(&held, |graph: &mut Graph, _| {
        let io = RopeKvIo {
            control: control.clone(),
            keys: keys.clone(),
            values: values.clone(),
            proj: proj.clone(),
            stride,
            q: q.clone(),
            rope: rope.clone(),
            q_norm: q_norm.clone(),
            k_norm: k_norm.clone(),
        };
        prepare.record(graph, "rope_kv", n, io);
    });
    let attended = bench.time(&held, |graph: &mut Graph, _| {
        let io = FlashIo {
            control: control.clone(),
            keys: keys.clone(),
            values: values.clone(),
            q: q.clone(),
            proj: proj.clone(),
            stride,
            y: y.clone(),
            y_stride: width,
        };
        kernel.record(graph, "flash", (n, pos + n / 2), io);
    });
    [prepared, attended]
}

#[test]
fn prefill_attention_is_timed() {
    let Some(mut bench) = Bench::open() else { return };
    let (device, caps) = (bench.device(), bench.caps());
    let real = caps.compute_units.is_some();
    let kv = KvLayout { keys: KvType::Q8_0, values: KvType::Q4_0, kv_heads: 2 };
    let shape = AttentionShape { heads: 16, rope_dims: 64, eps: 1e-6, kv };
    let chunks: &[(u32, u32)] =
        if real { &[(32, 0), (512, 0), (2048, 0), (2048, 6144)] } else { &[(16, 0)] };
    let mut report = |kernel: &Flash, name: &str| {
        let prepare = RopeKv::new(&device, shape, kernel.path).unwrap();
        for &(n, pos) in chunks {
            let [rope, flash] = time(&mut bench, (&prepare, kernel), shape, (n, pos));
            let seen = f64::from(pos) + f64::from(n + 1) / 2.0;
            let flops = 4.0 * f64::from(n) * seen * f64::from(shape.query_width());
            println!(
                "flash {name} {n} tokens at {pos}: {flash:9.2} us, {:6.2} TFLOP/s; rope_kv {rope:7.2} us",
                flops / flash / 1e6
            );
        }
    };
    report(&Flash::new(&device, shape, Path::F32).unwrap(), "f32");
    if let Ok(chosen) = select_matrix(&shape, &caps) {
        for (tile, groups) in [(32, 1), (16, 1)] {
            let constants = MatrixConstants { tile, groups, ..chosen };
            let kernel = Flash::matrix(&device, shape, constants).unwrap();
            report(&kernel, &format!("matrix, tiles of {tile}"));
        }
    }
}
