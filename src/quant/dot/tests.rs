//! Every instruction set against the scalar definition, bit by bit, and that against exact sums.

use proptest::prelude::*;

use super::*;
use crate::quant::{Forms, dequantize, f32_to_f16, is_supported, quantize_kv};

const KV_TYPES: [TensorType; 3] = [TensorType::F16, TensorType::Q8_0, TensorType::Q4_0];

/// Numbers from a seed: a fast way to large inputs that still print as one number.
struct Noise(crate::util::rng::Rng);

impl Noise {
    fn new(seed: u64) -> Self {
        Self(crate::util::rng::Rng::new(seed))
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.0.next_u64().to_be_bytes()[0]).collect()
    }

    /// A finite half, of any exponent; often zero or subnormal.
    fn half(&mut self) -> u16 {
        let bits = u16::from_be_bytes([self.bytes(1)[0], self.bytes(1)[0]]);
        match bits & 7 {
            0 => bits & 0x8000,
            1 => bits & 0x83FF,
            _ if bits & 0x7C00 == 0x7C00 => bits & 0x8000 | 0x7BFF,
            _ => bits,
        }
    }

    /// Activations of mixed magnitude, sometimes all zero.
    fn activation(&mut self, n: usize) -> Vec<f32> {
        let scale = [0.0, 1e-30, 1e-3, 1.0, 1.0, 1.0, 300.0, 1e9]
            [usize::try_from(self.0.next_u64() >> 61).unwrap()];
        (0..n)
            .map(|_| {
                let spike = if self.0.next_u64() >> 58 == 0 { 30.0 } else { 1.0 };
                (self.0.unit_f32() - 0.5) * scale * spike
            })
            .collect()
    }

    /// Rows of every byte pattern, with finite scales.
    fn rows(&mut self, ty: TensorType, rows: usize, cols: usize) -> Vec<u8> {
        let mut w = self.bytes(rows * ty.row_bytes(cols).unwrap());
        for block in w.chunks_exact_mut(ty.block_bytes()) {
            for &at in halves_of(ty) {
                block[at..at + 2].copy_from_slice(&self.half().to_le_bytes());
            }
            // Floats of any sign and mantissa from 2^-31 to 2, or below 2^-125.
            if matches!(ty, TensorType::F32 | TensorType::BF16) {
                let top = block.last_mut().unwrap();
                *top = if *top % 8 == 0 { *top & 0x80 } else { *top & 0x8F | 0x30 };
            }
        }
        w
    }
}

/// Where blocks of a type have f16 scales (or values).
fn halves_of(ty: TensorType) -> &'static [usize] {
    let (zero, both, end, q6_k) = (&[0][..], &[0, 2][..], &[80, 82][..], &[208][..]);
    let known = [
        (TensorType::F16, zero),
        (TensorType::Q8_0, zero),
        (TensorType::Q4_0, zero),
        (TensorType::IQ2_XXS, zero),
        (TensorType::Q4_K, both),
        (TensorType::Q5_K, both),
        (TensorType::Q2_K, end),
        (TensorType::Q6_K, q6_k),
    ];
    known.into_iter().find(|known| known.0 == ty).map_or(&[], |known| known.1)
}

