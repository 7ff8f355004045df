// Chunked delta rule, second half: the blocks of 64 tokens one after the other, a workgroup for 32 columns of the
// state of a value head. Rust side, with the formulas: src/kernels/delta_chunk.rs.
//
// Subgroup w holds rows 16 w to 16 w + 15 of these columns in f32. A block is three phases between barriers:
//
//   X = V - e^G K S    and    O = e^G Q S        subgroups 0-3 and 4-7, a row of tiles each; S rounded
//   R = T X                                      a tile each
//   S = e^G_C S + (e^(G_C - G) K)^T R            all;    O += A R    subgroups 4-7
//
// What a phase reads of global memory is on its way before the barrier in front of it.
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
layout(constant_id = 3) const uint SG = 32; // not with MATRIX

#include "control.glsl"
#include "recurrent.glsl"
#include "tile.glsl"
#include "delta_chunk.glsl"

layout(set = 0, binding = 3, std430) readonly restrict buffer In { ELEM4 conv[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { float o[]; };
layout(set = 0, binding = 5, std430) readonly restrict buffer Tails { float tails[]; };
layout(set = 0, binding = 6, std430) readonly restrict buffer Scratch { ELEM4 scratch[]; };
layout(set = 0, binding = 7, std430) restrict buffer State { float state[]; };

const uint ROW = (2 * KEY_HEADS + VALUE_HEADS) * D;
const uint INNER = VALUE_HEADS * D;
const uint WIDE = 2; // tiles beside each other
#ifdef MATRIX
const uint STRIDE = WIDE * TILE + 8; // against bank conflicts
#else
const uint STRIDE = WIDE * TILE;
#endif

#define CONV_AT(i) conv[(i) / 4][(i) % 4]
#define SCRATCH_AT(i) scratch[(i) / 4][(i) % 4]
#define S_AT(i) state_rounded[i]
#define X_AT(i) x_rounded[i]
#define R_AT(i) r_rounded[i]

shared ELEM state_rounded[D * STRIDE];
shared ELEM x_rounded[C * STRIDE];
shared ELEM r_rounded[C * STRIDE];

// The operands of a subgroup's part of the first phase.
void load_risen(out TileA risen[CHANNEL_TILES], const uint at) {
    UNROLL for (uint k = 0; k < CHANNEL_TILES; k++) {
        LOAD_ROWS(risen[k], scratch, 4, at + k * TILE_SIZE, TILE);
    }
}

// A row of tiles of a lower triangle, as far as it goes.
void load_lower(out TileA tiles[TOKEN_TILES], const uint at, const uint row) {
    UNROLL for (uint k = 0; k < TOKEN_TILES; k++) {
        if (k <= row) {
            LOAD_ROWS(tiles[k], scratch, 4, at + lower(row, k) * TILE_SIZE, TILE);
        }
    }
}

// Rounds a subgroup's rows of the state for the others.
void share_state(const TileC s[WIDE]) {
    UNROLL for (uint j = 0; j < WIDE; j++) {
        STORE_ROUNDED(s[j], state_rounded, gl_SubgroupID * TILE * STRIDE + j * TILE, STRIDE);
    }
}

void main() {
    const uint head = gl_WorkGroupID.x;
    const uint column = gl_WorkGroupID.y * WIDE * TILE;
    const uint w = gl_SubgroupID;
    const bool reads = w >= TOKEN_TILES; // takes O in the first phase, else X
    const uint row = w % TOKEN_TILES;    // of the first phase
    const uint r_row = w / WIDE;         // of the second one
    const uint r_column = w % WIDE;
    const uint n = rows[0].tokens;
    const uint blocks = (n + C - 1) / C;
    const uint mine = head * D * D + w * TILE * D + column;
    const uint source = rows[0].source * VALUE_HEADS * D * D + mine;
    const uint target = rows[0].target * VALUE_HEADS * D * D + mine;

    TileC s[WIDE];
    UNROLL for (uint j = 0; j < WIDE; j++) {
        LOAD_SUMS(s[j], state, source + j * TILE, D);
    }
    share_state(s);
    const uint first_operand = (reads ? QUERIES_RISEN : KEYS_RISEN) + row * CHANNEL_TILES * TILE_SIZE;
    TileA risen[CHANNEL_TILES];
    load_risen(risen, head * UNIT + first_operand);
    barrier();
    for (uint block = 0; block < blocks; block++) {
        const uint unit = (block * VALUE_HEADS + head) * UNIT;
        TileC sums[WIDE];
        UNROLL for (uint j = 0; j < WIDE; j++) {
            if (reads) {
                CLEAR(sums[j]);
            } else {
                const uint at = (block * C + row * TILE) * ROW + (2 * KEY_HEADS + head) * D + column + j * TILE;
                LOAD_WIDENED(sums[j], conv, 4, CONV_AT, at, ROW);
            }
        }
        TileA solution[TOKEN_TILES];
        load_lower(solution, unit + SOLUTION, r_row);
        UNROLL for (uint k = 0; k < CHANNEL_TILES; k++) {
            UNROLL for (uint j = 0; j < WIDE; j++) {
                TileB b;
                LOAD_ROWS(b, state_rounded, 1, k * TILE * STRIDE + j * TILE, STRIDE);
                MULTIPLY_ADD(sums[j], SCRATCH_AT, risen[k], S_AT, b);
            }
        }
        if (!reads) {
            UNROLL for (uint j = 0; j < WIDE; j++) {
                STORE_ROUNDED(sums[j], x_rounded, row * TILE * STRIDE + j * TILE, STRIDE);
            }
        }
        barrier();

        TileA falling[TOKEN_TILES];
        TileA scores[TOKEN_TILES];
        UNROLL for (uint k = 0; k < TOKEN_TILES; k++) {
            const uint at = unit + KEYS_FALLING + (k * CHANNEL_TILES + w) * TILE_SIZE;
            LOAD_COLUMNS(falling[k], scratch, 4, at, TILE);
        }
        if (reads) {
            load_lower(scores, unit + SCORES, row);
        }
        TileC r;
        CLEAR(r);
        UNROLL for (uint k = 0; k < TOKEN_TILES; k++) {
            if (k <= r_row) {
                TileB b;
                LOAD_ROWS(b, x_rounded, 1, k * TILE * STRIDE + r_column * TILE, STRIDE);
                MULTIPLY_ADD(r, SCRATCH_AT, solution[k], X_AT, b);
            }
        }
        STORE_ROUNDED(r, r_rounded, r_row * TILE * STRIDE + r_column * TILE, STRIDE);
        const float tail = tails[block * VALUE_HEADS + head];
        barrier();

        const uint next = min(block + 1, blocks - 1) * VALUE_HEADS + head;
        load_risen(risen, next * UNIT + first_operand);
        UNROLL for (uint j = 0; j < WIDE; j++) {
            SCALE(s[j], tail);
            UNROLL for (uint k = 0; k < TOKEN_TILES; k++) {
                TileB b;
                LOAD_ROWS(b, r_rounded, 1, k * TILE * STRIDE + j * TILE, STRIDE);
                MULTIPLY_ADD(s[j], SCRATCH_AT, falling[k], R_AT, b);
                if (reads && k <= row) {
                    MULTIPLY_ADD(sums[j], SCRATCH_AT, scores[k], R_AT, b);
                }
            }
            if (reads) {
                const uint at = (block * C + row * TILE) * INNER + head * D + column + j * TILE;
                STORE_SUMS(sums[j], o, at, INNER);
            }
        }
        // The first phase is over everywhere: its readers have passed a barrier.
        share_state(s);
        barrier();
    }
    UNROLL for (uint j = 0; j < WIDE; j++) {
        STORE_SUMS(s[j], state, target + j * TILE, D);
    }
}
