//! Block formats on the CPU: exact decoding, quantizers, integer dot products (model.md 5).
//!
//! Layouts, codebooks and quantizer rules are GGML's (MIT licence, Copyright (c) 2023-2026 The ggml
//! authors); the code is this project's. Nothing here knows of files, models or threads.

mod error;
mod format;

mod plain;
mod round;

mod fit;
mod k_fit;

mod iq2_grid;
mod iq2_search;
mod iq2_xxs;
mod q2_k;
mod q4_0;
mod q4_k;
mod q5_k;
mod q6_k;
mod q8_0;
mod super_block;

mod activation;
mod convert;

mod dot;
mod isa;
mod scalar;
mod simd;

pub use activation::{Activation, Forms};
pub use convert::{dequantize, is_supported, quantize, quantize_kv};
pub use dot::{axpy, axpy_kv, dot_f32, dot_kv, matmul, matvec};
pub use error::Error;
pub use format::TensorType;
pub use iq2_grid::GRID as IQ2_XXS_GRID;
pub use isa::{Isa, isa, select_isa};
pub use plain::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
