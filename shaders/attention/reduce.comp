// Merges the spans of a row's decode attention and applies the output gate. Rust side: src/kernels/attention.rs.
//
// A workgroup takes 64 values of a head: 16 invocations of four values, 16 times; group g adds spans g, g + 16, ...,
// and the groups are added in order. That order depends on the number of spans only.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

layout(local_size_x_id = 0) in; // 256
layout(constant_id = 1) const uint SG = 32;
layout(constant_id = 2) const uint H = 8;
layout(constant_id = 3) const uint KV_HEADS = 2;
layout(constant_id = 4) const uint SPLITS = 128; // at most 256

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

shared float factors[256];
shared float slots[2 * 256];
shared vec4 sums[256];

float all_max(float v) {
    v = lanes_max(v, SG);
    slots[gl_SubgroupID] = v;
    barrier();
    for (uint i = 0; i < gl_NumSubgroups; i++) {
        v = max(v, slots[i]);
    }
    return v;
}

float all_sum(float v) {
    v = lanes_sum(v, SG);
    slots[256 + gl_SubgroupID] = v;
    barrier();
    v = 0.0;
    for (uint i = 0; i < gl_NumSubgroups; i++) {
        v += slots[256 + i];
    }
    return v;
}

void merge(const uint row, const uint spans) {
    const uint thread = gl_LocalInvocationID.x;
    const uint head = gl_WorkGroupID.x / 4;
    const uint quad = gl_WorkGroupID.x % 4 * 16 + thread % 16;
    const uint group = thread / 16;
    const uint first = (row * KV_HEADS + head / H) * SPLITS;

    const vec2 stat = thread < spans ? stats[(first + thread) * H + head % H] : vec2(LOWEST, 0.0);
    const float most = all_max(stat.x);
    const float factor = thread < spans ? exp2(stat.x - most) : 0.0;
    factors[thread] = factor;
    const float total = all_sum(stat.y * factor);

    vec4 sum = vec4(0.0);
    for (uint s = group; s < spans; s += 16) {
        sum = fma(vec4(factors[s]), values[((first + s) * H + head % H) * 64 + quad], sum);
    }
    sums[thread] = sum;
    barrier();
    if (thread < 16) {
        for (uint g = 1; g < 16; g++) {
            sum += sums[g * 16 + thread];
        }
        const vec4 gate = proj[row * (stride / 4) + head * 128 + 64 + quad];
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
