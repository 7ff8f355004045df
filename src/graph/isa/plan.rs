//! The dispatches of the published model, as the backend would record them on some device: the same code makes
//! kernels and graphs, over buffers that have only sizes.

use crate::graph::Error;
use crate::graph::caches::{KvCache, States};
use crate::graph::decode::{Builder, Parts};
use crate::graph::fill::Fill;
use crate::graph::kernels::{Class, Dims, Shared};
use crate::graph::prefill::{ChunkKernels, ChunkScratch, graphs};
use crate::graph::sampling::SamplingBuffers;
use crate::graph::scratch::{HostArenas, Rows};
use crate::graph::weights::DeviceWeights;
use crate::kernels::attention;
use crate::kernels::kv::{KvLayout, KvType};
use crate::kernels::mode::Mode;
use crate::model::{Shape, Weights};
use crate::vulkan::{Arena, Cost, Device, Graph, Grid, Node, Pipeline, Residence};
use std::sync::Arc;

/// A dispatch.
pub(super) struct Dispatch {
    /// Its label without the number of the layer: "in", "core", "gate up".
    pub(super) part: String,
    pub(super) pipeline: Arc<Pipeline>,
    /// Workgroups; `None` where the device decides.
    pub(super) groups: Option<u64>,
    pub(super) cost: Cost,
}

/// The whole model's dispatches of one step or chunk.
pub(super) struct Plan {
    pub(super) dispatches: Vec<Dispatch>,
    pub(super) levels: usize,
}

/// What runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    /// One token for so many sequences.
    Decode(u32),
    /// A prompt chunk of so many tokens.
    Prefill(u32),
}

impl Run {
    /// In tables: `decode-1`.
    pub(super) fn name(self) -> String {
        match self {
            Self::Decode(batch) => format!("decode-{batch}"),
            Self::Prefill(tokens) => format!("prefill-{tokens}"),
        }
    }
}

/// Keys that the costs of attention stand for (`decode.rs`), and the context that plans are made for.
pub(super) const CTX: usize = 2048;

/// What `run` is made of on `device`, with the published types of K and V.
pub(super) fn plan(device: &Arc<Device>, run: Run) -> Result<Plan, Error> {
    let shape = Shape::published(40);
    let layout = KvLayout { keys: KvType::Q8_0, values: KvType::Q4_0, kv_heads: shape.kv_heads };
    let dims = Dims::new(&shape, layout);
    let arena = || Arena::new(device, "plan", Residence::Nowhere, 1 << 30);
    let (all, host) = (arena(), HostArenas { up: arena(), down: arena() });
    let weights =
        DeviceWeights::load(&shape, &Weights::unplaced(&shape), &all, &mut Fill::Nothing)?;
    let mut upload = |name: &str, bytes: &[u8]| Ok(all.buffer(name, bytes.len() as u64)?.all());
    let shared =
        Shared::new(device, &mut upload, (&shape, &dims, Mode::Fast), (&weights, CTX, None))?;
    let sampling = SamplingBuffers::empty(&all, &shape, 8)?;
    let parts = Parts {
        shape: &shape,
        weights: &weights,
        shared: &shared,
        states: &States::new(&shape, &all, 2)?,
        kv: &KvCache::new(shape.attention_layers(), &all, &layout, 8, CTX)?,
        sampling: &sampling,
        storage_bytes: device.caps().limits.storage_bytes,
    };
    match run {
        Run::Decode(batch) => {
            let class = Class::new(device, (batch, Mode::Fast), &dims, &weights, false)?;
            let rows = Rows::new((&all, &host), &dims, &class, (&shared, &weights))?;
            Ok(Plan::of(&[Builder::step(&parts, &class, &rows)], batch, device))
        }
        Run::Prefill(tokens) => {
            let kernels =
                [ChunkKernels::new(device, (tokens, Mode::Fast), &dims, &weights, false)?];
            let scratch = ChunkScratch::new((&all, &host), (&shape, &dims), &kernels, &weights)?;
            Ok(Plan::of(&graphs(&parts, &kernels[0], &scratch), 1, device))
        }
    }
}

impl Plan {
    fn of(graphs: &[Graph], batch: u32, device: &Device) -> Self {
        let mut plan = Self { dispatches: Vec::new(), levels: 0 };
        for graph in graphs {
            let before = plan.levels;
            for (level, node) in graph.nodes() {
                plan.levels = before + level + 1;
                plan.dispatches.push(Dispatch::of(node, batch, device));
            }
        }
        plan
    }
}

impl Dispatch {
    fn of(node: &Node, batch: u32, device: &Device) -> Self {
        let (first, rest) = node.label.split_once(' ').unwrap_or(("", &node.label));
        let part = if first.parse::<u32>().is_ok() { rest } else { &node.label };
        let groups = match &node.grid {
            Grid::Fixed(grid) => Some(grid.iter().map(|&n| u64::from(n)).product()),
            Grid::Indirect(_) => None,
        };
        // Workgroups of splits that a row of this length does not have leave at once.
        let groups = groups
            .map(|n: u64| if part == "split" { n.min(live_splits(batch, device)) } else { n });
        let pipeline = Arc::clone(&node.pipeline);
        Self { part: part.to_owned(), pipeline, groups, cost: node.cost }
    }
}

/// Workgroups of `attn_split` that have keys, for rows of [`CTX`] keys and the published number of KV heads.
fn live_splits(batch: u32, device: &Device) -> u64 {
    let keys = u32::try_from(CTX).expect("a small context");
    let span = attention::span(keys, attention::splits(2, device.caps()));
    u64::from(batch * 2 * keys.div_ceil(span))
}
