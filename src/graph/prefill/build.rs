//! The graphs of a size class, one for the embeddings and one for each layer.

use super::kernels::Delta;
use super::{ChunkKernels, ChunkScratch};
use crate::graph::Error;
use crate::graph::decode::{Edit, Parts, slabs};
use crate::graph::weights::{Attention, Dense, DeviceMixer, Layer, Linear, Moe, Recurrent};
use crate::kernels::conv::ConvIo;
use crate::kernels::cvt::{CvtOperands, NormOperands};
use crate::kernels::delta::DeltaIo;
use crate::kernels::delta_chunk::{PrepIo, ScanIo};
use crate::kernels::flash::FlashIo;
use crate::kernels::gates::GatesIo;
use crate::kernels::gemm::{Form, Norm, Operands, Weights};
use crate::kernels::head_gate::HeadGateIo;
use crate::kernels::moe_combine::CombineOperands;
use crate::kernels::moe_gemm::{DownOperands, GateUpOperands};
use crate::kernels::moe_plan::{PlanOperands, RowTiles};
use crate::kernels::rope::RopeKvIo;
use crate::kernels::router_gemm::{LogitsOperands, PickOperands};
use crate::kernels::{embed, steer};
use crate::vulkan::{Device, Graph, Recorded, Slice};
use std::collections::HashMap;
use std::sync::Arc;

/// Recorded commands of one size class.
pub(in crate::graph) struct Chunks {
    /// Most tokens.
    pub(in crate::graph) tokens: u32,
    /// Takes the record over and embeds.
    pub(in crate::graph) embed: Arc<Recorded>,
    /// One for each layer.
    pub(in crate::graph) layers: Vec<Arc<Recorded>>,
    /// For each attention layer the same in parts, by layer.
    pub(in crate::graph) split: HashMap<usize, Split>,
}

/// An attention layer in parts: the middle one runs again for every range of query rows.
pub(in crate::graph) struct Split {
    pub(in crate::graph) before: Arc<Recorded>,
    pub(in crate::graph) flash: Arc<Recorded>,
    pub(in crate::graph) after: Arc<Recorded>,
}

/// Records a size class.
pub(in crate::graph) fn record(
    device: &Arc<Device>,
    parts: &Parts<'_>,
    kernels: &ChunkKernels,
    scratch: &ChunkScratch,
    profile: bool,
) -> Result<Chunks, Error> {
    let finish = |graph: Graph| {
        if profile { graph.record_profiled(device) } else { graph.record(device) }
    };
    let mut all = graphs(parts, kernels, scratch).into_iter().map(finish);
    let embed = all.next().expect("the embeddings come first")?;
    let layers = all.collect::<Result<_, _>>()?;
    let split = record_split(device, parts, kernels, scratch)?;
    Ok(Chunks { tokens: kernels.tokens, embed, layers, split })
}

/// The attention layers in parts.
fn record_split(
    device: &Arc<Device>,
    parts: &Parts<'_>,
    kernels: &ChunkKernels,
    scratch: &ChunkScratch,
) -> Result<HashMap<usize, Split>, Error> {
    let mut split = HashMap::new();
    for (index, layer) in parts.weights.layers.iter().enumerate() {
        let DeviceMixer::Attention(attention) = &layer.mixer else { continue };
        let part = |what: &str, build: &dyn Fn(&mut Builder<'_>)| {
            let label = format!("prefill layer {index}, {what}");
            let mut one = Builder::new(parts, kernels, scratch, &label);
            one.parts_between(layer);
            build(&mut one);
            Ok::<_, Error>(one.graph.record(device)?)
        };
        let made = Split {
            before: part("rows", &|b| {
                b.norm(&layer.attn_norm);
                b.attention_rows(index, attention);
            })?,
            flash: part("attention", &|b| b.flash(index, attention, &scratch.ranges))?,
            after: part("output", &|b| {
                b.attention_out(attention);
                b.rest(index, layer);
            })?,
        };
        split.insert(index, made);
    }
    Ok(split)
}

/// The graph of the embeddings, then one for each layer.
pub(in crate::graph) fn graphs(
    parts: &Parts<'_>,
    kernels: &ChunkKernels,
    scratch: &ChunkScratch,
) -> Vec<Graph> {
    let mut start = Builder::new(parts, kernels, scratch, "prefill embed");
    start.embed();
    let layers = parts.weights.layers.iter().enumerate().map(|(index, layer)| {
        let mut one = Builder::new(parts, kernels, scratch, &format!("prefill layer {index}"));
        one.layer(index, layer);
        one.graph
    });
    std::iter::once(start.graph).chain(layers).collect()
}

