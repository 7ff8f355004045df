//! One token of up to eight sequences: which kernels run after one another (vulkan.md 2.3).
//!
//! ```text
//! E        embed: the records of the step, the residual h and its sum of squares
//! layer    R1 R2 R3   or   A1 A2 A3 A4      mixer, h += out
//!          F1 F1' F2 F3                     router and shared expert, choice, experts, h += sum
//! H1 H2    head, best of each row
//! ```
//!
//! Nothing here depends on a position or a token: the graph is recorded once for each class of row counts.

use super::caches::{KvCache, States};
use super::kernels::{Class, Shared};
use super::sampling::SamplingBuffers;
use super::scratch::Rows;
use super::weights::{Attention, Dense, DeviceMixer, DeviceWeights, Linear, Moe, Recurrent};
use crate::kernels::attention::{AttentionIo, SplitIo};
use crate::kernels::head::{FilterIo, PickIo};
use crate::kernels::moe_down::{MoeDownIo, Target};
use crate::kernels::moe_group::MoeSumIo;
use crate::kernels::moe_gu::MoeGuIo;
use crate::kernels::mv_q8::{self, Form, Gates, Head, Norm, Operands, Output, Planes};
use crate::kernels::recurrent::RecCoreIo;
use crate::kernels::router::{self, Choice, RouterIo};
use crate::kernels::{embed, steer};
use crate::model::Shape;
use crate::vulkan::{Graph, Slice};

/// Everything a graph is made of.
pub(super) struct Parts<'a> {
    pub(super) shape: &'a Shape,
    pub(super) weights: &'a DeviceWeights,
    pub(super) shared: &'a Shared,
    pub(super) states: &'a States,
    pub(super) kv: &'a KvCache,
    pub(super) sampling: &'a SamplingBuffers,
    /// The most that a binding sees.
    pub(super) storage_bytes: u64,
}

/// The graph under construction for one class of row counts.
pub(super) struct Builder<'a> {
    parts: &'a Parts<'a>,
    class: &'a Class,
    rows: &'a Rows,
    graph: Graph,
    /// Partial sums of squares of h as they stand.
    squares: Slice,
}

impl<'a> Builder<'a> {
    /// The whole step, head included.
    pub(super) fn step(parts: &'a Parts<'a>, class: &'a Class, rows: &'a Rows) -> Graph {
        let mut graph = Graph::new("decode");
        parts.inputs(&mut graph);
        graph.input(&rows.mailbox);
        let squares = rows.embed_squares.clone();
        let mut builder = Self { parts, class, rows, graph, squares };
        builder.embed();
        for (index, layer) in parts.weights.layers.iter().enumerate() {
            match &layer.mixer {
                DeviceMixer::Recurrent(r) => builder.recurrent(index, r, &layer.attn_norm),
                DeviceMixer::Attention(a) => builder.attention(index, a, &layer.attn_norm),
            }
            builder.steer(index, Edit::Mixer);
            builder.experts(index, &layer.moe, &layer.post_norm);
            builder.steer(index, Edit::Experts);
        }
        builder.head();
        builder.graph
    }

    fn norm(&self, weight: &Slice) -> Norm {
        let eps = self.parts.shape.rms_eps;
        Norm { squares: self.squares.clone(), weight: weight.clone(), eps }
    }

    fn matvec(&mut self, form: Form, label: &str, weights: &Linear, io: Io) {
        let operands = Operands {
            control: self.rows.control.clone(),
            matrix: weights.data.clone(),
            x: io.x,
            exponent: weights.exponent,
            norm: io.norm,
            output: io.output,
        };
        self.class.product(form, weights).record(&mut self.graph, label, operands);
    }

