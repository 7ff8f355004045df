// Down projection of the chosen experts and of the shared one: h += sum over slots of D_e mid_slot + sigma * S mid_s,
// with the partial sums of squares of the new h; with PLAIN the sum alone is written; with PLAIN and GROUPED each part of it.
// Rust side, with shapes: src/kernels/moe_down.rs.
//
// A workgroup takes ROWS rows; each of its subgroups one slot of all of them, the last one the shared expert. A row
// of a slot belongs to LANES lanes. The sum of a row: units by lanes, lanes as a tree, slots as a tree in the order
// of selection, then the shared expert.
//
// With GROUPED a subgroup takes one expert of a batch and multiplies its weights, decoded once, with every row that
// chose it; moe_sum.comp adds the parts in the same order.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#ifdef INT_DOT
#extension GL_EXT_integer_dot_product : require
#endif
#ifdef PACKED
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif

#include "control.glsl"
#include "q8.glsl"
#include "tree.glsl"
#ifdef PACKED
#include "power.glsl"
#endif
#include "experts_sum.glsl"
#include "expert_word.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SG = 32;
layout(constant_id = 2) const uint ROWS = 8; // a power of two, at most SG, at least SIDE and SHARED_SIDE
layout(constant_id = 3) const uint LANES = 8; // powers of two, at most SG
layout(constant_id = 4) const uint SHARED_LANES = 8;
layout(constant_id = 5) const uint HIDDEN = 2048; // a multiple of ROWS
layout(constant_id = 6) const uint FFN = 512; // multiples of 64
layout(constant_id = 7) const uint SHARED = 512;
layout(constant_id = 8) const uint EXPERTS = 256;
layout(constant_id = 9) const uint USED = 8; // at most 8
layout(constant_id = 10) const bool GROUPED = false;
layout(constant_id = 11) const uint NT = 1; // GROUPED: rows of the batch, at most 8; else 1

layout(set = 0, binding = 1, std430) readonly restrict buffer Down { WORD down[]; };
layout(set = 0, binding = 2, std430) readonly restrict buffer Codes { uvec4 codes[]; };
layout(set = 0, binding = 3, std430) readonly restrict buffer In { uvec4 mid[]; };
#ifdef PLAIN
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { float sum_out[]; };
#else
layout(set = 0, binding = 4, std430) restrict buffer Residual { float h[]; };
layout(set = 0, binding = 9, std430) writeonly restrict buffer Squares { float squares[]; };
#endif
// Ids of experts by slot; or with GROUPED the entries of moe_group.comp.
layout(set = 0, binding = 5, std430) readonly restrict buffer Ids { uint ids[]; };
layout(set = 0, binding = 6, std430) readonly restrict buffer Scales { float16_t scales[]; };
layout(set = 0, binding = 7, std430) readonly restrict buffer SharedIn { vec4 shared_mid[]; };
layout(set = 0, binding = 8, std430) readonly restrict buffer Sigma { float sigma[]; };

WORD weights(const uint matrix, const uint at) {
    return down[at];
}

uvec4 activations(const uint at) {
    return mid[at];
}

uint activation_word(const uint at) {
    return mid[at / 4][at % 4];
}

#include "expert.glsl"
#include "expert_dot.glsl"

const uint UNITS = FFN / 64;
const uint STEPS = (UNITS + LANES - 1) / LANES;
const bool EVEN = UNITS % LANES == 0;
const uint SIDE = SG / LANES; // rows beside each other in a subgroup
const uint R = ROWS / SIDE;   // and one after the other
const uint SHARED_UNITS = SHARED / 64;
const uint SHARED_STEPS = (SHARED_UNITS + SHARED_LANES - 1) / SHARED_LANES;
const uint SHARED_SIDE = SG / SHARED_LANES;
const uint SHARED_R = ROWS / SHARED_SIDE;

// Each slot's part of each row; the shared expert's last.
shared float parts[USED + 1][ROWS];

uint row_of(const uint n) {
    return GROUPED ? n : gl_WorkGroupID.y;
}

// `i` counts the rows of the workgroup; slot USED is the shared expert.
void store_part(const uint n, const uint slot, const uint i, const float part) {
#ifdef PLAIN
    if (GROUPED) {
        sum_out[(n * (USED + 1) + slot) * HIDDEN + gl_WorkGroupID.x * ROWS + i] = part;
        return;
    }
#endif
    parts[slot][i] = part;
}