struct Builder<'a> {
    parts: &'a Parts<'a>,
    kernels: &'a ChunkKernels,
    s: &'a ChunkScratch,
    graph: Graph,
}

/// Rows for a product: f16 or f32, with factors where the kernel takes some.
struct Rows {
    x: Slice,
    factor: Option<Slice>,
}

impl<'a> Builder<'a> {
    /// An empty graph that has what one graph leaves for the next.
    fn new(
        parts: &'a Parts<'a>,
        kernels: &'a ChunkKernels,
        s: &'a ChunkScratch,
        label: &str,
    ) -> Self {
        let mut graph = Graph::new(label);
        parts.inputs(&mut graph);
        for slice in [&s.control, &s.mailbox, &s.ids, &s.h] {
            graph.input(slice);
        }
        Self { parts, kernels, s, graph }
    }

    /// The part of a buffer that this class has: `values` of four bytes for each token.
    fn floats(&self, slice: &Slice, values: u32) -> Slice {
        let bytes = u64::from(self.kernels.tokens) * u64::from(values) * 4;
        slice.buffer.slice(slice.offset, bytes)
    }

    fn embed(&mut self) {
        let embedding = &self.parts.weights.embedding;
        let io = embed::Operands {
            control: self.s.control.clone(),
            mailbox: self.s.mailbox.clone(),
            h: self.floats(&self.s.h, embedding.cols),
            squares_or_ids: self.floats(&self.s.ids, 1),
        };
        let slabs = slabs(embedding, self.parts.storage_bytes);
        let slabs: Vec<_> = slabs.map(|(first, matrix)| embed::Slab { matrix, first }).collect();
        self.graph.level();
        self.kernels.embed.record(&mut self.graph, "embed", &slabs, &io);
    }

    fn layer(&mut self, index: usize, layer: &Layer) {
        self.norm(&layer.attn_norm);
        match &layer.mixer {
            DeviceMixer::Recurrent(r) => self.recurrent(index, r),
            DeviceMixer::Attention(a) => self.attention(index, a),
        }
        self.rest(index, layer);
    }

    /// What follows the mixer's output.
    fn rest(&mut self, index: usize, layer: &Layer) {
        self.steer(index, Edit::Mixer);
        self.experts(index, &layer.moe, &layer.post_norm);
        self.steer(index, Edit::Experts);
    }

    /// What the parts of an attention layer leave for each other.
    fn parts_between(&mut self, layer: &Layer) {
        let DeviceMixer::Attention(attention) = &layer.mixer else { return };
        let width = int(self.parts.shape.query_width());
        for slice in [
            self.s.ranges.clone(),
            self.floats(&self.s.proj, attention.input.rows),
            self.queries(),
            self.floats(&self.s.y, width),
        ] {
            self.graph.input(&slice);
        }
    }

    /// Normalised rows of the residual.
    fn norm(&mut self, weight: &Slice) {
        let s = self.s;
        let io = NormOperands {
            control: s.control.clone(),
            weight: weight.clone(),
            h: s.h.clone(),
            x: s.x.clone(),
            scale: self.floats(&s.scale, 1),
            factor: self.kernels.path.half().then(|| self.floats(&s.factor, 1)),
        };
        self.graph.level();
        self.kernels.norm.record(&mut self.graph, "norm", self.parts.shape.rms_eps, io);
    }

    fn normalised(&self) -> Rows {
        let factor = self.kernels.path.half().then(|| self.floats(&self.s.factor, 1));
        Rows { x: self.s.x.clone(), factor }
    }

    /// Rows of f32 as a product wants them; adds a level where they have to be converted.
    fn rows(&mut self, y: &Slice, k: u32) -> Rows {
        if !self.kernels.path.half() {
            return Rows { x: y.clone(), factor: None };
        }
        let (x, factor) = (self.s.x.clone(), self.floats(&self.s.factor, 1));
        let io = CvtOperands {
            control: self.s.control.clone(),
            y: y.clone(),
            stride: k,
            x: x.clone(),
            factor: factor.clone(),
            multiplier: None,
        };
        self.graph.level();
        self.kernels.converter(k, false).record(&mut self.graph, "convert", io);
        Rows { x, factor: Some(factor) }
    }

