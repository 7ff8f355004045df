// Prefill: normalises and rotates the queries and keys of a chunk, writes the queries, and stores the rows of K and V.
// Rust side: src/kernels/rope.rs.
//
// A workgroup takes one token and either eight query heads or four KV heads (keys, then values); a head is 32
// invocations. Queries leave times 1/16, the scale of the scores.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

layout(local_size_x_id = 0) in; // 256
layout(constant_id = 1) const uint SG = 32;
layout(constant_id = 2) const uint HEADS = 16;
layout(constant_id = 3) const uint KV_HEADS = 2;
layout(constant_id = 4) const uint PAIRS = 32;
layout(constant_id = 5) const uint K_TYPE = 1;
layout(constant_id = 6) const uint V_TYPE = 2;

layout(push_constant) uniform Push {
    uint stride; // values of a row of the projections
    float eps;
};

// Eight heads.
shared float scratch[8 * 256];

float staged(const uint i) {
    return scratch[i];
}

#define KV_ACCESS writeonly
#define KV_STORE
#define KV_ONLY_STORE
#include "control.glsl"
#include "kv.glsl"
#include "heads.glsl"

layout(set = 0, binding = 3, std430) readonly restrict buffer Proj { float proj[]; };
#ifdef HALF_Q
layout(set = 0, binding = 4, std430) writeonly restrict buffer Queries { uvec2 queries[]; };
#else
layout(set = 0, binding = 4, std430) writeonly restrict buffer Queries { vec4 queries[]; };
#endif
layout(set = 0, binding = 8, std430) readonly restrict buffer QNorm { float q_norm[]; };
layout(set = 0, binding = 9, std430) readonly restrict buffer KNorm { float k_norm[]; };

const uint QUERY_GROUPS = (HEADS + 7) / 8;

// What the 32 invocations of a unit work on.
struct Unit {
    uint from;  // first value in the row of projections
    uint head;  // query head or KV head
    bool there;
    bool query;
    bool value;
};

Unit unit_of(const uint group, const uint slot) {
    Unit u;
    u.query = group < QUERY_GROUPS;
    u.value = !u.query && slot >= 4;
    u.head = u.query ? group * 8 + slot : (group - QUERY_GROUPS) * 4 + slot % 4;
    u.there = u.head < (u.query ? HEADS : KV_HEADS);
    u.head = min(u.head, (u.query ? HEADS : KV_HEADS) - 1);
    const uint row = u.value ? KV_HEADS + u.head : u.head;
    u.from = u.query ? u.head * 2 * HEAD_DIM : 2 * HEADS * HEAD_DIM + row * HEAD_DIM;
    return u;
}

void normalise(const Unit u, const uint token, const uint slot, const uint lane) {
    float v[8];
    float sum = 0.0;
    [[unroll]] for (uint m = 0; m < 8; m++) {
        v[m] = proj[token * stride + u.from + 32 * m + lane];
        sum = fma(v[m], v[m], sum);
    }
    const float scale = 1.0 / sqrt(head_sum(sum) / float(HEAD_DIM) + eps);
    [[unroll]] for (uint m = 0; m < 8; m++) {
        const uint dim = 32 * m + lane;
        precise float x = v[m];
        if (!u.value) {
            x = x * scale;
            x = x * (u.query ? q_norm[dim] : k_norm[dim]);
        }
        scratch[slot * HEAD_DIM + dim] = x;
    }
}

void rotate(const uint pos, const uint slot, const uint lane) {
    for (uint i = lane; i < PAIRS; i += 32) {
        const uint at = slot * HEAD_DIM + i;
        const vec2 pair = rotated(scratch[at], scratch[at + PAIRS], rope_angle(pos, i));
        scratch[at] = pair.x;
        scratch[at + PAIRS] = pair.y;
    }
}

void write_query(const uint token, const uint head, const uint slot, const uint lane) {
    [[unroll]] for (uint i = 0; i < 2; i++) {
        const uint dim = i * 128 + lane * 4;
        const uint at = slot * HEAD_DIM + dim;
        const vec4 q =
            vec4(scratch[at], scratch[at + 1], scratch[at + 2], scratch[at + 3]) * 0.0625;
        const uint to = ((token * HEADS + head) * HEAD_DIM + dim) / 4;
#ifdef HALF_Q
        // In the order that kv_tile.glsl brings K to.
        const vec4 p = K_TYPE == KV_F16 ? q : q.xzyw;
        queries[to] = uvec2(packHalf2x16(p.xy), packHalf2x16(p.zw));
#else
        queries[to] = q;
#endif
    }
}

void store(const Unit u, const uint pos, const uint slot, const uint lane) {
    const uint page = rows[0].page + pos / PAGE_KEYS;
    const uint key = pos % PAGE_KEYS;
    if (u.value) {
        for (uint w = lane; w < V_WORDS; w += 32) {
            store_v(page, u.head, key, w, encode(V_TYPE, slot * HEAD_DIM, w));
        }
    } else {
        for (uint w = lane; w < K_WORDS; w += 32) {
            store_k(page, u.head, key, w, encode(K_TYPE, slot * HEAD_DIM, w));
        }
    }
}

void main() {
    const uint token = gl_WorkGroupID.x;
    if (token < rows[0].tokens && (rows[0].flags & ROW_IDLE) == 0) {
        const uint pos = rows[0].pos + token;
        const uint slot = gl_LocalInvocationID.x / 32;
        const uint lane = gl_LocalInvocationID.x % 32;
        const Unit u = unit_of(gl_WorkGroupID.y, slot);
        normalise(u, token, slot, lane);
        barrier();
        if (!u.value) {
            rotate(pos, slot, lane);
        }
        barrier();
        if (u.there && u.query) {
            write_query(token, u.head, slot, lane);
        } else if (u.there) {
            store(u, pos, slot, lane);
        }
    }
}
