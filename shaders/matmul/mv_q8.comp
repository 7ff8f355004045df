// y = W x for Q8_0 weights in two planes; with NORM, x is RMSNorm of the input, whose sum of squares
// arrives as partial sums. Rust side, with the layout and the choice of constants: src/kernels/mv_q8.rs.
//
// A subgroup takes R rows at a time, T times. A lane takes 16 weights of each row at a time: chunk c
// belongs to lane c mod SG, so a smaller subgroup only means more steps. The order in which a row is summed
// (steps, 16 products in a chain, lanes by subgroupAdd) depends neither on R nor on T nor on other rows.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

#include "reduce.glsl"
#include "q8.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SG = 32;
layout(constant_id = 2) const uint R = 4;
layout(constant_id = 3) const uint T = 4;
layout(constant_id = 4) const uint K = 2048; // a multiple of 32
layout(constant_id = 5) const bool X_IN_REGS = false; // only where K <= 32 SG

const uint CHUNKS = K / 16;
const uint STEPS = (CHUNKS + SG - 1) / SG;
// Steps whose loads are in flight together. Not all of them: with small subgroups that would be a very
// long program.
const uint UNROLL = STEPS > 1 ? 2 : 1;

layout(push_constant) uniform Push {
    uint rows;
    uint partials; // NORM: partial sums of squares
    float eps;     // NORM
};

layout(set = 0, binding = 1, std430) readonly restrict buffer Codes { uvec4 codes[]; };
layout(set = 0, binding = 2, std430) readonly restrict buffer Scales { float16_t scales[]; };
layout(set = 0, binding = 3, std430) readonly restrict buffer In { vec4 x[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { float y[]; };
#ifdef NORM
layout(set = 0, binding = 5, std430) readonly restrict buffer Squares { float squares[]; };
layout(set = 0, binding = 6, std430) readonly restrict buffer Weight { vec4 weight[]; };
#endif

// x, by part and chunk: lanes of a subgroup, which hold neighbouring chunks, then read 16 bytes beside
// each other, free of bank conflicts.
shared vec4 staged[K / 4];

// Brings x, normalised where asked for, into shared memory.
void stage_x() {
#ifdef NORM
    float sum = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < partials; i += gl_WorkGroupSize.x) {
        sum += squares[i];
    }
    const float scale = 1.0 / sqrt(workgroup_sum(sum) / float(K) + eps);
#endif
    for (uint i = gl_LocalInvocationID.x; i < K / 4; i += gl_WorkGroupSize.x) {
#ifdef NORM
        const vec4 v = x[i] * scale * weight[i];
#else
        const vec4 v = x[i];
#endif
        staged[(i % 4) * CHUNKS + i / 4] = v;
    }
    barrier();
}

void load(out uvec4 w[R], out float d[R], const uint first, const uint chunk) {
    [[unroll]] for (uint r = 0; r < R; r++) {
        // A row past the end is computed from the last one and not stored: nothing may leave the
        // subgroup before its reductions.
        const uint at = min(first + r, rows - 1) * CHUNKS + chunk;
        w[r] = codes[at];
        d[r] = float(scales[at / 2]);
    }
}

void read_x(out vec4 v[4], const uint chunk) {
    [[unroll]] for (uint j = 0; j < 4; j++) {
        v[j] = staged[j * CHUNKS + chunk];
    }
}

void main() {
    const uint lane = gl_SubgroupInvocationID;
    const uint pass_rows = gl_NumSubgroups * R;
    const uint group = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    const uint base = group * pass_rows * T + gl_SubgroupID * R;

    // The first weights do not depend on x: under way before the barrier.
    uvec4 w[R];
    float d[R];
    load(w, d, base, min(lane, CHUNKS - 1));
    stage_x();

    vec4 kept[UNROLL][4];
    if (X_IN_REGS) {
        [[unroll]] for (uint u = 0; u < UNROLL; u++) {
            read_x(kept[u], min(u * SG + lane, CHUNKS - 1));
        }
    }
    for (uint t = 0; t < T; t++) {
        const uint first = base + t * pass_rows;
        float sums[R];
        [[unroll]] for (uint r = 0; r < R; r++) {
            sums[r] = 0.0;
        }
        for (uint s = 0; s < STEPS; s += UNROLL) {
            [[unroll]] for (uint u = 0; u < UNROLL; u++) {
                // Past the last chunk the last one is loaded again and not counted.
                const uint mine = (s + u) * SG + lane;
                const uint chunk = min(mine, CHUNKS - 1);
                if (t + s + u > 0) {
                    load(w, d, first, chunk);
                }
                vec4 v[4];
                if (X_IN_REGS) {
                    v = kept[u];
                } else {
                    read_x(v, chunk);
                }
                if (mine < CHUNKS) {
                    [[unroll]] for (uint r = 0; r < R; r++) {
                        sums[r] = fma(d[r], q8_dot16(w[r], v), sums[r]);
                    }
                }
            }
        }
        [[unroll]] for (uint r = 0; r < R; r++) {
            const float sum = subgroupAdd(sums[r]);
            if (lane == r % SG && first + r < rows) {
                y[first + r] = sum;
            }
        }
    }
}