    fn product(&mut self, label: &str, form: Form, weights: &Linear, rows: Rows, out: Slice) {
        let columns = if form == Form::SwiGlu { weights.rows / 2 } else { weights.rows };
        let io = Operands {
            control: self.s.control.clone(),
            weights: dense(&weights.data),
            exponent: weights.exponent,
            x: rows.x,
            factor: rows.factor,
            norm: None,
            out,
            stride: columns,
        };
        self.kernels.product(form, false, weights).record(&mut self.graph, label, io);
    }

    fn recurrent(&mut self, index: usize, weights: &Recurrent) {
        let (s, shape) = (self.s, self.parts.shape);
        let place = shape.recurrent_index(index).expect("a recurrent layer");
        let (ring, state) = (&self.parts.states.rings[place], &self.parts.states.matrices[place]);
        let stride = weights.input.rows;
        let (heads, inner) = (int(shape.value_heads), int(shape.inner));
        let channels = int(shape.conv_channels);
        self.graph.level();
        let rows = self.normalised();
        self.product("in", Form::Store, &weights.input, rows, s.proj.clone());
        let (gate_proj, gate_stride, first) = match &weights.gates {
            None => (self.floats(&s.proj, stride), stride, channels + inner),
            Some(gates) => {
                let rows = self.normalised();
                self.product("gates", Form::Store, gates, rows, s.gate_proj.clone());
                (self.floats(&s.gate_proj, gates.rows), gates.rows, 0)
            }
        };
        self.graph.level();
        let (conv, gate) = self.kernels.core(stride);
        let o = self.floats(&s.o, inner);
        let bytes = u64::from(self.kernels.tokens) * u64::from(channels);
        let bytes = bytes * u64::from(self.kernels.delta.operand_bytes());
        let conv_out = s.conv.buffer.slice(s.conv.offset, bytes);
        let io = ConvIo {
            control: s.control.clone(),
            taps: weights.conv.clone(),
            u: self.floats(&s.proj, stride),
            conv: conv_out.clone(),
            ring: ring.clone(),
        };
        conv.record(&mut self.graph, "conv", self.kernels.tokens, io);
        let (log_decay, beta) = (self.floats(&s.log_decay, heads), self.floats(&s.beta, heads));
        let io = GatesIo {
            control: s.control.clone(),
            a: weights.a.clone(),
            dt: weights.dt.clone(),
            alpha: from(&gate_proj, first),
            raw: from(&gate_proj, first + heads),
            decay: log_decay.clone(),
            beta: beta.clone(),
        };
        self.kernels.gates(gate_stride).record(&mut self.graph, "gates", self.kernels.tokens, io);
        self.delta(state, conv_out, (log_decay, beta), &o);
        self.graph.level();
        // f16 rows come with their factors, as products want them.
        let half = self.kernels.path.half();
        let (y, factors) = if half {
            let bytes = u64::from(self.kernels.tokens) * u64::from(inner) * 2;
            (s.x.buffer.slice(s.x.offset, bytes), Some(self.floats(&s.factor, 1)))
        } else {
            (self.floats(&s.y, inner), None)
        };
        let io = HeadGateIo {
            control: s.control.clone(),
            norm: weights.norm.clone(),
            o,
            z: from(&self.floats(&s.proj, stride), channels),
            y: y.clone(),
            factors: factors.clone(),
        };
        gate.record(&mut self.graph, "head gate", self.kernels.tokens, shape.rms_eps, io);
        self.out(&weights.out, Rows { x: y, factor: factors });
    }

    /// The delta rule over convolved rows.
    fn delta(&mut self, state: &Slice, conv: Slice, (log_decay, beta): (Slice, Slice), o: &Slice) {
        let (s, tokens) = (self.s, self.kernels.tokens);
        let (control, state, o) = (s.control.clone(), state.clone(), o.clone());
        self.graph.level();
        match &self.kernels.delta {
            Delta::Sequential(kernel) => {
                let io = DeltaIo { control, conv, log_decay, beta, state, o };
                kernel.record(&mut self.graph, "delta", tokens, io);
            }
            Delta::Blocks(kernel) => {
                let (blocks, tails) = self.kernels.delta.scratch_bytes(tokens);
                let scratch = s.blocks.buffer.slice(s.blocks.offset, blocks);
                let tails = s.block_tails.buffer.slice(s.block_tails.offset, tails);
                let io = PrepIo {
                    control: control.clone(),
                    conv: conv.clone(),
                    log_decay,
                    beta,
                    scratch: scratch.clone(),
                    tails: tails.clone(),
                };
                kernel.record_prep(&mut self.graph, "delta blocks", tokens, io);
                self.graph.level();
                let io = ScanIo { control, conv, scratch, tails, state, o };
                kernel.record_scan(&mut self.graph, "delta scan", tokens, io);
            }
        }
    }

