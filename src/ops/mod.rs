//! The mathematics on plain slices: one function for each formula of model.md 3 and 4.
//!
//! This is the only copy. The CPU backend computes with it, and every GPU kernel is tested against it.
//! Nothing here knows tensors, threads, slots or positions of a session.
//!
//! Bits: every function uses only additions, multiplications, divisions and square roots of f32 (or f64 where
//! noted) in an order that depends on nothing but the lengths of its arguments, without fused multiply-add,
//! and its own exponential. So one input gives the same bits on every instruction set. Dot products of long
//! rows come from [`crate::quant`], which promises the same.

mod attention;
mod conv;
mod delta;
mod exp;
mod norm;
mod rope;
mod router;
mod steer;
mod swiglu;

pub use attention::{Partial, attend, gate_output};
pub use conv::conv_silu;
pub use delta::{Chunk, Token, chunked, log_decay, step};
pub use exp::exp;
pub use norm::{gated_rms_norm, l2_norm, rms_norm, rms_norm_mut, sum_squares};
pub use rope::RopeTable;
pub use router::{TooFewFinite, add_weighted, route};
pub use steer::{Steering, SteeringError, steer};
pub use swiglu::{sigmoid, silu, softplus, swiglu_mut};
