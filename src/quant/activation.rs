//! Activation rows, prepared for integer dot products (model.md 5.7).
//!
//! A row keeps its f32 values and, where asked for, the 8-bit form that a weight type multiplies with:
//! `Q8_0` against `Q8_0`, `Q8_K` against the formats of 256 weights. The forms are kept as arrays
//! of quants and of scales rather than as blocks: nothing stores or exchanges them.
//!
//! A NaN or an infinity makes the scale of its block non-finite, so that the dot products show it.

use super::plain::{f16_to_f32, f32_to_f16};
use super::round::{extreme, max_magnitude, rne, signed_byte};
use super::{TensorType, super_block};

/// Which 8-bit forms an activation row carries besides its f32 values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Forms {
    /// Blocks of 32, for `Q8_0` weights.
    pub q8_0: bool,
    /// Blocks of 256, for weights in K- and IQ-formats.
    pub q8_k: bool,
}

impl Forms {
    /// f32 values only.
    pub const NONE: Self = Self { q8_0: false, q8_k: false };

    /// What weights of `ty` multiply with.
    pub fn of(ty: TensorType) -> Self {
        Self { q8_0: ty == TensorType::Q8_0, q8_k: super_block::unpacker(ty).is_some() }
    }

    /// Both this and `other`.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { q8_0: self.q8_0 || other.q8_0, q8_k: self.q8_k || other.q8_k }
    }
}

/// One activation row. Its buffers are reused by [`Activation::set`].
#[derive(Debug, Clone, Default)]
pub struct Activation {
    forms: Forms,
    values: Vec<f32>,
    q8_0: Q8Row,
    q8_k: Q8Row,
}

/// 8-bit quants of a row with the scale of each block.
#[derive(Debug, Clone, Default)]
pub(super) struct Q8Row {
    /// Quants in -127..=127.
    pub(super) quants: Vec<i8>,
    /// A scale for each block, of 32 (representable in f16) or 256 values.
    pub(super) scales: Vec<f32>,
    /// Sums of 16 quants; `Q8_K` only.
    pub(super) sums: Vec<i16>,
}

impl Activation {
    /// Prepares `x` in the given forms. Panics when `x` is not a whole number of their blocks.
    pub fn new(x: &[f32], forms: Forms) -> Self {
        let mut row = Self::empty(forms);
        row.set(x);
        row
    }

    /// A row without values, to be set later.
    pub fn empty(forms: Forms) -> Self {
        Self { forms, ..Self::default() }
    }

    /// Replaces the values, keeping the forms. Panics when `x` is not a whole number of their blocks.
    pub fn set(&mut self, x: &[f32]) {
        self.values.clear();
        self.values.extend_from_slice(x);
        if self.forms.q8_0 {
            assert!(x.len().is_multiple_of(32), "{} values are no q8_0 row", x.len());
            self.q8_0.set_q8_0(x);
        }
        if self.forms.q8_k {
            assert!(x.len().is_multiple_of(super_block::LEN), "{} values are no q8_k row", x.len());
            self.q8_k.set_q8_k(x);
        }
    }

    /// The values as given.
    pub fn f32(&self) -> &[f32] {
        &self.values
    }

    /// The forms this row carries.
    pub fn forms(&self) -> Forms {
        self.forms
    }

    pub(super) fn q8_0(&self) -> &Q8Row {
        assert!(self.forms.q8_0, "the activation row was made without its q8_0 form");
        &self.q8_0
    }

    pub(super) fn q8_k(&self) -> &Q8Row {
        assert!(self.forms.q8_k, "the activation row was made without its q8_k form");
        &self.q8_k
    }
}

impl Q8Row {
    fn set_q8_0(&mut self, x: &[f32]) {
        self.quants.clear();
        self.scales.clear();
        for block in x.chunks_exact(32) {
            let d = max_magnitude(block) / 127.0;
            let id = if d == 0.0 { 0.0 } else { 1.0 / d };
            self.scales.push(f16_to_f32(f32_to_f16(d)));
            self.quants.extend(block.iter().map(|&v| signed_byte(rne(v * id))));
        }
    }

    fn set_q8_k(&mut self, x: &[f32]) {
        self.quants.clear();
        self.scales.clear();
        self.sums.clear();
        for block in x.chunks_exact(super_block::LEN) {
            let m = extreme(block);
            let inverse = if m == 0.0 { 0.0 } else { -127.0 / m };
            self.scales.push(if m == 0.0 { 0.0 } else { 1.0 / inverse });
            self.quants.extend(block.iter().map(|&v| signed_byte(rne(inverse * v))));
        }
        self.sums.extend(
            self.quants
                .chunks_exact(16)
                .map(|group| group.iter().map(|&q| i16::from(q)).sum::<i16>()),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q8_k_takes_the_extreme_to_minus_127() {
        let mut x: Vec<f32> = (0..=255u8).map(|i| f32::from(i % 100) - 50.0).collect();
        x[77] = 63.5;
        let row = Activation::new(&x, Forms { q8_0: false, q8_k: true });
        let q8_k = row.q8_k();
        assert_eq!(q8_k.quants[77], -127);
        assert_eq!(q8_k.scales, [-0.5]);
        assert_eq!(q8_k.quants[0], 100);
        let sums: i16 = q8_k.quants.iter().map(|&q| i16::from(q)).sum();
        assert_eq!(q8_k.sums.iter().sum::<i16>(), sums);
        assert_eq!(q8_k.sums.len(), 16);
    }

    #[test]
    fn halves_round_to_even_and_scales_are_halves() {
        let mut x = [0.0f32; 32];
        x[0] = 127.0;
        x[1] = 2.5;
        x[2] = -3.5;
        let row = Activation::new(&x, Forms::of(TensorType::Q8_0));
        assert_eq!(row.q8_0().quants[..3], [127, 2, -4]);
        x[0] = 1.0;
        let row = Activation::new(&x, Forms::of(TensorType::Q8_0));
        let rounded = f16_to_f32(f32_to_f16(3.5 / 127.0));
        assert_eq!(row.q8_0().scales[0].to_bits(), rounded.to_bits());
    }

    #[test]
    fn zeros_and_reuse() {
        let mut row = Activation::new(&[0.0; 512], Forms { q8_0: true, q8_k: true });
        assert!(row.q8_k().quants.iter().all(|&q| q == 0) && row.q8_k().scales == [0.0, 0.0]);
        row.set(&[1.0; 256]);
        assert_eq!(row.f32().len(), 256);
        assert_eq!((row.q8_0().quants.len(), row.q8_k().sums.len()), (256, 16));
        assert!(row.q8_k().quants.iter().all(|&q| q == -127));
    }

    #[test]
    fn non_finite_values_show_in_the_scale() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [1.0; 256];
            x[33] = bad;
            let row = Activation::new(&x, Forms { q8_0: true, q8_k: true });
            assert!(!row.q8_0().scales[1].is_finite() && row.q8_0().scales[0].is_finite());
            assert!(!row.q8_k().scales[0].is_finite());
        }
    }
}
