//! How long the published router and shared expert take, cut in several ways (module `expert::bench`).

use super::*;
use crate::kernels::expert::bench::{Bench, NODES};

fn time(bench: &mut Bench, fused: bool, c: Constants) -> f64 {
    let (sizes, device) = (bench.sizes(), bench.device());
    let kernel = Router::with(&device, Form::F32, fused, c).unwrap();
    let wide = |n: u32| u64::from(n);
    let (rows, hidden) = (wide(c.nt), wide(sizes.hidden));
    let (router_bytes, codes_bytes) =
        (wide(sizes.experts) * hidden * 4, 2 * wide(sizes.shared_ffn) * hidden);
    // Other weights for every dispatch, so that no cache has them.
    let routers = bench.filled(NODES * router_bytes);
    let codes = bench.filled(NODES * codes_bytes);
    let scales = bench.filled(NODES * codes_bytes / 16);
    let control = bench.control(c.nt);
    let (gate, weight) = (bench.filled(hidden * 4), bench.filled(hidden * 4));
    let (h, squares) = (bench.filled(rows * hidden * 4), bench.filled(rows * 256 * 4));
    let x = bench.filled(rows * hidden * 4);
    let logits = bench.filled(rows * wide(sizes.experts) * 4);
    let shared_mid = bench.filled(rows * wide(sizes.shared_ffn) * 4);
    let sigma = bench.filled(rows * 4);
    let choice = Choice {
        ids: bench.filled(rows * wide(sizes.used) * 4),
        route: bench.filled(rows * wide(sizes.used) * 4),
        counter: bench.uploaded(&[0_u32]),
    };
    let norm = [&gate, &weight, &h, &squares];
    let inputs = [&routers, &codes, &scales, &control, &choice.counter];
    let inputs: Vec<&Slice> = inputs.into_iter().chain(norm).collect();
    bench.time(&inputs, |graph, i| {
        let part = |all: &Slice, bytes: u64| all.buffer.slice(i as u64 * bytes, bytes);
        let io = RouterIo {
            control: control.clone(),
            router: Matrix::F32(part(&routers, router_bytes)),
            gate: gate.clone(),
            shared: Planes {
                codes: part(&codes, codes_bytes),
                scales: part(&scales, codes_bytes / 16),
            },
            norm: Norm { squares: squares.clone(), weight: weight.clone(), eps: 1e-6 },
            h: h.clone(),
            x: x.clone(),
            logits: logits.clone(),
            shared_mid: shared_mid.clone(),
            sigma: sigma.clone(),
        };
        kernel.record(graph, "timed", io, &choice);
        if !fused {
            graph.level();
            let read = (control.clone(), logits.clone());
            kernel.record_choice(graph, "choice", read, &choice);
        }
    })
}

#[test]
fn the_published_router_is_timed() {
    let Some(mut bench) = Bench::open() else { return };
    let (sizes, caps) = (bench.sizes(), bench.caps());
    let hidden = f64::from(sizes.hidden);
    let bytes = hidden * (f64::from(sizes.experts) * 4.0 + f64::from(sizes.shared_ffn) * 2.125);
    let has_model = caps.has(Ability::MemoryModel);
    let mut report = |fused: bool, c: Constants, mark: &str| {
        let us = time(&mut bench, fused, c);
        println!(
            "router x{}: {us:7.2} us {:5.0} GB/s  fused {fused} workgroup {} block {} ahead {} {mark}",
            c.nt,
            bytes / us / 1e3,
            c.workgroup,
            c.block,
            c.ahead,
        );
    };
    for values in [Values::F32, Values::I8] {
        let chosen = select(&sizes, 1, (Order::Plain, values), &caps).unwrap();
        report(has_model, chosen, "<- chosen");
        if caps.compute_units.is_none() {
            continue;
        }
        report(false, chosen, "");
        for (subgroups, ahead) in [(2, 4), (4, 1), (4, 2), (8, 2), (8, 4)] {
            report(has_model, Constants { workgroup: subgroups * chosen.sg, ahead, ..chosen }, "");
        }
        for rows in [2, 4, 8] {
            let chosen = select(&sizes, rows, (Order::Plain, values), &caps).unwrap();
            report(has_model, chosen, "");
            for block in [512, 1024] {
                if block < chosen.block {
                    report(has_model, Constants { block, ..chosen }, "");
                }
            }
            for (subgroups, ahead) in [(4, 2), (4, 4), (8, 1), (8, 2), (16, 1)] {
                let workgroup = subgroups * chosen.sg;
                report(has_model, Constants { workgroup, ahead, ..chosen }, "");
            }
        }
    }
}
