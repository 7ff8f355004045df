//! Random expert matrices and what they stand for.

use super::{Order, Sizes};
use crate::kernels::check::Draw;
use crate::quant::{TensorType, dequantize};
use half::f16;

/// Random blocks in the file's layout. Every bit pattern of codes and small scales is valid; the f16 scales are
/// finite and include zero, subnormal and large ones.
pub(in crate::kernels) fn blocks(draw: &mut Draw, format: TensorType, count: usize) -> Vec<u8> {
    // Byte offsets of the f16 fields, and the size of a usual scale.
    let known: [(TensorType, &[usize], f32); 6] = [
        (TensorType::IQ2_XXS, &[0], 0.002),
        (TensorType::Q2_K, &[80, 82], 0.01),
        (TensorType::Q4_K, &[0, 2], 0.0005),
        (TensorType::Q5_K, &[0, 2], 0.0005),
        (TensorType::Q6_K, &[208], 0.0002),
        (TensorType::Q8_0, &[0], 0.002),
    ];
    let (_, fields, usual) = *known.iter().find(|k| k.0 == format).unwrap();
    let mut bytes = Vec::with_capacity(count * format.block_bytes());
    for _ in 0..count {
        let start = bytes.len();
        bytes.extend((0..format.block_bytes()).map(|_| u8::try_from(draw.below(256)).unwrap()));
        for &field in fields {
            let scale = match draw.below(40) {
                0 => f16::ZERO,
                1 => f16::from_bits(3),
                2 => f16::from_bits(0x83ff),
                3 => f16::from_f32(usual * 100.0),
                _ => f16::from_f32(draw.normal() * usual),
            };
            bytes[start + field..start + field + 2].copy_from_slice(&scale.to_le_bytes());
        }
    }
    bytes
}

/// Decoded weights.
pub(in crate::kernels) fn decoded(format: TensorType, bytes: &[u8]) -> Vec<f32> {
    let mut weights = vec![0.0; bytes.len() / format.block_bytes() * format.block_len()];
    dequantize(format, bytes, &mut weights);
    weights
}

/// A row's dot product and the sum of its magnitudes, in f64. With formats that have a minimum for each group the
/// kernel sums codes and minimums apart, so the magnitudes are those of a code of twice the weight's size at most:
/// callers' bounds have room for that.
pub(in crate::kernels) fn dot(weights: &[f32], x: &[f64]) -> (f64, f64) {
    assert_eq!(weights.len(), x.len());
    weights.iter().zip(x).fold((0.0, 0.0), |(sum, magnitude), (&w, &x)| {
        let product = f64::from(w) * x;
        (sum + product, magnitude + product.abs())
    })
}

/// Rows of `len` values, each brought into unit order, or back.
pub(in crate::kernels) fn ordered(values: &[f32], len: usize, order: Order) -> Vec<f32> {
    let mut out = vec![f32::NAN; values.len()];
    for (from, to) in values.chunks(len).zip(out.chunks_mut(len)) {
        for (i, &v) in from.iter().enumerate() {
            to[order.place(i, len)] = v;
        }
    }
    out
}

/// The inverse of [`ordered`].
pub(in crate::kernels) fn restored(values: &[f32], len: usize, order: Order) -> Vec<f32> {
    let mut out = vec![f32::NAN; values.len()];
    for (from, to) in values.chunks(len).zip(out.chunks_mut(len)) {
        for (i, v) in to.iter_mut().enumerate() {
            *v = from[order.place(i, len)];
        }
    }
    out
}

/// Distinct experts for each row.
pub(in crate::kernels) fn choices(draw: &mut Draw, sizes: &Sizes, rows: usize) -> Vec<u32> {
    let mut ids = Vec::new();
    for _ in 0..rows {
        let start = ids.len();
        while ids.len() < start + sizes.used as usize {
            let id = u32::try_from(draw.below(u64::from(sizes.experts))).unwrap();
            if !ids[start..].contains(&id) {
                ids.push(id);
            }
        }
    }
    ids
}

/// Rows of `len` values as bytes with scales in unit order, as the kernels pass them, and the values they stand for.
pub(in crate::kernels) fn as_bytes(
    values: &[f32],
    len: usize,
    order: Order,
) -> (Vec<f32>, Vec<f32>) {
    let mut words = vec![0_u32; values.len()];
    let mut stands = vec![0.0; values.len()];
    for (row, (from, out)) in values.chunks(len).zip(words.chunks_mut(len)).enumerate() {
        let units = len / 64;
        for (i, sixteen) in from.chunks(16).enumerate() {
            let place = order.place(16 * i, len) / 4;
            let at = place / (4 * units) * units + place % units;
            let largest = sixteen.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
            let scale = largest / 127.0;
            for (j, &v) in sixteen.iter().enumerate() {
                let code =
                    if largest > 0.0 { (v * (127.0 / largest)).round_ties_even() } else { 0.0 };
                #[expect(clippy::cast_possible_truncation, reason = "at most 127")]
                let byte = u32::from((code as i8).cast_unsigned());
                out[at * 4 + j / 4] |= byte << (8 * (j % 4));
                stands[row * len + 16 * i + j] = code * scale;
            }
            out[len / 4 + at] = scale.to_bits();
        }
    }
    (words.into_iter().map(f32::from_bits).collect(), stands)
}

/// The values that bytes with scales stand for, and a step of each.
pub(in crate::kernels) fn from_bytes(words: &[u32], len: usize, order: Order) -> Vec<(f32, f32)> {
    let mut values = Vec::with_capacity(words.len());
    for row in words.chunks(len) {
        let units = len / 64;
        for i in 0..len / 16 {
            let place = order.place(16 * i, len) / 4;
            let at = place / (4 * units) * units + place % units;
            let scale = f32::from_bits(row[len / 4 + at]);
            values.extend((0..16).map(|j| {
                let byte = row[at * 4 + j / 4].to_le_bytes()[j % 4].cast_signed();
                (f32::from(byte) * scale, scale)
            }));
        }
    }
    values
}
