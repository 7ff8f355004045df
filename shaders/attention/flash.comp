// Prefill attention in f32. Rust side: src/kernels/flash.rs.
//
// A workgroup takes 64 rows, that is 64 / H tokens with all query heads of one KV head, and walks through the keys in
// tiles of 32 at absolute positions. A tile of K, then of V, is decoded once, half the dimensions at a time. An
// invocation has the scores of 4 rows x 2 keys, and the sums of 4 rows x 16 dimensions; queries come through
// the cache. What a row computes does not depend on the other rows of its workgroup: further tiles add zeros.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

layout(local_size_x_id = 0) in; // 256
layout(constant_id = 1) const uint H = 8; // query heads of a KV head, at most 8
layout(constant_id = 2) const uint KV_HEADS = 2;
layout(constant_id = 3) const uint K_TYPE = 1;
layout(constant_id = 4) const uint V_TYPE = 2;

layout(push_constant) uniform Push {
    uint n;        // tokens that the buffers have room for
    uint stride;   // values of a row of the projections
    uint y_stride; // values of a row of the output
};

#include "control.glsl"
#include "kv.glsl"

layout(set = 0, binding = 3, std430) readonly restrict buffer Queries { vec4 queries[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { vec4 y[]; };
layout(set = 0, binding = 7, std430) readonly restrict buffer Proj { vec4 proj[]; };

const uint TOKENS = 64 / H;
const uint TILE = 32;
const float LOG2_E = 1.44269504;
const float LOWEST = -3e38;

// Half the dimensions of 32 keys; a row of 128 values is padded by 4 against bank conflicts.
const uint ROW = 33;
shared vec4 tile[TILE * ROW];
// Scores, then weights; padded likewise.
shared float weights[64 * 33];
shared float rescale[64];

// Token and head of a row.
uint row_token(const uint row) {
    return min(row / H, TOKENS - 1);
}

void stage_keys(const uint head, const uint first, const uint keys, const uint part) {
    const uint key = gl_LocalInvocationID.x % TILE;
    const uint unit = gl_LocalInvocationID.x / TILE;
    const uint pos = min(first + key, keys - 1);
    vec4 v[4];
    k_half_block(rows[0].page + pos / PAGE_KEYS, head, pos % PAGE_KEYS, part * 4 + unit / 2, unit % 2, v);
    [[unroll]] for (uint i = 0; i < 4; i++) {
        tile[key * ROW + unit * 4 + i] = v[i];
    }
}

void stage_values(const uint head, const uint first, const uint keys, const uint part) {
    const uint octet = part * 16 + gl_LocalInvocationID.x % 16;
    [[unroll]] for (uint i = 0; i < 2; i++) {
        const uint key = gl_LocalInvocationID.x / 16 + 16 * i;
        const uint pos = min(first + key, keys - 1);
        const uint page = rows[0].page + pos / PAGE_KEYS;
        const uvec4 words = v_octet(page, head, pos % PAGE_KEYS, octet);
        float scale = 1.0;
        if (V_TYPE != KV_F16) {
            scale = half_value(uint(v_scales[v_scale_at(page, head, pos % PAGE_KEYS, octet / 4)]));
        }
        vec4 low;
        vec4 high;
        v_values(words, scale, low, high);
        tile[key * ROW + (v_dim(octet, 0) - part * 128) / 4] = low;
        tile[key * ROW + (v_dim(octet, 4) - part * 128) / 4] = high;
    }
}

// Adds the products of half the dimensions to the scores of rows 4 r .. and keys c, c + 16.
void score(inout vec2 s[4], const uint q[4], const uint part) {
    const uint c = gl_LocalInvocationID.x % 16;
    for (uint g = 0; g < 32; g++) {
        const vec4 low = tile[c * ROW + g];
        const vec4 high = tile[(c + 16) * ROW + g];
        [[unroll]] for (uint i = 0; i < 4; i++) {
            const vec4 query = queries[q[i] + part * 32 + g];
            [[unroll]] for (uint j = 0; j < 4; j++) {
                s[i].x = fma(query[j], low[j], s[i].x);
                s[i].y = fma(query[j], high[j], s[i].y);
            }
        }
    }
}

// Turns the scores of a row into weights: four invocations a row, eight keys each. `visible` counts the keys of the
// tile that the row sees.
void weigh(inout vec2 total, const int visible) {
    const uint row = gl_LocalInvocationID.x / 4;
    const uint part = gl_LocalInvocationID.x % 4;
    float s[8];
    float most = LOWEST;
    [[unroll]] for (uint j = 0; j < 8; j++) {
        s[j] = weights[row * 33 + part * 8 + j];
        most = int(part * 8 + j) < visible ? max(most, s[j]) : most;
    }
    most = max(most, subgroupShuffleXor(most, 1));
    most = max(most, subgroupShuffleXor(most, 2));
    most = max(most, total.x);
    float sum = 0.0;
    [[unroll]] for (uint j = 0; j < 8; j++) {
        const float w = int(part * 8 + j) < visible ? exp2(s[j] - most) : 0.0;
        weights[row * 33 + part * 8 + j] = w;
        sum += w;
    }
    sum += subgroupShuffleXor(sum, 1);
    sum += subgroupShuffleXor(sum, 2);
    const float factor = exp2(total.x - most);
    total = vec2(most, fma(total.y, factor, sum));
    rescale[row] = factor;
}

// Adds the weighted values of half the dimensions.
void add_values(inout vec4 sums[4][4], const uint part) {
    const uint row = gl_LocalInvocationID.x / 16 * 4;
    const uint c = gl_LocalInvocationID.x % 16;
    for (uint key = 0; key < TILE; key++) {
        const vec4 low = tile[key * ROW + c];
        const vec4 high = tile[key * ROW + c + 16];
        [[unroll]] for (uint i = 0; i < 4; i++) {
            const vec4 w = vec4(weights[(row + i) * 33 + key]);
            sums[i][2 * part] = fma(w, low, sums[i][2 * part]);
            sums[i][2 * part + 1] = fma(w, high, sums[i][2 * part + 1]);
        }
    }
}

// Divides by the sums of weights, applies the gates, and stores.
void finish(const vec4 sums[4][4], const float total, const uint head, const uint token, const uint tokens) {
    if (gl_LocalInvocationID.x % 4 == 0) {
        rescale[gl_LocalInvocationID.x / 4] = total;
    }
    barrier();
    [[unroll]] for (uint i = 0; i < 4; i++) {
        const uint row = gl_LocalInvocationID.x / 16 * 4 + i;
        if (row < TOKENS * H && row / H < tokens) {
            const uint t = token + row / H;
            const uint query_head = head * H + row % H;
            [[unroll]] for (uint j = 0; j < 4; j++) {
                const uint quad = j * 16 + gl_LocalInvocationID.x % 16;
                const vec4 gate = proj[t * (stride / 4) + query_head * 128 + 64 + quad];
                y[t * (y_stride / 4) + query_head * 64 + quad] =
                    sums[i][j] / rescale[row] / (1.0 + exp(-gate));
            }
        }
    }
}

// Tokens `token` .. `token + tokens` of the chunk, at most TOKENS and at least one.
void attend(const uint head, const uint token, const uint tokens) {
    uint q[4];
    [[unroll]] for (uint i = 0; i < 4; i++) {
        const uint row = gl_LocalInvocationID.x / 16 * 4 + i;
        const uint t = token + min(row_token(row), tokens - 1);
        q[i] = (t * KV_HEADS * H + head * H + row % H) * 64;
    }
    const uint first_pos = rows[0].pos + token;
    // Where the row of weigh() stands, and how many keys the last row sees.
    const uint row_pos = first_pos + min(row_token(gl_LocalInvocationID.x / 4), tokens - 1);
    const uint keys = first_pos + tokens;

    vec4 sums[4][4];
    [[unroll]] for (uint i = 0; i < 16; i++) {
        sums[i / 4][i % 4] = vec4(0.0);
    }
    vec2 total = vec2(LOWEST, 0.0);
    for (uint first = 0; first < keys; first += TILE) {
        vec2 s[4] = vec2[4](vec2(0.0), vec2(0.0), vec2(0.0), vec2(0.0));
        [[unroll]] for (uint part = 0; part < 2; part++) {
            barrier();
            stage_keys(head, first, keys, part);
            barrier();
            score(s, q, part);
        }
        [[unroll]] for (uint i = 0; i < 4; i++) {
            const uint at = (gl_LocalInvocationID.x / 16 * 4 + i) * 33 + gl_LocalInvocationID.x % 16;
            weights[at] = s[i].x * LOG2_E;
            weights[at + 16] = s[i].y * LOG2_E;
        }
        barrier();
        stage_values(head, first, keys, 0);
        weigh(total, int(row_pos) - int(first) + 1);
        barrier();
        [[unroll]] for (uint i = 0; i < 4; i++) {
            const float factor = rescale[gl_LocalInvocationID.x / 16 * 4 + i];
            [[unroll]] for (uint j = 0; j < 4; j++) {
                sums[i][j] *= factor;
            }
        }
        add_values(sums, 0);
        barrier();
        stage_values(head, first, keys, 1);
        barrier();
        add_values(sums, 1);
    }
    barrier();
    finish(sums, total.y, head, token, tokens);
}

void main() {
    // The longest rows first, so that what remains at the end is short.
    const uint groups = (rows[0].query_tokens + TOKENS - 1) / TOKENS;
    if (gl_WorkGroupID.x < groups && (rows[0].flags & ROW_IDLE) == 0) {
        const uint done = (groups - 1 - gl_WorkGroupID.x) * TOKENS;
        const uint tokens = min(TOKENS, rows[0].query_tokens - done);
        attend(gl_WorkGroupID.y, rows[0].query_first + done, tokens);
    }
}