    fn attention(&mut self, index: usize, weights: &Attention) {
        self.attention_rows(index, weights);
        self.flash(index, weights, &self.s.control);
        self.attention_out(weights);
    }

    /// The part of the queries that this class has.
    fn queries(&self) -> Slice {
        let width = self.parts.shape.query_width() as u64;
        let bytes = u64::from(self.kernels.tokens) * width * self.kernels.query_bytes;
        self.s.q.buffer.slice(self.s.q.offset, bytes)
    }

    /// Projections; K and V rows into the cache, queries ready for their products.
    fn attention_rows(&mut self, index: usize, weights: &Attention) {
        let (s, shape) = (self.s, self.parts.shape);
        let place = shape.attention_index(index).expect("an attention layer");
        let (keys, values) = (&self.parts.kv.keys[place], &self.parts.kv.values[place]);
        let stride = weights.input.rows;
        self.graph.level();
        let rows = self.normalised();
        self.product("in", Form::Store, &weights.input, rows, s.proj.clone());
        self.graph.level();
        let proj = self.floats(&s.proj, stride);
        let q = self.queries();
        let io = RopeKvIo {
            control: s.control.clone(),
            keys: keys.clone(),
            values: values.clone(),
            proj,
            stride,
            q,
            rope: self.parts.shared.rope.clone(),
            q_norm: weights.q_norm.clone(),
            k_norm: weights.k_norm.clone(),
        };
        self.kernels.rope.record(&mut self.graph, "rope", self.kernels.tokens, io);
    }

    /// Attention of the query rows that the record in `control` names.
    fn flash(&mut self, index: usize, weights: &Attention, control: &Slice) {
        let (s, shape) = (self.s, self.parts.shape);
        let place = shape.attention_index(index).expect("an attention layer");
        let (keys, values) = (&self.parts.kv.keys[place], &self.parts.kv.values[place]);
        let (stride, width) = (weights.input.rows, int(shape.query_width()));
        let (proj, q) = (self.floats(&s.proj, stride), self.queries());
        self.graph.level();
        let y = self.floats(&s.y, width);
        let io = FlashIo {
            control: control.clone(),
            keys: keys.clone(),
            values: values.clone(),
            q,
            proj,
            stride,
            y,
            y_stride: width,
        };
        // Where the chunk stands is unknown here: its own length is what it sees at least.
        let seen = (self.kernels.tokens, self.kernels.tokens / 2);
        self.kernels.flash.record(&mut self.graph, "flash", seen, io);
    }

    fn attention_out(&mut self, weights: &Attention) {
        let y = self.floats(&self.s.y, int(self.parts.shape.query_width()));
        let rows = self.rows(&y, weights.out.cols);
        self.out(&weights.out, rows);
    }

    /// The projection back: added to the residual, or put aside for steering.
    fn out(&mut self, weights: &Linear, rows: Rows) {
        let form = self.kernels.out_form();
        let to = if form == Form::Add { &self.s.h } else { &self.s.added };
        self.graph.level();
        self.product("out", form, weights, rows, to.clone());
    }

    fn steer(&mut self, index: usize, edit: Edit) {
        let Some(kernel) = &self.kernels.steer else { return };
        let (direction, scale) = self.parts.shared.direction(index, edit);
        let hidden = int(self.parts.shape.hidden);
        let io = steer::Operands {
            control: self.s.control.clone(),
            direction,
            y: self.floats(&self.s.added, hidden),
            h: self.floats(&self.s.h, hidden),
            squares: self.floats(&self.s.squares, 1),
            scale,
        };
        self.graph.level();
        kernel.record(&mut self.graph, "steer", self.kernels.tokens, io);
    }