fn weight_types() -> impl Iterator<Item = TensorType> {
    TensorType::all().filter(|&ty| is_supported(ty))
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

/// Columns for a type: `unit` blocks of 256, plus an odd tail for types without blocks.
fn columns(ty: TensorType, unit: usize) -> usize {
    match ty.block_len() {
        1 => 256 * unit - 37,
        32 => 256 * unit - 96,
        _ => 256 * unit,
    }
}

fn check_products(ty: TensorType, rows: usize, unit: usize, tokens: usize, seed: u64) {
    let mut noise = Noise::new(seed);
    let cols = columns(ty, unit);
    let w = noise.rows(ty, rows, cols);
    let xs: Vec<_> =
        (0..tokens).map(|_| Activation::new(&noise.activation(cols), Forms::of(ty))).collect();
    let xs: Vec<_> = xs.iter().collect();
    let mut expected = vec![0.0; rows * tokens];
    matmul_on(Isa::Scalar, ty, &w, cols, &xs, &mut expected);
    for isa in Isa::available() {
        let mut out = vec![f32::NAN; rows * tokens];
        matmul_on(isa, ty, &w, cols, &xs, &mut out);
        assert_eq!(bits(&out), bits(&expected), "{ty} {rows} x {cols} x {tokens} matmul on {isa}");
        for (t, x) in xs.iter().enumerate() {
            let mut out = vec![f32::NAN; rows];
            matvec_on(isa, ty, &w, cols, x, &mut out);
            let expected: Vec<f32> = expected.iter().skip(t).step_by(tokens).copied().collect();
            assert_eq!(bits(&out), bits(&expected), "{ty} {rows} x {cols} matvec on {isa}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn products_have_the_bits_of_the_definition(
        rows in 1usize..20, unit in 1usize..4, tokens in 1usize..44, seed: u64,
    ) {
        for ty in weight_types() {
            check_products(ty, rows, unit, tokens, seed);
        }
    }

    #[test]
    fn vector_operations_have_the_bits_of_the_definition(n in 0usize..300, seed: u64) {
        let mut noise = Noise::new(seed);
        let (a, b, c) = (noise.activation(n), noise.activation(n), noise.activation(n));
        let dot = dot_f32_on(Isa::Scalar, &a, &b);
        let mut sum = c.clone();
        axpy_on(Isa::Scalar, 0.37, &a, &mut sum);
        for isa in Isa::available() {
            prop_assert_eq!(dot_f32_on(isa, &a, &b).to_bits(), dot.to_bits(), "{}", isa);
            let mut out = c.clone();
            axpy_on(isa, 0.37, &a, &mut out);
            prop_assert_eq!(bits(&out), bits(&sum), "{}", isa);
        }
    }

    #[test]
    fn cache_rows_have_the_bits_of_the_definition(blocks in 1usize..12, seed: u64) {
        let mut noise = Noise::new(seed);
        for ty in KV_TYPES {
            let n = 32 * blocks + if ty == TensorType::F16 { blocks } else { 0 };
            let row = noise.rows(ty, 1, n);
            let q = noise.activation(n);
            let mut decoded = vec![0.0; n];
            dequantize(ty, &row, &mut decoded);
            let dot = dot_f32_on(Isa::Scalar, &decoded, &q);
            let mut sum = q.clone();
            axpy_on(Isa::Scalar, -1.7, &decoded, &mut sum);
            for isa in Isa::available() {
                prop_assert_eq!(dot_kv_on(isa, ty, &row, &q).to_bits(), dot.to_bits());
                let mut out = q.clone();
                axpy_kv_on(isa, ty, -1.7, &row, &mut out);
                prop_assert_eq!(bits(&out), bits(&sum));
            }
        }
    }

    #[test]
    fn products_are_the_sum_of_decoded_products(seed: u64) {
        let mut noise = Noise::new(seed);
        for ty in weight_types() {
            let cols = columns(ty, 8);
            let row = noise.rows(ty, 1, cols);
            let x: Vec<f32> = noise.activation(cols).iter().map(|v| v.clamp(-1e3, 1e3)).collect();
            let x = Activation::new(&x, Forms::of(ty));
            let mut w = vec![0.0; cols];
            dequantize(ty, &row, &mut w);
            let terms = w.iter().zip(decoded(ty, &x)).map(|(&w, x)| f64::from(w) * x);
            let (mut exact, mut size) = (0.0, 0.0);
            for term in terms {
                exact += term;
                size += term.abs();
            }
            let mut out = [0.0];
            matvec(ty, &row, cols, &x, &mut out);
            let error = (f64::from(out[0]) - exact).abs();
            // Minima enter as products of their own: what they cancel counts too.
            let bound = if Forms::of(ty).q8_k { 2e-5 } else { 1e-5 };
            prop_assert!(error <= bound * size + 1e-30, "{}: {} of {}", ty, error, size);
        }
    }
}

/// The values that weights of `ty` really meet.
fn decoded(ty: TensorType, x: &Activation) -> Vec<f64> {
    let (row, block) = match Forms::of(ty) {
        Forms { q8_0: true, .. } => (x.q8_0(), 32),
        Forms { q8_k: true, .. } => (x.q8_k(), 256),
        _ => return x.f32().iter().map(|&v| f64::from(v)).collect(),
    };
    let value = |(i, &q): (usize, &i8)| f64::from(q) * f64::from(row.scales[i / block]);
    row.quants.iter().enumerate().map(value).collect()
}

#[test]
fn single_rows_and_awkward_counts_of_activations() {
    for ty in weight_types() {
        for tokens in [1, 2, 3, 4, 5, 7, 8, 9, 16, 17] {
            check_products(ty, 1, 1, tokens, 7);
            check_products(ty, 17, 2, tokens, 8);
        }
    }
}

#[test]
fn extreme_quants_do_not_saturate() {
    for ty in weight_types() {
        for pattern in [0x00, 0x7F, 0x80, 0xFF, 0x55, 0xAA] {
            let cols = 512;
            let mut w = vec![pattern; ty.row_bytes(cols).unwrap()];
            let one = f32_to_f16(1.0).to_le_bytes();
            if halves_of(ty).is_empty() || ty == TensorType::F16 {
                continue;
            }
            for block in w.chunks_exact_mut(ty.block_bytes()) {
                for &at in halves_of(ty) {
                    block[at..at + 2].copy_from_slice(&one);
                }
            }
            for sign in [1.0, -1.0] {
                let x = vec![sign; cols];
                let x = Activation::new(&x, Forms::of(ty));
                let xs = vec![&x; 9];
                let mut expected = vec![0.0; 9];
                matmul_on(Isa::Scalar, ty, &w, cols, &xs, &mut expected);
                for isa in Isa::available() {
                    let mut out = vec![0.0; 9];
                    matmul_on(isa, ty, &w, cols, &xs, &mut out);
                    assert_eq!(bits(&out), bits(&expected), "{ty} {pattern:02x} {isa}");
                    matvec_on(isa, ty, &w, cols, &x, &mut out[..1]);
                    assert_eq!(bits(&out), bits(&expected), "{ty} {pattern:02x} {isa}");
                }
            }
        }
    }
}

#[test]
fn non_finite_activations_reach_the_result() {
    for ty in weight_types() {
        let w = Noise::new(3).rows(ty, 1, 256);
        for bad in [f32::NAN, f32::INFINITY] {
            let mut x = [1.0; 256];
            x[100] = bad;
            let x = Activation::new(&x, Forms::of(ty));
            for isa in Isa::available() {
                let mut out = [0.0];
                matvec_on(isa, ty, &w, 256, &x, &mut out);
                assert!(!out[0].is_finite(), "{ty} on {isa} with {bad}");
            }
        }
    }
}

#[test]
fn stored_rows_give_back_what_was_put_in() {
    let x: Vec<f32> = (0..256u16).map(|i| (f32::from(i) * 0.37).sin()).collect();
    for (ty, bound) in [(TensorType::F16, 5e-4), (TensorType::Q8_0, 5e-3), (TensorType::Q4_0, 0.13)]
    {
        let mut row = vec![0; ty.row_bytes(x.len()).unwrap()];
        quantize_kv(ty, &x, &mut row);
        for i in 0..x.len() {
            let mut unit = vec![0.0; x.len()];
            unit[i] = 1.0;
            assert!((dot_kv(ty, &row, &unit) - x[i]).abs() <= bound, "{ty} value {i}");
        }
    }
}
