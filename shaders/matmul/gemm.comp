// Dense matrix products of prefill: out[t][r] = factor[t] * sum_k x[t][k] W[r][k] for the tokens of a chunk, stored,
// added (ADD) or, with PAIRS, turned into silu(even row) * odd row. W is Q8_0 in two planes or, with WEIGHTS_F32,
// plain f32. x is f16 (HALF) or f32; with NORMED it is h times the norm's weight, f32, also where the tiles are f16:
// there both factors are split in two (SPLIT), and tokens are brought to the range of f16 by the norm's scale, rounded
// to a power of two. Rust side: src/kernels/gemm.rs.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#ifdef HALF
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_shader_subgroup_basic : require
#endif
#ifdef MATRIX
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#endif

#include "control.glsl"
#include "logistic.glsl"
#include "power.glsl"

#define EDGE_ID 11
const uint OFFSET = 128; // codes of Q8_0 as unsigned bytes
#include "gemm.glsl"

layout(constant_id = 10) const bool FACTOR = false; // whether tokens have factors

layout(push_constant) uniform Push {
    uint weight_rows; // of W
    uint stride;      // values from one token of the output to the next
    float scale;      // power of two that W is multiplied by, for f16
    float unscale;    // its reciprocal
};

#ifdef WEIGHTS_F32
layout(set = 0, binding = 1, std430) readonly restrict buffer Weights { vec4 weights[]; };
#else
layout(set = 0, binding = 1, std430) readonly restrict buffer Codes { uvec4 codes[]; };
layout(set = 0, binding = 2, std430) readonly restrict buffer Scales { float16_t scales[]; };
#endif
#ifdef NORMED
layout(set = 0, binding = 3, std430) readonly restrict buffer In { vec4 x[]; };
#else
layout(set = 0, binding = 3, std430) readonly restrict buffer In { Chunk x[]; };
#endif
#ifdef ADD
layout(set = 0, binding = 4, std430) restrict buffer Out { float y[]; };
#else
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { float y[]; };
#endif
layout(set = 0, binding = 5, std430) readonly restrict buffer Factors { float factors[]; };
#ifdef NORMED
layout(set = 0, binding = 6, std430) readonly restrict buffer Norm { vec4 norm[]; };
#endif
#ifdef SPLIT
layout(set = 0, binding = 7, std430) readonly restrict buffer NormScales { float norm_scales[]; };
const uint X_FLOATS = 2; // vectors of floats in a chunk of halves
#else
const uint X_FLOATS = 1;
#endif

const uint K_CHUNKS = K / CHUNK;
uint first_row;    // of the tile, in W
uint first_column; // of the tile: a token
uint columns;

bool begin() {
    first_row = gl_WorkGroupID.x * BM;
    first_column = gl_WorkGroupID.y * BN;
    const uint tokens = (rows[0].flags & ROW_IDLE) != 0 ? 0 : rows[0].tokens;
    columns = first_column < tokens ? min(BN, tokens - first_column) : 0;
    return columns > 0;
}

// The row of W behind row `r` of the tile. One past the end is computed from the last one and not stored.
uint weight_row(const uint r) {
    const uint row = PAIRS ? 2 * tile_row(r) + uint(second_of_pair(r)) : r;
    return min(first_row + row, weight_rows - 1);
}

#ifdef WEIGHTS_F32
vec4 loaded_w[W_LOADS * 4];
#else
uvec4 loaded_w[W_LOADS];
float loaded_scale[W_LOADS];
#endif
#ifdef NORMED
vec4 loaded_x[X_LOADS * X_FLOATS];
#else
Chunk loaded_x[X_LOADS];
#endif

#ifdef SPLIT
// What brings a token to the size of one whose mean square is 1.
float token_scale(const uint token) {
    return power_above(norm_scales[token]);
}
#endif

void fetch(const uint k) {
    [[unroll]] for (uint i = 0; i < W_LOADS; i++) {
        const uint piece = min(gl_LocalInvocationID.x + i * THREADS, W_PIECES - 1);
        const uint at = weight_row(piece / (BK / 16)) * (K / 16) + k / 16 + piece % (BK / 16);
#ifdef WEIGHTS_F32
        [[unroll]] for (uint j = 0; j < 4; j++) {
            loaded_w[i * 4 + j] = weights[at * 4 + j];
        }
#else
        loaded_w[i] = codes[at];
        loaded_scale[i] = float(scales[at / 2]);
#endif
    }
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        const uint piece = gl_LocalInvocationID.x + i * THREADS;
        // Past the last token the last one again: its sums are not stored.
        const uint token = first_column + min(piece / CHUNKS, columns - 1);
        const uint at = k / CHUNK + piece % CHUNKS;
#ifdef NORMED
        [[unroll]] for (uint j = 0; j < X_FLOATS; j++) {
            vec4 v = x[token * (K / 4) + at * X_FLOATS + j] * norm[at * X_FLOATS + j];
#ifdef SPLIT
            v *= token_scale(token);
#endif
            loaded_x[i * X_FLOATS + j] = v;
        }
#else
        loaded_x[i] = x[token * K_CHUNKS + at];
#endif
    }
}

void stage(const uint part) {
    [[unroll]] for (uint i = 0; i < W_LOADS; i++) {
        const uint piece = gl_LocalInvocationID.x + i * THREADS;
        if (piece < W_PIECES) {
            const uint row = piece / (BK / 16);
            const uint at = piece % (BK / 16) * 16;
#ifdef WEIGHTS_F32
            vec4 w[4];
            [[unroll]] for (int j = 0; j < 4; j++) {
                w[j] = loaded_w[i * 4 + j] * scale;
            }
            put16(part, row, at, w);
#elif defined(SPLIT)
            vec4 w[4];
            [[unroll]] for (int j = 0; j < 4; j++) {
                const int word = int(loaded_w[i][j]);
                w[j] = vec4(bitfieldExtract(word, 0, 8), bitfieldExtract(word, 8, 8), bitfieldExtract(word, 16, 8),
                            bitfieldExtract(word, 24, 8)) *
                       (loaded_scale[i] * scale);
            }
            put16(part, row, at, w);
#else
            put_codes(part, row, at, loaded_w[i] ^ 0x80808080u, loaded_scale[i] * scale, 0.0);
#endif
        }
    }
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        const uint piece = gl_LocalInvocationID.x + i * THREADS;
        if (piece < X_PIECES) {
            const uint at = x_at(part, piece / CHUNKS) + piece % CHUNKS;
#ifdef SPLIT
            put_split(at, BN, loaded_x[i * X_FLOATS], loaded_x[i * X_FLOATS + 1]);
#else
            tiles[at] = loaded_x[i];
#endif
        }
    }
}

float scaled(const float sum, const uint column) {
    float factor = FACTOR ? factors[first_column + column] * unscale : unscale;
#ifdef SPLIT
    factor *= power_inverse(token_scale(first_column + column));
#endif
    return sum * factor;
}

float paired(const float gate, const float up, const uint column) {
    return silu(scaled(gate, column)) * scaled(up, column);
}

void store(const uint row, const uint column, const float value) {
    const uint r = (PAIRS ? first_row / 2 : first_row) + row;
    if (r < (PAIRS ? weight_rows / 2 : weight_rows)) {
        const uint at = (first_column + column) * stride + r;
#ifdef ADD
        y[at] += value;
#else
        y[at] = value;
#endif
    }
}

#ifdef MATRIX
#include "gemm_matrix.glsl"
#else
#include "gemm_micro.glsl"
#endif
