// Products of prefill with expert weights, a workgroup for BM weight rows of one expert and up to BN of the slots
// (token and place among its experts) that chose it. GATE_UP: mid[slot] = silu(gate x) * up x * route weight; else
// down[slot] = W mid[slot]. Weights are raw blocks of any format. Rust side: src/kernels/moe_gemm.rs.
//
// With HALF `mid` has a power of two for each slot and tile of rows. The second product brings the tiles of a slot
// to the largest of them.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef HALF
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_shader_subgroup_basic : require
#endif
#ifdef MATRIX
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#endif

#ifdef GATE_UP
#define CODEBOOK
#ifdef HALF
#define TILE_FACTOR
#endif
#endif

#include "logistic.glsl"
#include "power.glsl"
#include "iq2.glsl"
#include "k_quants.glsl"

#define EDGE_ID 14
layout(constant_id = 10) const uint FORMAT = 16;
layout(constant_id = 11) const uint ROWS = 512;     // of a matrix
layout(constant_id = 12) const uint RAW_PARTS = 1;  // slabs in shared memory; with 2, loaded ahead
#ifdef GATE_UP
layout(constant_id = 13) const uint USED = 8;       // slots of a token
#elif defined(HALF)
layout(constant_id = 13) const uint FACTOR_ROWS = 64; // values of mid that share a factor
#endif

#include "formats.glsl"
#include "gemm.glsl"
#include "dequant.glsl"

layout(push_constant) uniform Push {
    float scale;   // power of two that weights are multiplied by, for f16
    float unscale; // its reciprocal
};

layout(set = 0, binding = 1, std430) readonly restrict buffer Weights { uint weights[]; };
layout(set = 0, binding = 3, std430) readonly restrict buffer In { Chunk x[]; };
layout(set = 0, binding = 6, std430) readonly restrict buffer Tiles { uvec4 expert_tiles[]; };
layout(set = 0, binding = 7, std430) readonly restrict buffer Slots { uint slots[]; };
#ifdef HALF
#if defined(MATRIX)
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { uvec4 y[]; };
#else
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { float16_t y[]; };
#endif
// GATE_UP: of the tokens; else of the slots and tiles.
layout(set = 0, binding = 5, std430) readonly restrict buffer Factors { float factors[]; };
#else
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { float y[]; };
#endif
#ifdef GATE_UP
layout(set = 0, binding = 2, std430) readonly restrict buffer Up { uint up_weights[]; };
layout(set = 0, binding = 8, std430) readonly restrict buffer Route { float route[]; };
layout(set = 0, binding = 9, std430) readonly restrict buffer Grid { uvec2 levels[]; };
#ifdef HALF
layout(set = 0, binding = 10, std430) writeonly restrict buffer TileFactors { float tile_factors[]; };
#endif
#endif

const uint K_CHUNKS = K / CHUNK;
const uint ROW_SLABS = K / SLAB;
const uint RAW_WORDS = BM * SLAB_WORDS;
const uint RAW_LOADS = (RAW_WORDS + THREADS - 1) / THREADS;

// Of each column: its slot, its row of x, the factor of its sums, the weight of its outputs.
shared uint column_slot[BN];
shared uint column_row[BN];
shared float column_factor[BN];
#ifdef GATE_UP
shared float column_route[BN];
#elif defined(HALF)
shared float column_most[BN]; // the largest of the factors of its tiles
#endif

uint first_row; // of the tile's outputs
uint first_slab;
uint columns;
Chunk loaded_x[X_LOADS];
uint loaded_raw[RAW_LOADS];
uint staged_k;

// The first slab of row `r` of the tile. One past the end is computed from the last one and not stored.
uint row_slab(const uint r) {
    return first_slab + min(first_row + tile_row(r), ROWS - 1) * ROW_SLABS;
}

// Loads the slab that holds column `k` into registers.
void fetch_raw(const uint k) {
    [[unroll]] for (uint i = 0; i < RAW_LOADS; i++) {
        const uint word = gl_LocalInvocationID.x + i * THREADS;
        const uint r = word / SLAB_WORDS;
        if (word < RAW_WORDS) {
            const uint at = slab_word(row_slab(r) + k / SLAB, word % SLAB_WORDS);
            // The last slab of odd length may end in the middle of a word: the buffer has no more.
#ifdef GATE_UP
            if (second_of_pair(r)) {
                loaded_raw[i] = up_weights[min(at, uint(up_weights.length()) - 1)];
            } else {
                loaded_raw[i] = weights[min(at, uint(weights.length()) - 1)];
            }
#else
            loaded_raw[i] = weights[min(at, uint(weights.length()) - 1)];
#endif
        }
    }
}

void stage_raw(const uint k) {
    [[unroll]] for (uint i = 0; i < RAW_LOADS; i++) {
        const uint word = gl_LocalInvocationID.x + i * THREADS;
        if (word < RAW_WORDS) {
            const uint row = k / SLAB % RAW_PARTS * BM + word / SLAB_WORDS;
            raw[row * SLAB_STRIDE + word % SLAB_WORDS] = loaded_raw[i];
        }
    }
}

#if defined(HALF) && !defined(GATE_UP)
const uint FACTORS = (K + FACTOR_ROWS - 1) / FACTOR_ROWS;
#endif

