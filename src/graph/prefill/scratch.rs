//! Working memory of prompt chunks, as large as the largest class; a class sees the first rows of every buffer.

use super::ChunkKernels;
use crate::graph::Error;
use crate::graph::kernels::Dims;
use crate::graph::scratch::HostArenas;
use crate::graph::weights::{DeviceMixer, DeviceWeights};
use crate::kernels::control::Row;
use crate::kernels::moe_plan::{PlanBytes, PlanSlices};
use crate::model::Shape;
use crate::vulkan::{Arena, Slice};

/// The buffers of a chunk.
#[derive(Clone)]
pub(in crate::graph) struct ChunkScratch {
    pub(in crate::graph) control: Slice,
    pub(in crate::graph) mailbox: Slice,
    /// The record of a range of query rows, written by the host.
    pub(in crate::graph) ranges: Slice,
    /// Token ids, written by the host.
    pub(in crate::graph) ids: Slice,
    /// Residual `[tokens][hidden]`.
    pub(in crate::graph) h: Slice,
    /// Sums of its squares, where steering makes some.
    pub(in crate::graph) squares: Slice,
    /// What is added to the residual, when it is steered first.
    pub(in crate::graph) added: Slice,
    /// Normalised rows, or a mixer's output, for products; with scales and factors.
    pub(in crate::graph) x: Slice,
    pub(in crate::graph) scale: Slice,
    pub(in crate::graph) factor: Slice,
    /// Projections of a mixer.
    pub(in crate::graph) proj: Slice,
    /// Projections of the gates, where they are apart.
    pub(in crate::graph) gate_proj: Slice,
    pub(in crate::graph) conv: Slice,
    pub(in crate::graph) log_decay: Slice,
    pub(in crate::graph) beta: Slice,
    /// Between the two dispatches of the delta rule in blocks.
    pub(in crate::graph) blocks: Slice,
    pub(in crate::graph) block_tails: Slice,
    /// Output of the delta rule.
    pub(in crate::graph) o: Slice,
    /// Queries after norm and rotation.
    pub(in crate::graph) q: Slice,
    /// Output of a mixer.
    pub(in crate::graph) y: Slice,
    pub(in crate::graph) router_logits: Slice,
    pub(in crate::graph) chosen: Slice,
    pub(in crate::graph) route: Slice,
    pub(in crate::graph) sigma: Slice,
    pub(in crate::graph) plan: PlanSlices,
    pub(in crate::graph) shared_mid: Slice,
    pub(in crate::graph) shared_x: Slice,
    pub(in crate::graph) shared_factor: Slice,
    pub(in crate::graph) mid: Slice,
    pub(in crate::graph) mid_factor: Slice,
    pub(in crate::graph) down: Slice,
}

/// Values of a token in the wider buffers.
struct Widths {
    proj: u64,
    x: u64,
    y: u64,
    slots_ffn: u64,
    slots_hidden: u64,
}

impl Widths {
    fn new(shape: &Shape, proj: u64) -> Self {
        let wide = |n: usize| n as u64;
        let y = wide(shape.inner.max(shape.query_width()));
        Self {
            proj,
            x: y.max(wide(shape.hidden)),
            y,
            slots_ffn: wide(shape.experts_used * shape.expert_ffn),
            slots_hidden: wide(shape.experts_used * shape.hidden),
        }
    }
}

/// Values of a token's row of projections.
fn projection(shape: &Shape) -> u64 {
    let recurrent = shape.conv_channels + shape.inner + 2 * shape.value_heads;
    let attention = 2 * shape.query_width() + 2 * shape.kv_width();
    recurrent.max(attention) as u64
}

/// Bytes of the buffers for chunks of `tokens`, activations of `x_bytes` a value.
pub(in crate::graph) fn scratch_bytes(shape: &Shape, tokens: usize, x_bytes: u64) -> u64 {
    let widths = Widths::new(shape, projection(shape));
    let wide = |n: usize| n as u64;
    let floats = widths.proj
        + 2 * wide(shape.hidden)
        + wide(shape.conv_channels)
        + wide(shape.inner)
        + wide(shape.query_width())
        + widths.y
        + wide(shape.experts)
        + wide(shape.shared_ffn);
    let halves = widths.x + widths.slots_ffn + widths.slots_hidden + wide(shape.shared_ffn);
    tokens as u64 * (4 * floats + x_bytes * halves)
}

