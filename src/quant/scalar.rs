//! Dot products in plain Rust: the definition that every other instruction set reproduces bit by bit
//! (model.md 5.7).
//!
//! Integer formats sum into eight f32 lanes. Of each block, lane l takes the exact integer sum of the
//! products at positions 4l..4l+3 modulo 32, converted and added with one fused multiply-add by the
//! product of both scales. Minima have a ninth lane. f32 rows use 32 lanes, value i in lane i mod 32, and
//! are padded with zeros to whole lanes.

use super::activation::{Activation, Q8Row};
use super::plain::f16_at;
use super::super_block::{self, SuperBlock};
use super::{TensorType, convert, q8_0};

/// The fixed tree over eight lanes.
pub(super) fn reduce(lanes: &[f32; 8]) -> f32 {
    ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6]))
        + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]))
}

/// The fixed tree over four times eight lanes.
fn reduce_32(lanes: &[f32; 32]) -> f32 {
    let eight =
        std::array::from_fn(|l| (lanes[l] + lanes[16 + l]) + (lanes[8 + l] + lanes[24 + l]));
    reduce(&eight)
}

/// One weight row times one activation row of `x.f32().len()` values.
pub(super) fn dot(ty: TensorType, row: &[u8], x: &Activation) -> f32 {
    if ty == TensorType::Q8_0 {
        dot_q8_0(row, x.q8_0())
    } else if let Some(unpack) = super_block::unpacker(ty) {
        let blocks = row.chunks_exact(ty.block_bytes()).map(unpack);
        dot_super_blocks(blocks, x.q8_k())
    } else {
        dot_decoded(ty, row, x.f32())
    }
}

fn dot_q8_0(row: &[u8], x: &Q8Row) -> f32 {
    let mut lanes = [0.0f32; 8];
    let blocks = row.as_chunks::<{ q8_0::BYTES }>().0;
    for ((block, q), &scale) in blocks.iter().zip(x.quants.chunks_exact(32)).zip(&x.scales) {
        let scale = f16_at(block, 0) * scale;
        for (l, lane) in lanes.iter_mut().enumerate() {
            let sum: i32 = (4 * l..4 * l + 4)
                .map(|i| i32::from(block[2 + i].cast_signed()) * i32::from(q[i]))
                .sum();
            *lane = (sum as f32).mul_add(scale, *lane);
        }
    }
    reduce(&lanes)
}

fn dot_super_blocks(row: impl Iterator<Item = SuperBlock>, x: &Q8Row) -> f32 {
    let mut lanes = [0.0f32; 8];
    let mut minima = 0.0f32;
    let quants = x.quants.as_chunks::<{ super_block::LEN }>().0;
    let sums = x.sums.as_chunks::<16>().0;
    for (((block, q), sums), &scale) in row.zip(quants).zip(sums).zip(&x.scales) {
        for (l, lane) in lanes.iter_mut().enumerate() {
            let sum: i32 = (0..super_block::LEN)
                .filter(|i| i % 32 / 4 == l)
                .map(|i| i32::from(block.scale[i / 16]) * i32::from(block.n[i]) * i32::from(q[i]))
                .sum();
            *lane = (sum as f32).mul_add(block.d * scale, *lane);
        }
        if let Some(dmin) = block.dmin {
            let sum: i32 =
                block.min.iter().zip(sums).map(|(&m, &s)| i32::from(m) * i32::from(s)).sum();
            minima = (sum as f32).mul_add(dmin * scale, minima);
        }
    }
    reduce(&lanes) - minima
}

/// `sum a b` over f32 slices of equal length.
pub(super) fn dot_f32(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; 32];
    for (a, b) in a.chunks(32).zip(b.chunks(32)) {
        add_products(&mut lanes, a, b);
    }
    reduce_32(&lanes)
}

/// `sum w x` of a row in a format that is decoded to f32, block by block.
pub(super) fn dot_decoded(ty: TensorType, row: &[u8], x: &[f32]) -> f32 {
    let mut lanes = [0.0; 32];
    for_decoded(ty, row, x.len(), |values, at| {
        add_products(&mut lanes, values, &x[at..at + values.len()]);
    });
    reduce_32(&lanes)
}

/// `y += a x`, each value with one fused multiply-add.
pub(super) fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = a.mul_add(x, *y);
    }
}

/// `y += a row` for a row in a format that is decoded to f32.
pub(super) fn axpy_decoded(ty: TensorType, a: f32, row: &[u8], y: &mut [f32]) {
    for_decoded(ty, row, y.len(), |values, at| axpy(a, values, &mut y[at..at + values.len()]));
}

/// Calls `f` with up to 32 decoded values at a time and the index of the first.
fn for_decoded(ty: TensorType, row: &[u8], len: usize, mut f: impl FnMut(&[f32], usize)) {
    let mut values = [0.0; 32];
    let step_bytes = 32 / ty.block_len() * ty.block_bytes();
    for (i, bytes) in row.chunks(step_bytes).enumerate() {
        let at = 32 * i;
        let values = &mut values[..(len - at).min(32)];
        convert::dequantize(ty, bytes, values);
        f(values, at);
    }
}

/// Adds up to 32 products, one to each lane. Lanes beyond the end take `+ 0`, as a padded row would:
/// that turns a -0, which only an underflow can leave, into +0.
fn add_products(lanes: &mut [f32; 32], a: &[f32], b: &[f32]) {
    for (i, lane) in lanes.iter_mut().enumerate() {
        let (a, b) = if i < a.len() { (a[i], b[i]) } else { (0.0, 0.0) };
        *lane = a.mul_add(b, *lane);
    }
}
