// Decode attention over one span of keys, for the query heads of one KV head of one row. Rust side:
// src/kernels/attention.rs.
//
// Every workgroup normalises and rotates the queries; the one whose span holds the new position also makes, stores
// and uses the new row of K and V. Scores: an invocation takes one block of 32 dimensions of two keys, for all
// heads; the eight blocks are then added in order. Values: an invocation takes eight dimensions of eight keys,
// for all heads; the eight groups of keys are added at the end. Nothing depends on other rows, nor on how many
// splits there are, only on the span.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

layout(local_size_x_id = 0) in; // 256
layout(constant_id = 1) const uint SG = 32;
layout(constant_id = 2) const uint H = 8; // query heads of a KV head, at most 8
layout(constant_id = 3) const uint KV_HEADS = 2;
layout(constant_id = 4) const uint PAIRS = 32; // rotated pairs of a head
layout(constant_id = 5) const uint K_TYPE = 1;
layout(constant_id = 6) const uint V_TYPE = 2;

layout(push_constant) uniform Push {
    uint stride; // values of a row of the projections
    float eps;
};

// Values of a head as the groups of keys leave them: the d-th of octet o at 36 d + o. Writers have neighbouring
// octets, readers neighbouring dimensions; both find 32 banks.
const uint OCTETS = 8 * 36;

// Rows of K and V before they are quantised; then scores by block, head, key; at last values of two heads by
// group of keys.
shared float scratch[2 * 8 * OCTETS];

float staged(const uint i) {
    return scratch[i];
}

#define KV_ACCESS
#define KV_STORE
#include "control.glsl"
#include "kv.glsl"
#include "heads.glsl"
#include "decode_row.glsl"

layout(set = 0, binding = 4, std430) writeonly restrict buffer Values { float values[]; };
layout(set = 0, binding = 10, std430) writeonly restrict buffer Stats { vec2 stats[]; };

// Vectors of an invocation's weighted values: eight dimensions for each head.
const uint QUADS = 2 * H;

shared vec4 queries[H * 64];
shared float weights[64 * H];
shared float rescale[H];

// What is loaded of a page ahead of its use: one block of two keys; an octet of eight keys.
struct Keys {
    uvec4 low[4];
    uvec4 high[4];
    vec2 scales;
};
struct Octets {
    uvec4 words[8];
    float scales[8];
};

void load_keys(out Keys keys, const uint page, const uint head) {
    const uint block = gl_LocalInvocationID.x / 32;
    const uint key = gl_LocalInvocationID.x % 32;
    [[unroll]] for (uint c = 0; c < K_BLOCK_CHUNKS; c++) {
        const uint at = k_chunk_at(page, head, block * K_BLOCK_CHUNKS + c, key);
        keys.low[c] = k_codes[at];
        keys.high[c] = k_codes[at + 32];
    }
    keys.scales = vec2(1.0);
    if (K_TYPE != KV_F16) {
        const uint at = k_scale_at(page, head, block, key);
        keys.scales = vec2(half_value(uint(k_scales[at])), half_value(uint(k_scales[at + 32])));
    }
}

void load_octets(out Octets octets, const uint page, const uint head) {
    const uint octet = gl_LocalInvocationID.x % 32;
    const uint key = gl_LocalInvocationID.x / 32 * 8;
    [[unroll]] for (uint i = 0; i < 8; i++) {
        octets.words[i] = v_octet(page, head, key + i, octet);
        octets.scales[i] = 1.0;
        if (V_TYPE != KV_F16) {
            octets.scales[i] = half_value(uint(v_scales[v_scale_at(page, head, key + i, octet / 4)]));
        }
    }
}

// Rotates what lies in shared memory.
void rotate(const vec2 angles[ANGLES], const bool fresh) {
    const uint units = fresh ? H + 1 : H;
    for (uint unit = gl_LocalInvocationID.x / 32; unit < units; unit += 8) {
        [[unroll]] for (uint a = 0; a < ANGLES; a++) {
            const uint i = a * 32 + gl_LocalInvocationID.x % 32;
            const uint j = i + PAIRS;
            if (i < PAIRS && unit < H) {
                const uint at = unit * 64;
                const vec2 pair = rotated(queries[at + i / 4][i % 4], queries[at + j / 4][j % 4], angles[a]);
                queries[at + i / 4][i % 4] = pair.x;
                queries[at + j / 4][j % 4] = pair.y;
            } else if (i < PAIRS) {
                const vec2 pair = rotated(scratch[i], scratch[j], angles[a]);
                scratch[i] = pair.x;
                scratch[j] = pair.y;
            }
        }
    }
}

