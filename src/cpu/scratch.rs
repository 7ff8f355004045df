//! Working memory of a step, made once for the largest chunk.
//!
//! The mixer of a layer and its experts never run at the same time, so they share one arena, which each of them
//! carves into the rows it needs.

use super::attention::thread_floats as attention_floats;
use super::ffn::{EXPERT_TOKENS, thread_floats as expert_floats};
use super::linear::Precision;
use super::pool::PerThread;
use crate::model::{Mixer, Model, Shape};
use crate::quant::{Activation, Forms};

/// Buffers for one chunk; a step of `n` tokens uses the first `n` rows of each.
#[derive(Debug)]
pub(super) struct Scratch {
    /// The residual stream, `[chunk][hidden]`.
    pub(super) x: Vec<f32>,
    /// What is to be added to it; after a step the rows of the last norm. `[chunk][hidden]`.
    pub(super) y: Vec<f32>,
    /// Carved anew by each mixer and each expert block.
    pub(super) arena: Vec<f32>,
    /// Input of the mixer, and of the head.
    pub(super) mixer_in: Vec<Activation>,
    /// Input of the mixer's output projection.
    pub(super) heads_in: Vec<Activation>,
    /// Input of router and experts.
    pub(super) moe_in: Vec<Activation>,
    /// Input of the shared expert's down projection.
    pub(super) shared_in: Vec<Activation>,
    /// Input of the routed experts' down projections, for a step of one token.
    pub(super) slots_in: Vec<Activation>,
    /// Chosen experts and their weights, `[chunk][experts_used]`.
    pub(super) experts: Vec<u32>,
    pub(super) weights: Vec<f32>,
    /// What each thread works with.
    pub(super) threads: PerThread<ThreadScratch>,
}

/// Memory of one thread.
#[derive(Debug)]
pub(super) struct ThreadScratch {
    pub(super) floats: Vec<f32>,
    /// Expert activations between gate/up and down.
    pub(super) mid: Vec<Activation>,
}

/// Which 8-bit forms each kind of activation needs for the weights of a model.
#[derive(Debug, Clone, Copy)]
struct FormsOf {
    mixer: Forms,
    heads: Forms,
    moe: Forms,
    shared: Forms,
    mid: Forms,
}

impl FormsOf {
    fn new(model: &Model, precision: Precision) -> Self {
        let layers = &model.weights.layers;
        let mixer = layers.iter().flat_map(|l| match &l.mixer {
            Mixer::Recurrent(r) => [r.qkv.ty, r.gate.ty, r.alpha.ty, r.beta.ty],
            Mixer::Attention(a) => [a.q.ty, a.k.ty, a.v.ty, a.v.ty],
        });
        let heads = layers.iter().map(|l| match &l.mixer {
            Mixer::Recurrent(r) => r.out.ty,
            Mixer::Attention(a) => a.output.ty,
        });
        let moe = layers.iter().map(|l| &l.moe);
        let moe_in =
            moe.clone().flat_map(|m| [m.router.ty, m.gate.ty, m.up.ty, m.sh_gate.ty, m.sh_up.ty]);
        Self {
            mixer: precision.forms(mixer.chain([model.weights.output.ty])),
            heads: precision.forms(heads),
            moe: precision.forms(moe_in),
            shared: precision.forms(moe.clone().map(|m| m.sh_down.ty)),
            mid: precision.forms(moe.map(|m| m.down.ty)),
        }
    }
}

impl Scratch {
    pub(super) fn new(model: &Model, precision: Precision, chunk: usize, threads: usize) -> Self {
        let shape = &model.shape;
        let forms = FormsOf::new(model, precision);
        let rows = |count: usize, forms: Forms| vec![Activation::empty(forms); count];
        let floats = thread_floats(shape);
        Self {
            x: vec![0.0; chunk * shape.hidden],
            y: vec![0.0; chunk * shape.hidden],
            arena: vec![0.0; chunk * arena_width(shape)],
            mixer_in: rows(chunk, forms.mixer),
            heads_in: rows(chunk, forms.heads),
            moe_in: rows(chunk, forms.moe),
            shared_in: rows(chunk, forms.shared),
            slots_in: rows(shape.experts_used, forms.mid),
            experts: vec![0; chunk * shape.experts_used],
            weights: vec![0.0; chunk * shape.experts_used],
            threads: PerThread::new(threads, || ThreadScratch {
                floats: vec![0.0; floats],
                mid: rows(EXPERT_TOKENS, forms.mid),
            }),
        }
    }
}

fn thread_floats(shape: &Shape) -> usize {
    attention_floats(shape).max(expert_floats(shape))
}

/// Floats of the arena for one token: the widest of what its users carve.
fn arena_width(shape: &Shape) -> usize {
    let sum = |widths: &[usize]| widths.iter().sum::<usize>();
    sum(&super::recurrent::widths(shape))
        .max(sum(&super::attention::widths(shape)))
        .max(sum(&super::ffn::widths(shape)))
}

/// Splits the first `n` rows' worth of the arena into buffers of `n` rows of the given widths.
pub(super) fn carve<const N: usize>(
    arena: &mut [f32],
    n: usize,
    widths: [usize; N],
) -> [&mut [f32]; N] {
    let mut rest = arena;
    widths
        .map(|width| rest.split_off_mut(..n * width).expect("the arena holds a chunk of each user"))
}

/// Prompt tokens evaluated at once when nobody says.
pub const DEFAULT_CHUNK_TOKENS: usize = 512;

/// Bytes of working memory for steps of up to `chunk` tokens on `threads` threads, both 8-bit forms of every
/// activation included. Logits come on top: one row of the vocabulary for each row asked for.
pub fn scratch_bytes(shape: &Shape, chunk: usize, threads: usize) -> usize {
    let activation =
        |width: usize| width * 4 + (width + width / 8) + (width + width / 64 + width / 8);
    let heads = shape.inner.max(shape.query_width());
    let token = 4 * (2 * shape.hidden + arena_width(shape) + 2 * shape.experts_used)
        + 2 * activation(shape.hidden)
        + activation(heads)
        + activation(shape.shared_ffn)
        + 4 * size_of::<Activation>();
    let mid = activation(shape.expert_ffn) + size_of::<Activation>();
    let thread = 4 * thread_floats(shape) + EXPERT_TOKENS * mid;
    chunk * token + threads * thread + shape.experts_used * mid
}
