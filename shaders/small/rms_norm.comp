// RMSNorm of rows: y = x * w / sqrt(mean(x^2) + eps). One workgroup for each row.
// Rust side: src/kernels/norm_cvt.rs.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

#include "reduce.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint K = 2048; // values in a row, a multiple of 4

layout(push_constant) uniform Push {
    float eps;
};

layout(set = 0, binding = 1, std430) readonly restrict buffer Weight { vec4 weight[]; };
layout(set = 0, binding = 3, std430) readonly restrict buffer In { vec4 x[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { vec4 y[]; };

void main() {
    const uint row = gl_WorkGroupID.x * (K / 4);
    float sum = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < K / 4; i += gl_WorkGroupSize.x) {
        const vec4 v = x[row + i];
        sum = fma(v.x, v.x, sum);
        sum = fma(v.y, v.y, sum);
        sum = fma(v.z, v.z, sum);
        sum = fma(v.w, v.w, sum);
    }
    const float scale = 1.0 / sqrt(workgroup_sum(sum) / float(K) + eps);
    for (uint i = gl_LocalInvocationID.x; i < K / 4; i += gl_WorkGroupSize.x) {
        y[row + i] = x[row + i] * scale * weight[i];
    }
}
