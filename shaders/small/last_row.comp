// The last token's row of a chunk, and the sum of its squares, for the head. Rust side: src/kernels/last_row.rs.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

#include "control.glsl"
#include "reduce.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint K = 2048; // a multiple of 4

layout(set = 0, binding = 3, std430) readonly restrict buffer In { vec4 h[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { vec4 row[]; };
layout(set = 0, binding = 7, std430) writeonly restrict buffer Squares { float squares[]; };

void main() {
    const uint first = (max(rows[0].tokens, 1) - 1) * (K / 4);
    float sum = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < K / 4; i += gl_WorkGroupSize.x) {
        const vec4 v = h[first + i];
        row[i] = v;
        [[unroll]] for (uint b = 0; b < 4; b++) {
            sum = fma(v[b], v[b], sum);
        }
    }
    sum = workgroup_sum(sum);
    if (gl_LocalInvocationID.x == 0) {
        squares[0] = sum;
    }
}