// Makes the queries of the row in `queries`, and where the new row is wanted K in scratch[0 .. 256] and V in
// scratch[256 .. 512].
void prepare(const uint row, const uint head, const bool fresh) {
    const uint lane = gl_LocalInvocationID.x % 32;
    const uint units = fresh ? H + 2 : H;
    vec2 angles[ANGLES];
    load_angles(angles, rows[row].pos);
    for (uint first = 0; first < units; first += 8) {
        const uint unit = first + gl_LocalInvocationID.x / 32;
        Head h = load_head(row, head, unit);
        normalise(h, unit > H, angles);
        [[unroll]] for (uint m = 0; m < 8; m++) {
            const uint dim = 32 * m + lane;
            if (unit < H) {
                queries[unit * 64 + dim / 4][dim % 4] = h.v[m] * Q_SCALE;
            } else if (unit < units) {
                scratch[(unit - H) * HEAD_DIM + dim] = h.v[m];
            }
        }
    }
    barrier();
    if (!ROTATE_IN_PLACE) {
        rotate(angles, fresh);
        barrier();
    }
}

// Puts the new row in the place of what was loaded of key `key` of the page before it was stored.
void refresh_keys(inout Keys keys, const uint key) {
    const uint block = gl_LocalInvocationID.x / 32;
    const bool low = key == gl_LocalInvocationID.x % 32;
    const bool high = key == gl_LocalInvocationID.x % 32 + 32;
    [[unroll]] for (uint c = 0; c < K_BLOCK_CHUNKS; c++) {
        const uint at = (block * K_BLOCK_CHUNKS + c) * 4;
        const uvec4 chunk = uvec4(fresh_k[at], fresh_k[at + 1], fresh_k[at + 2], fresh_k[at + 3]);
        keys.low[c] = low ? chunk : keys.low[c];
        keys.high[c] = high ? chunk : keys.high[c];
    }
    if (K_TYPE != KV_F16) {
        keys.scales.x = low ? half_value(fresh_k_scales[block]) : keys.scales.x;
        keys.scales.y = high ? half_value(fresh_k_scales[block]) : keys.scales.y;
    }
}

uvec4 fresh_octet(const uint octet) {
    if (V_TYPE == KV_F16) {
        const uint at = octet * 4;
        return uvec4(fresh_v[at], fresh_v[at + 1], fresh_v[at + 2], fresh_v[at + 3]);
    }
    if (V_TYPE == KV_Q8_0) {
        return uvec4(fresh_v[octet * 2], fresh_v[octet * 2 + 1], 0, 0);
    }
    return uvec4(fresh_v[octet], 0, 0, 0);
}

// Of the last page: the new row, where this workgroup has it (`key` is below 64), and zeros after the last key.
void refresh_octets(inout Octets octets, const uint key, const uint count) {
    const uint octet = gl_LocalInvocationID.x % 32;
    [[unroll]] for (uint i = 0; i < 8; i++) {
        const uint mine = gl_LocalInvocationID.x / 32 * 8 + i;
        if (mine == key) {
            octets.words[i] = fresh_octet(octet);
            octets.scales[i] = V_TYPE == KV_F16 ? 1.0 : half_value(fresh_v_scales[octet / 4]);
        }
        // Codes too: what lies there may be the halves of a NaN.
        octets.words[i] = mine < count ? octets.words[i] : uvec4(0);
        octets.scales[i] = mine < count ? octets.scales[i] : 0.0;
    }
}

// This block's part of the scores of two keys.
void score(const Keys keys) {
    const uint block = gl_LocalInvocationID.x / 32;
    const uint key = gl_LocalInvocationID.x % 32;
    precise vec2 sums[H];
    [[unroll]] for (uint h = 0; h < H; h++) {
        sums[h] = vec2(0.0);
    }
    [[unroll]] for (uint g = 0; g < 8; g++) {
        const vec4 low = k_group(keys.low, g);
        const vec4 high = k_group(keys.high, g);
        [[unroll]] for (uint h = 0; h < H; h++) {
            const vec4 q = queries[h * 64 + block * 8 + g];
            [[unroll]] for (uint i = 0; i < 4; i++) {
                sums[h].x = fma(low[i], q[i], sums[h].x);
                sums[h].y = fma(high[i], q[i], sums[h].y);
            }
        }
    }
    [[unroll]] for (uint h = 0; h < H; h++) {
        scratch[(block * H + h) * 64 + key] = sums[h].x * keys.scales.x;
        scratch[(block * H + h) * 64 + key + 32] = sums[h].y * keys.scales.y;
    }
}