bool begin() {
    const uvec4 tile = expert_tiles[gl_WorkGroupID.y]; // expert, first slot, slots
    columns = tile.z;
    first_row = gl_WorkGroupID.x * TILE_ROWS;
    first_slab = tile.x * ROWS * ROW_SLABS;
    // Under way while slots, and then what belongs to them, are looked up.
    fetch_raw(0);
    for (uint c = gl_LocalInvocationID.x; c < columns; c += THREADS) {
        const uint slot = slots[tile.y + c];
        column_slot[c] = slot;
        float factor = unscale;
#ifdef GATE_UP
        column_row[c] = slot / USED;
        column_route[c] = route[slot];
#ifdef HALF
        factor *= factors[slot / USED];
#endif
#else
        column_row[c] = slot;
#ifdef HALF
        float most = 0.0;
        for (uint t = 0; t < FACTORS; t++) {
            most = max(most, factors[slot * FACTORS + t]);
        }
        column_most[c] = most;
        factor *= most;
#endif
#endif
        column_factor[c] = factor;
    }
#ifdef GATE_UP
    if (FORMAT == IQ2_XXS) {
        for (uint i = gl_LocalInvocationID.x; i < 256; i += THREADS) {
            stage_codebook(i, levels[i]);
        }
    }
#endif
    stage_raw(0);
    barrier();
    return true;
}

void fetch(const uint k) {
    staged_k = k;
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        const uint piece = gl_LocalInvocationID.x + i * THREADS;
        const uint column = piece / CHUNKS;
        if (column < columns) {
            loaded_x[i] = x[column_row[column] * K_CHUNKS + k / CHUNK + piece % CHUNKS];
        }
    }
    if (RAW_PARTS == 2 && k % SLAB == 0 && k + SLAB < K) {
        fetch_raw(k + SLAB);
    }
}

void stage(const uint part) {
    const uint k = staged_k;
    if (RAW_PARTS == 1 && k % SLAB == 0 && k > 0) {
        fetch_raw(k);
        stage_raw(k);
        barrier();
    }
    [[unroll]] for (uint i = 0; i < W_LOADS; i++) {
        const uint piece = gl_LocalInvocationID.x + i * THREADS;
        if (piece < W_PIECES) {
            const uint r = piece / (BK / 16);
            const uint at = k + piece % (BK / 16) * 16;
            put_weights(part, r, at, raw_at(k / SLAB % RAW_PARTS, r, row_slab(r) + k / SLAB), scale);
        }
    }
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        const uint piece = gl_LocalInvocationID.x + i * THREADS;
        const uint column = piece / CHUNKS;
        if (column < columns) {
            Chunk chunk = loaded_x[i];
#if defined(HALF) && !defined(GATE_UP)
            const float own = factors[column_slot[column] * FACTORS + (k + piece % CHUNKS * CHUNK) / FACTOR_ROWS];
            const float16_t shift = float16_t(power_ratio(own, column_most[column]));
            [[unroll]] for (uint j = 0; j < 4; j++) {
                chunk[j] = packFloat2x16(unpackFloat2x16(chunk[j]) * shift);
            }
#endif
            tiles[x_at(part, column) + piece % CHUNKS] = chunk;
        }
    }
    if (RAW_PARTS == 2 && k % SLAB == 0 && k + SLAB < K) {
        stage_raw(k + SLAB);
    }
}

float scaled(const float sum, const uint column) {
    return sum * column_factor[column];
}

#ifdef GATE_UP
float paired(const float gate, const float up, const uint column) {
    return silu(scaled(gate, column)) * scaled(up, column) * column_route[column];
}
#else
float paired(const float gate, const float up, const uint column) {
    return 0.0;
}
#endif

#ifdef TILE_FACTOR
// What the outputs of a column are divided by; at most 256 is left.
float tile_factor(const float most) {
    return power_above(most) * (1.0 / 256.0);
}

void store_factor(const uint column, const float most) {
    tile_factors[column_slot[column] * gl_NumWorkGroups.x + gl_WorkGroupID.x] = tile_factor(most);
}
#endif

#ifdef MATRIX
#define STORE_EIGHT
// Eight outputs of a column from `row` on.
void store_eight(const uint row, const uint column, const vec4 v[2]) {
    if (first_row + row < ROWS) {
#ifdef GATE_UP
        const float factor = 1.0;
#else
        const float factor = 1.0 / 16.0;
#endif
        const uint at = column_slot[column] * ROWS + first_row + row;
        y[at / 8] = uvec4(packFloat2x16(f16vec2(v[0].xy * factor)), packFloat2x16(f16vec2(v[0].zw * factor)),
                          packFloat2x16(f16vec2(v[1].xy * factor)), packFloat2x16(f16vec2(v[1].zw * factor)));
    }
}
#else
void store(const uint row, const uint column, const float value) {
    if (first_row + row < ROWS) {
        const uint at = column_slot[column] * ROWS + first_row + row;
#if defined(HALF) && !defined(GATE_UP)
        y[at] = float16_t(value * (1.0 / 16.0));
#elif defined(HALF)
        y[at] = float16_t(value);
#else
        y[at] = value;
#endif
    }
}
#endif

#ifdef MATRIX
#include "gemm_matrix.glsl"
#else
#include "gemm_micro.glsl"
#endif
