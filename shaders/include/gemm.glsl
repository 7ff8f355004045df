// What every matrix product of prefill shares: out[t][r] = sum_k x[t][k] W[r][k] by tiles. A workgroup computes BM
// weight rows for BN tokens; each step brings BK columns of both into shared memory, weights decoded there. The
// products are in gemm_micro.glsl (a block of sums for each invocation) and gemm_matrix.glsl (cooperative
// matrices). Rust side, with the choice of constants: src/kernels/gemm.rs.
//
// A kernel gives the hooks that the products call:
//   bool begin()                      the workgroup's tile; false, for all of it alike, when there is none
//   void fetch(k)                     starts loading the columns from k on into registers
//   void stage(part)                  puts what was fetched into that part of shared memory
//   float scaled(sum, column)         a sum in units of the output
//   float paired(gate, up, column)    PAIRS: one output of two sums
//   void store(row, column, value)    an output, if it is one
// and `columns`, how many of the BN are in use.
//
// With PAIRS the rows of a tile are two matrices in turns of TURN, so that whoever holds a sum of the one holds the
// sum of the other.

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint BM = 64;
layout(constant_id = 2) const uint BN = 64;
layout(constant_id = 3) const uint BK = 32;
// What one unit of work holds of the tile: an invocation, or with MATRIX a subgroup.
layout(constant_id = 4) const uint WM = 4;
layout(constant_id = 5) const uint WN = 8;
// Columns of a unit that are done together, or skipped together: of an invocation, or in matrices.
layout(constant_id = 6) const uint GROUP = 8;
layout(constant_id = 7) const uint PARTS = 1; // copies of the tiles in shared memory; with 2, one barrier a step
layout(constant_id = 8) const bool PAIRS = false;
layout(constant_id = 9) const uint K = 2048; // a multiple of BK
#ifdef MATRIX
layout(constant_id = EDGE_ID) const uint EDGE = 16; // of a cooperative matrix
const uint TURN = EDGE;
#else
const uint TURN = 16;
#endif

// Shared memory in chunks of 16 bytes: 8 halves or 4 floats of a row. One chunk more for each row keeps rows that
// are read together in different banks.
#ifdef HALF
#define Chunk uvec4
const uint CHUNK = 8;
#else
#define Chunk vec4
const uint CHUNK = 4;
#endif
const uint CHUNKS = BK / CHUNK;
const uint STRIDE = CHUNKS + 1;
#ifdef SPLIT
// Each f32 is the sum of two halves, of which the second follows in tiles of their own.
const uint HALVES = 2;
#else
const uint HALVES = 1;
#endif
const uint PART_ROWS = HALVES * (BM + BN);
const uint TILE_CHUNKS = PARTS * PART_ROWS * STRIDE;
#ifdef MATRIX
// Two matrices of sums for each subgroup have place there as well.
const uint SUM_ROOM = (BM / WM) * (BN / WN) * EDGE * EDGE / 2;
shared Chunk tiles[TILE_CHUNKS > SUM_ROOM ? TILE_CHUNKS : SUM_ROOM];
#else
shared Chunk tiles[TILE_CHUNKS];
#endif

const uint THREADS = gl_WorkGroupSize.x;
const uint W_PIECES = BM * BK / 16; // of 16 weights
const uint W_LOADS = (W_PIECES + THREADS - 1) / THREADS;
const uint X_PIECES = BN * CHUNKS;
const uint X_LOADS = (X_PIECES + THREADS - 1) / THREADS;

uint w_at(const uint part, const uint row) {
    return (part * PART_ROWS + row) * STRIDE;
}

uint x_at(const uint part, const uint column) {
    return (part * PART_ROWS + HALVES * BM + column) * STRIDE;
}

// The output row, counted from the first of the tile, that row `r` of the tile belongs to.
uint tile_row(const uint r) {
    return PAIRS ? r / (2 * TURN) * TURN + r % TURN : r;
}

// Whether it is a row of the second matrix.
bool second_of_pair(const uint r) {
    return PAIRS && r / TURN % 2 == 1;
}