// Adds the blocks of two keys of a head, and turns scores into weights. `total` is the running (maximum, sum) of
// the head, the same in its 32 invocations.
void weigh(inout vec2 total, const uint count) {
    const uint head = min(gl_LocalInvocationID.x / 32, H - 1);
    const uint key = gl_LocalInvocationID.x % 32;
    vec2 s = vec2(0.0);
    [[unroll]] for (uint block = 0; block < 8; block++) {
        const uint at = (block * H + head) * 64 + key;
        s += vec2(scratch[at], scratch[at + 32]);
    }
    s = vec2(key < count ? s.x : LOWEST, key + 32 < count ? s.y : LOWEST);
    const float most = max(total.x, head_max(max(s.x, s.y)));
    // A key past the end has weight 0, even where every score is as low as it gets.
    const vec2 w = vec2(key < count ? exp2(s.x - most) : 0.0, key + 32 < count ? exp2(s.y - most) : 0.0);
    const float factor = exp2(total.x - most);
    total = vec2(most, fma(total.y, factor, head_sum(w.x + w.y)));
    if (gl_LocalInvocationID.x / 32 < H) {
        weights[key * H + head] = w.x;
        weights[(key + 32) * H + head] = w.y;
        rescale[head] = factor;
    }
}

// Adds the weighted values of eight keys.
void add_values(inout vec4 sums[QUADS], const Octets octets) {
    [[unroll]] for (uint h = 0; h < H; h++) {
        sums[2 * h] *= rescale[h];
        sums[2 * h + 1] *= rescale[h];
    }
    [[unroll]] for (uint i = 0; i < 8; i++) {
        const uint key = gl_LocalInvocationID.x / 32 * 8 + i;
        vec4 low;
        vec4 high;
        v_values(octets.words[i], octets.scales[i], low, high);
        [[unroll]] for (uint h = 0; h < H; h++) {
            const vec4 w = vec4(weights[key * H + h]);
            sums[2 * h] = fma(w, low, sums[2 * h]);
            sums[2 * h + 1] = fma(w, high, sums[2 * h + 1]);
        }
    }
}

// Adds the eight groups of keys, two heads at a time, and stores the span's result.
void finish(const vec4 sums[QUADS], const vec2 total, const uint result) {
    const uint octet = gl_LocalInvocationID.x % 32;
    const uint group = gl_LocalInvocationID.x / 32;
    const uint dim = gl_LocalInvocationID.x;
    const uint mine = V_TYPE == KV_Q4_0 ? (dim / 16 % 2 * 4 + dim % 4) * 36 + dim / 32 * 4 + dim / 4 % 4
                                        : dim % 8 * 36 + dim / 8;
    [[unroll]] for (uint first = 0; first < H; first += 2) {
        barrier();
        [[unroll]] for (uint i = 0; i < 2; i++) {
            const uint h = min(first + i, H - 1);
            [[unroll]] for (uint d = 0; d < 8; d++) {
                scratch[(i * 8 + group) * OCTETS + d * 36 + octet] = sums[2 * h + d / 4][d % 4];
            }
        }
        barrier();
        [[unroll]] for (uint i = 0; i < 2; i++) {
            float sum = 0.0;
            [[unroll]] for (uint g = 0; g < 8; g++) {
                sum += scratch[(i * 8 + g) * OCTETS + mine];
            }
            if (first + i < H) {
                values[(result * H + first + i) * HEAD_DIM + gl_LocalInvocationID.x] = sum;
            }
        }
    }
    if (octet == 0 && group < H) {
        stats[result * H + group] = total;
    }
}

// The keys of the span, `count` of them from position `first` on.
void attend(const uint row, const uint head, const uint first, const uint count) {
    const uint pos = rows[row].pos;
    const bool fresh = first + count > pos;
    const uint page = rows[row].page + first / PAGE_KEYS;
    const uint pages = (count + PAGE_KEYS - 1) / PAGE_KEYS;

    // The first page is under way while the queries are made.
    Keys keys;
    Octets octets;
    load_keys(keys, page, head);
    load_octets(octets, page, head);
    prepare(row, head, fresh);
    if (fresh) {
        store_fresh(pos, rows[row].page, head);
        barrier();
    }

    vec4 sums[QUADS];
    [[unroll]] for (uint i = 0; i < QUADS; i++) {
        sums[i] = vec4(0.0);
    }
    vec2 total = vec2(LOWEST, 0.0);
    for (uint p = 0; p < pages; p++) {
        const uint left = count - p * PAGE_KEYS;
        const bool last = p + 1 == pages;
        const uint key = fresh && last ? left - 1 : PAGE_KEYS;
        if (last) {
            refresh_keys(keys, key);
            refresh_octets(octets, key, left);
        }
        score(keys);
        if (!last) {
            load_keys(keys, page + p + 1, head);
        }
        barrier();
        weigh(total, left);
        barrier();
        add_values(sums, octets);
        if (!last) {
            load_octets(octets, page + p + 1, head);
        }
    }
    const uint result = (row * KV_HEADS + head) * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    finish(sums, total, result);
}

void main() {
    const uint row = gl_WorkGroupID.z;
    const uint keys = rows[row].pos + 1;
    const uint first = gl_WorkGroupID.x * rows[row].span;
    if ((rows[row].flags & ROW_IDLE) == 0 && first < keys) {
        attend(row, gl_WorkGroupID.y, first, min(rows[row].span, keys - first));
    }
}
