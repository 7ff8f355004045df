//! Working memory of decode steps. A class of row counts sees the first rows of every buffer.
//!
//! Each buffer is described once, by `row_buffers`: its name, what it is for, and its words for one row.

use super::Error;
use super::kernels::{Class, Dims, Shared};
use super::weights::DeviceWeights;
use crate::kernels::control::Row;
use crate::kernels::head;
use crate::kernels::mv_q8::Form;
use crate::vulkan::{Arena, Slice};

/// Memory that the host sees: what it writes, what it reads.
pub(super) struct HostArenas {
    pub(super) up: Arena,
    pub(super) down: Arena,
}

/// What the sizes of buffers are made of.
struct Widths<'a> {
    dims: &'a Dims,
    class: &'a Class,
    shared: &'a Shared,
    weights: &'a DeviceWeights,
    /// Partial sums of squares behind a mixer and behind the experts.
    partials: (u32, u32),
}

/// Declares [`Rows`], and how they are allocated, from a list of buffers and their words for one row.
macro_rules! row_buffers {
    ($w:ident; $($(#[$what:meta])* $name:ident: $words:expr;)*) => {
        /// The buffers of a step, each exactly as large as the class needs it.
        #[derive(Clone)]
        pub(super) struct Rows {
            /// Records of the rows.
            pub(super) control: Slice,
            $($(#[$what])* pub(super) $name: Slice,)*
            /// Records of the step, written by the host.
            pub(super) mailbox: Slice,
            /// What was found among the logits, read by the host.
            pub(super) records: Slice,
            /// Of the search for candidates.
            pub(super) histogram: Slice,
            pub(super) marks: Slice,
            pub(super) tallies: Slice,
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
                let partials = class.partials(weights)?;
                let $w = Widths { dims, class, shared, weights, partials };
                let buffer = |arena: &Arena, name: &str, bytes: u64| -> Result<Slice, Error> {
                    Ok(arena.buffer(name, bytes)?.all())
                };
                let record = rows * size_of::<Row>() as u64;
                let found = rows * head::RECORD_BYTES as u64;
                Ok(Self {
                    control: buffer(arena, "control", record)?,
                    $($name: buffer(arena, stringify!($name), rows * u64::from($words) * 4)?,)*
                    mailbox: buffer(&host.up, "mailbox", record)?,
                    records: buffer(&host.down, "records", found)?,
                    histogram: buffer(arena, "histogram", rows * head::HISTOGRAM_BYTES)?,
                    marks: buffer(arena, "marks", class.filter.marks_bytes())?,
                    tallies: buffer(arena, "tallies", class.filter.tallies_bytes())?,
                })
            }
        }
    };
}

row_buffers! { w;
    /// Residual `[rows][hidden]`.
    h: w.dims.hidden;
    /// Partial sums of its squares, after the embedding, after a mixer, after the experts.
    embed_squares: 1_u32;
    out_squares: w.partials.0;
    down_squares: w.partials.1;
    /// What is added to the residual, when it is steered first.
    added: w.dims.hidden;
    /// Of recurrent layers: gate, decay, write strength, output of the core.
    z: w.dims.inner;
    decay: w.dims.heads.value;
    beta: w.dims.heads.value;
    y_recurrent: w.dims.inner;
    /// Of attention layers: projections, what the splits leave, output.
    proj: w.dims.attention.projection_width();
    attention_values: w.shared.attention.values_bytes(1) / 4;
    attention_stats: w.shared.attention.stats_bytes(1) / 4;
    y_attention: w.dims.query_width;
    /// Of experts: normalised rows, router, choice, products.
    x: w.dims.hidden;
    router_logits: w.dims.experts.experts;
    ids: w.dims.experts.used;
    route: w.dims.experts.used;
    mid: w.dims.experts.used * w.dims.experts.expert_ffn;
    shared_mid: w.dims.experts.shared_ffn;
    sigma: 1_u32;
    /// Of several rows together: which expert serves which of them, and the parts of their sums.
    entries: 2 * w.dims.experts.used;
    parts: (w.dims.experts.used + 1) * w.dims.hidden;
    /// Best logits of the head's workgroups.
    pairs: 2 * w.class.product(Form::Head, &w.weights.output).groups();
}
