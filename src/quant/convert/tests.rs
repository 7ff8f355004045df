//! Decoders and quantizers against the digests of model.md 5.15, and their limits.

use proptest::prelude::*;

use super::*;
use crate::util::hex;

fn little_endian(x: &[f32]) -> Vec<u8> {
    x.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// One block of `73 i + 41`, with d = 0.125 and dmin = 0.0625 at the given offsets.
fn check_decoder(ty: TensorType, d: usize, dmin: Option<usize>, first: [f32; 3], digest: &str) {
    let mut block: Vec<u8> =
        (0..ty.block_bytes()).map(|i| u8::try_from((73 * i + 41) % 256).unwrap()).collect();
    block[d..d + 2].copy_from_slice(&f32_to_f16(0.125).to_le_bytes());
    if let Some(at) = dmin {
        block[at..at + 2].copy_from_slice(&f32_to_f16(0.0625).to_le_bytes());
    }
    let mut x = vec![0.0; ty.block_len()];
    dequantize(ty, &block, &mut x);
    assert_eq!(x[..3], first, "{ty}");
    assert_eq!(hex::sha256(&little_endian(&x)), digest, "{ty}");
}

#[test]
fn decoders_match_their_digests() {
    use TensorType::{IQ2_XXS, Q2_K, Q4_0, Q4_K, Q5_K, Q6_K, Q8_0};
    for (ty, d, dmin, first, digest) in [
        (
            Q8_0,
            0,
            None,
            [-8.625, 0.5, 9.625],
            "4a3080263b74b0f2163c7774b95d71d149f211477eb8d99ad70aa0c1dafc8558",
        ),
        (
            Q4_0,
            0,
            None,
            [0.375, -0.5, 0.625],
            "19748385f7caa2a8c323b3730f24dabfd3696dcd8640b06b1036e8061dd9fc6e",
        ),
        (
            Q2_K,
            80,
            Some(82),
            [1.0, 2.125, 3.25],
            "774f9c413c8245d6c479141ad4a00c842f18ec714a7b859d1d2623a2acb88699",
        ),
        (
            Q4_K,
            0,
            Some(2),
            [11.5625, 0.1875, 14.8125],
            "4cbc843055c9fb12eef9ffa428a8398f8787286832e7d20bd1bd4c2c269b43b5",
        ),
        (
            IQ2_XXS,
            0,
            None,
            [-15.453_125, -15.453_125, -2.875],
            "5abbd5f11f5c829e80b3a8a5779f0d08e14e86a0b2fbca93928529e2353d4be9",
        ),
        (
            Q5_K,
            0,
            Some(2),
            [37.5625, 0.1875, 40.8125],
            "0d613ea846841767b13ddc005440a6cec1dc24d9324ea859fe011e5adabb6de6",
        ),
        (
            Q6_K,
            208,
            None,
            [20.125, -5.75, -77.625],
            "b4a7fd65d06c96b64ddb9926f06ca5619c9fb9aa0066c71d26cd14943e8dca95",
        ),
    ] {
        check_decoder(ty, d, dmin, first, digest);
    }
}

/// The row of 1024 values and importances of model.md 5.15.
fn vectors() -> (Vec<f32>, Vec<f32>) {
    let mut s = 1u32;
    let mut u = || {
        s = s.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (s >> 8) as f32 / 16_777_216.0
    };
    let x = (0..1024).map(|_| (((u() + u()) + u()) - 1.5) * 0.0625).collect();
    let w = (0..1024).map(|_| u() + 0.125).collect();
    (x, w)
}

fn check_quantizer(ty: TensorType, weighted: bool, digest: &str, relative_rms: f64) {
    let (x, w) = vectors();
    let mut bytes = vec![0; ty.row_bytes(x.len()).unwrap()];
    quantize(ty, &x, weighted.then_some(&w[..]), &mut bytes).unwrap();
    let mut back = vec![0.0; x.len()];
    dequantize(ty, &bytes, &mut back);
    let square = |v: f64| v * v;
    let error: f64 = x.iter().zip(&back).map(|(a, b)| square(f64::from(a - b))).sum();
    let power: f64 = x.iter().map(|&a| square(f64::from(a))).sum();
    let rms = (error / power).sqrt();
    assert!(rms < 1.01 * relative_rms, "{ty}: relative error {rms}");
    assert_eq!(hex::sha256(&bytes), digest, "{ty}, weighted: {weighted}, error {rms}");
}

#[test]
fn the_test_row_is_the_published_one() {
    let (x, w) = vectors();
    for (values, digest) in [
        (x, "b4d1b3080ef7830d152e45e5f882eca0ba8ccd21d42e2da76ce6e56168bb8b8f"),
        (w, "3db06b89f4f6d9972d29a35693448ffa99d055e9701bbe710f09221f29a2842d"),
    ] {
        assert_eq!(hex::sha256(&little_endian(&values)), digest);
    }
}

#[test]
fn q8_0_matches_its_digest() {
    let digest = "3d770263831ad8ac192d8b1f648ac5bdee9e35fe371bd138e194435238f9c098";
    check_quantizer(TensorType::Q8_0, false, digest, 0.0050);
    check_quantizer(TensorType::Q8_0, true, digest, 0.0050);
}

#[test]
fn q4_0_matches_its_digest() {
    let digest = "716c04cc2d37239deb0abdb6aa5c667712e8dedc411f04cf5e27a99e8620fa68";
    check_quantizer(TensorType::Q4_0, false, digest, 0.0792);
}

#[test]
fn q4_k_matches_its_digests() {
    let digest = "ea1e66edb8dff8e0a1a526e0a73cd5e5736129dd2332f076ef8a607e04d8cc02";
    check_quantizer(TensorType::Q4_K, true, digest, 0.0685);
    let digest = "22d0d15259dbc97fd582b401d9d3f6101804e4a4dc61076e73fa43d5a07db68a";
    check_quantizer(TensorType::Q4_K, false, digest, 0.0682);
}

#[test]
fn q2_k_matches_its_digests() {
    let digest = "9e58f8b08c28b44d6356c2a314daea92352df3427d4de2b058c507e207fa6499";
    check_quantizer(TensorType::Q2_K, true, digest, 0.269);
    let digest = "89322a9147dac2d15fc41e1b33826604e0020ad0efaf92710e3149ba5c928787";
    check_quantizer(TensorType::Q2_K, false, digest, 0.295);
}

#[test]
fn iq2_xxs_matches_its_digest() {
    let digest = "de2b0a8c5204eff23fbd2311aac65379dae54c9985625aa954bc3a757234715d";
    check_quantizer(TensorType::IQ2_XXS, true, digest, 0.347);
}

#[test]
fn q4_0_packs_the_golden_bytes() {
    let x: Vec<f32> = (-16i8..16).map(f32::from).collect();
    let mut block = [0; 18];
    quantize_kv(TensorType::Q4_0, &x, &mut block);
    assert_eq!(block[..2], 0x4000u16.to_le_bytes());
    for (j, &b) in block[2..].iter().enumerate() {
        let q = |v: f32| (v / 2.0 + 8.5).floor().min(15.0);
        assert_eq!((f32::from(b & 15), f32::from(b >> 4)), (q(x[j]), q(x[j + 16])), "byte {j}");
    }
}

#[test]
fn weights_round_halves_away_and_cache_rows_to_even() {
    let mut x = [0.0; 32];
    (x[0], x[1], x[2]) = (127.0, 2.5, -4.5);
    let mut block = [0; 34];
    quantize(TensorType::Q8_0, &x, None, &mut block).unwrap();
    assert_eq!(block[2..5].iter().map(|b| b.cast_signed()).collect::<Vec<_>>(), [127, 3, -5]);
    quantize_kv(TensorType::Q8_0, &x, &mut block);
    assert_eq!(block[2..5].iter().map(|b| b.cast_signed()).collect::<Vec<_>>(), [127, 2, -4]);
}

/// Errors of a row after a round trip, in units of its largest magnitude: the largest, and the root mean square.
fn round_trip_errors(ty: TensorType, x: &[f32], importance: Option<&[f32]>) -> [f32; 2] {
    let mut bytes = vec![0; ty.row_bytes(x.len()).unwrap()];
    quantize(ty, x, importance, &mut bytes).unwrap();
    let mut back = vec![0.0; x.len()];
    dequantize(ty, &bytes, &mut back);
    let largest = x.iter().fold(f32::MIN_POSITIVE, |m: f32, v| m.max(v.abs()));
    let errors = || x.iter().zip(&back).map(|(a, b)| (a - b).abs() / largest);
    let squares: f32 = errors().map(|e| e * e).sum();
    [errors().fold(0.0, f32::max), (squares / x.len() as f32).sqrt()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Where every value is rounded by itself the largest error is half a step, and what rounding the scale to f16
    // adds. The searches minimise a weighted sum of squares instead and may give up single values, so there the
    // bound is on the root mean square: it starts at half a step (a third of the largest magnitude in Q2_K, a
    // fifteenth in Q4_K), times at most 2^(1/4) since the weights' mean is at most sqrt(2) times their least, plus
    // half a step of scales and minima of 4 or 6 bits. IQ2_XXS is only known to beat a row of zeros.
    #[test]
    fn round_trips_stay_within_their_formats(
        x in prop::collection::vec(-1.0f32..1.0, 256), scale in 1e-3f32..1e3,
    ) {
        let x: Vec<f32> = x.iter().map(|v| v * scale).collect();
        let even = [1.0; 256];
        for (ty, largest, rms) in [
            (TensorType::F32, 0.0, 0.0),
            (TensorType::F16, 1e-3, 1e-3),
            (TensorType::BF16, 4e-3, 4e-3),
            (TensorType::Q8_0, 0.0045, 0.0045),
            (TensorType::Q4_0, 0.13, 0.13),
            (TensorType::Q4_K, f32::MAX, 0.12),
            (TensorType::Q2_K, f32::MAX, 0.52),
        ] {
            for importance in [None, Some(&even[..])] {
                let errors = round_trip_errors(ty, &x, importance);
                prop_assert!(errors[0] <= largest && errors[1] <= rms, "{}: {:?}", ty, errors);
            }
        }
        let errors = round_trip_errors(TensorType::IQ2_XXS, &x, Some(&even));
        prop_assert!(errors[1] <= 1.2, "iq2_xxs: {:?}", errors);
    }
}

#[test]
fn zeros_stay_zeros_in_every_format() {
    let formats = [TensorType::Q8_0, TensorType::Q4_0, TensorType::Q2_K, TensorType::Q4_K];
    for ty in formats.into_iter().chain([TensorType::IQ2_XXS]) {
        let mut bytes = vec![0xff; ty.row_bytes(256).unwrap()];
        let mut back = [f32::NAN; 256];
        quantize(ty, &[0.0; 256], Some(&[1.0; 256]), &mut bytes).unwrap();
        dequantize(ty, &bytes, &mut back);
        assert!(back.iter().all(|&v| v == 0.0), "{ty}");
    }
}

#[test]
fn rows_that_cannot_be_quantized_say_why() {
    let ok = [1.0; 256];
    let check = |ty, x: &[f32], w: Option<&[f32]>, message: &str| {
        let error = quantize(ty, x, w, &mut [0; 1024][..0]).unwrap_err();
        assert_eq!(error.to_string(), message);
    };
    check(
        TensorType::Q4_K,
        &ok[..32],
        None,
        "a row of 32 values is not a whole number of q4_k blocks",
    );
    check(TensorType::IQ2_XXS, &ok, None, "iq2_xxs needs an importance matrix");
    check(TensorType::Q4_K, &ok, Some(&ok[1..]), "255 importances for 256 values");
    check(TensorType::Q8_0, &[f32::NAN; 32], None, "value 0 is NaN");
    check(TensorType::Q2_K, &ok, Some(&[-1.0; 256]), "importance 0 is -1");
}
