//! How long the published down projections take, cut in several ways (module `expert::bench`).

use super::*;
use crate::kernels::expert::bench::Bench;
use crate::kernels::moe_group::MoeGroup;

fn kernel(device: &Arc<Device>, layout: Layout, grouped: bool, constants: Constants) -> MoeDown {
    let forms = FORMS.iter().find(|f| f.format == layout.down).unwrap();
    let interface = match (layout.values, grouped) {
        (Values::F32 | Values::F16, false) => &forms.f32,
        (Values::F32 | Values::F16, true) => &forms.f32_plain,
        (Values::I8, false) => &forms.i8,
        (Values::I8, true) => &forms.i8_plain,
    };
    let pipeline = interface.pipeline(device, &[constants], constants.sg).unwrap();
    let output = if grouped { Output::Parts(constants.nt) } else { Output::Residual };
    MoeDown { pipeline, constants, format: layout.down, output }
}

fn time(bench: &mut Bench, down: &Slice, layout: Layout, (rows, c): (u32, Constants)) -> f64 {
    let (sizes, device) = (bench.sizes(), bench.device());
    let grouped = c.grouped == 1;
    let kernel = kernel(&device, layout, grouped, c);
    let wide = |n: u32| u64::from(n);
    let (control, ids) = (bench.control(rows), bench.ids(rows));
    let mid = bench.filled(wide(rows * sizes.used * sizes.expert_ffn) * 4);
    let shared_mid = bench.filled(wide(rows * sizes.shared_ffn) * 4);
    let sigma = bench.filled(wide(rows) * 4);
    let codes = bench.filled(wide(sizes.hidden * sizes.shared_ffn));
    let scales = bench.filled(wide(sizes.hidden * sizes.shared_ffn) / 16);
    let h = bench.filled(wide(rows * sizes.hidden) * 4);
    let squares = bench.filled(wide(rows * kernel.partials()) * 4);
    let parts = bench.filled(wide(rows * (sizes.used + 1) * sizes.hidden) * 4);
    let group = MoeGroup::new(&device, &sizes, rows).unwrap();
    let entries = bench.filled(group.bytes());
    let inputs = [&control, down, &mid, &shared_mid, &sigma, &codes, &scales, &h];
    let inputs: Vec<&Slice> = inputs.into_iter().chain(&ids).collect();
    bench.time(&inputs, |graph, i| {
        let mut choice = ids[i].clone();
        let mut target = Target::Residual { h: h.clone(), squares: squares.clone() };
        if grouped {
            group.record(graph, "group", control.clone(), choice, entries.clone());
            choice = entries.clone();
            target = Target::Parts(parts.clone());
            graph.level();
        }
        let io = MoeDownIo {
            control: control.clone(),
            down: down.clone(),
            shared: Planes { codes: codes.clone(), scales: scales.clone() },
            mid: mid.clone(),
            shared_mid: shared_mid.clone(),
            sigma: sigma.clone(),
            ids: choice,
            target,
        };
        kernel.record(graph, "timed", io);
    })
}

#[test]
fn the_published_projections_are_timed() {
    let Some(mut bench) = Bench::open() else { return };
    let (sizes, caps) = (bench.sizes(), bench.caps());
    let layouts = bench.layouts();
    let rows_of_experts = u64::from(sizes.experts * sizes.hidden);
    let bytes = matrix_bytes(layouts[0].down, rows_of_experts, sizes.expert_ffn);
    let down = bench.filled(bytes);
    let per_row = bytes * u64::from(sizes.used) / u64::from(sizes.experts);
    for layout in layouts {
        let mut report = |rows: u32, c: Constants, mark: &str| {
            let us = time(&mut bench, &down, layout, (rows, c));
            println!(
                "down {:?} x{rows}: {us:7.2} us {:5.0} GB/s  workgroup {} rows {} grouped {} {mark}",
                layout.values,
                per_row as f64 * f64::from(rows) / us / 1e3,
                c.workgroup,
                c.rows,
                c.grouped,
            );
        };
        let chosen = select(&sizes, layout, None, &caps).unwrap();
        report(1, chosen, "<- chosen");
        if caps.compute_units.is_none() {
            continue;
        }
        for rows in [4, 8, 16, 32] {
            for subgroups in [3, 5, 9] {
                let c = Constants { rows, workgroup: subgroups * chosen.sg, ..chosen };
                if c != chosen && rows <= c.sg && rows >= c.sg / c.lanes {
                    report(1, c, "");
                }
            }
        }
        for rows in [2, 4, 8] {
            report(rows, chosen, "");
            let grouped = select(&sizes, layout, Some(rows), &caps).unwrap();
            report(rows, grouped, "with a moe_group, without a moe_sum");
        }
    }
}
