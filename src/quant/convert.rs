//! Whole rows: decoding of any supported type, and the quantizers for weights and for the K/V cache.

use super::error::Error;
use super::plain::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use super::{TensorType, iq2_search, q2_k, q4_0, q4_k, q8_0, super_block};

/// Whether rows of `ty` can be decoded, and therefore multiplied with.
pub fn is_supported(ty: TensorType) -> bool {
    matches!(
        ty,
        TensorType::F32 | TensorType::F16 | TensorType::BF16 | TensorType::Q4_0 | TensorType::Q8_0
    ) || super_block::unpacker(ty).is_some()
}

/// Decodes whole rows, exactly (one rounding where a format has minima).
///
/// Panics when `src` is not `dst.len()` values of `ty` or `ty` is not [supported](is_supported): both
/// are settled when a model is loaded.
pub fn dequantize(ty: TensorType, src: &[u8], dst: &mut [f32]) {
    check_length(ty, dst.len(), src.len());
    match ty {
        TensorType::F32 => {
            for (x, bytes) in dst.iter_mut().zip(src.as_chunks::<4>().0) {
                *x = f32::from_le_bytes(*bytes);
            }
        }
        TensorType::F16 => decode_halves(src, dst, f16_to_f32),
        TensorType::BF16 => decode_halves(src, dst, bf16_to_f32),
        TensorType::Q4_0 => decode_blocks(src, dst, q4_0::decode),
        TensorType::Q8_0 => decode_blocks(src, dst, q8_0::decode),
        TensorType::Q2_K
        | TensorType::Q4_K
        | TensorType::Q5_K
        | TensorType::Q6_K
        | TensorType::IQ2_XXS => {
            let unpack = super_block::unpacker(ty).expect("the formats of 256 weights");
            let blocks = src.chunks_exact(ty.block_bytes());
            for (block, out) in blocks.zip(dst.as_chunks_mut().0) {
                unpack(block).decode(out);
            }
        }
        TensorType::I32 | TensorType::Q8_K | TensorType::IQ2_S | TensorType::IQ3_S => {
            panic!("rows of {ty} cannot be decoded")
        }
    }
}

/// Quantizes one row of weights by the rules of model.md 5.9, 5.10, 5.13 and 5.14. `importance` has one
/// weight per value; types without a weighted rule ignore it, `IQ2_XXS` cannot do without.
///
/// Panics when `dst` is not the size of the row.
pub fn quantize(
    ty: TensorType,
    x: &[f32],
    importance: Option<&[f32]>,
    dst: &mut [u8],
) -> Result<(), Error> {
    check_values(ty, x, importance)?;
    check_length(ty, x.len(), dst.len());
    match ty {
        TensorType::F32 => {
            for (bytes, v) in dst.as_chunks_mut::<4>().0.iter_mut().zip(x) {
                *bytes = v.to_le_bytes();
            }
        }
        TensorType::F16 => encode_halves(x, dst, f32_to_f16),
        TensorType::BF16 => encode_halves(x, dst, f32_to_bf16),
        TensorType::Q4_0 => encode_blocks(x, dst, q4_0::encode),
        TensorType::Q8_0 => encode_blocks(x, dst, q8_0::encode),
        TensorType::Q2_K => encode_super_blocks(x, importance, dst, q2_k::encode),
        TensorType::Q4_K => encode_super_blocks(x, importance, dst, q4_k::encode),
        TensorType::IQ2_XXS => encode_super_blocks(x, importance, dst, |x, importance, block| {
            iq2_search::encode(x, importance.expect("checked above"), block);
        }),
        TensorType::I32
        | TensorType::Q5_K
        | TensorType::Q6_K
        | TensorType::Q8_K
        | TensorType::IQ2_S
        | TensorType::IQ3_S => return Err(Error::Unsupported(ty)),
    }
    Ok(())
}

/// Stores one row of keys or values: `F16`, `Q8_0` (half to even, unlike weights) or `Q4_0`.
///
/// Panics on another type or when `dst` is not the size of the row.
pub fn quantize_kv(ty: TensorType, x: &[f32], dst: &mut [u8]) {
    check_length(ty, x.len(), dst.len());
    if ty == TensorType::F16 {
        encode_halves(x, dst, f32_to_f16);
    } else if ty == TensorType::Q8_0 {
        encode_blocks(x, dst, q8_0::encode_run_time);
    } else {
        assert_eq!(ty, TensorType::Q4_0, "types of the K/V cache");
        encode_blocks(x, dst, q4_0::encode);
    }
}

/// Panics unless `bytes` hold exactly `values` values of `ty`.
pub(super) fn check_length(ty: TensorType, values: usize, bytes: usize) {
    assert_eq!(ty.row_bytes(values), Some(bytes), "bytes of {values} values of {ty}");
}

fn check_values(ty: TensorType, x: &[f32], importance: Option<&[f32]>) -> Result<(), Error> {
    if !x.len().is_multiple_of(ty.block_len()) {
        return Err(Error::RowLength { ty, len: x.len() });
    }
    if let Some(index) = x.iter().position(|v| !v.is_finite()) {
        return Err(Error::NotFinite { index, value: x[index] });
    }
    match importance {
        None if ty == TensorType::IQ2_XXS => Err(Error::ImportanceMissing(ty)),
        None => Ok(()),
        Some(w) if w.len() != x.len() => {
            Err(Error::ImportanceLength { importances: w.len(), values: x.len() })
        }
        Some(w) => match w.iter().position(|v| !v.is_finite() || *v < 0.0) {
            Some(index) => Err(Error::BadImportance { index, value: w[index] }),
            None => Ok(()),
        },
    }
}

fn decode_halves(src: &[u8], dst: &mut [f32], decode: fn(u16) -> f32) {
    for (x, bytes) in dst.iter_mut().zip(src.as_chunks::<2>().0) {
        *x = decode(u16::from_le_bytes(*bytes));
    }
}

fn encode_halves(x: &[f32], dst: &mut [u8], encode: fn(f32) -> u16) {
    for (bytes, &v) in dst.as_chunks_mut::<2>().0.iter_mut().zip(x) {
        *bytes = encode(v).to_le_bytes();
    }
}

fn decode_blocks<const BYTES: usize>(
    src: &[u8],
    dst: &mut [f32],
    decode: fn(&[u8; BYTES], &mut [f32; 32]),
) {
    for (block, out) in src.as_chunks().0.iter().zip(dst.as_chunks_mut().0) {
        decode(block, out);
    }
}

fn encode_blocks<const BYTES: usize>(
    x: &[f32],
    dst: &mut [u8],
    encode: fn(&[f32; 32], &mut [u8; BYTES]),
) {
    for (values, block) in x.as_chunks().0.iter().zip(dst.as_chunks_mut().0) {
        encode(values, block);
    }
}

fn encode_super_blocks<const BYTES: usize>(
    x: &[f32],
    importance: Option<&[f32]>,
    dst: &mut [u8],
    encode: impl Fn(&[f32; super_block::LEN], Option<&[f32]>, &mut [u8; BYTES]),
) {
    let blocks = dst.as_chunks_mut().0.iter_mut();
    for (i, (values, block)) in x.as_chunks().0.iter().zip(blocks).enumerate() {
        encode(values, importance.map(|w| &w[i * super_block::LEN..]), block);
    }
}

#[cfg(test)]
mod tests;
