//! Directional steering (model.md 4) between a mixer or the experts and the residual:
//! `h[n] += y[n] - scale * d * (d . y[n])`, and one sum of squares of the new `h[n]`.
//!
//! `y`, `h`: `[rows][hidden]` f32; `d`: `[hidden]`. One workgroup takes one row: a row of a decode batch, or a token
//! of a prefill chunk. Idle rows and tokens past the end write nothing. Only recorded where a scale is not zero; the
//! projection in front then writes `y` instead of adding to the residual.

use super::registry::Interface;
use crate::vulkan::{Binding, Caps, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

/// What `small/steer.comp` declares.
pub const STEER: Interface = Interface {
    variant: "steer",
    bindings: &[
        Binding::read(0),
        Binding::read(1),
        Binding::read(3),
        Binding::update(4),
        Binding::write(7),
    ],
    push_bytes: size_of::<Push>(),
    constants: &["workgroup", "K", "PREFILL"],
};

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Push {
    scale: f32,
}

const _: () = assert!(size_of::<Push>() == 4);

/// Specialization constants, in the order of their ids.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
struct Constants {
    workgroup: u32,
    k: u32,
    prefill: u32,
}

/// What a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rows {
    /// A record of the control block.
    Batch,
    /// A token of the chunk of record 0.
    Tokens,
}

fn select(hidden: u32, rows: Rows, caps: &Caps) -> Result<(Constants, u32), String> {
    if hidden == 0 || !hidden.is_multiple_of(4) {
        return Err(format!("rows of {hidden} values, expected a multiple of 4"));
    }
    let subgroup = caps.subgroup_size(64);
    let useful = (hidden / 4).next_multiple_of(subgroup);
    let workgroup = useful.min(256).min(caps.workgroup_limit(subgroup));
    let prefill = u32::from(rows == Rows::Tokens);
    Ok((Constants { workgroup, k: hidden, prefill }, subgroup))
}

/// What a dispatch reads and writes.
#[derive(Clone)]
pub struct Operands {
    /// Control block.
    pub control: Slice,
    /// Direction `[hidden]`, of length 1.
    pub direction: Slice,
    /// What is steered, `[rows][hidden]`.
    pub y: Slice,
    /// Residual `[rows][hidden]`, updated.
    pub h: Slice,
    /// One sum of squares for each row.
    pub squares: Slice,
    /// How strongly.
    pub scale: f32,
}

/// The kernel for one width.
pub struct Steer {
    pipeline: Arc<Pipeline>,
    hidden: u32,
}

impl Steer {
    /// Compiles the kernel for rows of `hidden` values.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when `hidden` is not a multiple of 4, or the device refuses.
    pub fn new(device: &Arc<Device>, hidden: u32, rows: Rows) -> Result<Self, Error> {
        let fail = |why: String| Error::Pipeline { name: STEER.variant, why };
        let (constants, subgroup) = select(hidden, rows, device.caps()).map_err(fail)?;
        let program = STEER.program().ok_or_else(|| fail("not in this build".to_owned()))?;
        let constants = [constants];
        let pipeline = Pipeline::new(device, program, bytemuck::cast_slice(&constants), subgroup)?;
        Ok(Self { pipeline, hidden })
    }

    /// Adds a dispatch over `rows` rows, or as many tokens at most, to the last level of `graph`.
    ///
    /// # Panics
    /// When a slice does not have the size of its operand.
    pub fn record(&self, graph: &mut Graph, label: &str, rows: u32, io: Operands) {
        let (row, count) = (u64::from(self.hidden) * 4, u64::from(rows));
        let found = [io.direction.bytes, io.y.bytes, io.h.bytes, io.squares.bytes];
        assert_eq!(found, [row, count * row, count * row, count * 4], "{label}: operands");
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices: vec![io.control, io.direction, io.y, io.h, io.squares],
            push: bytemuck::bytes_of(&Push { scale: io.scale }).to_vec(),
            grid: [rows, 1, 1].into(),
            cost: Cost { bytes: 0, flops: count * row * 2 },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{self, Draw, Gpu};
    use crate::kernels::control::Row;
    use crate::ops::steer;

    /// Dot products of up to 2048 terms in another order than the reference's: relative to the magnitudes.
    const BOUND: f64 = 1e-5;

    fn case(gpu: &mut Gpu, seed: u64, hidden: usize, records: &[Row], rows: Rows) {
        println!("seed {seed}: {hidden}, {rows:?}");
        let count = if rows == Rows::Batch { records.len() } else { 9 };
        let mut draw = Draw::new(seed);
        let (y, h) = (draw.normals(count * hidden), draw.normals(count * hidden));
        let mut direction = draw.normals(hidden);
        let norm = direction.iter().map(|v| v * v).sum::<f32>().sqrt();
        for v in &mut direction {
            *v /= norm;
        }
        let scale = 1.7;
        let width = u32::try_from(hidden).unwrap();
        let kernel = Steer::new(gpu.device(), width, rows).unwrap();
        let new_h = gpu.update("h", &h);
        let squares = gpu.output("squares", count * 4);
        let io = Operands {
            control: gpu.input("control", records),
            direction: gpu.input("direction", &direction),
            y: gpu.input("y", &y),
            h: new_h.slice(),
            squares: squares.slice(),
            scale,
        };
        let mut graph = Graph::new("steer");
        for slice in [&io.control, &io.direction, &io.y, &io.h] {
            graph.input(slice);
        }
        graph.level();
        kernel.record(&mut graph, "steer", u32::try_from(count).unwrap(), io);
        gpu.run(graph);
        let (new_h, squares) = (gpu.words(&new_h), gpu.words(&squares));
        for n in 0..count {
            let span = n * hidden..(n + 1) * hidden;
            let (found, before) = (&new_h[span.clone()], &h[span.clone()]);
            let used = match rows {
                Rows::Batch => records[n].flags != Row::IDLE,
                Rows::Tokens => n < records[0].tokens as usize,
            };
            if !used {
                assert!(found.iter().zip(before).all(|(f, b)| *f == b.to_bits()));
                assert_eq!(squares[n], Gpu::POISON);
                continue;
            }
            let mut expected = y[span].to_vec();
            steer(&mut expected, &direction, scale);
            let mut sum = 0.0;
            for ((&f, e), b) in found.iter().zip(expected).zip(before) {
                let (f, e) = (f64::from(f32::from_bits(f)), f64::from(e) + f64::from(*b));
                assert!((f - e).abs() <= BOUND * (1.0 + e.abs()), "{f} for {e}");
                sum += f * f;
            }
            let found = f64::from(f32::from_bits(squares[n]));
            assert!((found - sum).abs() <= 4e-6 * sum, "{found} for {sum}");
        }
    }

    #[test]
    fn rows_and_tokens_are_steered() {
        let Some(mut gpu) = check::gpu() else { return };
        let used = Row { tokens: 5, ..Row::default() };
        let idle = Row { flags: Row::IDLE, ..used };
        for (seed, hidden) in (1..).zip([4, 60, 256, 2048]) {
            case(&mut gpu, seed, hidden, &[used], Rows::Batch);
            case(&mut gpu, seed, hidden, &[used, idle, used, used], Rows::Batch);
            case(&mut gpu, seed, hidden, &[used], Rows::Tokens);
        }
    }
}