    fn recurrent(&mut self, index: usize, weights: &Recurrent, norm: &Slice) {
        let (class, rows, shape) = (self.class, self.rows, self.parts.shape);
        let place = shape.recurrent_index(index).expect("a recurrent layer");
        let ring = self.parts.states.rings[place].clone();
        let z = rows.z.clone();
        let gates = || Gates {
            decay: rows.decay.clone(),
            beta: rows.beta.clone(),
            a: weights.a.clone(),
            dt: weights.dt.clone(),
        };
        self.graph.level();
        let output = match &weights.gates {
            None => Output::Recurrent { ring: ring.clone(), z: z.clone(), gates: gates() },
            Some(_) => Output::Mixer { ring: ring.clone(), z: z.clone() },
        };
        let io = Io { x: rows.h.clone(), norm: Some(self.norm(norm)), output };
        let form = if weights.gates.is_none() { Form::Recurrent } else { Form::Mixer };
        self.matvec(form, &format!("{index} in"), &weights.input, io);
        if let Some(linear) = &weights.gates {
            let io = Io {
                x: rows.h.clone(),
                norm: Some(self.norm(norm)),
                output: Output::Gates(gates()),
            };
            self.matvec(Form::Gates, &format!("{index} gates"), linear, io);
        }
        self.graph.level();
        let io = RecCoreIo {
            control: rows.control.clone(),
            taps: weights.conv.clone(),
            norm: weights.norm.clone(),
            ring,
            state: self.parts.states.matrices[place].clone(),
            z,
            decay: rows.decay.clone(),
            beta: rows.beta.clone(),
            y: rows.y_recurrent.clone(),
        };
        let label = format!("{index} core");
        self.parts.shared.core.record(&mut self.graph, &label, class.batch, shape.rms_eps, io);
        self.out(index, &weights.out, rows.y_recurrent.clone());
    }

    fn attention(&mut self, index: usize, weights: &Attention, norm: &Slice) {
        let (class, rows, shape) = (self.class, self.rows, self.parts.shape);
        let place = shape.attention_index(index).expect("an attention layer");
        self.graph.level();
        let output = Output::Rows(rows.proj.clone());
        let io = Io { x: rows.h.clone(), norm: Some(self.norm(norm)), output };
        self.matvec(Form::Norm, &format!("{index} in"), &weights.input, io);
        let io = AttentionIo {
            control: rows.control.clone(),
            proj: rows.proj.clone(),
            stride: weights.input.rows,
            values: rows.attention_values.clone(),
            stats: rows.attention_stats.clone(),
        };
        let split = SplitIo {
            keys: self.parts.kv.keys[place].clone(),
            values: self.parts.kv.values[place].clone(),
            rope: self.parts.shared.rope.clone(),
            q_norm: weights.q_norm.clone(),
            k_norm: weights.k_norm.clone(),
        };
        let attention = &self.parts.shared.attention;
        let (batch, graph) = (class.batch, &mut self.graph);
        graph.level();
        // The length is unknown here; two thousand keys are what plans assume.
        attention.record_split(graph, &format!("{index} split"), (batch, 2048), &io, split);
        graph.level();
        let width = u32::try_from(shape.query_width()).expect("dimensions were checked");
        let y = rows.y_attention.clone();
        attention.record_reduce(graph, &format!("{index} reduce"), batch, &io, (y.clone(), width));
        self.out(index, &weights.out, y);
    }

    /// The projection back: added to the residual, or put aside for steering.
    fn out(&mut self, index: usize, weights: &Linear, y: Slice) {
        self.graph.level();
        let rows = self.rows;
        let (form, output) = if self.class.steer.is_some() {
            (Form::Plain, Output::Rows(rows.added.clone()))
        } else {
            let (h, squares) = (rows.h.clone(), rows.out_squares.clone());
            (Form::Residual, Output::Residual { h, squares })
        };
        self.matvec(form, &format!("{index} out"), weights, Io { x: y, norm: None, output });
        self.squares = rows.out_squares.clone();
    }