    fn experts(&mut self, index: usize, moe: &Moe, norm: &Slice) {
        let s = self.s;
        self.norm(norm);
        self.route(moe, norm);
        let products = self.kernels.expert_products(moe);
        let half = self.kernels.path.half();
        self.graph.level();
        let rows = self.normalised();
        let io = GateUpOperands {
            gate: moe.gate.blocks.clone(),
            up: moe.up.blocks.clone(),
            table: self.parts.shared.table(moe.gate.ty),
            exponent: moe.gate.exponent,
            x: rows.x,
            factor: rows.factor,
            route: s.route.clone(),
            plan: s.plan.clone(),
            mid: s.mid.clone(),
            mid_factor: half.then(|| s.mid_factor.clone()),
        };
        products.gate_up.record(&mut self.graph, &format!("{index} gate up"), io);
        let rows = self.normalised();
        self.product("shared in", Form::SwiGlu, &moe.shared_in, rows, s.shared_mid.clone());
        let shared = self.shared_rows(moe);
        self.graph.level();
        let io = DownOperands {
            weights: moe.down.blocks.clone(),
            exponent: moe.down.exponent,
            mid: s.mid.clone(),
            mid_factor: half.then(|| s.mid_factor.clone()),
            plan: s.plan.clone(),
            down: s.down.clone(),
        };
        products.down.record(&mut self.graph, &format!("{index} down"), io);
        let form = self.kernels.out_form();
        let to = if form == Form::Add { &s.h } else { &s.added };
        let io = Operands {
            control: s.control.clone(),
            weights: dense(&moe.shared_down.data),
            exponent: moe.shared_down.exponent,
            x: shared.x,
            factor: shared.factor,
            norm: None,
            out: to.clone(),
            stride: moe.shared_down.rows,
        };
        let kernel = self.kernels.product(form, true, &moe.shared_down);
        kernel.record(&mut self.graph, "shared down", io);
        self.graph.level();
        let io =
            CombineOperands { control: s.control.clone(), down: s.down.clone(), h: to.clone() };
        self.kernels.combine.record(&mut self.graph, "combine", self.kernels.tokens, io);
    }

    /// The shared expert's product, with the expert's weight as factor.
    fn shared_rows(&mut self, moe: &Moe) -> Rows {
        let s = self.s;
        if !self.kernels.path.half() {
            return Rows { x: s.shared_mid.clone(), factor: Some(s.sigma.clone()) };
        }
        let k = moe.shared_down.cols;
        let io = CvtOperands {
            control: s.control.clone(),
            y: s.shared_mid.clone(),
            stride: k,
            x: s.shared_x.clone(),
            factor: self.floats(&s.shared_factor, 1),
            multiplier: Some(s.sigma.clone()),
        };
        self.graph.level();
        self.kernels.converter(k, true).record(&mut self.graph, "convert shared", io);
        Rows { x: s.shared_x.clone(), factor: Some(self.floats(&s.shared_factor, 1)) }
    }

    /// Choice of experts, and the plan of their products.
    fn route(&mut self, moe: &Moe, norm: &Slice) {
        let s = self.s;
        let (router, products) = (self.kernels.router(moe), self.kernels.expert_products(moe));
        self.graph.level();
        let io = LogitsOperands {
            control: s.control.clone(),
            weights: dense(&moe.router.data),
            h: s.h.clone(),
            norm: Norm { weight: norm.clone(), scale: self.floats(&s.scale, 1) },
            logits: s.router_logits.clone(),
        };
        router.record_logits(&mut self.graph, "router", io);
        self.graph.level();
        let io = PickOperands {
            control: s.control.clone(),
            norm: norm.clone(),
            gate: moe.shared_gate.clone(),
            logits: s.router_logits.clone(),
            h: s.h.clone(),
            ids: s.chosen.clone(),
            route: s.route.clone(),
            sigma: s.sigma.clone(),
            counts: s.plan.counts.clone(),
            eps: self.parts.shape.rms_eps,
        };
        router.record_pick(&mut self.graph, "choice", io);
        self.graph.level();
        let tiles =
            RowTiles { first: products.gate_up.row_tiles(), second: products.down.row_tiles() };
        let io = PlanOperands {
            control: s.control.clone(),
            ids: s.chosen.clone(),
            plan: s.plan.clone(),
        };
        products.plan.record(&mut self.graph, "plan", self.kernels.tokens, tiles, io);
    }
}

fn dense(data: &Dense) -> Weights {
    match data {
        Dense::Q8(planes) => Weights::Q8(planes.clone()),
        Dense::F32(rows) => Weights::F32(rows.clone()),
    }
}

/// A slice without its first so many words.
fn from(slice: &Slice, words: u32) -> Slice {
    let skipped = u64::from(words) * 4;
    slice.buffer.slice(slice.offset + skipped, slice.bytes - skipped)
}

fn int(n: usize) -> u32 {
    u32::try_from(n).expect("dimensions were checked")
}
