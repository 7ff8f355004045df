// Everything of the expert block that needs only the residual: x = RMSNorm(h), written in unit order; the router's
// logits; the shared expert's gate sigma(w . x); the shared expert's silu(gate x) * (up x), in unit order.
// Rust side, with shapes: src/kernels/router.rs.
//
// A subgroup takes one row of the router (the shared gate is the row after the last) or one gate and up pair. The
// norm's factor is a number for each row of the batch, so it multiplies the sums and nobody waits for it. With CHOOSE
// the workgroup that finishes the router's last row chooses the experts too.
#version 460
#ifdef CHOOSE
#pragma use_vulkan_memory_model
#extension GL_KHR_memory_scope_semantics : require
#endif
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_KHR_shader_subgroup_basic : require
#ifdef CHOOSE
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
#extension GL_KHR_shader_subgroup_shuffle : require

#include "control.glsl"
#include "logistic.glsl"
#include "opaque.glsl"
#include "q8.glsl"
#include "tree.glsl"
#include "units.glsl"
#include "units_i8.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SG = 32;
layout(constant_id = 2) const uint NT = 1; // rows of the batch
layout(constant_id = 3) const uint K = 2048; // a multiple of 64
layout(constant_id = 4) const uint EXPERTS = 256;
layout(constant_id = 5) const uint SHARED = 512; // rows of the shared expert, a multiple of 64
layout(constant_id = 6) const uint BLOCK = 2048; // values of a row staged at a time, a multiple of 16 SG
layout(constant_id = 7) const uint X_ORDER = 0; // unit order of x
layout(constant_id = 8) const bool X_I8 = false; // x as bytes
// Rounds whose weights are under way together; one where many rows of the batch take the registers.
layout(constant_id = 9) const uint AHEAD = 1;
#ifdef CHOOSE
layout(constant_id = 10) const uint USED = 8;
#endif

layout(push_constant) uniform Push {
    uint partials; // partial sums of squares of each row
    float eps;
    uint router_groups; // workgroups that take router rows; the others take pairs
};

#ifdef ROUTER_Q8
layout(set = 0, binding = 1, std430) readonly restrict buffer RouterCodes { uvec4 router_codes[]; };
layout(set = 0, binding = 12, std430) readonly restrict buffer RouterScales { float16_t router_scales[]; };
#else
layout(set = 0, binding = 1, std430) readonly restrict buffer Router { vec4 router[]; };
#endif
layout(set = 0, binding = 2, std430) readonly restrict buffer Gate { vec4 gate[]; };
layout(set = 0, binding = 3, std430) readonly restrict buffer In { vec4 h[]; };
#ifdef CHOOSE
// Written by all router workgroups, read by the last to arrive.
layout(set = 0, binding = 4, std430) devicecoherent buffer Logits { float logits[]; };
layout(set = 0, binding = 13, std430) devicecoherent buffer Arrived { uint arrived; };
layout(set = 0, binding = 14, std430) writeonly restrict buffer Ids { uint ids[]; };
layout(set = 0, binding = 15, std430) writeonly restrict buffer Route { float route[]; };
#else
layout(set = 0, binding = 4, std430) writeonly restrict buffer Logits { float logits[]; };
#endif
layout(set = 0, binding = 5, std430) readonly restrict buffer Squares { float squares[]; };
layout(set = 0, binding = 6, std430) readonly restrict buffer Weight { vec4 weight[]; };
layout(set = 0, binding = 7, std430) readonly restrict buffer Codes { uvec4 codes[]; };
layout(set = 0, binding = 8, std430) readonly restrict buffer Scales { float16_t scales[]; };
layout(set = 0, binding = 9, std430) writeonly restrict buffer X { uvec4 x[]; };
layout(set = 0, binding = 10, std430) writeonly restrict buffer Mid { float mid[]; };
layout(set = 0, binding = 11, std430) writeonly restrict buffer Sigma { float sigma[]; };

vec4 router_word(const uint row, const uint at) {
#ifdef ROUTER_Q8
    return gate[at];
#else
    return row < EXPERTS ? router[row * (K / 4) + at] : gate[at];
#endif
}

const uint ROUND = 16 * SG; // values of a row that a subgroup takes at a time
const uint ROUNDS = (K + ROUND - 1) / ROUND;
const uint BLOCK_ROUNDS = BLOCK / ROUND;
// Whether rounds stay a loop.
const bool SHORT = NT > 2;

#ifdef CHOOSE
#include "top_k.glsl"
#endif

// h * weight of a block of each row: vectors in order, or by part and chunk of 16 for the Q8_0 rows, whose lanes
// then read 16 bytes beside each other.
shared vec4 staged[NT * BLOCK / 4];

// Invocation n of every subgroup has the factor of row n's norm: one register, whatever the number of rows.
float own_factor;

void norm_factors() {
    [[unroll]] for (uint n = 0; n < NT; n++) {
        precise float sum = 0.0;
        for (uint i = gl_SubgroupInvocationID; i < partials; i += SG) {
            sum += squares[n * partials + i];
        }
        const float all = tree_sum(sum, SG);
        if (gl_SubgroupInvocationID == n) {
            own_factor = 1.0 / sqrt(all / float(K) + eps);
        }
    }
}