    fn experts(&mut self, index: usize, moe: &Moe, norm: &Slice) {
        let (class, rows) = (self.class, self.rows);
        let kernels = class.experts(moe);
        self.graph.level();
        let router = match &moe.router.data {
            Dense::F32(rows) => router::Matrix::F32(rows.clone()),
            Dense::Q8(planes) => router::Matrix::Q8(planes.clone()),
        };
        let io = RouterIo {
            control: rows.control.clone(),
            router,
            gate: moe.shared_gate.clone(),
            shared: moe.shared_in.planes(),
            norm: self.norm(norm),
            h: rows.h.clone(),
            x: rows.x.clone(),
            logits: rows.router_logits.clone(),
            shared_mid: rows.shared_mid.clone(),
            sigma: rows.sigma.clone(),
        };
        let choice = Choice {
            ids: rows.ids.clone(),
            route: rows.route.clone(),
            counter: self.parts.shared.counter.clone(),
        };
        kernels.router.record(&mut self.graph, &format!("{index} router"), io, &choice);
        let mut ids = rows.ids.clone();
        if let Some((group, _)) = &kernels.grouped {
            self.graph.level();
            let (control, entries) = (rows.control.clone(), rows.entries.clone());
            group.record(&mut self.graph, &format!("{index} group"), control, ids, entries);
            ids = rows.entries.clone();
        }
        self.graph.level();
        let io = MoeGuIo {
            control: rows.control.clone(),
            gate: moe.gate.blocks.clone(),
            up: moe.up.blocks.clone(),
            table: self.parts.shared.table(moe.gate.ty),
            x: rows.x.clone(),
            ids: ids.clone(),
            route: rows.route.clone(),
            mid: rows.mid.clone(),
        };
        kernels.gate_up.record(&mut self.graph, &format!("{index} gate up"), io);
        self.graph.level();
        let sum = if class.steer.is_some() {
            Target::Plain(rows.added.clone())
        } else {
            Target::Residual { h: rows.h.clone(), squares: rows.down_squares.clone() }
        };
        let (target, sum) = match &kernels.grouped {
            Some((_, kernel)) => (Target::Parts(rows.parts.clone()), Some((kernel, sum))),
            None => (sum, None),
        };
        let io = MoeDownIo {
            control: rows.control.clone(),
            down: moe.down.blocks.clone(),
            shared: moe.shared_down.planes(),
            mid: rows.mid.clone(),
            shared_mid: rows.shared_mid.clone(),
            sigma: rows.sigma.clone(),
            ids,
            target,
        };
        kernels.down.record(&mut self.graph, &format!("{index} down"), io);
        if let Some((kernel, target)) = sum {
            let io = MoeSumIo {
                control: rows.control.clone(),
                parts: rows.parts.clone(),
                sigma: rows.sigma.clone(),
                target,
            };
            self.graph.level();
            kernel.record(&mut self.graph, &format!("{index} sum"), io);
        }
        self.squares = rows.down_squares.clone();
    }

    /// The records of the step, and the embeddings of its tokens.
    fn embed(&mut self) {
        let (rows, embedding) = (self.rows, &self.parts.weights.embedding);
        let io = embed::Operands {
            control: rows.control.clone(),
            mailbox: rows.mailbox.clone(),
            h: rows.h.clone(),
            squares_or_ids: rows.embed_squares.clone(),
        };
        let slabs = slabs(embedding, self.parts.storage_bytes)
            .map(|(first, matrix)| embed::Slab { matrix, first });
        self.graph.level();
        self.class.embed.record(&mut self.graph, "embed", &slabs.collect::<Vec<_>>(), &io);
    }

    /// What was put aside is added to the residual, without its share along the layer's direction.
    fn steer(&mut self, index: usize, edit: Edit) {
        let Some(kernel) = &self.class.steer else { return };
        let rows = self.rows;
        let squares = match edit {
            Edit::Mixer => &rows.out_squares,
            Edit::Experts => &rows.down_squares,
        };
        let (direction, scale) = self.parts.shared.direction(index, edit);
        let io = steer::Operands {
            control: rows.control.clone(),
            direction,
            y: rows.added.clone(),
            h: rows.h.clone(),
            squares: squares.clone(),
            scale,
        };
        self.graph.level();
        kernel.record(&mut self.graph, &format!("{index} steer"), self.class.batch, io);
    }

