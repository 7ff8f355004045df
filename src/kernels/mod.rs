//! GPU kernels, a file for each family: the formula and its shapes, the push constants, which variant a
//! device gets, how it is recorded, the CPU reference, tests.
//!
//! Choosing is a pure function of the shape and the device's `Caps`; no kernel asks the driver or the
//! environment. The shaders are in `shaders/`, in files of the same names.

mod registry;

#[cfg(test)]
pub(crate) mod check;
#[cfg(test)]
mod kv_check;
#[cfg(test)]
mod timing;

pub mod control;
pub mod embed;
pub mod expert;
pub mod head;
pub mod mode;
pub mod moe_down;
pub mod moe_group;
pub mod moe_gu;
pub mod mv_q8;
pub mod norm_cvt;
pub mod router;

pub mod conv;
pub mod copy;
pub mod delta;
pub mod delta_chunk;
pub mod gates;
pub mod head_gate;
pub mod last_row;
pub mod recurrent;
pub mod steer;

pub mod attention;
pub mod checksum;
pub mod cvt;
pub mod flash;
pub mod gemm;
pub mod kv;
pub mod largest;
pub mod layout;
pub mod moe_combine;
pub mod moe_gemm;
pub mod moe_plan;
pub mod rope;
pub mod router_gemm;
pub mod split;

pub use registry::{BUNDLE_HASH, INTERFACES, Interface, MODULES, Module, module};

use crate::vulkan::Caps;

/// Input and output projection of a recurrent layer of the published model, one row.
const RECURRENT_IN: mv_q8::Shape =
    mv_q8::Shape { storage: mv_q8::Storage::Q8, rows: 12_352, k: 2048, batch: 1 };
const RECURRENT_OUT: mv_q8::Shape = mv_q8::Shape { rows: 2048, k: 4096, ..RECURRENT_IN };

/// What a device gets of each kernel at the published model's width, in words, or why it gets nothing.
pub fn chosen(caps: &Caps) -> Vec<(&'static str, Result<String, String>)> {
    vec![
        ("rms_norm", norm_cvt::describe(2048, caps)),
        ("norm_cvt", cvt::describe(2048, caps)),
        ("gemm", gemm::describe(PREFILL_IN, caps)),
        ("moe_gemm", moe_gemm::describe(&EXPERT_BLOCK, PREFILL_IN.tokens, caps)),
        ("router_shared", router::describe(&EXPERT_BLOCK, caps)),
        ("moe_gu", moe_gu::describe(&EXPERT_BLOCK, caps)),
        ("moe_down", moe_down::describe(&EXPERT_BLOCK, caps)),
        ("rec_core", recurrent::describe(recurrent::Heads { key: 16, value: 32 }, caps)),
        ("delta_seq", delta::describe(recurrent::Heads { key: 16, value: 32 }, caps)),
        ("attn_split", attention::describe(&ATTENTION, caps)),
        ("flash", flash::describe(&ATTENTION, caps)),
        ("mv_q8", mv_q8::describe(mv_q8::Form::Recurrent, RECURRENT_IN, caps)),
        ("mv_q8_residual", mv_q8::describe(mv_q8::Form::Residual, RECURRENT_OUT, caps)),
    ]
}

/// The published model's, with the types of K and V that are the default.
const ATTENTION: rope::AttentionShape = rope::AttentionShape {
    heads: 16,
    rope_dims: 64,
    eps: 1e-6,
    kv: kv::KvLayout { keys: kv::KvType::Q8_0, values: kv::KvType::Q4_0, kv_heads: 2 },
};

/// The published model's largest product, for a full chunk.
const PREFILL_IN: gemm::Shape = gemm::Shape { rows: 12_352, k: 2048, tokens: 2048 };

/// The published model's.
const EXPERT_BLOCK: expert::Sizes =
    expert::Sizes { hidden: 2048, experts: 256, used: 8, expert_ffn: 512, shared_ffn: 512 };
