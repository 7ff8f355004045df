// Chunked delta rule, first half: what the scan needs of a block of 64 tokens, a workgroup for each block and value
// head. Rust side, with the formulas: src/kernels/delta_chunk.rs.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#ifdef MATRIX
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#endif

layout(local_size_x_id = 0) in; // eight subgroups
layout(constant_id = 1) const uint KEY_HEADS = 16;
layout(constant_id = 2) const uint VALUE_HEADS = 32;
layout(constant_id = 3) const uint SG = 32;

#include "control.glsl"
#include "recurrent.glsl"
#include "tile.glsl"
#include "delta_chunk.glsl"

layout(set = 0, binding = 3, std430) readonly restrict buffer In { ELEM4 conv[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { ELEM4 scratch[]; };
layout(set = 0, binding = 5, std430) writeonly restrict buffer Tails { float tails[]; };
layout(set = 0, binding = 6, std430) readonly restrict buffer Decay { float log_decay[]; };
layout(set = 0, binding = 7, std430) readonly restrict buffer Beta { float beta[]; };

const uint ROW = (2 * KEY_HEADS + VALUE_HEADS) * D;

#define CONV_AT(i) conv[(i) / 4][(i) % 4]

shared float steps[C];
shared float sums[C]; // G
shared float strengths[C];
// Lower triangles by tiles: k k^T and then M; q k^T and then (I + M)^-1.
shared float m[LOWER_TILES * TILE_SIZE];
shared float inverse[LOWER_TILES * TILE_SIZE];
shared float product[(TOKEN_TILES - 1) * TILE_SIZE];

uint local_index() {
    return gl_SubgroupID * SG + gl_SubgroupInvocationID;
}

// G, summed from the first token of the block on. Tokens past the end neither decay nor write.
void accumulate(const uint first, const uint head) {
    for (uint t = local_index(); t < C; t += gl_WorkGroupSize.x) {
        const bool live = first + t < rows[0].tokens;
        const uint at = (first + t) * VALUE_HEADS + head;
        steps[t] = live ? log_decay[at] : 0.0;
        strengths[t] = live ? beta[at] : 0.0;
    }
    barrier();
    for (uint t = local_index(); t < C; t += gl_WorkGroupSize.x) {
        float sum = 0.0;
        for (uint s = 0; s <= t; s++) {
            sum += steps[s];
        }
        sums[t] = sum;
    }
    barrier();
}

// Products of the rows of one tile row with all keys up to it: k k^T by the first four subgroups, q k^T by the others.
void multiply(const uint keys, const uint queries) {
    const uint row = gl_SubgroupID % TOKEN_TILES;
    const bool of_queries = gl_SubgroupID >= TOKEN_TILES;
    const uint left = (of_queries ? queries : keys) + row * TILE * ROW;
    TileC tiles[TOKEN_TILES];
    UNROLL for (uint j = 0; j < TOKEN_TILES; j++) {
        CLEAR(tiles[j]);
    }
    for (uint k = 0; k < CHANNEL_TILES; k++) {
        TileA a;
        LOAD_ROWS(a, conv, 4, left + k * TILE, ROW);
        UNROLL for (uint j = 0; j < TOKEN_TILES; j++) {
            if (j <= row) {
                TileB b;
                LOAD_COLUMNS(b, conv, 4, keys + j * TILE * ROW + k * TILE, ROW);
                MULTIPLY_ADD(tiles[j], CONV_AT, a, CONV_AT, b);
            }
        }
    }
    UNROLL for (uint j = 0; j < TOKEN_TILES; j++) {
        if (j <= row && of_queries) {
            STORE_SUMS(tiles[j], inverse, lower(row, j) * TILE_SIZE, TILE);
        } else if (j <= row) {
            STORE_SUMS(tiles[j], m, lower(row, j) * TILE_SIZE, TILE);
        }
    }
}

// The scaled copies of keys and queries.
void scale_rows(const uint keys, const uint queries, const uint unit) {
    for (uint i = local_index(); i < C * D4; i += gl_WorkGroupSize.x) {
        const uint tile = i / (TILE_SIZE / 4);
        const uint t = tile / CHANNEL_TILES * TILE + i / 4 % TILE;
        const uint from = (t * ROW + tile % CHANNEL_TILES * TILE) / 4 + i % 4;
        const vec4 k = vec4(conv[keys / 4 + from]);
        const vec4 q = vec4(conv[queries / 4 + from]);
        const float risen = exp(sums[t]);
        scratch[(unit + KEYS_RISEN) / 4 + i] = ELEM4(-risen * k);
        scratch[(unit + QUERIES_RISEN) / 4 + i] = ELEM4(risen * q);
        scratch[(unit + KEYS_FALLING) / 4 + i] = ELEM4(exp(sums[C - 1] - sums[t]) * k);
    }
}

// Turns the products into M and the scores.
void mask(const uint unit) {
    for (uint i = local_index(); i < LOWER_TILES * TILE_SIZE / 4; i += gl_WorkGroupSize.x) {
        const uint tile = i / (TILE_SIZE / 4);
        const uint row = tile < 1 ? 0 : tile < 3 ? 1 : tile < 6 ? 2 : 3;
        const uint t = row * TILE + i / 4 % TILE;
        const uint s0 = (tile - lower(row, 0)) * TILE + i % 4 * 4;
        vec4 scores = vec4(0.0);
        UNROLL for (uint e = 0; e < 4; e++) {
            const uint s = s0 + e;
            // Masked before the exponential, which thus is never of a positive value.
            const float between = s <= t ? exp(sums[t] - sums[s]) : 0.0;
            scores[e] = between * inverse[i * 4 + e];
            m[i * 4 + e] = s < t ? strengths[t] * between * m[i * 4 + e] : 0.0;
        }
        scratch[(unit + SCORES) / 4 + i] = ELEM4(scores);
    }
}

// (I + M)^-1 of the tiles on the diagonal, by columns: forward substitution.
void invert_diagonal() {
    for (uint i = local_index(); i < C; i += gl_WorkGroupSize.x) {
        const uint at = lower(i / TILE, i / TILE) * TILE_SIZE;
        const uint column = i % TILE;
        float x[TILE];
        UNROLL for (uint t = 0; t < TILE; t++) {
            float value = t == column ? 1.0 : 0.0;
            UNROLL for (uint s = 0; s < t; s++) {
                value = fma(-m[at + t * TILE + s], x[s], value);
            }
            x[t] = value;
            inverse[at + t * TILE + column] = value;
        }
    }
    barrier();
}

// Four values of a row of a product of two tiles.
vec4 tile_product(vec4 sum, const uint row, const uint quad, const uint right, const uint left_is_inverse,
                  const uint left) {
    UNROLL for (uint x = 0; x < TILE; x++) {
        const uint a = left + row * TILE + x;
        const uint b = right + x * TILE + quad * 4;
        if (left_is_inverse == 1) {
            const vec4 y = vec4(product[b], product[b + 1], product[b + 2], product[b + 3]);
            sum = fma(vec4(-inverse[a]), y, sum);
        } else {
            const vec4 y = vec4(inverse[b], inverse[b + 1], inverse[b + 2], inverse[b + 3]);
            sum = fma(vec4(m[a]), y, sum);
        }
    }
    return sum;
}

// The tiles `distance` below the diagonal: X_ij = -X_ii (sum over k from j to i - 1 of M_ik X_kj).
void invert_below(const uint distance) {
    const uint quads = (TOKEN_TILES - distance) * TILE_SIZE / 4;
    for (uint i = local_index(); i < quads; i += gl_WorkGroupSize.x) {
        const uint column = i / (TILE_SIZE / 4);
        const uint row = column + distance;
        vec4 sum = vec4(0.0);
        for (uint k = column; k < row; k++) {
            sum = tile_product(
                sum, i / 4 % TILE, i % 4, lower(k, column) * TILE_SIZE, 0, lower(row, k) * TILE_SIZE);
        }
        UNROLL for (uint e = 0; e < 4; e++) {
            product[i * 4 + e] = sum[e];
        }
    }
    barrier();
    for (uint i = local_index(); i < quads; i += gl_WorkGroupSize.x) {
        const uint column = i / (TILE_SIZE / 4);
        const uint row = column + distance;
        const vec4 x = tile_product(
            vec4(0.0), i / 4 % TILE, i % 4, column * TILE_SIZE, 1, lower(row, row) * TILE_SIZE);
        UNROLL for (uint e = 0; e < 4; e++) {
            inverse[lower(row, column) * TILE_SIZE + i % (TILE_SIZE / 4) * 4 + e] = x[e];
        }
    }
    barrier();
}

void main() {
    const uint block = gl_WorkGroupID.x;
    const uint head = gl_WorkGroupID.y;
    const uint first = block * C;
    // The whole workgroup or none of it.
    if (first >= rows[0].tokens) {
        return;
    }
    const uint unit = (block * VALUE_HEADS + head) * UNIT;
    const uint queries = first * ROW + head % KEY_HEADS * D;
    const uint keys = queries + KEY_HEADS * D;
    accumulate(first, head);
    multiply(keys, queries);
    scale_rows(keys, queries, unit);
    barrier();
    mask(unit);
    barrier();
    invert_diagonal();
    UNROLL for (uint distance = 1; distance < TOKEN_TILES; distance++) {
        invert_below(distance);
    }
    for (uint i = local_index(); i < LOWER_TILES * TILE_SIZE / 4; i += gl_WorkGroupSize.x) {
        const uint tile = i / (TILE_SIZE / 4);
        const uint row = tile < 1 ? 0 : tile < 3 ? 1 : tile < 6 ? 2 : 3;
        const uint s0 = (tile - lower(row, 0)) * TILE + i % 4 * 4;
        vec4 x;
        UNROLL for (uint e = 0; e < 4; e++) {
            x[e] = inverse[i * 4 + e] * strengths[s0 + e];
        }
        scratch[(unit + SOLUTION) / 4 + i] = ELEM4(x);
    }
    if (local_index() == 0) {
        tails[block * VALUE_HEADS + head] = exp(sums[C - 1]);
    }
}
