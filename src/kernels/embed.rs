//! Starts a step: takes the host's records into the control block and brings embeddings into the residual:
//! `h[n] = E[token[n]]`, `E`: `[vocab][hidden]` in planes (`mv_q8`) or f32.
//!
//! In decode there is a workgroup for each row of the batch; the row's record names the token, and one partial
//! sum of squares of `h` is made. For a chunk of a prompt there is a workgroup for each token, and one record. Idle
//! rows and tokens past the end of the chunk write no `h`; records are taken over in any case. This kernel is the
//! only one that writes the control block.

use super::mv_q8::{Matrix, Storage};
use super::registry::Interface;
use crate::vulkan::{Binding, Caps, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

/// What `small/embed.comp` declares, for `Q8_0` and f32 weights, a step of rows.
pub const ROWS: [Interface; 2] = [
    interface(
        "embed",
        &[
            Binding::write(0),
            Binding::read(1),
            Binding::read(2),
            Binding::read(3),
            Binding::write(4),
            Binding::write(5),
        ],
    ),
    interface(
        "embed_f32",
        &[
            Binding::write(0),
            Binding::read(1),
            Binding::read(3),
            Binding::write(4),
            Binding::write(5),
        ],
    ),
];

/// The same for the tokens of a chunk.
pub const TOKENS: [Interface; 2] = [
    interface(
        "embed_tokens",
        &[
            Binding::write(0),
            Binding::read(1),
            Binding::read(2),
            Binding::read(3),
            Binding::write(4),
            Binding::read(5),
        ],
    ),
    interface(
        "embed_tokens_f32",
        &[
            Binding::write(0),
            Binding::read(1),
            Binding::read(3),
            Binding::write(4),
            Binding::read(5),
        ],
    ),
];

const fn interface(variant: &'static str, bindings: &'static [Binding]) -> Interface {
    let constants = &["workgroup", "K"];
    Interface { variant, bindings, push_bytes: size_of::<Push>(), constants }
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Push {
    first: u32,
    count: u32,
    start: u32,
}

const _: () = assert!(size_of::<Push>() == 12);

/// Specialization constants, in the order of their ids.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
struct Constants {
    workgroup: u32,
    k: u32,
}

/// The constants and the subgroup size for embeddings of `hidden` values. The width enters the order of the sum of
/// squares, and is the same for every batch.
fn select(hidden: u32, caps: &Caps) -> Result<(Constants, u32), String> {
    if hidden == 0 || !hidden.is_multiple_of(32) {
        return Err(format!("embeddings of {hidden} values, expected whole blocks of 32"));
    }
    let subgroup = caps.subgroup_size(64);
    let useful = (hidden / 4).next_multiple_of(subgroup);
    let workgroup = useful.min(256).min(caps.workgroup_limit(subgroup));
    Ok((Constants { workgroup, k: hidden }, subgroup))
}

/// What a workgroup stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Rows of a batch: 1, 2, 4 or 8.
    Rows(u32),
    /// Tokens of a chunk, at most so many.
    Tokens(u32),
}

/// The part of the embeddings that one binding sees.
#[derive(Clone)]
pub struct Slab {
    /// Its rows.
    pub matrix: Matrix,
    /// The token of the first one.
    pub first: u32,
}

/// What a dispatch reads and writes.
#[derive(Clone)]
pub struct Operands {
    /// Control block, written: a record for each row, or one.
    pub control: Slice,
    /// The host's records, as many.
    pub mailbox: Slice,
    /// Output `[rows or tokens][hidden]`.
    pub h: Slice,
    /// [`Step::Rows`]: output, one sum of squares for each row. [`Step::Tokens`]: the ids, u32.
    pub squares_or_ids: Slice,
}

/// The kernel for one kind of step.
pub struct Embed {
    pipeline: Arc<Pipeline>,
    step: Step,
    storage: Storage,
    hidden: u32,
}

impl Embed {
    /// Compiles it for embeddings of `hidden` values.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when `hidden` is not a multiple of 32, or the device refuses.
    pub fn new(
        device: &Arc<Device>,
        step: Step,
        storage: Storage,
        hidden: u32,
    ) -> Result<Self, Error> {
        let interfaces = match step {
            Step::Rows(_) => &ROWS,
            Step::Tokens(_) => &TOKENS,
        };
        let interface = &interfaces[storage as usize];
        let fail = |why: String| Error::Pipeline { name: interface.variant, why };
        let (constants, subgroup) = select(hidden, device.caps()).map_err(fail)?;
        let program = interface.program().ok_or_else(|| fail("not in this build".to_owned()))?;
        let constants = [constants];
        let pipeline = Pipeline::new(device, program, bytemuck::cast_slice(&constants), subgroup)?;
        Ok(Self { pipeline, step, storage, hidden })
    }

    /// Adds the step to the last level of `graph`. Every slab after the first adds a level: they write one output.
    ///
    /// # Panics
    /// When a slice does not have the size of its operand.
    pub fn record(&self, graph: &mut Graph, label: &str, slabs: &[Slab], io: &Operands) {
        let (count, records) = match self.step {
            Step::Rows(n) => (n, n),
            Step::Tokens(n) => (n, 1),
        };
        let bytes = u64::from(count) * u64::from(self.hidden) * 4;
        assert_eq!(io.h.bytes, bytes, "{label}: output");
        assert_eq!(io.squares_or_ids.bytes, u64::from(count) * 4, "{label}: squares or ids");
        for slice in [&io.control, &io.mailbox] {
            assert_eq!(slice.bytes, u64::from(records) * 256, "{label}: records");
        }
        for (index, slab) in slabs.iter().enumerate() {
            if index > 0 {
                graph.level();
            }
            let mut slices = vec![io.control.clone()];
            let row_bytes = match (&slab.matrix, self.storage) {
                (Matrix::Q8(planes), Storage::Q8) => {
                    slices.extend([planes.codes.clone(), planes.scales.clone()]);
                    self.hidden
                }
                (Matrix::F32(weights), Storage::F32) => {
                    slices.push(weights.clone());
                    4 * self.hidden
                }
                _ => panic!("{label}: weights of another kind"),
            };
            slices.extend([io.mailbox.clone(), io.h.clone(), io.squares_or_ids.clone()]);
            let rows = u32::try_from(slices[1].bytes / u64::from(row_bytes)).expect("a vocabulary");
            let push = Push { first: slab.first, count: rows, start: u32::from(index == 0) };
            graph.node(Node {
                label: label.to_owned(),
                pipeline: Arc::clone(&self.pipeline),
                slices,
                push: bytemuck::bytes_of(&push).to_vec(),
                grid: [count, 1, 1].into(),
                cost: Cost { bytes: u64::from(count) * u64::from(row_bytes), flops: 0 },
            });
        }
    }
}

#[cfg(test)]
mod tests;