// To be asked for by whole subgroups.
float factor(const uint n) {
    return subgroupShuffle(own_factor, n);
}

bool is_live(const uint n) {
    return (rows[n].flags & ROW_IDLE) == 0;
}

void stage(const uint block, const uint parts) {
    const uint vectors = BLOCK / 4;
    [[unroll]] for (uint m = 0; m < NT; m++) {
        // Workgroups begin with different rows: all at the same one would queue for the same bank of the cache.
        const uint n = (m + gl_WorkGroupID.x) % NT;
        for (uint i = gl_LocalInvocationID.x; i < vectors; i += gl_WorkGroupSize.x) {
            const uint at = block * vectors + i;
            const vec4 v = at < K / 4 ? h[n * (K / 4) + at] * weight[at] : vec4(0.0);
            staged[n * vectors + (i % parts) * (vectors / parts) + i / parts] = v;
        }
    }
    if (block == 0) {
        norm_factors();
    }
    barrier();
}

// Brings the block of a round in when the round is its first.
void advance(const uint round, const uint parts) {
    if (round % BLOCK_ROUNDS == 0) {
        if (round > 0) {
            barrier();
        }
        stage(round / BLOCK_ROUNDS, parts);
    }
}

// One row of f32 weights; the row after the last is the shared gate. What lies past the row's end is multiplied by
// zeros, so any weight of the row will do there.
void dot_f32(out float sum[1][NT], const uint row) {
    [[unroll]] for (uint n = 0; n < NT; n++) {
        sum[0][n] = 0.0;
    }
    const uint rounds = SHORT ? opaque(ROUNDS) : ROUNDS;
    for (uint first = 0; first < rounds; first += AHEAD) {
        vec4 w[AHEAD][4];
        [[unroll]] for (uint a = 0; a < AHEAD; a++) {
            [[unroll]] for (uint u = 0; u < 4; u++) {
                const uint at = ((first + a) * 4 + u) * SG + gl_SubgroupInvocationID;
                w[a][u] = router_word(row, min(at, K / 4 - 1));
            }
        }
        [[unroll]] for (uint a = 0; a < AHEAD; a++) {
            const uint round = first + a;
            if (round < ROUNDS) {
                advance(round, 1);
                [[unroll]] for (uint u = 0; u < 4; u++) {
                    const uint at = (round % BLOCK_ROUNDS * 4 + u) * SG + gl_SubgroupInvocationID;
                    [[unroll]] for (uint n = 0; n < NT; n++) {
                        const vec4 v = staged[n * (BLOCK / 4) + at];
                        precise float s = sum[0][n];
                        s = fma(w[a][u].x, v.x, s);
                        s = fma(w[a][u].y, v.y, s);
                        s = fma(w[a][u].z, v.z, s);
                        sum[0][n] = fma(w[a][u].w, v.w, s);
                    }
                }
            }
        }
    }
}

// COUNT rows of Q8_0 planes from row `first_row`: the shared expert's gate and up row, or a row of the router.
#define DOT_Q8(NAME, COUNT, CODES, SCALES)                                                              \
    void NAME(out float sum[COUNT][NT], const uint first_row) {                                         \
        [[unroll]] for (uint m = 0; m < COUNT; m++) {                                                   \
            [[unroll]] for (uint n = 0; n < NT; n++) {                                                  \
                sum[m][n] = 0.0;                                                                        \
            }                                                                                           \
        }                                                                                               \
        const uint rounds = SHORT ? opaque(ROUNDS) : ROUNDS;                                            \
        for (uint first = 0; first < rounds; first += AHEAD) {                                          \
            uvec4 w[AHEAD][COUNT];                                                                      \
            float d[AHEAD][COUNT];                                                                      \
            [[unroll]] for (uint a = 0; a < AHEAD; a++) {                                               \
                const uint chunk = min((first + a) * SG + gl_SubgroupInvocationID, K / 16 - 1);         \
                [[unroll]] for (uint m = 0; m < COUNT; m++) {                                           \
                    const uint at = (first_row + m) * (K / 16) + chunk;                                 \
                    w[a][m] = CODES[at];                                                                \
                    d[a][m] = float(SCALES[at / 2]);                                                    \
                }                                                                                       \
            }                                                                                           \
            [[unroll]] for (uint a = 0; a < AHEAD; a++) {                                               \
                if (first + a < ROUNDS) {                                                               \
                    advance(first + a, 4);                                                              \
                    [[unroll]] for (uint m = 0; m < COUNT; m++) {                                       \
                        add_q8(sum[m], first + a, w[a][m], d[a][m]);                                    \
                    }                                                                                   \
                }                                                                                       \
            }                                                                                           \
        }                                                                                               \
    }

void add_q8(inout float sum[NT], const uint round, const uvec4 w, const float d) {
    const uint at = (round % BLOCK_ROUNDS) * SG + gl_SubgroupInvocationID;
    [[unroll]] for (uint n = 0; n < NT; n++) {
        vec4 v[4];
        [[unroll]] for (uint j = 0; j < 4; j++) {
            v[j] = staged[n * (BLOCK / 4) + j * (BLOCK / 16) + at];
        }
        sum[n] = fma(d, q8_dot16(w, v), sum[n]);
    }
}