    /// Only the head, of a row that something else left in `rows.h` with its sum of squares.
    pub(super) fn head_of(
        parts: &'a Parts<'a>,
        class: &'a Class,
        rows: &'a Rows,
        graph: Graph,
    ) -> Graph {
        let squares = rows.embed_squares.clone();
        let mut builder = Self { parts, class, rows, graph, squares };
        builder.head();
        builder.graph
    }

    /// Logits, the best of each row, and the candidates.
    fn head(&mut self) {
        let (class, rows, parts) = (self.class, self.rows, self.parts);
        let output = &parts.weights.output;
        for (first_row, matrix) in slabs(output, parts.storage_bytes) {
            let operands = Operands {
                control: rows.control.clone(),
                matrix,
                x: rows.h.clone(),
                exponent: output.exponent,
                norm: Some(self.norm(&parts.weights.output_norm)),
                output: Output::Head(Head {
                    logits: parts.sampling.logits.clone(),
                    pairs: rows.pairs.clone(),
                    mask: parts.sampling.mask.clone(),
                    bias: parts.sampling.bias.clone(),
                    first_row,
                }),
            };
            self.graph.level();
            class.product(Form::Head, output).record(&mut self.graph, "head", operands);
        }
        self.graph.level();
        let io = PickIo {
            control: rows.control.clone(),
            pairs: rows.pairs.clone(),
            records: rows.records.clone(),
            histogram: rows.histogram.clone(),
        };
        class.pick.record(&mut self.graph, "pick", io);
        let io = FilterIo {
            control: rows.control.clone(),
            logits: parts.sampling.logits.clone(),
            mask: parts.sampling.mask.clone(),
            bias: parts.sampling.bias.clone(),
            records: rows.records.clone(),
            histogram: rows.histogram.clone(),
            marks: rows.marks.clone(),
            tallies: rows.tallies.clone(),
        };
        self.graph.level();
        class.filter.record(&mut self.graph, "filter", &io);
    }
}

/// Which of a layer's two additions to the residual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edit {
    /// Of the mixer.
    Mixer,
    /// Of the experts.
    Experts,
}

/// A matrix in parts that the device can bind, each with its first row.
pub(super) fn slabs(
    weights: &Linear,
    storage_bytes: u64,
) -> impl Iterator<Item = (u32, Dense)> + '_ {
    let parts = mv_q8::slabs(weights.storage(), weights.rows, weights.cols, storage_bytes);
    parts.into_iter().map(|part| {
        let (first, rows) = (u64::from(part.start), u64::from(part.end - part.start));
        let cut = |slice: &Slice, row_bytes: u64| {
            slice.buffer.slice(slice.offset + first * row_bytes, rows * row_bytes)
        };
        let cols = u64::from(weights.cols);
        let data = match &weights.data {
            Dense::Q8(planes) => Dense::Q8(Planes {
                codes: cut(&planes.codes, cols),
                scales: cut(&planes.scales, cols / 16),
            }),
            Dense::F32(slice) => Dense::F32(cut(slice, cols * 4)),
        };
        (part.start, data)
    })
}

impl Parts<'_> {
    /// Tells a graph what holds data before it runs.
    pub(super) fn inputs(&self, graph: &mut Graph) {
        let sampling = [&self.sampling.mask, &self.sampling.bias];
        let slices = self.weights.slices();
        let caches = self.states.slices().chain(self.kv.slices());
        for slice in slices.into_iter().chain(caches).chain(self.shared.slices()).chain(sampling) {
            graph.input(slice);
        }
    }
}

/// Input and output of a product.
struct Io {
    x: Slice,
    norm: Option<Norm>,
    output: Output,
}
