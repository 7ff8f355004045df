//! From an instruction set and a storage type to a compiled kernel.

use std::sync::LazyLock;

use super::floats::{AddDecoded, Bf16, Decode, DecodedRows, DotDecoded, F16, F32, Q4_0, Q8_0};
use super::formats::{Format, Iq2Xxs, Q2K, Q4K, Q5K, Q6K};
use super::machine::{Kernel, Machine as _};
#[cfg(target_arch = "aarch64")]
use super::neon::Neon;
use super::products::{self, Family, Products};
use super::rows::{self, RowFormat, Rows};
#[cfg(target_arch = "x86_64")]
use super::x86::{Avx2, Avx512Vbmi, Avx512Vnni, AvxVnni};
use crate::quant::activation::{Activation, Q8Row};
use crate::quant::{Isa, TensorType};

/// Weight rows stored one after the other.
#[derive(Clone, Copy)]
pub(in crate::quant) struct Matrix<'a> {
    pub(in crate::quant) ty: TensorType,
    pub(in crate::quant) bytes: &'a [u8],
    pub(in crate::quant) row_bytes: usize,
}

/// The machines there are. Detection is cheap, but not beside a row of 256 values.
struct Machines {
    #[cfg(target_arch = "x86_64")]
    avx2: Option<Avx2>,
    #[cfg(target_arch = "x86_64")]
    avx_vnni: Option<AvxVnni>,
    #[cfg(target_arch = "x86_64")]
    avx512_vnni: Option<Avx512Vnni>,
    #[cfg(target_arch = "x86_64")]
    avx512_vbmi: Option<Avx512Vbmi>,
    #[cfg(target_arch = "aarch64")]
    neon: Option<Neon>,
}

static MACHINES: LazyLock<Machines> = LazyLock::new(|| Machines {
    #[cfg(target_arch = "x86_64")]
    avx2: Avx2::detect(),
    #[cfg(target_arch = "x86_64")]
    avx_vnni: AvxVnni::detect(),
    #[cfg(target_arch = "x86_64")]
    avx512_vnni: Avx512Vnni::detect(),
    #[cfg(target_arch = "x86_64")]
    avx512_vbmi: Avx512Vbmi::detect(),
    #[cfg(target_arch = "aarch64")]
    neon: Neon::detect(),
});

/// Whether this machine has the instructions of `isa` and there are kernels for it.
pub(in crate::quant) fn has(isa: Isa) -> bool {
    match isa {
        Isa::Scalar => true,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => MACHINES.avx2.is_some(),
        #[cfg(target_arch = "x86_64")]
        Isa::AvxVnni => MACHINES.avx_vnni.is_some(),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Vnni => MACHINES.avx512_vnni.is_some(),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Vbmi => MACHINES.avx512_vbmi.is_some(),
        #[cfg(target_arch = "x86_64")]
        Isa::Neon => false,
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => MACHINES.neon.is_some(),
        #[cfg(not(target_arch = "x86_64"))]
        _ => false,
    }
}

/// Runs `kernel` with the instructions of `isa`, which is available and not scalar.
fn run<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    const AVAILABLE: &str = "an instruction set is selected only where it exists";
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => MACHINES.avx2.expect(AVAILABLE).enter(kernel),
        #[cfg(target_arch = "x86_64")]
        Isa::AvxVnni => MACHINES.avx_vnni.expect(AVAILABLE).enter(kernel),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Vnni => MACHINES.avx512_vnni.expect(AVAILABLE).enter(kernel),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Vbmi => MACHINES.avx512_vbmi.expect(AVAILABLE).enter(kernel),
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => MACHINES.neon.expect(AVAILABLE).enter(kernel),
        _ => panic!("{isa} has no vector kernels"),
    }
}

/// `out[r] = w[r] · x`.
pub(in crate::quant) fn matvec(isa: Isa, w: Matrix<'_>, x: &Activation, out: &mut [f32]) {
    matmul(isa, w, &[x], out);
}

/// `out[r * xs.len() + t] = w[r] · xs[t]`.
pub(in crate::quant) fn matmul(isa: Isa, w: Matrix<'_>, xs: &[&Activation], out: &mut [f32]) {
    let q8_k = || xs.iter().map(|x| x.q8_k()).collect::<Vec<_>>();
    match w.ty {
        TensorType::Q8_0 => {
            let xs: Vec<_> = xs.iter().map(|x| x.q8_0()).collect();
            quantized(isa, (rows::Q8_0, products::Q8_0), w, &xs, out);
        }
        TensorType::Q2_K => super_blocks(isa, Q2K, w, &q8_k(), out),
        TensorType::Q4_K => super_blocks(isa, Q4K, w, &q8_k(), out),
        TensorType::Q5_K => super_blocks(isa, Q5K, w, &q8_k(), out),
        TensorType::Q6_K => super_blocks(isa, Q6K, w, &q8_k(), out),
        TensorType::IQ2_XXS => super_blocks(isa, Iq2Xxs, w, &q8_k(), out),
        TensorType::F32 | TensorType::F16 | TensorType::BF16 | TensorType::Q4_0 => {
            let (pairs, last) = xs.as_chunks::<2>();
            for (i, [a, b]) in pairs.iter().enumerate() {
                decoded_rows(isa, w, [a.f32(), b.f32()], &mut out[2 * i..], xs.len());
            }
            if let [x] = last {
                decoded_rows(isa, w, [x.f32()], &mut out[xs.len() - 1..], xs.len());
            }
        }
        TensorType::I32 | TensorType::Q8_K | TensorType::IQ2_S | TensorType::IQ3_S => {
            panic!("no products with {}", w.ty)
        }
    }
}

