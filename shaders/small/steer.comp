// Directional steering between a mixer or the experts and the residual: h += y - scale * d * (d . y), and the sum of
// squares of the new h. One workgroup for each row. Rust side: src/kernels/steer.rs.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

#include "control.glsl"
#include "reduce.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint K = 2048;         // a multiple of 4
layout(constant_id = 2) const bool PREFILL = false; // rows are the tokens of record 0

layout(push_constant) uniform Push {
    float scale;
};

layout(set = 0, binding = 1, std430) readonly restrict buffer Direction { vec4 direction[]; };
layout(set = 0, binding = 3, std430) readonly restrict buffer In { vec4 y[]; };
layout(set = 0, binding = 4, std430) restrict buffer Hidden { vec4 h[]; };
layout(set = 0, binding = 7, std430) writeonly restrict buffer Squares { float squares[]; };

void main() {
    const uint n = gl_WorkGroupID.x;
    const bool used = PREFILL ? n < rows[0].tokens : (rows[n].flags & ROW_IDLE) == 0;
    if (!used) {
        return; // the whole workgroup
    }
    float product = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < K / 4; i += gl_WorkGroupSize.x) {
        const vec4 v = y[n * (K / 4) + i];
        const vec4 d = direction[i];
        [[unroll]] for (uint b = 0; b < 4; b++) {
            product = fma(v[b], d[b], product);
        }
    }
    const float amount = scale * workgroup_sum(product);
    barrier();
    float sum = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < K / 4; i += gl_WorkGroupSize.x) {
        const uint at = n * (K / 4) + i;
        const vec4 steered = fma(vec4(-amount), direction[i], y[at]);
        const vec4 v = h[at] + steered;
        h[at] = v;
        [[unroll]] for (uint b = 0; b < 4; b++) {
            sum = fma(v[b], v[b], sum);
        }
    }
    sum = workgroup_sum(sum);
    if (gl_LocalInvocationID.x == 0) {
        squares[n] = sum;
    }
}
