// Prefill attention on matrix units: f16 products, f32 sums. Rust side: src/kernels/flash.rs.
//
// A subgroup takes one query head and M tokens; a workgroup all query heads of a KV head, and GROUPS times that many
// tokens. Keys come in tiles of TILE at absolute positions: K and V are decoded to f16 in shared memory, once for
// all subgroups. A subgroup keeps its queries and its sums in matrices, and only its scores pass through
// shared memory, where rows can be told apart: there a row is SG / M invocations of eight scores each.
//
// The maximum of a row that weights refer to follows the true one only when that is more than 2^8 times larger, so
// that sums rarely have to be rescaled; weights are exp2(score - maximum + 4), at most 2^12, which keeps small
// ones out of the range that f16 cannot hold (vulkan.md 3.8). Each row decides by itself, so its bits do not depend
// on its company.
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
#extension GL_KHR_shader_subgroup_vote : require

layout(local_size_x_id = 0) in; // SG * H * GROUPS
layout(constant_id = 1) const uint SG = 32; // M * M / 8
layout(constant_id = 2) const uint H = 8; // query heads of a KV head
layout(constant_id = 3) const uint KV_HEADS = 2;
layout(constant_id = 4) const uint K_TYPE = 1;
layout(constant_id = 5) const uint V_TYPE = 2;
layout(constant_id = 6) const uint M = 16; // rows, columns and depth of a matrix
layout(constant_id = 7) const uint TILE = 32; // keys, a multiple of M, at most 64
layout(constant_id = 8) const uint GROUPS = 1;

layout(push_constant) uniform Push {
    uint n;        // tokens that the buffers have room for, at least M
    uint stride;   // values of a row of the projections
    uint y_stride; // values of a row of the output
};

#include "control.glsl"
#include "kv.glsl"
#include "kv_tile.glsl"

