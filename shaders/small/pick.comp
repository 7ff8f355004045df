// The best id of each row, from the best of each workgroup of the head: the greedy token, and the reference for
// the candidates. Equal logits go to the lower id. One workgroup for each row. Rust side: src/kernels/head.rs.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

#include "control.glsl"
#include "result.glsl"

layout(local_size_x_id = 0) in;

layout(push_constant) uniform Push {
    uint groups; // pairs of a row
};

layout(set = 0, binding = 3, std430) readonly restrict buffer Pairs { uvec2 pairs[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Results { uint results[]; };
layout(set = 0, binding = 7, std430) writeonly restrict buffer Histogram { uint histogram[]; };

shared uvec2 best_of[64];
shared uint failed_of[64];

// Order-preserving: a greater float is a greater key, minus infinity is 0x007fffff.
uint key_of(const uint bits) {
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

uint bits_of(const uint key) {
    return (key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key;
}

const uint KEY_OF_MINUS_INFINITY = 0x007fffffu;

void main() {
    const uint n = gl_WorkGroupID.x;
    if ((rows[n].flags & ROW_IDLE) != 0) {
        return; // the whole workgroup
    }
    if (rows[n].top_k > 0) {
        for (uint i = gl_LocalInvocationID.x; i < BINS; i += gl_WorkGroupSize.x) {
            histogram[n * BINS + i] = 0;
        }
    }
    uint key = 0;
    uint id = 0xffffffffu;
    uint failed = 0;
    for (uint i = gl_LocalInvocationID.x; i < groups; i += gl_WorkGroupSize.x) {
        const uvec2 pair = pairs[n * groups + i];
        const uint other = key_of(pair.x);
        if (pair.y == 0xffffffffu) {
            failed = 1;
        } else if (other > key || (other == key && pair.y < id)) {
            key = other;
            id = pair.y;
        }
    }
    const uint most = subgroupMax(key);
    id = subgroupMin(key == most ? id : 0xffffffffu);
    failed = subgroupMax(failed);
    if (subgroupElect()) {
        best_of[gl_SubgroupID] = uvec2(most, id);
        failed_of[gl_SubgroupID] = failed;
    }
    barrier();
    if (gl_LocalInvocationID.x == 0) {
        uvec2 best = best_of[0];
        failed = failed_of[0];
        for (uint s = 1; s < gl_NumSubgroups; s++) {
            const uvec2 other = best_of[s];
            if (other.x > best.x || (other.x == best.x && other.y < best.y)) {
                best = other;
            }
            failed |= failed_of[s];
        }
        const bool nothing = best.x <= KEY_OF_MINUS_INFINITY;
        const uint at = n * RESULT_WORDS;
        results[at + RESULT_TOKEN] = best.y;
        results[at + RESULT_FLAGS] = failed != 0 || nothing ? RESULT_FAILED : 0;
        results[at + RESULT_MAX] = bits_of(best.x);
        results[at + RESULT_SUM] = 0;
        results[at + RESULT_COUNT] = 0;
    }
}
