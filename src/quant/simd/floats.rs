//! Rows that are decoded to f32: plain types, and the block types of the K/V cache.

use super::machine::{Kernel, Machine, prefetch};
use super::rows::reduce;
use crate::quant::{q4_0, q8_0};

/// A row format that is decoded 32 values at a time.
pub(super) trait Decode: Copy {
    /// Bytes of 32 values.
    const BYTES: usize;
    /// Decodes 32 values exactly.
    fn decode<M: Machine>(self, m: M, bytes: &[u8]) -> [M::Floats; 4];
}

/// Eight values' bytes out of those of 32.
#[inline(always)]
fn eighth<const N: usize>(bytes: &[u8], k: usize) -> &[u8; N] {
    bytes[k * N..(k + 1) * N].try_into().expect("a slice of N bytes")
}

#[derive(Debug, Clone, Copy)]
pub(super) struct F32;

impl Decode for F32 {
    const BYTES: usize = 128;

    #[inline(always)]
    fn decode<M: Machine>(self, m: M, bytes: &[u8]) -> [M::Floats; 4] {
        std::array::from_fn(|k| m.floats_le(eighth(bytes, k)))
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct F16;

impl Decode for F16 {
    const BYTES: usize = 64;

    #[inline(always)]
    fn decode<M: Machine>(self, m: M, bytes: &[u8]) -> [M::Floats; 4] {
        std::array::from_fn(|k| m.halves(eighth(bytes, k)))
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Bf16;

impl Decode for Bf16 {
    const BYTES: usize = 64;

    #[inline(always)]
    fn decode<M: Machine>(self, m: M, bytes: &[u8]) -> [M::Floats; 4] {
        std::array::from_fn(|k| m.bfloats(eighth(bytes, k)))
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Q8_0;

impl Decode for Q8_0 {
    const BYTES: usize = q8_0::BYTES;

    #[inline(always)]
    fn decode<M: Machine>(self, m: M, bytes: &[u8]) -> [M::Floats; 4] {
        let d = m.splat_half([bytes[0], bytes[1]]);
        let quants = m.bytes(bytes[2..].try_into().expect("34 - 2 bytes"));
        m.bytes_to_floats(quants).map(|q| m.mul(d, q))
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Q4_0;

impl Decode for Q4_0 {
    const BYTES: usize = q4_0::BYTES;

    #[inline(always)]
    fn decode<M: Machine>(self, m: M, bytes: &[u8]) -> [M::Floats; 4] {
        let d = m.splat_half([bytes[0], bytes[1]]);
        let nibbles = m.nibbles(bytes[2..].try_into().expect("18 - 2 bytes"));
        m.bytes_to_floats(m.minus(nibbles, 8)).map(|q| m.mul(d, q))
    }
}

/// 32 values in four vectors.
#[inline(always)]
fn load<M: Machine>(m: M, x: &[f32; 32]) -> [M::Floats; 4] {
    let x = x.as_chunks::<8>().0;
    std::array::from_fn(|k| m.floats(&x[k]))
}

/// The last, incomplete 32 values of a row and of its partner, padded with zeros.
struct Tail {
    row: [u8; 128],
    x: [f32; 32],
}

impl Tail {
    #[inline(always)]
    fn new(row: &[u8], x: &[f32]) -> Self {
        let mut tail = Self { row: [0; 128], x: [0.0; 32] };
        tail.row[..row.len()].copy_from_slice(row);
        tail.x[..x.len()].copy_from_slice(x);
        tail
    }
}

/// Products of rows with up to `T` vectors at once: `out[r * stride + t]`.
pub(super) struct DecodedRows<'a, D, const T: usize> {
    pub(super) format: D,
    pub(super) w: &'a [u8],
    pub(super) row_bytes: usize,
    pub(super) xs: [&'a [f32]; T],
    pub(super) out: &'a mut [f32],
    /// Results from one row to the next.
    pub(super) stride: usize,
}

impl<D: Decode, const T: usize> Kernel for DecodedRows<'_, D, T> {
    type Output = ();

    #[inline(always)]
    fn run<M: Machine>(self, m: M) {
        let rows = self.w.chunks_exact(self.row_bytes);
        for (out, row) in self.out.chunks_mut(self.stride).zip(rows) {
            out[..T].copy_from_slice(&decoded_row(m, self.format, row, self.xs));
        }
    }
}

/// The product of one row with one vector.
pub(super) struct DotDecoded<'a, D> {
    pub(super) format: D,
    pub(super) row: &'a [u8],
    pub(super) x: &'a [f32],
}

impl<D: Decode> Kernel for DotDecoded<'_, D> {
    type Output = f32;

    #[inline(always)]
    fn run<M: Machine>(self, m: M) -> f32 {
        let [product] = decoded_row(m, self.format, self.row, [self.x]);
        product
    }
}

/// One row times `T` vectors.
#[inline(always)]
fn decoded_row<M: Machine, D: Decode, const T: usize>(
    m: M,
    format: D,
    row: &[u8],
    xs: [&[f32]; T],
) -> [f32; T] {
    let mut lanes = [[m.splat(0.0); 4]; T];
    let parts = row.chunks_exact(D::BYTES);
    let rest = parts.remainder();
    for (i, part) in parts.enumerate() {
        prefetch(m, part);
        let w = format.decode(m, part);
        for t in 0..T {
            let x: &[f32; 32] = xs[t][32 * i..32 * i + 32].try_into().expect("a slice of 32");
            let x = load(m, x);
            for k in 0..4 {
                lanes[t][k] = m.fma(w[k], x[k], lanes[t][k]);
            }
        }
    }
    if !rest.is_empty() {
        for t in 0..T {
            let tail = Tail::new(rest, &xs[t][xs[t].len() / 32 * 32..]);
            let (w, x) = (format.decode(m, &tail.row[..D::BYTES]), load(m, &tail.x));
            for k in 0..4 {
                lanes[t][k] = m.fma(w[k], x[k], lanes[t][k]);
            }
        }
    }
    std::array::from_fn(|t| {
        let [a, b, c, d] = lanes[t];
        reduce(m, m.add(m.add(a, c), m.add(b, d)))
    })
}

/// `y += a row`.
pub(super) struct AddDecoded<'a, D> {
    pub(super) format: D,
    pub(super) a: f32,
    pub(super) row: &'a [u8],
    pub(super) y: &'a mut [f32],
}

impl<D: Decode> Kernel for AddDecoded<'_, D> {
    type Output = ();

    #[inline(always)]
    fn run<M: Machine>(self, m: M) {
        let a = m.splat(self.a);
        let parts = self.row.chunks_exact(D::BYTES);
        let rest = parts.remainder();
        let (whole, last) = self.y.as_chunks_mut::<32>();
        for (part, y) in parts.zip(whole) {
            add_part(m, a, self.format.decode(m, part), y);
        }
        if !rest.is_empty() {
            let mut tail = Tail::new(rest, last);
            add_part(m, a, self.format.decode(m, &tail.row[..D::BYTES]), &mut tail.x);
            last.copy_from_slice(&tail.x[..last.len()]);
        }
    }
}

#[inline(always)]
fn add_part<M: Machine>(m: M, a: M::Floats, w: [M::Floats; 4], y: &mut [f32; 32]) {
    for (y, w) in y.as_chunks_mut::<8>().0.iter_mut().zip(w) {
        m.store_floats(m.fma(a, w, m.floats(y)), y);
    }
}
