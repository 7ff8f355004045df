// Products of 16x16 tiles by a subgroup, sums in f32. With MATRIX they are cooperative matrices of 16-bit floats; else
// the same program in plain f32: a tile of sums is spread over the lanes, and an operand is only a note of where it
// lies (first element, step between rows, step between columns). Places count elements; `unit` is how many of them an
// element of the buffer's type holds, and `AT(i)` a macro that reads one.
//
// Needs the specialization constant SG.

const uint TILE = 16;
const uint TILE_SIZE = TILE * TILE;

#ifdef MATRIX

#define UNROLL [[unroll]]
#define ELEM float16_t
#define ELEM4 f16vec4
#define TileA coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define TileB coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>
#define TileC coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define TileH coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define ROWS gl_CooperativeMatrixLayoutRowMajor
#define COLUMNS gl_CooperativeMatrixLayoutColumnMajor

// An operand, by rows of memory or, transposed, by columns.
#define LOAD_ROWS(tile, buffer_, unit, at, stride) coopMatLoad(tile, buffer_, (at) / unit, (stride) / unit, ROWS)
#define LOAD_COLUMNS(tile, buffer_, unit, at, stride) \
    coopMatLoad(tile, buffer_, (at) / unit, (stride) / unit, COLUMNS)
// Sums from f32 memory, from the operands' type, and to either.
#define LOAD_SUMS(tile, buffer_, at, stride) coopMatLoad(tile, buffer_, at, stride, ROWS)
#define LOAD_WIDENED(tile, buffer_, unit, AT, at, stride) \
    { \
        TileH half_; \
        coopMatLoad(half_, buffer_, (at) / unit, (stride) / unit, ROWS); \
        tile = TileC(half_); \
    }
#define STORE_SUMS(tile, buffer_, at, stride) coopMatStore(tile, buffer_, at, stride, ROWS)
#define STORE_ROUNDED(tile, buffer_, at, stride) coopMatStore(TileH(tile), buffer_, at, stride, ROWS)
#define CLEAR(tile) tile = TileC(0.0)
#define SCALE(tile, factor) tile *= (factor)
#define MULTIPLY_ADD(tile, A_AT, a, B_AT, b) tile = coopMatMulAdd(a, b, tile)

#else

// Unrolled, this form would be a very long program.
#define UNROLL [[dont_unroll]]
#define ELEM float
#define ELEM4 vec4
#define TileA uvec3
#define TileB uvec3
struct TileC {
    float v[TILE_SIZE / 8]; // subgroups have at least 8 lanes
};

const uint OWN = TILE_SIZE / SG; // elements of a tile that a lane holds

uint tile_row(const uint i) {
    return (i * SG + gl_SubgroupInvocationID) / TILE;
}

uint tile_column(const uint i) {
    return (i * SG + gl_SubgroupInvocationID) % TILE;
}

#define LOAD_ROWS(tile, buffer_, unit, at, stride) tile = uvec3(at, stride, 1)
#define LOAD_COLUMNS(tile, buffer_, unit, at, stride) tile = uvec3(at, 1, stride)
#define LOAD_SUMS(tile, buffer_, at, stride) \
    UNROLL for (uint i_ = 0; i_ < OWN; i_++) { \
        tile.v[i_] = buffer_[(at) + tile_row(i_) * (stride) + tile_column(i_)]; \
    }
#define LOAD_WIDENED(tile, buffer_, unit, AT, at, stride) \
    UNROLL for (uint i_ = 0; i_ < OWN; i_++) { \
        tile.v[i_] = AT((at) + tile_row(i_) * (stride) + tile_column(i_)); \
    }
#define STORE_SUMS(tile, buffer_, at, stride) \
    UNROLL for (uint i_ = 0; i_ < OWN; i_++) { \
        buffer_[(at) + tile_row(i_) * (stride) + tile_column(i_)] = tile.v[i_]; \
    }
#define STORE_ROUNDED(tile, buffer_, at, stride) STORE_SUMS(tile, buffer_, at, stride)
#define CLEAR(tile) \
    UNROLL for (uint i_ = 0; i_ < OWN; i_++) { \
        tile.v[i_] = 0.0; \
    }
#define SCALE(tile, factor) \
    UNROLL for (uint i_ = 0; i_ < OWN; i_++) { \
        tile.v[i_] *= (factor); \
    }
#define MULTIPLY_ADD(tile, A_AT, a, B_AT, b) \
    UNROLL for (uint i_ = 0; i_ < OWN; i_++) { \
        float sum_ = tile.v[i_]; \
        UNROLL for (uint k_ = 0; k_ < TILE; k_++) { \
            const float a_ = A_AT(a.x + tile_row(i_) * a.y + k_ * a.z); \
            sum_ = fma(a_, B_AT(b.x + k_ * b.y + tile_column(i_) * b.z), sum_); \
        } \
        tile.v[i_] = sum_; \
    }

#endif
