// Head norm and gate of the tokens of a chunk, y = o / rms(o) * weight * silu(z), a workgroup for each token of the
// class; rows past the chunk become zeros. With HALF y is f16 with one factor for each token, as the matrix products
// take it. Rust side: src/kernels/head_gate.rs.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#ifdef HALF
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif

#include "control.glsl"
#include "recurrent.glsl"
#include "logistic.glsl"
#include "power.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SG = 32;
layout(constant_id = 2) const uint WORKGROUP = 256;
layout(constant_id = 3) const uint HEADS = 32;
layout(constant_id = 4) const uint Z_STRIDE = 4096; // values from one row of z to the next, a multiple of 4
layout(constant_id = 5) const uint Y_STRIDE = 4096; // the same of y
layout(constant_id = 6) const bool RAW = true;      // z before its SiLU

layout(push_constant) uniform Push {
    float eps;
};

layout(set = 0, binding = 1, std430) readonly restrict buffer Norm { vec4 norm[]; };
layout(set = 0, binding = 3, std430) readonly restrict buffer In { vec4 o[]; };
#ifdef HALF
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { f16vec4 y[]; };
layout(set = 0, binding = 6, std430) writeonly restrict buffer Factors { float factors[]; };
#else
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { vec4 y[]; };
#endif
layout(set = 0, binding = 5, std430) readonly restrict buffer Gate { vec4 z[]; };

const uint LANES = SG < D4 ? SG : D4; // of a team, which takes a head at a time
const uint QUADS = D4 / LANES;
const uint TEAMS = WORKGROUP / LANES;
const uint EACH = (HEADS + TEAMS - 1) / TEAMS; // heads of a team

shared float largest_slots[64];

// The maximum over the workgroup; no NaN comes of it.
float workgroup_max(const float value) {
    const float part = subgroupMax(value);
    if (subgroupElect()) {
        largest_slots[gl_SubgroupID] = part;
    }
    barrier();
    float most = 0.0;
    for (uint i = 0; i < gl_NumSubgroups; i++) {
        most = max(most, largest_slots[i]);
    }
    return most;
}

void main() {
    const uint token = gl_WorkGroupID.x;
    const bool live = token < rows[0].tokens;
    const uint local = gl_SubgroupID * SG + gl_SubgroupInvocationID;
    const uint team = local / LANES;
    const uint lane = local % LANES;
    vec4 v[EACH * QUADS];
    float most = 0.0;
    [[unroll]] for (uint h = 0; h < EACH; h++) {
        // A head past the last one is the last one again, and not stored.
        const uint head = min(team + h * TEAMS, HEADS - 1);
        vec4 gate[QUADS];
        float square = 0.0;
        [[unroll]] for (uint i = 0; i < QUADS; i++) {
            const uint at = head * D4 + i * LANES + lane;
            vec4 value = vec4(0.0);
            gate[i] = vec4(0.0);
            if (live) {
                value = o[token * HEADS * D4 + at];
                gate[i] = z[token * (Z_STRIDE / 4) + at];
            }
            [[unroll]] for (uint e = 0; e < 4; e++) {
                square = fma(value[e], value[e], square);
                gate[i][e] = RAW ? silu(gate[i][e]) : gate[i][e];
            }
            v[h * QUADS + i] = value;
        }
        const float scale = 1.0 / sqrt(lanes_sum(square, LANES) / float(D) + eps);
        [[unroll]] for (uint i = 0; i < QUADS; i++) {
            const vec4 gated = v[h * QUADS + i] * scale * norm[i * LANES + lane] * gate[i];
            const vec4 value = live ? gated : vec4(0.0); // not -0
            const vec4 size = abs(value);
            most = max(most, max(max(size.x, size.y), max(size.z, size.w)));
            v[h * QUADS + i] = value;
        }
    }
#ifdef HALF
    // A power of two: dividing by it is exact. 256 at most stay of the largest value.
    const float factor = live ? power_above(workgroup_max(most)) * (1.0 / 256.0) : 1.0;
    const float inverse = power_inverse(factor);
    if (local == 0) {
        factors[token] = factor;
    }
#endif
    [[unroll]] for (uint h = 0; h < EACH; h++) {
        const uint head = team + h * TEAMS;
        if (head < HEADS) {
            [[unroll]] for (uint i = 0; i < QUADS; i++) {
                const uint at = token * (Y_STRIDE / 4) + head * D4 + i * LANES + lane;
#ifdef HALF
                y[at] = f16vec4(v[h * QUADS + i] * inverse);
#else
                y[at] = v[h * QUADS + i];
#endif
            }
        }
    }
}
