//! What the head needs of a chunk: `row = h[rows[0].tokens - 1]`, and the sum of its squares.
//!
//! `h`: `[tokens][hidden]` f32; `row`: `[hidden]`; `squares`: one value. One workgroup.

use super::control::Row;
use super::registry::Interface;
use crate::vulkan::{Binding, Caps, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

/// What `small/last_row.comp` declares.
pub const LAST_ROW: Interface = Interface {
    variant: "last_row",
    bindings: &[Binding::read(0), Binding::read(3), Binding::write(4), Binding::write(7)],
    push_bytes: 0,
    constants: &["workgroup", "K"],
};

/// Specialization constants, in the order of their ids.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
struct Constants {
    workgroup: u32,
    k: u32,
}

fn select(hidden: u32, caps: &Caps) -> Result<(Constants, u32), String> {
    if hidden == 0 || !hidden.is_multiple_of(4) {
        return Err(format!("rows of {hidden} values, expected a multiple of 4"));
    }
    let subgroup = caps.subgroup_size(64);
    let useful = (hidden / 4).next_multiple_of(subgroup);
    let workgroup = useful.min(256).min(caps.workgroup_limit(subgroup));
    Ok((Constants { workgroup, k: hidden }, subgroup))
}

/// Operands of [`LastRow`].
pub struct LastRowIo {
    /// The control block.
    pub control: Slice,
    /// Residual of the chunk.
    pub h: Slice,
    /// Output.
    pub row: Slice,
    /// Sum of its squares.
    pub squares: Slice,
}

/// The kernel for rows of one width.
pub struct LastRow {
    pipeline: Arc<Pipeline>,
    hidden: u32,
}

impl LastRow {
    /// Compiles it.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when `hidden` is not a multiple of 4, or the device refuses.
    pub fn new(device: &Arc<Device>, hidden: u32) -> Result<Self, Error> {
        let fail = |why: String| Error::Pipeline { name: LAST_ROW.variant, why };
        let (constants, subgroup) = select(hidden, device.caps()).map_err(fail)?;
        let program = LAST_ROW.program().ok_or_else(|| fail("not in this build".to_owned()))?;
        let constants = [constants];
        let pipeline = Pipeline::new(device, program, bytemuck::cast_slice(&constants), subgroup)?;
        Ok(Self { pipeline, hidden })
    }

    /// Adds the dispatch to the last level of `graph`.
    ///
    /// # Panics
    /// When a slice does not have the size of its operand.
    pub fn record(&self, graph: &mut Graph, label: &str, io: LastRowIo) {
        let bytes = u64::from(self.hidden) * 4;
        assert!(io.control.bytes >= size_of::<Row>() as u64, "{label}: control");
        assert!(io.h.bytes >= bytes && io.h.bytes.is_multiple_of(bytes), "{label}: residual");
        assert_eq!((io.row.bytes, io.squares.bytes), (bytes, 4), "{label}: output");
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices: vec![io.control, io.h, io.row, io.squares],
            push: Vec::new(),
            grid: [1, 1, 1].into(),
            cost: Cost::default(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{self, Draw};

    #[test]
    fn the_last_token_of_the_chunk_and_no_other() {
        let Some(mut gpu) = check::gpu() else { return };
        for (hidden, tokens, class) in [(4, 1, 1), (256, 3, 8), (2048, 8, 8), (1028, 7, 32)] {
            let h = Draw::new(tokens).normals(hidden * class);
            let count = u32::try_from(tokens).unwrap();
            let record = [Row { tokens: count, ..Row::default() }];
            let (control, residual) = (gpu.input("control", &record), gpu.input("h", &h));
            let (row, squares) = (gpu.output("row", hidden * 4), gpu.output("squares", 4));
            let kernel = LastRow::new(gpu.device(), u32::try_from(hidden).unwrap()).unwrap();
            let mut graph = Graph::new("last row");
            graph.input(&control);
            graph.input(&residual);
            graph.level();
            let io = LastRowIo { control, h: residual, row: row.slice(), squares: squares.slice() };
            kernel.record(&mut graph, "last row", io);
            gpu.run(graph);
            let expected = &h[(count as usize - 1) * hidden..][..hidden];
            assert_eq!(gpu.read(&row), expected);
            let sum: f64 = expected.iter().map(|v| f64::from(*v).powi(2)).sum();
            // A chain of at most 32 products in each invocation, then a tree.
            let error = (f64::from(gpu.read(&squares)[0]) - sum).abs();
            assert!(error <= 1e-5 * sum, "off by {error} of {sum}");
        }
    }
}
