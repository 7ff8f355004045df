//! How long the published gate and up projections take, cut in several ways (module `expert::bench`).

use super::*;
use crate::kernels::expert::bench::Bench;
use crate::kernels::moe_group::MoeGroup;

/// Weights of all experts and everything else of a dispatch.
struct Held {
    gate: Slice,
    up: Slice,
    table: Slice,
}

fn time(bench: &mut Bench, held: &Held, layout: Layout, (rows, c): (u32, Constants)) -> f64 {
    let (sizes, device) = (bench.sizes(), bench.device());
    let forms = FORMS.iter().find(|f| f.format == layout.gate_up).unwrap();
    let interface = if layout.values == Values::I8 { &forms.i8 } else { &forms.f32 };
    let kernel = MoeGu::with(&device, layout.gate_up, interface, c).unwrap();
    let slots = u64::from(rows * sizes.used);
    let (control, ids) = (bench.control(rows), bench.ids(rows));
    let x = bench.filled(u64::from(rows * sizes.hidden) * 4);
    let route = bench.filled(slots * 4);
    let mid = bench.filled(slots * u64::from(sizes.expert_ffn) * 4);
    let group = MoeGroup::new(&device, &sizes, rows).unwrap();
    let entries = bench.filled(group.bytes());
    let inputs = [&control, &held.gate, &held.up, &held.table, &x, &route];
    let inputs: Vec<&Slice> = inputs.into_iter().chain(&ids).collect();
    bench.time(&inputs, |graph, i| {
        let mut choice = ids[i].clone();
        if c.grouped == 1 {
            group.record(graph, "group", control.clone(), choice, entries.clone());
            choice = entries.clone();
            graph.level();
        }
        let io = MoeGuIo {
            control: control.clone(),
            gate: held.gate.clone(),
            up: held.up.clone(),
            table: Some(held.table.clone()),
            x: x.clone(),
            ids: choice,
            route: route.clone(),
            mid: mid.clone(),
        };
        kernel.record(graph, "timed", io);
    })
}

#[test]
fn the_published_projections_are_timed() {
    let Some(mut bench) = Bench::open() else { return };
    let (sizes, caps) = (bench.sizes(), bench.caps());
    let layouts = bench.layouts();
    let rows_of_experts = u64::from(sizes.experts * sizes.expert_ffn);
    let bytes = matrix_bytes(layouts[0].gate_up, rows_of_experts, sizes.hidden);
    let held = Held {
        gate: bench.filled(bytes),
        up: bench.filled(bytes),
        table: bench.uploaded(table(layouts[0].gate_up).unwrap()),
    };
    let per_row = 2 * bytes * u64::from(sizes.used) / u64::from(sizes.experts);
    for layout in layouts {
        let mut report = |rows: u32, c: Constants, mark: &str| {
            let us = time(&mut bench, &held, layout, (rows, c));
            println!(
                "gate up {:?} x{rows}: {us:7.2} us {:5.0} GB/s  workgroup {} R {} shared grid {} grouped {} {mark}",
                layout.values,
                per_row as f64 * f64::from(rows) / us / 1e3,
                c.workgroup,
                c.r,
                c.shared_grid,
                c.grouped,
            );
        };
        let chosen = select(&sizes, layout, None, &caps).unwrap();
        report(1, chosen, "<- chosen");
        if caps.compute_units.is_none() {
            continue;
        }
        for (r, workgroup) in [(1, 256), (1, 512), (2, 128), (2, 256), (2, 512), (4, 128), (4, 256)]
        {
            for shared_grid in [0, 1] {
                let c = Constants { workgroup, r, shared_grid, ..chosen };
                // Bytes leave a workgroup sixteen at a time.
                if c != chosen && c.group_pairs().is_multiple_of(16) {
                    report(1, c, "");
                }
            }
        }
        for rows in [2, 4, 8] {
            report(rows, chosen, "");
            let grouped = select(&sizes, layout, Some(rows), &caps).unwrap();
            report(rows, grouped, "with its moe_group");
            report(rows, Constants { r: 1, workgroup: 512, ..grouped }, "with its moe_group");
        }
    }
}
