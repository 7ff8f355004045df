//! After the logits: the greedy token of each row ([`Pick`]), and the candidates for sampling ([`Filter`]).
//!
//! The head (`mv_q8`, [`Form::Head`](super::mv_q8::Form::Head)) leaves raw logits `[batch][vocab]` and the best pair
//! of each of its workgroups. Sampling sees a logit with the row's addend (list of biases) and only where the row's
//! mask allows the id; both are applied here and there, never to the stored logits.
//!
//! The host reads one [`Record`] for each row. Candidates are the allowed ids whose logit is at least the best
//! minus `margin` and, with `top_k > 0`, that lie in the first bins of a histogram (1/64 wide, down to 32 below the
//! best) which together hold `top_k`: a superset of what the exact rules keep, in ascending order of ids. A row whose
//! `inverse_temperature` is zero wants none. Which allowed ids enter `sum` does not depend on margin or `top_k`.
//! Everything is done in an order that depends on the vocabulary and the device alone, so a row's record does not
//! depend on its company.
//!
//! Levels: head; pick; count (only where rows may want `top_k`); mark; collect.

use super::control::Row;
use super::registry::Interface;
use crate::vulkan::{Binding, Caps, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

/// What `small/pick.comp` declares.
pub const PICK: Interface = Interface {
    variant: "pick",
    bindings: &[Binding::read(0), Binding::read(3), Binding::write(4), Binding::write(7)],
    push_bytes: 4,
    constants: &["workgroup"],
};

/// What `small/filter.comp` declares, by pass.
pub const COUNT: Interface = filter(
    "filter_count",
    &[
        Binding::read(0),
        Binding::read(3),
        Binding::read(8),
        Binding::read(9),
        Binding::read(4),
        Binding::update(6),
    ],
);
/// The second pass.
pub const MARK: Interface = Interface {
    variant: "filter_mark",
    bindings: &[
        Binding::read(0),
        Binding::read(3),
        Binding::read(8),
        Binding::read(9),
        Binding::read(4),
        Binding::read(6),
        Binding::write(7),
        Binding::write(10),
    ],
    push_bytes: 4,
    constants: &["workgroup", "WIDTH", "PER", "TOP_K"],
};
/// The last pass.
pub const COLLECT: Interface = filter(
    "filter_collect",
    &[
        Binding::read(0),
        Binding::read(3),
        Binding::read(8),
        Binding::read(9),
        Binding::update(4),
        Binding::read(7),
        Binding::read(10),
    ],
);

const fn filter(variant: &'static str, bindings: &'static [Binding]) -> Interface {
    Interface { variant, bindings, push_bytes: 4, constants: &["workgroup", "WIDTH", "PER"] }
}

/// Candidates of a row that the host is told.
pub const MOST_PAIRS: usize = 1024;

/// What the host reads of a row; `shaders/include/result.glsl` has the same fields.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct Record {
    /// The best allowed id, the lower among equals.
    pub token: u32,
    /// [`Record::FAILED`], [`Record::OVERFLOW`].
    pub flags: u32,
    /// Its logit with its addend.
    pub max: f32,
    /// Sum of `exp((logit - max) * inverse_temperature)` over the allowed ids.
    pub sum: f32,
    /// Candidates, counted even when there is no room for all.
    pub count: u32,
    /// Nothing yet.
    pub reserved: [u32; 11],
    /// The first `count` are candidates, ids ascending.
    pub pairs: [Candidate; MOST_PAIRS],
}

/// An id and its logit with its addend.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct Candidate {
    /// The id.
    pub id: u32,
    /// The logit.
    pub logit: f32,
}

const _: () = assert!(size_of::<Record>() == RECORD_BYTES && Record::FAILED == Row::FAILED);

/// Bytes of a record.
pub const RECORD_BYTES: usize = 64 + 8 * MOST_PAIRS;

impl Record {
    /// A logit was not finite, or no id is allowed; nothing else holds.
    pub const FAILED: u32 = 2;
    /// More than [`MOST_PAIRS`] candidates: the host must look at the logits.
    pub const OVERFLOW: u32 = 4;

    /// The candidates, if there is room for all.
    pub fn candidates(&self) -> Option<&[Candidate]> {
        (self.flags & Self::OVERFLOW == 0).then(|| &self.pairs[..self.count as usize])
    }
}

/// Bytes of a row of the histogram.
pub const HISTOGRAM_BYTES: u64 = 2048 * 4;

fn width(caps: &Caps) -> (u32, u32) {
    let subgroup = caps.subgroup_size(64);
    let limit = caps.workgroup_limit(subgroup).min(256);
    (1 << limit.ilog2(), subgroup)
}

fn build(
    device: &Arc<Device>,
    interface: &'static Interface,
    constants: &[u32],
) -> Result<Arc<Pipeline>, Error> {
    let name = interface.variant;
    let fail = |why: &str| Error::Pipeline { name, why: why.to_owned() };
    let program = interface.program().ok_or_else(|| fail("not in this build"))?;
    let (width, subgroup) = width(device.caps());
    if width < 32 {
        return Err(fail("workgroups of fewer than 32 invocations"));
    }
    let constants = &constants[..interface.constants.len()];
    Pipeline::new(device, program, constants, subgroup)
}

/// The greedy choice.
pub struct Pick {
    pipeline: Arc<Pipeline>,
    batch: u32,
}

impl Pick {
    /// Compiles it for batches of `batch` rows.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the device refuses.
    pub fn new(device: &Arc<Device>, batch: u32) -> Result<Self, Error> {
        let pipeline = build(device, &PICK, &[width(device.caps()).0])?;
        Ok(Self { pipeline, batch })
    }

