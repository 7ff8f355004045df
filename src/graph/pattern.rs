//! Weights of random numbers, for measuring speed without a model file: a small pattern of each kind is
//! made on the host and repeated on the device.
//!
//! The numbers are scaled so that activations stay of moderate size from layer to layer; what the model
//! then says means nothing.

use super::Error;
use super::fill::Float;
use crate::model::{Experts, Matrix};
use crate::quant::TensorType;
use crate::util::rng::Rng;
use crate::vulkan::{Arena, Queue, Slice};
use half::f16;
use std::collections::HashMap;

/// Blocks of a pattern. No power of two, so that neighbouring experts do not begin alike.
const PATTERN_BLOCKS: usize = (1 << 17) - 1;

/// What a pattern is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Float(Float),
    Codes,
    Scales { cols: usize },
    Blocks { ty: TensorType, cols: usize },
}

/// Fills weights with repeated patterns.
pub(super) struct Patterns<'a> {
    queue: &'a mut Queue,
    arena: &'a Arena,
    rng: Rng,
    made: HashMap<Kind, Slice>,
}

impl<'a> Patterns<'a> {
    /// Patterns kept in `arena`.
    pub(super) fn new(queue: &'a mut Queue, arena: &'a Arena) -> Self {
        Self { queue, arena, rng: Rng::new(0x5eed), made: HashMap::new() }
    }

    pub(super) fn queue(&mut self) -> &mut Queue {
        self.queue
    }

    pub(super) fn floats(&mut self, kind: Float, to: &Slice) -> Result<(), Error> {
        self.repeat(Kind::Float(kind), to)
    }

    pub(super) fn planes(
        &mut self,
        matrix: &Matrix,
        codes: &Slice,
        scales: &Slice,
    ) -> Result<(), Error> {
        self.repeat(Kind::Codes, codes)?;
        self.repeat(Kind::Scales { cols: matrix.cols }, scales)
    }

    pub(super) fn blocks(&mut self, experts: &Experts, to: &Slice) -> Result<(), Error> {
        self.repeat(Kind::Blocks { ty: experts.ty, cols: experts.cols }, to)
    }

    fn repeat(&mut self, kind: Kind, to: &Slice) -> Result<(), Error> {
        if !self.made.contains_key(&kind) {
            let bytes = make(kind, &mut self.rng);
            let slice = self.arena.buffer("pattern", bytes.len() as u64)?.all();
            self.queue.upload(&slice, &bytes)?;
            self.made.insert(kind, slice);
        }
        let whole = to.buffer.slice(to.offset, to.bytes / 4 * 4);
        self.queue.replicate(&self.made[&kind], &whole)?;
        Ok(())
    }
}

fn make(kind: Kind, rng: &mut Rng) -> Vec<u8> {
    match kind {
        Kind::Float(float) => {
            let values = (0..PATTERN_BLOCKS).flat_map(|_| number(float, rng).to_le_bytes());
            values.collect()
        }
        Kind::Codes => random_bytes(32 * PATTERN_BLOCKS, rng),
        Kind::Scales { cols } => {
            let pairs = 2 * PATTERN_BLOCKS;
            let scale = code_scale(cols);
            (0..pairs).flat_map(|_| f16::from_f32(scale * jitter(rng)).to_le_bytes()).collect()
        }
        Kind::Blocks { ty, cols } => {
            let (bytes, scale) = (ty.block_bytes(), 1.0 / (cols as f32).sqrt());
            let mut out = random_bytes(bytes * (PATTERN_BLOCKS / 8 * 4), rng);
            for block in out.chunks_exact_mut(bytes) {
                for (at, value) in scales(ty, scale * jitter(rng)) {
                    block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
                }
            }
            out
        }
    }
}

/// Random bytes have a standard deviation of 73.9, and a row of them should keep the size of its input.
fn code_scale(cols: usize) -> f32 {
    1.0 / (cols as f32).sqrt() / 73.9
}

/// Where a block has its f16 scales, and what they should be for weights of standard deviation `scale`
/// when everything else is random bits.
fn scales(ty: TensorType, scale: f32) -> Vec<(usize, f32)> {
    match ty {
        TensorType::Q8_0 => vec![(0, scale / 73.9)],
        TensorType::IQ2_XXS => vec![(0, scale / 45.0)],
        TensorType::Q2_K => vec![(80, scale / 8.0), (82, scale / 8.0 * 1.5)],
        TensorType::Q4_K | TensorType::Q5_K => {
            vec![(0, scale / 150.0), (2, scale / 150.0 * 7.5)]
        }
        TensorType::Q6_K => vec![(208, scale / 1400.0)],
        TensorType::F32
        | TensorType::F16
        | TensorType::BF16
        | TensorType::I32
        | TensorType::Q4_0
        | TensorType::Q8_K
        | TensorType::IQ2_S
        | TensorType::IQ3_S => Vec::new(),
    }
}

fn number(float: Float, rng: &mut Rng) -> f32 {
    match float {
        Float::Norm => jitter(rng),
        Float::Taps => 0.4 * normal(rng),
        Float::Decay => -(rng.unit_f32() * 4.0 - 3.0).exp(),
        Float::Bias => rng.unit_f32() * 4.0 - 3.0,
        Float::Weight => 0.03 * normal(rng),
    }
}

/// 0.8 to 1.2.
fn jitter(rng: &mut Rng) -> f32 {
    0.8 + 0.4 * rng.unit_f32()
}

/// Roughly normal: the sum of twelve uniform numbers.
fn normal(rng: &mut Rng) -> f32 {
    (0..12).map(|_| rng.unit_f32()).sum::<f32>() - 6.0
}

fn random_bytes(n: usize, rng: &mut Rng) -> Vec<u8> {
    (0..n.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).take(n).collect()
}
