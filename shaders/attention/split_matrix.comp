// Decode attention over one span of keys on matrix units: f16 products, f32 sums. Rust side:
// src/kernels/attention.rs; what it computes and leaves is that of split.comp.
//
// The query heads of a KV head are the rows of a matrix, those that are missing zeros. Keys come KEYS at a time, K and
// then V as halves through the same shared memory. Scores: a subgroup takes M keys and half of the dimensions;
// the halves are added where weights are made. Values: a subgroup takes some of the dimensions, all keys. The next
// codes are under way meanwhile.
//
// Weights are exp2(score - maximum + 4): small ones stay in the range that f16 holds, and the same factor is in their
// sum.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

layout(local_size_x_id = 0) in; // 256
layout(constant_id = 1) const uint SG = 32;
layout(constant_id = 2) const uint H = 8; // query heads of a KV head, at most M
layout(constant_id = 3) const uint KV_HEADS = 2;
layout(constant_id = 4) const uint PAIRS = 32; // rotated pairs of a head, a multiple of 32
layout(constant_id = 5) const uint K_TYPE = 1;
layout(constant_id = 6) const uint V_TYPE = 2;
layout(constant_id = 7) const uint M = 16; // rows, columns and depth of a matrix
layout(constant_id = 8) const uint KEYS = 64; // or 32

layout(push_constant) uniform Push {
    uint stride; // values of a row of the projections
    float eps;
};

// Rows of K and V before they are quantised; then K or V as halves; at last the sums.
const uint ROW = 256 / 8 + 1;
shared uvec4 tile[KEYS * ROW];

float staged(const uint i) {
    return uintBitsToFloat(tile[i / 4][i % 4]);
}

#define KV_ACCESS
#define KV_STORE
#include "control.glsl"
#include "kv.glsl"
#include "kv_tile.glsl"
#include "heads.glsl"
#include "decode_row.glsl"

layout(set = 0, binding = 4, std430) writeonly restrict buffer Values { vec4 values[]; };
layout(set = 0, binding = 10, std430) writeonly restrict buffer Stats { vec2 stats[]; };

const float RAISE = 4.0;
const uint SUBGROUPS = 256 / SG;
const uint KEY_TILES = KEYS / M;
// Products of a subgroup along half of the dimensions, and of columns of values.
const uint STEPS = HEAD_DIM / 2 / M;
const uint COLUMNS = HEAD_DIM / M / SUBGROUPS;
// Blocks of K, and of V, of an invocation.
const uint UNITS = KEYS * 8 / 256;

// In uvec4, padded against bank conflicts: scores of a row, halves of the dimensions one after the other, where the queries
// lie before; weights of a row; sums of a row. Factors are not padded.
const uint SCORE_ROW = KEYS / 4 + 1;
const uint WEIGHT_ROW = KEYS / 8 + 1;
const uint SUM_ROW = HEAD_DIM / 4 + 1;
shared uvec4 scores[M * (2 * SCORE_ROW > ROW ? 2 * SCORE_ROW : ROW)];
shared uvec4 weights[M * WEIGHT_ROW];
shared uvec4 factors[M * M / 4];

// Loads of an invocation: neighbours have neighbouring keys of K, and neighbouring blocks of V.
void load_keys(out Block blocks[UNITS], const uint first_page, const uint head, const uint first) {
    [[unroll]] for (uint u = 0; u < UNITS; u++) {
        const uint key = first % PAGE_KEYS + gl_LocalInvocationID.x % KEYS;
        const uint block = gl_LocalInvocationID.x / KEYS + 256 / KEYS * u;
        blocks[u] = load_k_block(first_page + first / PAGE_KEYS, head, key, block);
    }
}

void load_values(out Block blocks[UNITS], const uint first_page, const uint head, const uint first) {
    [[unroll]] for (uint u = 0; u < UNITS; u++) {
        const uint key = first % PAGE_KEYS + gl_LocalInvocationID.x / 8 + 32 * u;
        blocks[u] = load_v_block(first_page + first / PAGE_KEYS, head, key, gl_LocalInvocationID.x % 8);
    }
}

// Brings K to the tile; `fresh` is the key that was stored after it was loaded, if it is among these.
void stage_keys(const Block blocks[UNITS], const uint fresh) {
    const uint key = gl_LocalInvocationID.x % KEYS;
    [[unroll]] for (uint u = 0; u < UNITS; u++) {
        const uint block = gl_LocalInvocationID.x / KEYS + 256 / KEYS * u;
        Block b = blocks[u];
        if (key == fresh) {
            [[unroll]] for (uint c = 0; c < K_BLOCK_CHUNKS; c++) {
                const uint at = (block * K_BLOCK_CHUNKS + c) * 4;
                b.c[c] = uvec4(fresh_k[at], fresh_k[at + 1], fresh_k[at + 2], fresh_k[at + 3]);
            }
            b.scale = fresh_k_scales[block];
        }
        [[unroll]] for (uint i = 0; i < 4; i++) {
            tile[key * ROW + block * 4 + i] = half_chunk(K_TYPE, b, i);
        }
    }
}