// `slots`: four bits for each row of the batch, one more than the slot in which the row has this expert, or 0.
void routed(const uint expert, const uint slots) {
    const uint lane = gl_SubgroupInvocationID % LANES;
    const uint side = gl_SubgroupInvocationID / LANES;
    const uint first = expert * HIDDEN + gl_WorkGroupID.x * ROWS + side;
    float sums[R][NT];
    [[unroll]] for (uint r = 0; r < R; r++) {
        [[unroll]] for (uint n = 0; n < NT; n++) {
            sums[r][n] = 0.0;
        }
    }
    for (uint step = 0; step < STEPS; step++) {
        const uint unit = step * LANES + lane;
        const uint at = min(unit, UNITS - 1);
        Unit w[R];
        [[unroll]] for (uint r = 0; r < R; r++) {
            w[r] = unit_load(0, (first + r * SIDE) * UNITS + at);
        }
        [[unroll]] for (uint quarter = 0; quarter < 4; quarter++) {
            uvec4 bytes[R];
            vec2 scale[R];
            [[unroll]] for (uint r = 0; r < R; r++) {
                bytes[r] = unit_bytes(w[r], quarter);
                scale[r] = unit_scale(w[r], quarter);
            }
            [[unroll]] for (uint n = 0; n < NT; n++) {
                const uint slot = (slots >> (4 * n)) & 15;
                if (slot != 0) {
                    const uint start = (row_of(n) * USED + slot - 1) * (FFN / 4);
                    const Act a = act_load(start, UNITS, at, quarter);
                    [[unroll]] for (uint r = 0; r < R; r++) {
                        const float sum = quarter_dot(bytes[r], scale[r], a, sums[r][n]);
                        sums[r][n] = EVEN || unit < UNITS ? sum : sums[r][n];
                    }
                }
            }
        }
    }
    [[unroll]] for (uint n = 0; n < NT; n++) {
        const uint slot = (slots >> (4 * n)) & 15;
        [[unroll]] for (uint r = 0; r < R; r++) {
            const float sum = tree_sum(sums[r][n], LANES);
            if (lane == 0 && slot != 0) {
                store_part(n, slot - 1, r * SIDE + side, sum);
            }
        }
    }
}

void shared_expert() {
    const uint lane = gl_SubgroupInvocationID % SHARED_LANES;
    const uint side = gl_SubgroupInvocationID / SHARED_LANES;
    const uint first = gl_WorkGroupID.x * ROWS + side;
    float sums[SHARED_R][NT];
    [[unroll]] for (uint r = 0; r < SHARED_R; r++) {
        [[unroll]] for (uint n = 0; n < NT; n++) {
            sums[r][n] = 0.0;
        }
    }
    for (uint step = 0; step < SHARED_STEPS; step++) {
        const uint unit = step * SHARED_LANES + lane;
        const uint at = min(unit, SHARED_UNITS - 1);
        [[unroll]] for (uint quarter = 0; quarter < 4; quarter++) {
            uvec4 w[SHARED_R];
            float d[SHARED_R];
            [[unroll]] for (uint r = 0; r < SHARED_R; r++) {
                const uint chunk = ((first + r * SHARED_SIDE) * SHARED_UNITS + at) * 4 + quarter;
                w[r] = codes[chunk];
                d[r] = float(scales[chunk / 2]);
            }
            [[unroll]] for (uint n = 0; n < NT; n++) {
                vec4 v[4];
                [[unroll]] for (uint i = 0; i < 4; i++) {
                    v[i] = shared_mid[row_of(n) * (SHARED / 4) + (quarter * 4 + i) * SHARED_UNITS + at];
                }
                [[unroll]] for (uint r = 0; r < SHARED_R; r++) {
                    const float sum = fma(d[r], q8_dot16(w[r], v), sums[r][n]);
                    sums[r][n] = unit < SHARED_UNITS ? sum : sums[r][n];
                }
            }
        }
    }
    [[unroll]] for (uint n = 0; n < NT; n++) {
        [[unroll]] for (uint r = 0; r < SHARED_R; r++) {
            const float sum = tree_sum(sums[r][n], SHARED_LANES);
            if (lane == 0) {
                store_part(n, USED, r * SHARED_SIDE + side, sum);
            }
        }
    }
}

#ifdef PLAIN
// One entry for each subgroup, the shared expert after the last.
void grouped() {
    const uint task = gl_WorkGroupID.y * gl_NumSubgroups + gl_SubgroupID;
    if (task < NT * USED) {
        const uint slots = ids[2 * task + 1];
        if (slots != 0) {
            routed(ids[2 * task], slots);
        }
    } else if (task == NT * USED) {
        shared_expert();
    }
}
#endif

void main() {
#ifdef PLAIN
    if (GROUPED) {
        grouped();
        return;
    }
#endif
    const uint row = gl_WorkGroupID.y;
    for (uint task = gl_SubgroupID; task <= USED; task += gl_NumSubgroups) {
        if (task < USED) {
            // The ids of an idle row may be anything.
            routed(min(ids[row * USED + task], EXPERTS - 1), task + 1);
        } else {
            shared_expert();
        }
    }
    barrier();
    if (gl_SubgroupID == 0) {
        const bool live = (rows[row].flags & ROW_IDLE) == 0;
        const uint r = gl_SubgroupInvocationID % ROWS;
        const bool mine = live && gl_SubgroupInvocationID < ROWS;
        const uint at = row * HIDDEN + gl_WorkGroupID.x * ROWS + r;
        float slot_parts[8];
        [[unroll]] for (uint i = 0; i < 8; i++) {
            slot_parts[i] = i < USED ? parts[min(i, USED - 1)][r] : 0.0;
        }
        precise float v = experts_sum(slot_parts, sigma[row], parts[USED][r]);
#ifdef PLAIN
        if (mine) {
            sum_out[at] = v;
        }
#else
        v = h[at] + v;
        precise const float square = v * v;
        const float sum = tree_sum(square, ROWS);
        if (mine) {
            h[at] = v;
        }
        if (live && gl_SubgroupInvocationID == 0) {
            squares[row * gl_NumWorkGroups.x + gl_WorkGroupID.x] = sum;
        }
#endif
    }
}
