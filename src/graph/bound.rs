//! How large the weights of a tensor can be, from the scales of its blocks alone. Products in 16-bit floats need it:
//! weights are brought to their range by one power of two for each tensor.

use crate::quant::TensorType;
use half::f16;
use rayon::prelude::*;

/// Bytes of a tensor looked at by one task, about.
const TASK_BYTES: usize = 1 << 20;

/// No weight of these blocks is larger in size. Infinite or NaN scales count as nothing: they show in the logits.
pub(super) fn bound(ty: TensorType, blocks: &[u8]) -> f32 {
    let size = ty.block_bytes();
    let task = (TASK_BYTES / size).max(1) * size;
    blocks.par_chunks(task).map(|part| bound_of_part(ty, part)).reduce(|| 0.0, f32::max)
}

/// The same by one thread, for parts that are looked at while they are in its cache.
pub(super) fn bound_of_part(ty: TensorType, blocks: &[u8]) -> f32 {
    blocks.chunks_exact(ty.block_bytes()).map(|b| of_block(ty, b)).fold(0.0, f32::max)
}

/// The largest weight that the scales of a block allow, whatever its codes.
fn of_block(ty: TensorType, block: &[u8]) -> f32 {
    let scale = |at: usize| {
        let value = f16::from_le_bytes([block[at], block[at + 1]]).to_f32().abs();
        if value.is_finite() { value } else { 0.0 }
    };
    match ty {
        TensorType::F32 => {
            let value = f32::from_le_bytes([block[0], block[1], block[2], block[3]]).abs();
            if value.is_finite() { value } else { 0.0 }
        }
        // Codes to -128.
        TensorType::Q8_0 => 128.0 * scale(0),
        // Grid values to 43, times (1/2 + 15) / 4.
        TensorType::IQ2_XXS => 43.0 * 15.5 / 4.0 * scale(0),
        // Scales and minima of 4 bits, codes to 3.
        TensorType::Q2_K => 45.0 * scale(80) + 15.0 * scale(82),
        // Scales and minima of 6 bits, codes to 15 and 31.
        TensorType::Q4_K => 945.0 * scale(0) + 63.0 * scale(2),
        TensorType::Q5_K => 1953.0 * scale(0) + 63.0 * scale(2),
        // Scales to -128, codes to -32.
        TensorType::Q6_K => 4096.0 * scale(208),
        TensorType::F16
        | TensorType::BF16
        | TensorType::I32
        | TensorType::Q4_0
        | TensorType::Q8_K
        | TensorType::IQ2_S
        | TensorType::IQ3_S => unreachable!("no kernel multiplies {ty}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant;
    use crate::util::rng::Rng;

    #[test]
    fn no_weight_is_above_the_bound_and_some_come_near() {
        let mut rng = Rng::new(7);
        for ty in [
            TensorType::Q8_0,
            TensorType::IQ2_XXS,
            TensorType::Q2_K,
            TensorType::Q4_K,
            TensorType::Q5_K,
            TensorType::Q6_K,
        ] {
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
            let bound = bound(ty, &bytes);
            assert!(largest <= bound, "{ty}: {largest} above {bound}");
            assert!(largest > bound / 4.0, "{ty}: {largest} far below {bound}");
        }
    }
}
