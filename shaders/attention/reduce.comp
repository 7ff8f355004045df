// Merges the spans of a row's decode attention and applies the output gate. Rust side: src/kernels/attention.rs.
//
// A workgroup takes 64 values of a head: 16 invocations of four values, 16 times; group g adds spans g, g + 16, ...,
// and the groups are added in order. That order depends on the number of spans only.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

layout(local_size_x_id = 0) in; // 256
layout(constant_id = 1) const uint SG = 32;
layout(constant_id = 2) const uint H = 8;
layout(constant_id = 3) const uint KV_HEADS = 2;
layout(constant_id = 4) const uint SPLITS = 128;

layout(push_constant) uniform Push {
    uint stride;   // values of a row of the projections
    uint y_stride; // values of a row of the output
};

#include "control.glsl"
#include "tree.glsl"

layout(set = 0, binding = 3, std430) readonly restrict buffer Values { vec4 values[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { vec4 y[]; };
layout(set = 0, binding = 5, std430) readonly restrict buffer Stats { vec2 stats[]; };
layout(set = 0, binding = 6, std430) readonly restrict buffer Proj { vec4 proj[]; };

const float LOWEST = -3e38;

shared vec4 sums[256];

void merge(const uint row, const uint spans) {
    const uint thread = gl_LocalInvocationID.x;
    const uint lane = gl_SubgroupInvocationID;
    const uint head = gl_WorkGroupID.x / 4;
    const uint quad = gl_WorkGroupID.x % 4 * 16 + thread % 16;
    const uint group = thread / 16;
    const uint first = (row * KV_HEADS + head / H) * SPLITS;

    // Under way while the factors are made, which every subgroup does for itself.
    vec4 ahead[2];
    [[unroll]] for (uint i = 0; i < 2; i++) {
        const uint s = min(group + 16 * i, spans - 1);
        ahead[i] = values[((first + s) * H + head % H) * 64 + quad];
    }
    const vec4 gate = proj[row * (stride / 4) + head * 128 + 64 + quad];
    float most = LOWEST;
    for (uint s = lane; s < spans; s += SG) {
        most = max(most, stats[(first + s) * H + head % H].x);
    }
    most = lanes_max(most, SG);
    float total = 0.0;
    for (uint s = lane; s < spans; s += SG) {
        const vec2 stat = stats[(first + s) * H + head % H];
        total = fma(stat.y, exp2(stat.x - most), total);
    }
    total = lanes_sum(total, SG);

    vec4 sum = vec4(0.0);
    for (uint s = group; s < spans; s += 16) {
        const uint at = (first + s) * H + head % H;
        const vec4 value = s < 16 ? ahead[0] : s < 32 ? ahead[1] : values[at * 64 + quad];
        sum = fma(vec4(exp2(stats[at].x - most)), value, sum);
    }
    sums[thread] = sum;
    barrier();
    if (thread < 16) {
        for (uint g = 1; g < 16; g++) {
            sum += sums[g * 16 + thread];
        }
        y[row * (y_stride / 4) + head * 64 + quad] = sum / total / (1.0 + exp(-gate));
    }
}

void main() {
    const uint row = gl_WorkGroupID.y;
    const uint spans = (rows[row].pos + rows[row].span) / max(rows[row].span, 1);
    if ((rows[row].flags & ROW_IDLE) == 0) {
        merge(row, spans);
    }
}
