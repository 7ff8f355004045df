//! The one table of compiled shaders, read by `build.rs` (what to compile) and by `src/kernels` (what
//! must be there). `shaders/README.md` says how to declare one.

/// One SPIR-V module: a source file and the macros it is compiled with. The entry point of GLSL is
/// always `main`.
pub struct Variant {
    /// Name of the module in the binary; unique.
    pub name: &'static str,
    /// Source below `shaders/`.
    pub file: &'static str,
    /// Macros, with their values.
    pub defines: &'static [(&'static str, &'static str)],
    /// The probe that must compile for this variant to be embedded.
    pub needs: Option<&'static str>,
}

/// A compiler ability: a test shader below `shaders/` that uses one GLSL extension. The bundled
/// compiler must pass every probe; with another one, variants that need a failed probe are left out and
/// the program does without them.
pub struct Probe {
    /// What variants call it in `needs`.
    pub name: &'static str,
    /// The test shader.
    pub file: &'static str,
    /// Whether a failure stops the build. `false` only where the bundled compiler is itself too old.
    pub required: bool,
}

/// Every probe.
pub const PROBES: &[Probe] = &[
    Probe { name: "coopmat", file: "probe/coopmat.comp", required: true },
    Probe { name: "coopmat2", file: "probe/coopmat2.comp", required: true },
    Probe { name: "int_dot", file: "probe/int_dot.comp", required: true },
];