DOT_Q8(dot_pair, 2, codes, scales)
#ifdef ROUTER_Q8
DOT_Q8(dot_router, 1, router_codes, router_scales)
#endif

// A row's logit; past the last row, the shared gate.
void store_logit(const float sum[1][NT], const uint row) {
    [[unroll]] for (uint n = 0; n < NT; n++) {
        const float r = tree_sum(sum[0][n], SG) * factor(n);
        if (gl_SubgroupInvocationID == n && is_live(n)) {
            if (row < EXPERTS) {
                logits[n * EXPERTS + row] = r;
            } else if (row == EXPERTS) {
                sigma[n] = sigmoid(r);
            }
        }
    }
}

void router_rows(const uint group) {
    float sum[1][NT];
#ifdef ROUTER_Q8
    // The first workgroup has the shared gate, which is f32 and staged in another order.
    uint row = EXPERTS + gl_SubgroupID;
    if (group == 0) {
        dot_f32(sum, EXPERTS);
    } else {
        row = (group - 1) * gl_NumSubgroups + gl_SubgroupID;
        dot_router(sum, min(row, EXPERTS - 1));
        row = row < EXPERTS ? row : EXPERTS + 1;
    }
#else
    const uint row = group * gl_NumSubgroups + gl_SubgroupID;
    dot_f32(sum, min(row, EXPERTS));
#endif
    store_logit(sum, row);
}

void shared_pairs(const uint group) {
    const uint pair = group * gl_NumSubgroups + gl_SubgroupID;
    float sum[2][NT];
    dot_pair(sum, 2 * min(pair, SHARED - 1));
    const uint place = unit_place_of_value(pair, SHARED / 64, ORDER_PLAIN);
    [[unroll]] for (uint n = 0; n < NT; n++) {
        const float g = tree_sum(sum[0][n], SG) * factor(n);
        const float u = tree_sum(sum[1][n], SG) * factor(n);
        if (gl_SubgroupInvocationID == n && pair < SHARED && is_live(n)) {
            mid[n * SHARED + place] = silu(g) * u;
        }
    }
}

vec4 normalised(const uint n, const float scale, const uint at) {
    return h[n * (K / 4) + at] * weight[at] * scale;
}

// Sixteen values of a normalised row as bytes.
void store_x_i8(const uint n, const float scale, const uint sixteen) {
    vec4 v[4];
    [[unroll]] for (uint i = 0; i < 4; i++) {
        v[i] = normalised(n, scale, sixteen * 4 + i);
    }
    float d;
    const uvec4 codes = quantize16(v, d);
    const uint at = unit_place_of_16(sixteen, K / 64, X_ORDER);
    x[n * (K / 4) + at] = codes;
    x[n * (K / 4) + K / 16 + at / 4][at % 4] = floatBitsToUint(d);
}

// The normalised rows, a share for each workgroup that takes pairs: the router's have someone waiting for them.
void store_x(const uint group) {
    const uint first = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    const uint step = (gl_NumWorkGroups.x - router_groups) * gl_WorkGroupSize.x;
    [[unroll]] for (uint n = 0; n < NT; n++) {
        const float scale = factor(n);
        if (is_live(n)) {
            for (uint i = first; i < K / (X_I8 ? 16 : 4); i += step) {
                if (X_I8) {
                    store_x_i8(n, scale, i);
                } else {
                    const uint at = unit_place(i, K / 64, X_ORDER);
                    x[n * (K / 4) + at] = floatBitsToUint(normalised(n, scale, i));
                }
            }
        }
    }
}

#ifdef CHOOSE
shared bool is_last;

// Orders what this workgroup wrote before what whoever comes later reads (vulkan.md 3.0): `barrier()` would order
// shared memory only.
void publish() {
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeDevice, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared,
        gl_SemanticsAcquireRelease | gl_SemanticsMakeAvailable | gl_SemanticsMakeVisible);
}

// Counts the workgroup; the last one chooses. Nobody waits.
void arrive() {
    publish();
    if (gl_LocalInvocationID.x == 0) {
        const uint before = atomicAdd(arrived, 1, gl_ScopeDevice, gl_StorageSemanticsBuffer,
            gl_SemanticsAcquireRelease | gl_SemanticsMakeAvailable | gl_SemanticsMakeVisible);
        is_last = before == router_groups - 1;
        if (is_last) {
            // For the next run of these commands.
            arrived = 0;
        }
    }
    publish();
    if (is_last) {
        for (uint n = gl_SubgroupID; n < NT; n += gl_NumSubgroups) {
            top_k(n, is_live(n));
        }
    }
}
#endif

void main() {
    if (gl_WorkGroupID.x < router_groups) {
        router_rows(gl_WorkGroupID.x);
#ifdef CHOOSE
        arrive();
#endif
    } else {
        const uint group = gl_WorkGroupID.x - router_groups;
        shared_pairs(group);
        store_x(group);
    }
}