impl ChunkScratch {
    /// Allocates for the largest class.
    pub(in crate::graph) fn new(
        (arena, host): (&Arena, &HostArenas),
        (shape, dims): (&Shape, &Dims),
        all: &[ChunkKernels],
        weights: &DeviceWeights,
    ) -> Result<Self, Error> {
        let kernels = all.last().expect("there is a largest class");
        let tokens = u64::from(kernels.tokens);
        let x_bytes = kernels.path.bytes();
        let buffer = |name: &str, values: u64, bytes: u64| -> Result<Slice, Error> {
            Ok(arena.buffer(name, tokens * values * bytes)?.all())
        };
        let floats = |name: &str, values: u64| buffer(name, values, 4);
        let halves = |name: &str, values: u64| buffer(name, values, x_bytes);
        let wide = |n: usize| n as u64;
        let proj = weights.layers.iter().map(|layer| match &layer.mixer {
            DeviceMixer::Recurrent(r) => u64::from(r.input.rows),
            DeviceMixer::Attention(a) => u64::from(a.input.rows),
        });
        let widths = Widths::new(shape, proj.max().unwrap_or(0));
        let tile_slots = all.iter().map(ChunkKernels::least_tile_slots).min().unwrap_or(1);
        let plan = PlanBytes::new(&dims.experts, kernels.tokens, tile_slots);
        let words = |name: &str, bytes: u64| -> Result<Slice, Error> {
            Ok(arena.buffer(name, bytes)?.all())
        };
        let used = wide(shape.experts_used);
        let needs = all.iter().map(|k| k.delta.scratch_bytes(k.tokens));
        let (blocks, block_tails) = needs.max().unwrap_or((0, 0));
        let mid_factor = all.iter().map(ChunkKernels::mid_factor_bytes).max().unwrap_or(0).max(4);
        Ok(Self {
            control: words("chunk control", size_of::<Row>() as u64)?,
            mailbox: host.up.buffer("chunk mailbox", size_of::<Row>() as u64)?.all(),
            ranges: host.up.buffer("chunk ranges", size_of::<Row>() as u64)?.all(),
            ids: host.up.buffer("chunk ids", tokens * 4)?.all(),
            h: floats("chunk residual", wide(shape.hidden))?,
            squares: floats("chunk squares", 1)?,
            added: floats("chunk added", wide(shape.hidden))?,
            x: halves("chunk rows", widths.x)?,
            scale: floats("chunk scales", 1)?,
            factor: floats("chunk factors", 1)?,
            proj: floats("chunk projections", widths.proj)?,
            gate_proj: floats("chunk gates", 2 * wide(shape.value_heads))?,
            conv: floats("chunk convolution", wide(shape.conv_channels))?,
            log_decay: floats("chunk decay", wide(shape.value_heads))?,
            beta: floats("chunk strength", wide(shape.value_heads))?,
            blocks: words("delta blocks", blocks.max(4))?,
            block_tails: words("delta tails", block_tails.max(4))?,
            o: floats("chunk heads", wide(shape.inner))?,
            q: floats("chunk queries", wide(shape.query_width()))?,
            y: floats("chunk mixed", widths.y)?,
            router_logits: floats("chunk router", wide(shape.experts))?,
            chosen: floats("chunk choice", used)?,
            route: floats("chunk route", used)?,
            sigma: floats("chunk sigma", 1)?,
            plan: PlanSlices {
                counts: words("plan counts", plan.counts)?,
                grids: words("plan grids", plan.grids)?,
                tiles: words("plan tiles", plan.tiles)?,
                slots: words("plan slots", plan.slots)?,
            },
            shared_mid: floats("chunk shared", wide(shape.shared_ffn))?,
            shared_x: halves("chunk shared rows", wide(shape.shared_ffn))?,
            shared_factor: floats("chunk shared factors", 1)?,
            mid: halves("chunk mid", widths.slots_ffn)?,
            mid_factor: words("chunk mid factors", mid_factor)?,
            down: halves("chunk down", widths.slots_hidden)?,
        })
    }
}