// Brings V to the tile, and zeros from key `count` on: what lies there may be a NaN, which no weight hides.
void stage_values(const Block blocks[UNITS], const uint fresh, const uint count) {
    const uint block = gl_LocalInvocationID.x % 8;
    [[unroll]] for (uint u = 0; u < UNITS; u++) {
        const uint key = gl_LocalInvocationID.x / 8 + 32 * u;
        Block b = blocks[u];
        if (key == fresh) {
            [[unroll]] for (uint c = 0; c < V_BLOCK_CHUNKS; c++) {
                const uint at = (block * V_BLOCK_CHUNKS + c) * 4;
                b.c[c] = uvec4(fresh_v[at], fresh_v[at + 1], fresh_v[at + 2], fresh_v[at + 3]);
            }
            b.scale = fresh_v_scales[block];
        }
        [[unroll]] for (uint i = 0; i < 4; i++) {
            const uvec4 halves = half_chunk(V_TYPE, b, i);
            tile[key * ROW + v_place(block, i)] = key < count ? halves : uvec4(0);
        }
    }
}

// Makes the queries of the row as halves in `scores`, and where the new row is wanted K and V in the tile.
void prepare(const uint row, const uint head, const bool fresh) {
    const uint lane = gl_LocalInvocationID.x % 32;
    const uint units = fresh ? H + 2 : H;
    vec2 angles[ANGLES];
    load_angles(angles, rows[row].pos);
    // Rows without a head. Their weights stay zero; their sums are multiplied by any finite number.
    for (uint i = gl_LocalInvocationID.x; i < (M - H) * ROW; i += 256) {
        scores[H * ROW + i] = uvec4(0);
    }
    for (uint i = gl_LocalInvocationID.x; i < M * WEIGHT_ROW; i += 256) {
        weights[i] = uvec4(0);
    }
    for (uint i = gl_LocalInvocationID.x; i < M * M / 4; i += 256) {
        factors[i] = uvec4(0);
    }
    for (uint first = 0; first < units; first += 8) {
        const uint unit = first + gl_LocalInvocationID.x / 32;
        Head h = load_head(row, head, unit);
        normalise(h, unit > H, angles);
        [[unroll]] for (uint m = 0; m < 8; m++) {
            // A word of a row of K has a value and the next one, or the one after that.
            const uint apart = K_TYPE == KV_F16 ? 1 : 2;
            const float other = subgroupShuffleXor(h.v[m], apart);
            const uint word = 16 * m + (K_TYPE == KV_F16 ? lane / 2 : lane / 4 * 2 + lane % 2);
            if (unit < H && (lane & apart) == 0) {
                scores[unit * ROW + word / 4][word % 4] = packHalf2x16(vec2(h.v[m], other) * Q_SCALE);
            }
            if (unit >= H && unit < units) {
                const uint at = (unit - H) * HEAD_DIM + 32 * m + lane;
                tile[at / 4][at % 4] = floatBitsToUint(h.v[m]);
            }
        }
    }
    barrier();
}

// Turns the scores of a head into weights. `total` is the running (maximum, sum), the same in its 32 invocations.
void weigh(inout vec2 total, const uint count) {
    const uint head = min(gl_LocalInvocationID.x / 32, H - 1);
    const uint lane = gl_LocalInvocationID.x % 32;
    const bool mine = gl_LocalInvocationID.x / 32 < H;
    // Two keys of each invocation, where there are so many.
    const uint pair = min(lane, KEYS / 2 - 1);
    const bool there = lane < KEYS / 2;
    vec2 s;
    [[unroll]] for (uint i = 0; i < 2; i++) {
        const uint key = 2 * pair + i;
        const uint at = head * SCORE_ROW + key / 4;
        s[i] = uintBitsToFloat(scores[at][key % 4]) + uintBitsToFloat(scores[M * SCORE_ROW + at][key % 4]);
    }
    const bvec2 seen = bvec2(there && 2 * pair < count, there && 2 * pair + 1 < count);
    s = mix(vec2(LOWEST), s, seen);
    const float most = max(total.x, head_max(max(s.x, s.y)));
    const vec2 w = mix(vec2(0.0), exp2(s - most + RAISE), seen);
    // What is summed is what is multiplied with the values.
    const uint halves = packHalf2x16(w);
    const vec2 rounded = unpackHalf2x16(halves);
    const float factor = exp2(total.x - most);
    total = vec2(most, fma(total.y, factor, head_sum(rounded.x + rounded.y)));
    if (mine && there) {
        weights[head * WEIGHT_ROW + lane / 4][lane % 4] = halves;
    }
    if (mine && lane < M) {
        factors[(head * M + lane) / 4][lane % 4] = floatBitsToUint(factor);
    }
}

