//! Products of weight rows with activations, and the vector operations of attention: argument checks,
//! then the kernels of the instruction set in use.
//!
//! Whatever the instruction set, the number of rows and the number of activations, a result has the
//! bits that [`scalar`] gives it. None of these functions starts threads; callers split
//! rows, never a row.

use super::activation::Activation;
use super::convert::check_length;
use super::isa::{Isa, isa};
use super::simd::{self, Matrix};
use super::{TensorType, scalar};

/// `out[r] = w[r] · x` for `out.len()` rows of `cols` weights stored one after the other.
///
/// Panics when lengths disagree, when `x` lacks the form for `ty` ([`Forms::of`](super::Forms::of)), or
/// when `ty` is not [supported](super::is_supported).
pub fn matvec(ty: TensorType, w: &[u8], cols: usize, x: &Activation, out: &mut [f32]) {
    matvec_on(isa(), ty, w, cols, x, out);
}

fn matvec_on(isa: Isa, ty: TensorType, w: &[u8], cols: usize, x: &Activation, out: &mut [f32]) {
    let w = check_rows(ty, w, cols, out.len());
    check_activation(cols, x);
    if isa != Isa::Scalar {
        simd::matvec(isa, w, x, out);
        return;
    }
    for (out, row) in out.iter_mut().zip(w.bytes.chunks_exact(w.row_bytes)) {
        *out = scalar::dot(ty, row, x);
    }
}

/// `out[r * xs.len() + t] = w[r] · xs[t]`: many activations, each weight row decoded once. Every result
/// has the bits that [`matvec`] gives it.
///
/// Panics as [`matvec`] does.
pub fn matmul(ty: TensorType, w: &[u8], cols: usize, xs: &[&Activation], out: &mut [f32]) {
    matmul_on(isa(), ty, w, cols, xs, out);
}

fn matmul_on(isa: Isa, ty: TensorType, w: &[u8], cols: usize, xs: &[&Activation], out: &mut [f32]) {
    if let [x] = xs {
        matvec_on(isa, ty, w, cols, x, out);
        return;
    }
    if xs.is_empty() {
        assert!(out.is_empty(), "results without activations");
        return;
    }
    assert!(out.len().is_multiple_of(xs.len()), "{} results of {} rows", out.len(), xs.len());
    let w = check_rows(ty, w, cols, out.len() / xs.len());
    for x in xs {
        check_activation(cols, x);
    }
    if isa != Isa::Scalar {
        simd::matmul(isa, w, xs, out);
        return;
    }
    for (out, row) in out.chunks_exact_mut(xs.len()).zip(w.bytes.chunks_exact(w.row_bytes)) {
        for (out, x) in out.iter_mut().zip(xs) {
            *out = scalar::dot(ty, row, x);
        }
    }
}

/// `sum a b` in 32 lanes with fused multiply-adds. Panics when lengths differ.
pub fn dot_f32(a: &[f32], b: &[f32]) -> f32 {
    dot_f32_on(isa(), a, b)
}

fn dot_f32_on(isa: Isa, a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "lengths of a dot product");
    if isa == Isa::Scalar {
        scalar::dot_f32(a, b)
    } else {
        simd::dot_decoded(isa, TensorType::F32, bytemuck::cast_slice(a), b)
    }
}

/// `y += a x`, each value with one fused multiply-add. Panics when lengths differ.
pub fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
    axpy_on(isa(), a, x, y);
}

fn axpy_on(isa: Isa, a: f32, x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "lengths of a scaled addition");
    if isa == Isa::Scalar {
        scalar::axpy(a, x, y);
    } else {
        simd::add_decoded(isa, TensorType::F32, a, bytemuck::cast_slice(x), y);
    }
}

/// `row · q` for a stored key row in `F16`, `Q8_0` or `Q4_0`: decoded exactly, then summed as
/// [`dot_f32`] does. Panics when lengths disagree.
pub fn dot_kv(ty: TensorType, row: &[u8], q: &[f32]) -> f32 {
    dot_kv_on(isa(), ty, row, q)
}

fn dot_kv_on(isa: Isa, ty: TensorType, row: &[u8], q: &[f32]) -> f32 {
    check_length(ty, q.len(), row.len());
    if isa == Isa::Scalar {
        scalar::dot_decoded(ty, row, q)
    } else {
        simd::dot_decoded(isa, ty, row, q)
    }
}

/// `y += a row` for a stored value row in `F16`, `Q8_0` or `Q4_0`: decoded exactly, then added as
/// [`axpy`] does. Panics when lengths disagree.
pub fn axpy_kv(ty: TensorType, a: f32, row: &[u8], y: &mut [f32]) {
    axpy_kv_on(isa(), ty, a, row, y);
}

fn axpy_kv_on(isa: Isa, ty: TensorType, a: f32, row: &[u8], y: &mut [f32]) {
    check_length(ty, y.len(), row.len());
    if isa == Isa::Scalar {
        scalar::axpy_decoded(ty, a, row, y);
    } else {
        simd::add_decoded(isa, ty, a, row, y);
    }
}

/// The rows as a matrix, after checking that `w` is `rows` of them.
fn check_rows(ty: TensorType, w: &[u8], cols: usize, rows: usize) -> Matrix<'_> {
    let row_bytes =
        ty.row_bytes(cols).unwrap_or_else(|| panic!("{cols} columns are no row of {ty}"));
    assert!(row_bytes > 0, "a matrix without columns");
    assert_eq!(w.len(), rows * row_bytes, "bytes of {rows} rows of {cols} {ty}");
    Matrix { ty, bytes: w, row_bytes }
}

fn check_activation(cols: usize, x: &Activation) {
    assert_eq!(x.f32().len(), cols, "values of an activation row");
}

#[cfg(test)]
mod tests;