layout(set = 0, binding = 3, std430) readonly restrict buffer Queries { uvec4 queries[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { vec4 y[]; };
layout(set = 0, binding = 7, std430) readonly restrict buffer Proj { vec4 proj[]; };

const uint SUBGROUPS = H * GROUPS;
const uint STEPS = HEAD_DIM / M;
const uint TILES = TILE / M;
// Invocations of a row.
const uint PARTS = SG / M;
// Scores of an invocation.
const uint SCORES = TILES * 8;
const float LOG2_E = 1.44269504;
const float LOWEST = -3e38;
const float SLACK = 8.0;
const float RAISE = 4.0;

// Rows are padded by 16 bytes against bank conflicts; all in units of 16 bytes. M scores of a row, or its TILE
// weights.
const uint SCORE_ROW = M / 4 + 1;
const uint WEIGHT_ROW = TILE / 8 + 1;
const uint STAGE = M * (SCORE_ROW > WEIGHT_ROW ? SCORE_ROW : WEIGHT_ROW);
shared uvec4 k_tile[TILE * TILE_ROW];
shared uvec4 v_tile[TILE * TILE_ROW];
shared uvec4 stage[SUBGROUPS * STAGE];

// Between writes and reads of a subgroup's own part of shared memory. Mesa's CPU driver, whose subgroups of 8 run in
// lockstep, takes every barrier for one of the whole workgroup, which not all subgroups reach.
void settle() {
    subgroupMemoryBarrierShared();
    if (SG > 8) {
        subgroupBarrier();
    }
}

// Brings keys first .. first + TILE to shared memory; past the last key it is repeated, and masked later.
void stage_tile(const uint head, const uint first, const uint keys) {
    for (uint i = gl_LocalInvocationID.x; i < TILE * 8; i += gl_WorkGroupSize.x) {
        // Neighbours have neighbouring keys of K, and neighbouring blocks of V.
        const uint k_pos = min(first + i % TILE, keys - 1);
        const uint v_pos = min(first + i / 8, keys - 1);
        const uint page = rows[0].page;
        const Block k = load_k_block(page + k_pos / PAGE_KEYS, head, k_pos % PAGE_KEYS, i / TILE);
        const Block v = load_v_block(page + v_pos / PAGE_KEYS, head, v_pos % PAGE_KEYS, i % 8);
        [[unroll]] for (uint c = 0; c < 4; c++) {
            k_tile[i % TILE * TILE_ROW + i / TILE * 4 + c] = half_chunk(K_TYPE, k, c);
            v_tile[i / 8 * TILE_ROW + v_place(i % 8, c)] = half_chunk(V_TYPE, v, c);
        }
    }
}

// Running state of a row, the same in its invocations.
struct Running {
    float most;
    float sum;
    float factor; // of the last tile: what earlier sums have to be multiplied by
};

// Weights of this invocation's scores, packed; `visible` counts the keys of the tile that the row sees.
void weigh(inout Running row, const float s[SCORES], const int visible, out uvec4 weights[TILES]) {
    const int part = int(gl_SubgroupInvocationID % PARTS * 8);
    float most = LOWEST;
    [[unroll]] for (uint i = 0; i < SCORES; i++) {
        most = part + int(i / 8 * M + i % 8) < visible ? max(most, s[i]) : most;
    }
    for (uint step = 1; step < PARTS; step *= 2) {
        most = max(most, subgroupShuffleXor(most, step));
    }
    most = most > row.most + SLACK ? most : row.most;
    row.factor = exp2(row.most - most);
    row.most = most;
    float sum = 0.0;
    [[unroll]] for (uint t = 0; t < TILES; t++) {
        [[unroll]] for (uint j = 0; j < 4; j++) {
            vec2 w;
            [[unroll]] for (uint k = 0; k < 2; k++) {
                const uint i = t * 8 + j * 2 + k;
                w[k] = part + int(t * M + j * 2 + k) < visible ? exp2(s[i] - most + RAISE) : 0.0;
            }
            // What is summed is what is multiplied with the values.
            weights[t][j] = packHalf2x16(w);
            const vec2 rounded = unpackHalf2x16(weights[t][j]);
            sum += rounded.x + rounded.y;
        }
    }
    for (uint step = 1; step < PARTS; step *= 2) {
        sum += subgroupShuffleXor(sum, step);
    }
    row.sum = fma(row.sum, row.factor, sum);
}

// Puts a factor for each row where it can be loaded as a matrix.
void spread(const float factor) {
    const uint lane = gl_SubgroupInvocationID;
    const uint at = gl_SubgroupID * STAGE + lane / PARTS * SCORE_ROW + lane % PARTS * 2;
    settle();
    stage[at] = uvec4(floatBitsToUint(factor));
    stage[at + 1] = uvec4(floatBitsToUint(factor));
    settle();
}

// The tokens of a subgroup.
struct Place {
    uint head;  // query head
    uint first; // first token of the matrix
    uint from;  // tokens that are its to store
    uint to;
};

// Stores columns M step .. of the rows that lie in the stage, with the gate. An invocation has eight of them, which are
// eight dimensions.
void store(const Place place, const uint step) {
    const uint lane = gl_SubgroupInvocationID;
    const uint token = place.first + lane / PARTS;
    if (token >= place.from && token < place.to) {
        const uint chunk = step * (M / 8) + lane % PARTS;
        const uint quad = chunk % 8 * 8 + chunk / 8 * 2;
        const uint at = gl_SubgroupID * STAGE + lane / PARTS * SCORE_ROW + lane % PARTS * 2;
        [[unroll]] for (uint i = 0; i < 2; i++) {
            const vec4 gate = proj[token * (stride / 4) + place.head * 128 + 64 + quad + i];
            y[token * (y_stride / 4) + place.head * 64 + quad + i] =
                v_ordered(uintBitsToFloat(stage[at + i])) / (1.0 + exp(-gate));
        }
    }
}

// Attention of the subgroup's rows to keys 0 .. keys, which is what the last token of the workgroup sees.
void attend(const uint kv_head, const Place place, const uint keys) {
    const uint mine = gl_SubgroupID * STAGE;
    const uint lane = gl_SubgroupInvocationID;
    const uint row_pos = rows[0].pos + place.first + lane / PARTS;
    const uint last_pos = rows[0].pos + place.first + M - 1;

    coopmat<float16_t, gl_ScopeSubgroup, M, M, gl_MatrixUseA> q[STEPS];
    coopmat<float, gl_ScopeSubgroup, M, M, gl_MatrixUseAccumulator> sums[STEPS];
    const uint width = KV_HEADS * H * HEAD_DIM / 8;
    [[unroll]] for (uint d = 0; d < STEPS; d++) {
        const uint at = place.first * width + (place.head * HEAD_DIM + d * M) / 8;
        coopMatLoad(q[d], queries, at, width, gl_CooperativeMatrixLayoutRowMajor);
        sums[d] = coopmat<float, gl_ScopeSubgroup, M, M, gl_MatrixUseAccumulator>(0.0);
    }
    Running row = Running(LOWEST, 0.0, 1.0);
    for (uint first = 0; first < keys; first += TILE) {
        barrier();
        stage_tile(kv_head, first, keys);
        barrier();
        if (first > last_pos) {
            continue;
        }
        coopmat<float, gl_ScopeSubgroup, M, M, gl_MatrixUseAccumulator> scores[TILES];
        [[unroll]] for (uint t = 0; t < TILES; t++) {
            scores[t] = coopmat<float, gl_ScopeSubgroup, M, M, gl_MatrixUseAccumulator>(0.0);
        }
        [[unroll]] for (uint d = 0; d < STEPS; d++) {
            [[unroll]] for (uint t = 0; t < TILES; t++) {
                coopmat<float16_t, gl_ScopeSubgroup, M, M, gl_MatrixUseB> k;
                const uint at = t * M * TILE_ROW + d * M / 8;
                coopMatLoad(k, k_tile, at, TILE_ROW, gl_CooperativeMatrixLayoutColumnMajor);
                scores[t] = coopMatMulAdd(q[d], k, scores[t]);
            }
        }
        float s[SCORES];
        [[unroll]] for (uint t = 0; t < TILES; t++) {
            settle();
            coopMatStore(scores[t], stage, mine, SCORE_ROW, gl_CooperativeMatrixLayoutRowMajor);
            settle();
            [[unroll]] for (uint i = 0; i < 8; i++) {
                const uint at = mine + lane / PARTS * SCORE_ROW + lane % PARTS * 2;
                s[t * 8 + i] = uintBitsToFloat(stage[at + i / 4][i % 4]) * LOG2_E;
            }
        }
        uvec4 weights[TILES];
        weigh(row, s, int(row_pos) - int(first) + 1, weights);
        if (subgroupAny(row.factor != 1.0)) {
            spread(row.factor);
            coopmat<float, gl_ScopeSubgroup, M, M, gl_MatrixUseAccumulator> factors;
            coopMatLoad(factors, stage, mine, SCORE_ROW, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint d = 0; d < STEPS; d++) {
                sums[d] *= factors;
            }
        }
        settle();
        [[unroll]] for (uint t = 0; t < TILES; t++) {
            stage[mine + lane / PARTS * WEIGHT_ROW + t * M / 8 + lane % PARTS] = weights[t];
        }
        settle();
        [[unroll]] for (uint t = 0; t < TILES; t++) {
            coopmat<float16_t, gl_ScopeSubgroup, M, M, gl_MatrixUseA> w;
            coopMatLoad(w, stage, mine + t * M / 8, WEIGHT_ROW, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint d = 0; d < STEPS; d++) {
                coopmat<float16_t, gl_ScopeSubgroup, M, M, gl_MatrixUseB> v;
                const uint at = t * M * TILE_ROW + d * M / 8;
                coopMatLoad(v, v_tile, at, TILE_ROW, gl_CooperativeMatrixLayoutRowMajor);
                sums[d] = coopMatMulAdd(w, v, sums[d]);
            }
        }
    }
    coopmat<float, gl_ScopeSubgroup, M, M, gl_MatrixUseAccumulator> factors;
    spread(1.0 / row.sum);
    coopMatLoad(factors, stage, mine, SCORE_ROW, gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint d = 0; d < STEPS; d++) {
        sums[d] *= factors;
        settle();
        coopMatStore(sums[d], stage, mine, SCORE_ROW, gl_CooperativeMatrixLayoutRowMajor);
        settle();
        store(place, d);
    }
}

void main() {
    // The longest rows first, so that what remains at the end is short.
    const uint tokens = M * GROUPS;
    const uint tiles = (rows[0].query_tokens + tokens - 1) / tokens;
    if (gl_WorkGroupID.x < tiles && (rows[0].flags & ROW_IDLE) == 0) {
        const uint end = rows[0].query_first + rows[0].query_tokens;
        const uint first = rows[0].query_first + (tiles - 1 - gl_WorkGroupID.x) * tokens;
        Place place;
        place.head = gl_WorkGroupID.y * H + gl_SubgroupID % H;
        place.from = first + gl_SubgroupID / H * M;
        // A matrix that would leave the buffers starts earlier; its first rows are someone else's.
        place.first = min(place.from, n - M);
        place.to = min(place.from + M, end);
        attend(gl_WorkGroupID.y, place, rows[0].pos + min(first + tokens, end));
    }
}