fn super_blocks<F: Format>(isa: Isa, f: F, w: Matrix<'_>, xs: &[&Q8Row], out: &mut [f32]) {
    quantized(isa, (rows::Super(f), products::Super(f)), w, xs, out);
}

/// Few activations are multiplied while a row is taken apart; for more it pays to store what comes out.
fn quantized<R: RowFormat, F: Family>(
    isa: Isa,
    (format, family): (R, F),
    w: Matrix<'_>,
    xs: &[&Q8Row],
    out: &mut [f32],
) {
    let Matrix { bytes: w, row_bytes, .. } = w;
    match *xs {
        [x] => run(isa, Rows { format, w, row_bytes, xs: [x], out }),
        [a, b] => run(isa, Rows { format, w, row_bytes, xs: [a, b], out }),
        [a, b, c] => run(isa, Rows { format, w, row_bytes, xs: [a, b, c], out }),
        _ => run(isa, Products { family, w, row_bytes, xs, out }),
    }
}

/// Rows in a format decoded to f32 times `T` vectors, results `stride` apart.
fn decoded_rows<const T: usize>(
    isa: Isa,
    w: Matrix<'_>,
    xs: [&[f32]; T],
    out: &mut [f32],
    stride: usize,
) {
    struct Decoded<'a, const T: usize> {
        w: Matrix<'a>,
        xs: [&'a [f32]; T],
        out: &'a mut [f32],
        stride: usize,
    }
    impl<const T: usize> WithDecode for Decoded<'_, T> {
        type Output = ();
        fn with<D: Decode>(self, isa: Isa, format: D) {
            let Self { w: Matrix { bytes: w, row_bytes, .. }, xs, out, stride } = self;
            run(isa, DecodedRows { format, w, row_bytes, xs, out, stride });
        }
    }
    with_decode(isa, w.ty, Decoded { w, xs, out, stride });
}

/// `row · x` for a row in a format decoded to f32.
pub(in crate::quant) fn dot_decoded(isa: Isa, ty: TensorType, row: &[u8], x: &[f32]) -> f32 {
    struct Dot<'a> {
        row: &'a [u8],
        x: &'a [f32],
    }
    impl WithDecode for Dot<'_> {
        type Output = f32;
        fn with<D: Decode>(self, isa: Isa, format: D) -> f32 {
            run(isa, DotDecoded { format, row: self.row, x: self.x })
        }
    }
    with_decode(isa, ty, Dot { row, x })
}

/// `y += a row` for a row in a format decoded to f32.
pub(in crate::quant) fn add_decoded(isa: Isa, ty: TensorType, a: f32, row: &[u8], y: &mut [f32]) {
    struct Add<'a> {
        a: f32,
        row: &'a [u8],
        y: &'a mut [f32],
    }
    impl WithDecode for Add<'_> {
        type Output = ();
        fn with<D: Decode>(self, isa: Isa, format: D) {
            run(isa, AddDecoded { format, a: self.a, row: self.row, y: self.y });
        }
    }
    with_decode(isa, ty, Add { a, row, y });
}

/// Something to do once the format is known.
trait WithDecode {
    type Output;
    fn with<D: Decode>(self, isa: Isa, format: D) -> Self::Output;
}

fn with_decode<W: WithDecode>(isa: Isa, ty: TensorType, then: W) -> W::Output {
    match ty {
        TensorType::F32 => then.with(isa, F32),
        TensorType::F16 => then.with(isa, F16),
        TensorType::BF16 => then.with(isa, Bf16),
        TensorType::Q8_0 => then.with(isa, Q8_0),
        TensorType::Q4_0 => then.with(isa, Q4_0),
        TensorType::I32
        | TensorType::Q2_K
        | TensorType::Q4_K
        | TensorType::Q5_K
        | TensorType::Q6_K
        | TensorType::Q8_K
        | TensorType::IQ2_XXS
        | TensorType::IQ2_S
        | TensorType::IQ3_S => panic!("rows of {ty} are not multiplied in f32"),
    }
}