const uint TILE_ROWS = PAIRS ? BM / 2 : BM;

#ifdef SPLIT
uvec4 packed(const vec4 low, const vec4 high) {
    return uvec4(packFloat2x16(f16vec2(low.xy)), packFloat2x16(f16vec2(low.zw)),
                 packFloat2x16(f16vec2(high.xy)), packFloat2x16(f16vec2(high.zw)));
}

// What a half can hold of values, exactly, whatever the rounding: compilers may take a conversion there and back for
// nothing.
vec4 leading(const vec4 v) {
    return uintBitsToFloat(floatBitsToUint(v) & 0xffffe000u);
}

// Eight values as the sums of two halves each; what is lost is 2^-21 of them.
void put_split(const uint at, const uint second, const vec4 low, const vec4 high) {
    tiles[at] = packed(leading(low), leading(high));
    tiles[at + second * STRIDE] = packed(low - leading(low), high - leading(high));
}

void put16(const uint part, const uint row, const uint k, const vec4 w[4]) {
    const uint at = w_at(part, row) + k / CHUNK;
    put_split(at, BM, w[0], w[1]);
    put_split(at + 1, BM, w[2], w[3]);
}
#elif defined(WEIGHTS_F32)
// Weights of a row, from column `k` of the step on.
void put16(const uint part, const uint row, const uint k, const vec4 w[4]) {
    const uint at = w_at(part, row) + k / CHUNK;
#ifdef HALF
    [[unroll]] for (uint j = 0; j < 2; j++) {
        tiles[at + j] =
            uvec4(packFloat2x16(f16vec2(w[2 * j].xy)), packFloat2x16(f16vec2(w[2 * j].zw)),
                  packFloat2x16(f16vec2(w[2 * j + 1].xy)), packFloat2x16(f16vec2(w[2 * j + 1].zw)));
    }
#else
    [[unroll]] for (uint j = 0; j < 4; j++) {
        tiles[at + j] = w[j];
    }
#endif
}
#else
#ifdef HALF
// The low two bytes of a word as halves: in 0x6400 + byte the unit of the last place is 1.
f16vec2 half_bytes(const uint word) {
    return unpackFloat2x16((word & 0xffu) | ((word & 0xff00u) << 8) | 0x64006400u);
}
#endif

// Weights of a row, from column `k` of the step on, from 16 codes, which are unsigned bytes: d * (code - OFFSET),
// or where that is 0, d * code - m.
void put_codes(const uint part, const uint row, const uint k, const uvec4 codes, const float d, const float m) {
    const uint at = w_at(part, row) + k / CHUNK;
#ifdef HALF
    const f16vec2 d2 = f16vec2(float16_t(d));
    const f16vec2 m2 = f16vec2(float16_t(m));
    uvec4 w[2];
    [[unroll]] for (uint j = 0; j < 4; j++) {
        f16vec2 low = half_bytes(codes[j]) - float16_t(1024 + OFFSET);
        f16vec2 high = half_bytes(codes[j] >> 16) - float16_t(1024 + OFFSET);
        if (OFFSET > 0) {
            low *= d2;
            high *= d2;
        } else {
            low = fma(low, d2, -m2);
            high = fma(high, d2, -m2);
        }
        w[j / 2][j % 2 * 2] = packFloat2x16(low);
        w[j / 2][j % 2 * 2 + 1] = packFloat2x16(high);
    }
    tiles[at] = w[0];
    tiles[at + 1] = w[1];
#else
    // With an offset the product is exact before it is rounded once, as d * (code - OFFSET) would be.
    const float minus = OFFSET > 0 ? -float(OFFSET) * d : -m;
    [[unroll]] for (uint j = 0; j < 4; j++) {
        const uint word = codes[j];
        tiles[at + j] = vec4(fma(float(word & 0xffu), d, minus), fma(float((word >> 8) & 0xffu), d, minus),
                             fma(float((word >> 16) & 0xffu), d, minus), fma(float(word >> 24), d, minus));
    }
#endif
}
#endif
