//! How large the weights of a tensor can be: its scales tell, whatever its codes are. Matrix units multiply weights
//! in 16 bits, scaled to their range by a power of two (`gemm::exponent`) that this bound chooses.

use super::registry::Interface;
use crate::quant::TensorType;
use crate::vulkan::{Binding, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use half::f16;
use std::sync::Arc;

/// What `small/largest.comp` declares.
pub const LARGEST: Interface = Interface {
    variant: "largest",
    bindings: &[Binding::read(3), Binding::update(4)],
    push_bytes: size_of::<Push>(),
    constants: &["workgroup", "FLOATS"],
};

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Push {
    blocks: u32,
    block_bytes: u32,
    at: [u32; 2],
    factors: [f32; 2],
}

const _: () = assert!(size_of::<Push>() == 24);

/// Where the scales of a block are, and how large a weight each allows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scales {
    block_bytes: u32,
    /// Whether a block is one f32. Otherwise its scales are f16.
    floats: bool,
    at: [u32; 2],
    factors: [f32; 2],
}

/// Codes of `Q8_0` reach to -128.
const Q8_CODES: f32 = 128.0;

/// Those of a plane of `Q8_0` scales.
pub const SCALES_PLANE: Scales =
    Scales { block_bytes: 2, floats: false, at: [0, 0], factors: [Q8_CODES, 0.0] };

impl Scales {
    /// Those of blocks of a type.
    ///
    /// # Panics
    /// For types that no kernel multiplies.
    pub fn of(ty: TensorType) -> Self {
        let (at, factors) = match ty {
            TensorType::F32 => ([0, 0], [1.0, 0.0]),
            TensorType::Q8_0 => ([0, 0], [Q8_CODES, 0.0]),
            // Grid values to 43, times (1/2 + 15) / 4.
            TensorType::IQ2_XXS => ([0, 0], [43.0 * 15.5 / 4.0, 0.0]),
            // Scales and minima of 4 bits, codes to 3.
            TensorType::Q2_K => ([80, 82], [45.0, 15.0]),
            // Scales and minima of 6 bits, codes to 15 and 31.
            TensorType::Q4_K => ([0, 2], [945.0, 63.0]),
            TensorType::Q5_K => ([0, 2], [1953.0, 63.0]),
            // Scales to -128, codes to -32.
            TensorType::Q6_K => ([208, 208], [4096.0, 0.0]),
            TensorType::F16
            | TensorType::BF16
            | TensorType::I32
            | TensorType::Q4_0
            | TensorType::Q8_K
            | TensorType::IQ2_S
            | TensorType::IQ3_S => unreachable!("no kernel multiplies {ty}"),
        };
        let block_bytes = u32::try_from(ty.block_bytes()).expect("a block is small");
        Self { block_bytes, floats: ty == TensorType::F32, at, factors }
    }

    /// No weight of these blocks is larger in size. Infinite or NaN scales count as nothing: they show in the logits.
    pub fn largest(&self, blocks: &[u8]) -> f32 {
        let blocks = blocks.chunks_exact(self.block_bytes as usize);
        blocks.map(|block| self.of_block(block)).fold(0.0, f32::max)
    }

    fn of_block(&self, block: &[u8]) -> f32 {
        let size = |value: f32| if value.is_finite() { value.abs() } else { 0.0 };
        if self.floats {
            return size(f32::from_le_bytes([block[0], block[1], block[2], block[3]]));
        }
        let scale = |i: usize| {
            let at = self.at[i] as usize;
            size(f16::from_le_bytes([block[at], block[at + 1]]).to_f32())
        };
        self.factors[0] * scale(0) + self.factors[1] * scale(1)
    }
}

/// The same on the device.
pub struct Largest {
    /// For scales, and for floats.
    pipelines: [Arc<Pipeline>; 2],
    workgroup: u32,
    /// Bytes of a dispatch at most.
    piece_bytes: u64,
}

/// Blocks that an invocation looks at, and most workgroups of a dispatch.
const EACH: u32 = 8;
const GROUPS: u32 = 4096;
/// Bytes of a dispatch at most, so that the shader's 32-bit places suffice.
const PIECE_BYTES: u64 = 64 << 20;
/// A piece begins at a multiple of so many blocks: blocks have even sizes, so that is aligned for every device.
const PIECE_BLOCKS: u64 = 256;

impl Largest {
    /// Compiles the kernel.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the device refuses.
    pub fn new(device: &Arc<Device>) -> Result<Self, Error> {
        let caps = device.caps();
        let sg = caps.subgroup_size(32);
        let workgroup = 256.min(caps.workgroup_limit(sg));
        let pipeline = |floats: u32| LARGEST.pipeline(device, &[[workgroup, floats]], sg);
        let piece_bytes = PIECE_BYTES.min(caps.limits.storage_bytes);
        Ok(Self { pipelines: [pipeline(0)?, pipeline(1)?], workgroup, piece_bytes })
    }

    /// `data`, whole blocks of it, in pieces for one dispatch each.
    pub fn pieces(&self, scales: Scales, data: &Slice) -> Vec<Slice> {
        let block = u64::from(scales.block_bytes);
        let piece = (self.piece_bytes / (block * PIECE_BLOCKS)).max(1) * block * PIECE_BLOCKS;
        let all = data.bytes / block * block;
        let starts = (0..all).step_by(usize::try_from(piece).expect("less than a binding"));
        starts.map(|at| data.buffer.slice(data.offset + at, piece.min(all - at))).collect()
    }

