//! Working memory of decode steps. A class of row counts sees the first rows of every buffer.

use super::Error;
use super::kernels::{Class, Dims, Shared};
use super::weights::DeviceWeights;
use crate::kernels::control::Row;
use crate::kernels::head;
use crate::kernels::mv_q8::Form;
use crate::vulkan::{Arena, Slice};

/// The buffers of a step, each exactly as large as the class needs it.
#[derive(Clone)]
pub(super) struct Rows {
    /// Records of the rows.
    pub(super) control: Slice,
    /// Residual `[rows][hidden]`.
    pub(super) h: Slice,
    /// Partial sums of its squares, after the embedding, after a mixer, after the experts.
    pub(super) embed_squares: Slice,
    pub(super) out_squares: Slice,
    pub(super) down_squares: Slice,
    /// What is added to the residual, when it is steered first.
    pub(super) added: Slice,
    /// Of recurrent layers: gate, decay, write strength, output of the core.
    pub(super) z: Slice,
    pub(super) decay: Slice,
    pub(super) beta: Slice,
    pub(super) y_recurrent: Slice,
    /// Of attention layers: projections, what the splits leave, output.
    pub(super) proj: Slice,
    pub(super) attention_values: Slice,
    pub(super) attention_stats: Slice,
    pub(super) y_attention: Slice,
    /// Of experts: normalised rows, router, choice, products.
    pub(super) x: Slice,
    pub(super) router_logits: Slice,
    pub(super) ids: Slice,
    pub(super) route: Slice,
    pub(super) mid: Slice,
    pub(super) shared_mid: Slice,
    pub(super) sigma: Slice,
    /// Of several rows together: which expert serves which of them, and the parts of their sums.
    pub(super) entries: Slice,
    pub(super) parts: Slice,
    /// Best logits of the head's workgroups.
    pub(super) pairs: Slice,
    /// Records of the step, written by the host.
    pub(super) mailbox: Slice,
    /// What was found among the logits, read by the host.
    pub(super) records: Slice,
    /// Of the search for candidates.
    pub(super) histogram: Slice,
    pub(super) marks: Slice,
    pub(super) tallies: Slice,
}

/// Memory that the host sees: what it writes, what it reads.
pub(super) struct HostArenas {
    pub(super) up: Arena,
    pub(super) down: Arena,
}

/// Words of each buffer for one row, in the order of the fields; the records not counted.
fn widths(
    dims: &Dims,
    class: &Class,
    shared: &Shared,
    weights: &DeviceWeights,
) -> Result<[u64; 23], Error> {
    let wide = |n: u32| u64::from(n);
    let experts = &dims.experts;
    let (out_partials, down_partials) = class.partials(weights)?;
    Ok([
        wide(dims.hidden),
        1,
        wide(out_partials),
        wide(down_partials),
        wide(dims.hidden),
        wide(dims.inner),
        wide(dims.heads.value),
        wide(dims.heads.value),
        wide(dims.inner),
        wide(dims.attention.projection_width()),
        shared.attention.values_bytes(1) / 4,
        shared.attention.stats_bytes(1) / 4,
        wide(dims.query_width),
        wide(dims.hidden),
        wide(experts.experts),
        wide(experts.used),
        wide(experts.used),
        wide(experts.used) * wide(experts.expert_ffn),
        wide(experts.shared_ffn),
        1,
        2 * wide(experts.used),
        wide(experts.used + 1) * wide(dims.hidden),
        2 * wide(class.product(Form::Head, &weights.output).groups()),
    ])
}

impl Rows {
    /// Allocates for the rows of a class.
    pub(super) fn new(
        (arena, host): (&Arena, &HostArenas),
        dims: &Dims,
        class: &Class,
        (shared, weights): (&Shared, &DeviceWeights),
    ) -> Result<Self, Error> {
        let rows = u64::from(class.batch);
        let control = arena.buffer("control", rows * size_of::<Row>() as u64)?.all();
        let mut slices = Vec::new();
        for words in widths(dims, class, shared, weights)? {
            slices.push(arena.buffer("row scratch", rows * words * 4)?.all());
        }
        let [
            h,
            embed_squares,
            out_squares,
            down_squares,
            added,
            z,
            decay,
            beta,
            y_recurrent,
            proj,
            attention_values,
            attention_stats,
            y_attention,
            x,
            router_logits,
            ids,
            route,
            mid,
            shared_mid,
            sigma,
            entries,
            parts,
            pairs,
        ] = <[Slice; 23]>::try_from(slices).ok().expect("one slice for each width");
        Ok(Self {
            control,
            h,
            embed_squares,
            out_squares,
            down_squares,
            added,
            z,
            decay,
            beta,
            y_recurrent,
            proj,
            attention_values,
            attention_stats,
            y_attention,
            x,
            router_logits,
            ids,
            route,
            mid,
            shared_mid,
            sigma,
            entries,
            parts,
            pairs,
            mailbox: host.up.buffer("mailbox", rows * size_of::<Row>() as u64)?.all(),
            records: host.down.buffer("records", rows * head::RECORD_BYTES as u64)?.all(),
            histogram: arena.buffer("histogram", rows * head::HISTOGRAM_BYTES)?.all(),
            marks: arena.buffer("marks", class.filter.marks_bytes())?.all(),
            tallies: arena.buffer("tallies", class.filter.tallies_bytes())?.all(),
        })
    }
}
