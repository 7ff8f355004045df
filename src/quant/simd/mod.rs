//! Vector kernels, bit-equal to [`scalar`](super::scalar). The only unsafe code of the module: what
//! touches instructions is in `x86` and `neon`, the kernels are written once over [`machine`].
#![expect(unsafe_code, reason = "vector instructions; each machine's token proves that they exist")]
#![expect(
    clippy::inline_always,
    reason = "kernels must end up inside the one function compiled for the machine"
)]

mod machine;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(target_arch = "x86_64")]
mod x86_iq2;
#[cfg(target_arch = "x86_64")]
mod x86_wide;

mod floats;
mod formats;
mod lanes;
mod panel;
mod products;
mod rows;

mod dispatch;

pub(super) use dispatch::{Matrix, add_decoded, dot_decoded, has, matmul, matvec};