    /// Adds a look at one of the [`Largest::pieces`] to the last level of `graph`. The word `largest` holds the bits of
    /// an f32 that is not negative, at first zero, and becomes the larger of it and the bound.
    pub fn record(
        &self,
        graph: &mut Graph,
        label: &str,
        scales: Scales,
        piece: &Slice,
        largest: Slice,
    ) {
        let blocks = u32::try_from(piece.bytes / u64::from(scales.block_bytes));
        let blocks = blocks.expect("fewer than a binding has bytes");
        // Shaders see whole words.
        let data = piece.buffer.slice(piece.offset, piece.bytes.next_multiple_of(4));
        let Scales { block_bytes, at, factors, .. } = scales;
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipelines[usize::from(scales.floats)]),
            slices: vec![data, largest],
            push: bytemuck::bytes_of(&Push { blocks, block_bytes, at, factors }).to_vec(),
            grid: [blocks.div_ceil(self.workgroup * EACH).min(GROUPS), 1, 1].into(),
            cost: Cost { bytes: piece.bytes, flops: u64::from(blocks) * 3 },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{self, Draw};
    use crate::quant;
    use crate::util::rng::Rng;

    const TYPES: [TensorType; 6] = [
        TensorType::Q8_0,
        TensorType::IQ2_XXS,
        TensorType::Q2_K,
        TensorType::Q4_K,
        TensorType::Q5_K,
        TensorType::Q6_K,
    ];

    #[test]
    fn no_weight_is_above_the_bound_and_some_come_near() {
        let mut rng = Rng::new(7);
        for ty in TYPES {
            let blocks = 400;
            let mut bytes: Vec<u8> = (0..blocks * ty.block_bytes())
                .map(|_| u8::try_from(rng.next_u64() >> 56).unwrap())
                .collect();
            // Random halves are mostly huge; these are between 2^-8 and 2^-6.
            for at in [0, 2, 80, 82, 208] {
                if at + 2 <= ty.block_bytes() && (ty != TensorType::Q8_0 || at == 0) {
                    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
                        block[at + 1] = 0x1c | (block[at + 1] & 3);
                    }
                }
            }
            let mut values = vec![0.0; blocks * ty.block_len()];
            quant::dequantize(ty, &bytes, &mut values);
            let largest = values.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
            let bound = Scales::of(ty).largest(&bytes);
            assert!(largest <= bound, "{ty}: {largest} above {bound}");
            assert!(largest > bound / 4.0, "{ty}: {largest} far below {bound}");
        }
    }

    /// What the device finds of bytes at any place of a buffer, in pieces of so many bytes.
    fn on_device(gpu: &mut check::Gpu, scales: Scales, bytes: &[u8], piece_bytes: u64) -> f32 {
        let mut kernel = Largest::new(gpu.device()).unwrap();
        kernel.piece_bytes = piece_bytes;
        let data = gpu.input("data", bytes);
        let pieces = kernel.pieces(scales, &data);
        let found: Vec<_> = pieces.iter().map(|_| gpu.update("largest", &[0_u32])).collect();
        let mut graph = Graph::new("largest");
        graph.input(&data.buffer.all());
        for word in &found {
            graph.input(&word.slice());
        }
        graph.level();
        for (piece, word) in pieces.iter().zip(&found) {
            kernel.record(&mut graph, "largest", scales, piece, word.slice());
        }
        gpu.run(graph);
        found.iter().map(|word| f32::from_bits(gpu.words(word)[0])).fold(0.0, f32::max)
    }

    #[test]
    fn device_and_host_agree_on_any_bits() {
        let Some(mut gpu) = check::gpu() else { return };
        let mut draw = Draw::new(8);
        let mut all: Vec<Scales> = TYPES.map(Scales::of).to_vec();
        all.extend([Scales::of(TensorType::F32), SCALES_PLANE]);
        for scales in all {
            for blocks in [1, 3, 255, 5_000] {
                // Any bits: halves that are subnormal, infinite and NaN are among them.
                let bytes: Vec<u8> = (0..blocks * scales.block_bytes)
                    .map(|_| u8::try_from(draw.below(256)).unwrap())
                    .collect();
                let expected = scales.largest(&bytes);
                for piece_bytes in [PIECE_BYTES, 1] {
                    let found = on_device(&mut gpu, scales, &bytes, piece_bytes);
                    // The device may fuse the sum of two products.
                    let near = (found - expected).abs() <= expected * f32::EPSILON;
                    assert!(near, "{scales:?}, {blocks} blocks: {found}, expected {expected}");
                }
            }
        }
    }

    #[test]
    fn small_halves_are_not_taken_for_zero() {
        let Some(mut gpu) = check::gpu() else { return };
        for bits in [1_u16, 0x3ff, 0x400, 0x8001, 0x7bff] {
            let bytes = bits.to_le_bytes();
            let expected = 128.0 * f16::from_bits(bits).to_f32().abs();
            let found = on_device(&mut gpu, SCALES_PLANE, &bytes, PIECE_BYTES);
            assert_eq!(found.to_bits(), expected.to_bits(), "{bits:x}");
        }
    }
}