/// Every module.
pub const VARIANTS: &[Variant] = &[
    Variant { name: "checksum", file: "small/checksum.comp", defines: &[], needs: None },
    Variant { name: "split", file: "small/split.comp", defines: &[], needs: None },
    Variant { name: "largest", file: "small/largest.comp", defines: &[], needs: None },
    Variant { name: "rms_norm", file: "small/rms_norm.comp", defines: &[], needs: None },
    // Mat-vec, both kinds of weights in every form.
    Variant { name: "mv_q8", file: "matmul/mv_q8.comp", defines: &[], needs: None },
    Variant {
        name: "mv_q8_norm",
        file: "matmul/mv_q8.comp",
        defines: &[("NORM", "1")],
        needs: None,
    },
    // Expert blocks, one row or a few.
    Variant { name: "router_shared", file: "moe/router_shared.comp", defines: &[], needs: None },
    Variant {
        name: "router_shared_choose",
        file: "moe/router_shared.comp",
        defines: &[("CHOOSE", "1")],
        needs: None,
    },
    Variant {
        name: "router_shared_q8",
        file: "moe/router_shared.comp",
        defines: &[("ROUTER_Q8", "1")],
        needs: None,
    },
    Variant {
        name: "router_shared_q8_choose",
        file: "moe/router_shared.comp",
        defines: &[("ROUTER_Q8", "1"), ("CHOOSE", "1")],
        needs: None,
    },
    Variant { name: "top_k", file: "moe/top_k.comp", defines: &[], needs: None },
    Variant {
        name: "moe_gu_iq2_xxs",
        file: "moe/moe_gu.comp",
        defines: &[("FORMAT_IQ2_XXS", "1")],
        needs: None,
    },
    Variant {
        name: "moe_gu_iq2_xxs_i8",
        file: "moe/moe_gu.comp",
        defines: &[("FORMAT_IQ2_XXS", "1"), ("ACT_I8", "1"), ("INT_DOT", "1")],
        needs: Some("int_dot"),
    },
    Variant {
        name: "moe_gu_q2_k",
        file: "moe/moe_gu.comp",
        defines: &[("FORMAT_Q2_K", "1")],
        needs: None,
    },
    Variant {
        name: "moe_gu_q2_k_i8",
        file: "moe/moe_gu.comp",
        defines: &[("FORMAT_Q2_K", "1"), ("ACT_I8", "1"), ("INT_DOT", "1")],
        needs: Some("int_dot"),
    },
    Variant {
        name: "moe_gu_q4_k",
        file: "moe/moe_gu.comp",
        defines: &[("FORMAT_Q4_K", "1")],
        needs: None,
    },
    Variant {
        name: "moe_gu_q4_k_i8",
        file: "moe/moe_gu.comp",
        defines: &[("FORMAT_Q4_K", "1"), ("ACT_I8", "1"), ("INT_DOT", "1")],
        needs: Some("int_dot"),
    },
    Variant {
        name: "moe_gu_q5_k",
        file: "moe/moe_gu.comp",
        defines: &[("FORMAT_Q5_K", "1")],
        needs: None,
    },
    Variant {
        name: "moe_gu_q5_k_i8",
        file: "moe/moe_gu.comp",
        defines: &[("FORMAT_Q5_K", "1"), ("ACT_I8", "1"), ("INT_DOT", "1")],
        needs: Some("int_dot"),
    },
    Variant {
        name: "moe_gu_q6_k",
        file: "moe/moe_gu.comp",
        defines: &[("FORMAT_Q6_K", "1")],
        needs: None,
    },
    Variant {
        name: "moe_gu_q6_k_i8",
        file: "moe/moe_gu.comp",
        defines: &[("FORMAT_Q6_K", "1"), ("ACT_I8", "1"), ("INT_DOT", "1")],
        needs: Some("int_dot"),
    },
    Variant {
        name: "moe_gu_q8_0",
        file: "moe/moe_gu.comp",
        defines: &[("FORMAT_Q8_0", "1")],
        needs: None,
    },
    Variant {
        name: "moe_gu_q8_0_i8",
        file: "moe/moe_gu.comp",
        defines: &[("FORMAT_Q8_0", "1"), ("ACT_I8", "1"), ("INT_DOT", "1")],
        needs: Some("int_dot"),
    },
    Variant { name: "moe_gu_iq2_xxs_pk", file: "moe/moe_gu_pk.comp", defines: &[], needs: None },
    Variant {
        name: "moe_gu_iq2_xxs_i8_soft",
        file: "moe/moe_gu.comp",
        defines: &[("FORMAT_IQ2_XXS", "1"), ("ACT_I8", "1")],
        needs: None,
    },
    Variant {
        name: "moe_gu_q4_k_i8_soft",
        file: "moe/moe_gu.comp",
        defines: &[("FORMAT_Q4_K", "1"), ("ACT_I8", "1")],
        needs: None,
    },
    Variant {
        name: "moe_down_q2_k",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q2_K", "1")],
        needs: None,
    },
    Variant {
        name: "moe_down_q2_k_plain",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q2_K", "1"), ("PLAIN", "1")],
        needs: None,
    },
    Variant {
        name: "moe_down_q2_k_i8",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q2_K", "1"), ("ACT_I8", "1"), ("INT_DOT", "1")],
        needs: Some("int_dot"),
    },
    Variant {
        name: "moe_down_q2_k_i8_plain",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q2_K", "1"), ("ACT_I8", "1"), ("INT_DOT", "1"), ("PLAIN", "1")],
        needs: Some("int_dot"),
    },
    Variant {
        name: "moe_down_q4_k",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q4_K", "1")],
        needs: None,
    },
    Variant {
        name: "moe_down_q4_k_plain",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q4_K", "1"), ("PLAIN", "1")],
        needs: None,
    },
    Variant {
        name: "moe_down_q4_k_i8",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q4_K", "1"), ("ACT_I8", "1"), ("INT_DOT", "1")],
        needs: Some("int_dot"),
    },
    Variant {
        name: "moe_down_q4_k_i8_plain",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q4_K", "1"), ("ACT_I8", "1"), ("INT_DOT", "1"), ("PLAIN", "1")],
        needs: Some("int_dot"),
    },
    Variant {
        name: "moe_down_q5_k",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q5_K", "1")],
        needs: None,
    },
    Variant {
        name: "moe_down_q5_k_plain",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q5_K", "1"), ("PLAIN", "1")],
        needs: None,
    },
    Variant {
        name: "moe_down_q5_k_i8",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q5_K", "1"), ("ACT_I8", "1"), ("INT_DOT", "1")],
        needs: Some("int_dot"),
    },
    Variant {
        name: "moe_down_q5_k_i8_plain",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q5_K", "1"), ("ACT_I8", "1"), ("INT_DOT", "1"), ("PLAIN", "1")],
        needs: Some("int_dot"),
    },
    Variant {
        name: "moe_down_q6_k",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q6_K", "1")],
        needs: None,
    },
    Variant {
        name: "moe_down_q6_k_plain",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q6_K", "1"), ("PLAIN", "1")],
        needs: None,
    },
    Variant {
        name: "moe_down_q6_k_i8",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q6_K", "1"), ("ACT_I8", "1"), ("INT_DOT", "1")],
        needs: Some("int_dot"),
    },
    Variant {
        name: "moe_down_q6_k_i8_plain",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q6_K", "1"), ("ACT_I8", "1"), ("INT_DOT", "1"), ("PLAIN", "1")],
        needs: Some("int_dot"),
    },
    Variant {
        name: "moe_down_q8_0",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q8_0", "1")],
        needs: None,
    },
    Variant {
        name: "moe_down_q8_0_plain",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q8_0", "1"), ("PLAIN", "1")],
        needs: None,
    },
    // The recurrent mixer.
    Variant { name: "rec_core", file: "recurrent/rec_core.comp", defines: &[], needs: None },
    Variant { name: "conv_l2", file: "recurrent/conv_l2.comp", defines: &[], needs: None },
    Variant {
        name: "conv_l2_f16",
        file: "recurrent/conv_l2.comp",
        defines: &[("F16", "1")],
        needs: None,
    },
    Variant { name: "gates", file: "recurrent/gates.comp", defines: &[], needs: None },
    Variant { name: "delta_seq", file: "recurrent/delta_seq.comp", defines: &[], needs: None },
    Variant { name: "delta_prep", file: "recurrent/delta_prep.comp", defines: &[], needs: None },
    Variant {
        name: "delta_prep_matrix",
        file: "recurrent/delta_prep.comp",
        defines: &[("MATRIX", "1")],
        needs: Some("coopmat"),
    },
    Variant { name: "delta_scan", file: "recurrent/delta_scan.comp", defines: &[], needs: None },
    Variant {
        name: "delta_scan_matrix",
        file: "recurrent/delta_scan.comp",
        defines: &[("MATRIX", "1")],
        needs: Some("coopmat"),
    },
    Variant { name: "head_gate", file: "recurrent/head_gate.comp", defines: &[], needs: None },
    Variant {
        name: "head_gate_f16",
        file: "recurrent/head_gate.comp",
        defines: &[("HALF", "1")],
        needs: None,
    },
    Variant { name: "copy", file: "small/copy.comp", defines: &[], needs: None },
    Variant {
        name: "mv_q8_recurrent",
        file: "matmul/mv_q8.comp",
        defines: &[("NORM", "1"), ("RING", "1"), ("GATES", "1")],
        needs: None,
    },
    Variant {
        name: "mv_q8_mixer",
        file: "matmul/mv_q8.comp",
        defines: &[("NORM", "1"), ("RING", "1")],
        needs: None,
    },
    Variant {
        name: "mv_q8_gates",
        file: "matmul/mv_q8.comp",
        defines: &[("NORM", "1"), ("GATES", "1")],
        needs: None,
    },
    Variant {
        name: "mv_q8_residual",
        file: "matmul/mv_q8.comp",
        defines: &[("RESIDUAL", "1")],
        needs: None,
    },
    Variant {
        name: "mv_q8_head",
        file: "matmul/mv_q8.comp",
        defines: &[("NORM", "1"), ("HEAD", "1")],
        needs: None,
    },
    Variant {
        name: "mv_f32",
        file: "matmul/mv_q8.comp",
        defines: &[("F32_WEIGHTS", "1")],
        needs: None,
    },
    Variant {
        name: "mv_f32_norm",
        file: "matmul/mv_q8.comp",
        defines: &[("F32_WEIGHTS", "1"), ("NORM", "1")],
        needs: None,
    },
    Variant {
        name: "mv_f32_recurrent",
        file: "matmul/mv_q8.comp",
        defines: &[("F32_WEIGHTS", "1"), ("NORM", "1"), ("RING", "1"), ("GATES", "1")],
        needs: None,
    },
    Variant {
        name: "mv_f32_mixer",
        file: "matmul/mv_q8.comp",
        defines: &[("F32_WEIGHTS", "1"), ("NORM", "1"), ("RING", "1")],
        needs: None,
    },
    Variant {
        name: "mv_f32_gates",
        file: "matmul/mv_q8.comp",
        defines: &[("F32_WEIGHTS", "1"), ("NORM", "1"), ("GATES", "1")],
        needs: None,
    },
    Variant {
        name: "mv_f32_residual",
        file: "matmul/mv_q8.comp",
        defines: &[("F32_WEIGHTS", "1"), ("RESIDUAL", "1")],
        needs: None,
    },
    Variant {
        name: "mv_f32_head",
        file: "matmul/mv_q8.comp",
        defines: &[("F32_WEIGHTS", "1"), ("NORM", "1"), ("HEAD", "1")],
        needs: None,
    },
    // The start of a step, sampling, steering.
    Variant { name: "embed", file: "small/embed.comp", defines: &[], needs: None },
    Variant {
        name: "embed_f32",
        file: "small/embed.comp",
        defines: &[("F32_WEIGHTS", "1")],
        needs: None,
    },
    Variant {
        name: "embed_tokens",
        file: "small/embed.comp",
        defines: &[("TOKENS", "1")],
        needs: None,
    },
    Variant {
        name: "embed_tokens_f32",
        file: "small/embed.comp",
        defines: &[("F32_WEIGHTS", "1"), ("TOKENS", "1")],
        needs: None,
    },
    Variant { name: "pick", file: "small/pick.comp", defines: &[], needs: None },
    Variant {
        name: "filter_count",
        file: "small/filter.comp",
        defines: &[("COUNT", "1")],
        needs: None,
    },
    Variant {
        name: "filter_mark",
        file: "small/filter.comp",
        defines: &[("MARK", "1")],
        needs: None,
    },
    Variant {
        name: "filter_collect",
        file: "small/filter.comp",
        defines: &[("COLLECT", "1")],
        needs: None,
    },
    Variant { name: "last_row", file: "small/last_row.comp", defines: &[], needs: None },
    Variant { name: "steer", file: "small/steer.comp", defines: &[], needs: None },
    Variant { name: "attn_split", file: "attention/split.comp", defines: &[], needs: None },
    Variant {
        name: "attn_split_matrix",
        file: "attention/split_matrix.comp",
        defines: &[],
        needs: Some("coopmat"),
    },
    Variant { name: "attn_reduce", file: "attention/reduce.comp", defines: &[], needs: None },
    Variant { name: "rope_kv", file: "attention/rope_kv.comp", defines: &[], needs: None },
    Variant {
        name: "rope_kv_half",
        file: "attention/rope_kv.comp",
        defines: &[("HALF_Q", "1")],
        needs: None,
    },
    Variant { name: "flash", file: "attention/flash.comp", defines: &[], needs: None },
    // Prefill: matrix products and expert blocks.
    Variant { name: "gemm_f32", file: "matmul/gemm.comp", defines: &[], needs: None },
    Variant {
        name: "gemm_f32_add",
        file: "matmul/gemm.comp",
        defines: &[("ADD", "1")],
        needs: None,
    },
    Variant {
        name: "gemm_f32_plain",
        file: "matmul/gemm.comp",
        defines: &[("WEIGHTS_F32", "1")],
        needs: None,
    },
    Variant {
        name: "gemm_f32_plain_add",
        file: "matmul/gemm.comp",
        defines: &[("WEIGHTS_F32", "1"), ("ADD", "1")],
        needs: None,
    },
    Variant { name: "gemm_pk16", file: "matmul/gemm.comp", defines: &[("HALF", "1")], needs: None },
    Variant {
        name: "gemm_pk16_add",
        file: "matmul/gemm.comp",
        defines: &[("HALF", "1"), ("ADD", "1")],
        needs: None,
    },
    Variant {
        name: "gemm_pk16_plain",
        file: "matmul/gemm.comp",
        defines: &[("HALF", "1"), ("WEIGHTS_F32", "1")],
        needs: None,
    },
    Variant {
        name: "gemm_pk16_plain_add",
        file: "matmul/gemm.comp",
        defines: &[("HALF", "1"), ("WEIGHTS_F32", "1"), ("ADD", "1")],
        needs: None,
    },
    Variant {
        name: "gemm_logits",
        file: "matmul/gemm.comp",
        defines: &[("NORMED", "1")],
        needs: None,
    },
    Variant {
        name: "gemm_logits_plain",
        file: "matmul/gemm.comp",
        defines: &[("NORMED", "1"), ("WEIGHTS_F32", "1")],
        needs: None,
    },
    Variant {
        name: "norm_cvt_f16",
        file: "small/norm_cvt.comp",
        defines: &[("NORM", "1"), ("HALF", "1")],
        needs: None,
    },
    Variant {
        name: "norm_cvt_f32",
        file: "small/norm_cvt.comp",
        defines: &[("NORM", "1")],
        needs: None,
    },
    Variant {
        name: "cvt_f16",
        file: "small/norm_cvt.comp",
        defines: &[("HALF", "1")],
        needs: None,
    },
    Variant {
        name: "moe_gu_gemm_f32",
        file: "moe/moe_gemm.comp",
        defines: &[("GATE_UP", "1")],
        needs: None,
    },
    Variant { name: "moe_down_gemm_f32", file: "moe/moe_gemm.comp", defines: &[], needs: None },
    Variant {
        name: "moe_gu_gemm_pk16",
        file: "moe/moe_gemm.comp",
        defines: &[("HALF", "1"), ("GATE_UP", "1")],
        needs: None,
    },
    Variant {
        name: "moe_down_gemm_pk16",
        file: "moe/moe_gemm.comp",
        defines: &[("HALF", "1")],
        needs: None,
    },
    Variant { name: "moe_combine_f32", file: "moe/moe_combine.comp", defines: &[], needs: None },
    Variant {
        name: "moe_combine_f16",
        file: "moe/moe_combine.comp",
        defines: &[("HALF", "1")],
        needs: None,
    },
    Variant { name: "router_pick", file: "moe/router_pick.comp", defines: &[], needs: None },
    Variant { name: "moe_plan", file: "moe/moe_plan.comp", defines: &[], needs: None },
    Variant {
        name: "moe_down_q8_0_i8",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q8_0", "1"), ("ACT_I8", "1"), ("INT_DOT", "1")],
        needs: Some("int_dot"),
    },
    Variant {
        name: "moe_down_q8_0_i8_plain",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q8_0", "1"), ("ACT_I8", "1"), ("INT_DOT", "1"), ("PLAIN", "1")],
        needs: Some("int_dot"),
    },
    Variant {
        name: "moe_down_q2_k_pk",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q2_K", "1"), ("PACKED", "1")],
        needs: None,
    },
    Variant {
        name: "moe_down_q2_k_pk_plain",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q2_K", "1"), ("PACKED", "1"), ("PLAIN", "1")],
        needs: None,
    },
    Variant {
        name: "moe_down_q2_k_i8_soft",
        file: "moe/moe_down.comp",
        defines: &[("FORMAT_Q2_K", "1"), ("ACT_I8", "1")],
        needs: None,
    },
    Variant { name: "moe_group", file: "moe/moe_group.comp", defines: &[], needs: None },
    Variant { name: "moe_sum", file: "moe/moe_sum.comp", defines: &[], needs: None },
    Variant {
        name: "moe_sum_plain",
        file: "moe/moe_sum.comp",
        defines: &[("PLAIN", "1")],
        needs: None,
    },
    Variant {
        name: "flash_matrix",
        file: "attention/flash_matrix.comp",
        defines: &[],
        needs: Some("coopmat"),
    },
    Variant {
        name: "gemm_matrix",
        file: "matmul/gemm.comp",
        defines: &[("HALF", "1"), ("MATRIX", "1")],
        needs: Some("coopmat"),
    },
    Variant {
        name: "gemm_matrix_add",
        file: "matmul/gemm.comp",
        defines: &[("HALF", "1"), ("MATRIX", "1"), ("ADD", "1")],
        needs: Some("coopmat"),
    },
    Variant {
        name: "gemm_matrix_plain",
        file: "matmul/gemm.comp",
        defines: &[("HALF", "1"), ("MATRIX", "1"), ("WEIGHTS_F32", "1")],
        needs: Some("coopmat"),
    },
    Variant {
        name: "gemm_matrix_plain_add",
        file: "matmul/gemm.comp",
        defines: &[("HALF", "1"), ("MATRIX", "1"), ("WEIGHTS_F32", "1"), ("ADD", "1")],
        needs: Some("coopmat"),
    },
    Variant {
        name: "moe_gu_gemm_matrix",
        file: "moe/moe_gemm.comp",
        defines: &[("HALF", "1"), ("MATRIX", "1"), ("GATE_UP", "1")],
        needs: Some("coopmat"),
    },
    Variant {
        name: "moe_down_gemm_matrix",
        file: "moe/moe_gemm.comp",
        defines: &[("HALF", "1"), ("MATRIX", "1")],
        needs: Some("coopmat"),
    },
    Variant {
        name: "gemm_logits_matrix",
        file: "matmul/gemm.comp",
        defines: &[("NORMED", "1"), ("HALF", "1"), ("MATRIX", "1"), ("SPLIT", "1")],
        needs: Some("coopmat"),
    },
    Variant {
        name: "gemm_logits_matrix_plain",
        file: "matmul/gemm.comp",
        defines: &[
            ("NORMED", "1"),
            ("HALF", "1"),
            ("MATRIX", "1"),
            ("SPLIT", "1"),
            ("WEIGHTS_F32", "1"),
        ],
        needs: Some("coopmat"),
    },
];