    /// Adds the choice to the last level of `graph`: reads `pairs` `[batch][groups]` of the head, writes the
    /// beginnings of `records`, and clears `histogram` (`[batch]` of [`HISTOGRAM_BYTES`]) for the passes of [`Filter`].
    ///
    /// # Panics
    /// When a slice does not have the size of its operand.
    pub fn record(&self, graph: &mut Graph, label: &str, io: PickIo) {
        let batch = u64::from(self.batch);
        assert!(io.pairs.bytes.is_multiple_of(8 * batch), "{label}: pairs");
        assert_eq!(io.records.bytes, batch * RECORD_BYTES as u64, "{label}: records");
        assert_eq!(io.histogram.bytes, batch * HISTOGRAM_BYTES, "{label}: histogram");
        let groups = u32::try_from(io.pairs.bytes / 8 / batch).expect("counted in 32 bits");
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices: vec![io.control, io.pairs, io.records, io.histogram],
            push: bytemuck::bytes_of(&groups).to_vec(),
            grid: [self.batch, 1, 1].into(),
            cost: Cost::default(),
        });
    }
}

/// What [`Pick`] reads and writes.
#[derive(Clone)]
pub struct PickIo {
    /// Control block.
    pub control: Slice,
    /// Best pairs of the head.
    pub pairs: Slice,
    /// A [`Record`] for each row.
    pub records: Slice,
    /// Cleared for rows with `top_k`.
    pub histogram: Slice,
}

/// The candidates.
pub struct Filter {
    count: Option<Arc<Pipeline>>,
    mark: Arc<Pipeline>,
    collect: Arc<Pipeline>,
    width: u32,
    batch: u32,
    vocab: u32,
}

/// Ids of an invocation.
const PER: u32 = 8;

/// What the passes read and write.
#[derive(Clone)]
pub struct FilterIo {
    /// Control block.
    pub control: Slice,
    /// `[any][vocab]`, as the head left them.
    pub logits: Slice,
    /// Bit masks, as for the head.
    pub mask: Slice,
    /// Biases, as for the head.
    pub bias: Slice,
    /// A [`Record`] for each row, begun by [`Pick`].
    pub records: Slice,
    /// As in [`PickIo`].
    pub histogram: Slice,
    /// Scratch of [`Filter::marks_bytes`].
    pub marks: Slice,
    /// Scratch of [`Filter::tallies_bytes`].
    pub tallies: Slice,
}

impl Filter {
    /// Compiles the passes for batches of `batch` rows of `vocab` logits. Without `top_k` there is one pass less, and
    /// rows' `top_k` is ignored: the candidates are then all within the margin.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the device refuses.
    pub fn new(device: &Arc<Device>, batch: u32, vocab: u32, top_k: bool) -> Result<Self, Error> {
        let (width, _) = width(device.caps());
        let constants = [width, width, PER, u32::from(top_k)];
        let count = top_k.then(|| build(device, &COUNT, &constants)).transpose()?;
        let mark = build(device, &MARK, &constants)?;
        let collect = build(device, &COLLECT, &constants)?;
        Ok(Self { count, mark, collect, width, batch, vocab })
    }

    fn blocks(&self) -> u32 {
        self.vocab.div_ceil(self.width * PER)
    }

    /// Bytes of a bit for each id, in whole blocks.
    pub fn marks_bytes(&self) -> u64 {
        u64::from(self.batch * self.blocks()) * u64::from(self.width * PER / 8)
    }

    /// Bytes of a count and a sum for each block.
    pub fn tallies_bytes(&self) -> u64 {
        u64::from(self.batch * self.blocks()) * 8
    }

    /// Adds the passes to `graph`, the first to its last level, each other to a level of its own.
    ///
    /// # Panics
    /// When a slice does not have the size of its operand.
    pub fn record(&self, graph: &mut Graph, label: &str, io: &FilterIo) {
        let batch = u64::from(self.batch);
        let row = u64::from(self.vocab) * 4;
        let whole = io.logits.bytes.is_multiple_of(row) && io.logits.bytes >= batch * row;
        assert!(whole, "{label}: logits");
        let found = [io.records.bytes, io.histogram.bytes];
        let expected = [batch * RECORD_BYTES as u64, batch * HISTOGRAM_BYTES];
        assert_eq!(found, expected, "{label}: operands");
        let found = (io.marks.bytes, io.tallies.bytes);
        assert_eq!(found, (self.marks_bytes(), self.tallies_bytes()), "{label}: scratch");
        let FilterIo { control, logits, mask, bias, records, histogram, marks, tallies } = io;
        let first = [control, logits, mask, bias, records];
        let passes: [(_, _, &[&Slice]); 3] = [
            ("count", self.count.as_ref(), &[histogram]),
            ("mark", Some(&self.mark), &[histogram, marks, tallies]),
            ("collect", Some(&self.collect), &[marks, tallies]),
        ];
        let recorded = passes.into_iter().filter_map(|(name, p, rest)| Some((name, p?, rest)));
        for (index, (name, pipeline, rest)) in recorded.enumerate() {
            if index > 0 {
                graph.level();
            }
            graph.node(Node {
                label: format!("{label} {name}"),
                pipeline: Arc::clone(pipeline),
                slices: first.iter().chain(rest).map(|&s| s.clone()).collect(),
                push: bytemuck::bytes_of(&self.vocab).to_vec(),
                grid: [self.blocks(), self.batch, 1].into(),
                cost: Cost { bytes: if name == "collect" { 0 } else { batch * row }, flops: 0 },
            });
        }
    }
}

#[cfg(test)]
mod tests;