// Stores the sums, which lie in the tile, and what belongs to them.
void finish(const vec2 total, const uint result) {
    const uint head = gl_LocalInvocationID.x / 32;
    const uint lane = gl_LocalInvocationID.x % 32;
    if (head < H) {
        [[unroll]] for (uint i = 0; i < 2; i++) {
            const uint quad = lane + 32 * i;
            const vec4 sum = uintBitsToFloat(tile[head * SUM_ROW + v_quad(quad)]);
            values[(result * H + head) * 64 + quad] = v_ordered(sum);
        }
        if (lane == 0) {
            stats[result * H + head] = total;
        }
    }
}

// The keys of the span, `count` of them from position `first` on.
void attend(const uint row, const uint head, const uint first, const uint count) {
    const uint page = rows[row].page;
    const uint pos = rows[row].pos;
    const bool fresh = first + count > pos;
    const uint task = min(gl_SubgroupID, 2 * KEY_TILES - 1);
    const uint key_tile = task % KEY_TILES;
    const uint side = task / KEY_TILES;

    // The first keys are under way while the queries are made.
    Block k[UNITS];
    Block v[UNITS];
    load_keys(k, page, head, first);
    load_values(v, page, head, first);
    prepare(row, head, fresh);
    if (fresh) {
        store_fresh(pos, page, head);
        barrier();
    }
    coopmat<float16_t, gl_ScopeSubgroup, M, M, gl_MatrixUseA> q[STEPS];
    [[unroll]] for (uint d = 0; d < STEPS; d++) {
        coopMatLoad(q[d], scores, side * 16 + d * M / 8, ROW, gl_CooperativeMatrixLayoutRowMajor);
    }
    coopmat<float, gl_ScopeSubgroup, M, M, gl_MatrixUseAccumulator> sums[COLUMNS];
    [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
        sums[c] = coopmat<float, gl_ScopeSubgroup, M, M, gl_MatrixUseAccumulator>(0.0);
    }
    vec2 total = vec2(LOWEST, 0.0);
    for (uint done = 0; done < count; done += KEYS) {
        const uint left = count - done;
        // Keys from here to the new row, if it is here.
        const uint newest = fresh ? left - 1 : KEYS;
        const uint next = first + (done + KEYS < count ? done + KEYS : done);
        stage_keys(k, newest);
        barrier();
        load_keys(k, page, head, next);
        coopmat<float, gl_ScopeSubgroup, M, M, gl_MatrixUseAccumulator> s =
            coopmat<float, gl_ScopeSubgroup, M, M, gl_MatrixUseAccumulator>(0.0);
        [[unroll]] for (uint d = 0; d < STEPS; d++) {
            coopmat<float16_t, gl_ScopeSubgroup, M, M, gl_MatrixUseB> m;
            const uint at = key_tile * M * ROW + side * 16 + d * M / 8;
            coopMatLoad(m, tile, at, ROW, gl_CooperativeMatrixLayoutColumnMajor);
            s = coopMatMulAdd(q[d], m, s);
        }
        if (gl_SubgroupID < 2 * KEY_TILES) {
            const uint at = side * M * SCORE_ROW + key_tile * M / 4;
            coopMatStore(s, scores, at, SCORE_ROW, gl_CooperativeMatrixLayoutRowMajor);
        }
        barrier();
        weigh(total, left);
        stage_values(v, newest, left);
        barrier();
        load_values(v, page, head, next);
        coopmat<float, gl_ScopeSubgroup, M, M, gl_MatrixUseAccumulator> factor;
        coopMatLoad(factor, factors, 0, M / 4, gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
            sums[c] *= factor;
        }
        [[unroll]] for (uint t = 0; t < KEY_TILES; t++) {
            coopmat<float16_t, gl_ScopeSubgroup, M, M, gl_MatrixUseA> w;
            coopMatLoad(w, weights, t * M / 8, WEIGHT_ROW, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
                coopmat<float16_t, gl_ScopeSubgroup, M, M, gl_MatrixUseB> m;
                const uint at = t * M * ROW + (gl_SubgroupID * COLUMNS + c) * M / 8;
                coopMatLoad(m, tile, at, ROW, gl_CooperativeMatrixLayoutRowMajor);
                sums[c] = coopMatMulAdd(w, m, sums[c]);
            }
        }
        barrier();
    }
    [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
        const uint at = (gl_SubgroupID * COLUMNS + c) * M / 4;
        coopMatStore(sums[c], tile, at, SUM_ROW, gl_CooperativeMatrixLayoutRowMajor);
    }
    barrier();
    finish(total, (row * KV_HEADS + head) * gl_NumWorkGroups.x + gl_WorkGroupID.x);
}

void main() {
    const uint row = gl_WorkGroupID.z;
    const uint keys = rows[row].pos + 1;
    const uint first = gl_WorkGroupID.x * rows[row].span;
    if ((rows[row].flags & ROW_IDLE) == 0 && first < keys) {
        attend(row, gl_WorkGroupID.y, first, min(rows[row].span, keys - first));
    }
}
