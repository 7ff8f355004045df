// A row for the matrix products of prefill: f16 with one factor for each token (HALF), or f32. With NORM the row is
// the RMSNorm of the input, and the reciprocal root of the mean square is stored too; without, its values are taken
// as they are and a multiplier goes into the factor. Rust side: src/kernels/norm_cvt.rs.
//
// One workgroup for each token of the size class; rows past the chunk become zeros.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#ifdef HALF
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif

#include "control.glsl"
#include "reduce.glsl"
#include "power.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint K = 2048; // a multiple of 4

layout(push_constant) uniform Push {
    uint stride; // values from one token of the input to the next, a multiple of 4
    float eps;   // NORM
};

layout(set = 0, binding = 3, std430) readonly restrict buffer In { vec4 x[]; };
#ifdef HALF
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { f16vec4 y[]; };
layout(set = 0, binding = 5, std430) writeonly restrict buffer Factors { float factors[]; };
#else
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { vec4 y[]; };
#endif
#ifdef NORM
layout(set = 0, binding = 1, std430) readonly restrict buffer Weight { vec4 weight[]; };
layout(set = 0, binding = 6, std430) writeonly restrict buffer Scales { float scales[]; };
#else
layout(constant_id = 2) const bool MULTIPLY = false;
layout(set = 0, binding = 1, std430) readonly restrict buffer Multipliers { float multipliers[]; };
#endif

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
    const uint tokens = (rows[0].flags & ROW_IDLE) != 0 ? 0 : rows[0].tokens;
    const bool live = token < tokens;
    const uint from = token * (stride / 4);
    const uint to = token * (K / 4);
    float sum = 0.0;
    float most = 0.0;
    if (live) {
        for (uint i = gl_LocalInvocationID.x; i < K / 4; i += gl_WorkGroupSize.x) {
            const vec4 v = x[from + i];
#ifdef NORM
            const vec4 w = abs(v * weight[i]);
            sum = fma(v.x, v.x, fma(v.y, v.y, fma(v.z, v.z, fma(v.w, v.w, sum))));
#else
            const vec4 w = abs(v);
#endif
            most = max(most, max(max(w.x, w.y), max(w.z, w.w)));
        }
    }
#ifdef NORM
    const float scale = 1.0 / sqrt(workgroup_sum(sum) / float(K) + eps);
#else
    const float scale = 1.0;
#endif
#ifdef HALF
    // A power of two: dividing by it is exact. 256 at most stay of the largest value.
    const float factor = live ? power_above(workgroup_max(most) * scale) * (1.0 / 256.0) : 1.0;
    const float inverse = power_inverse(factor);
#endif
    for (uint i = gl_LocalInvocationID.x; i < K / 4; i += gl_WorkGroupSize.x) {
        vec4 v = vec4(0.0);
        if (live) {
            v = x[from + i] * scale;
#ifdef NORM
            v *= weight[i];
#endif
        }
#ifdef HALF
        y[to + i] = f16vec4(v * inverse);
#else
        y[to + i] = v;
#endif
    }
    if (gl_LocalInvocationID.x == 0) {
#ifdef NORM
        scales[token] = live ? scale : 0.0;
#endif
#ifdef HALF
#ifdef NORM
        factors[token] = factor;
#else
        factors[token] = MULTIPLY && live ? factor * multipliers[token] : factor;
#endif
#endif
    }
}
