// The products of gemm.glsl with cooperative matrices, f16 with f32 sums: a subgroup computes WM rows and WN columns.
// On their way out the sums go through the tiles in shared memory, which are not needed any more; each subgroup has
// its own part of them, two matrices by columns.

const uint ROW_MATRICES = WM / EDGE;
const uint COLUMN_MATRICES = WN / EDGE;
const uint K_MATRICES = BK / EDGE;
const uint ROW_UNITS = BM / WM;
const uint SUM_CHUNKS = EDGE / 4; // of a column of sums
const uint AREA = EDGE * SUM_CHUNKS;
#define Matrix(use) coopmat<float16_t, gl_ScopeSubgroup, EDGE, EDGE, use>
#define Sums coopmat<float, gl_ScopeSubgroup, EDGE, EDGE, gl_MatrixUseAccumulator>

#ifdef TILE_FACTOR
shared uint magnitudes[BN];
#endif

// Four sums of a column, from row 4 * `quad` on.
uint area_at(const uint second, const uint column, const uint quad) {
    return (gl_SubgroupID * 2 + second) * AREA + column * SUM_CHUNKS + quad;
}

float sum_at(const uint second, const uint column, const uint row) {
    return uintBitsToFloat(tiles[area_at(second, column, row / 4)][row % 4]);
}

// Shows the subgroup a matrix of sums.
void exchange(const Sums sums, const uint second) {
    coopMatStore(sums, tiles, area_at(second, 0, 0), SUM_CHUNKS, gl_CooperativeMatrixLayoutColumnMajor);
}

#ifdef TILE_FACTOR
// Turns the sums of a pair of matrices, the first column of which is `first`, into outputs, in place of the first.
void pair_up(inout Sums gate, const Sums up, const uint first) {
    exchange(gate, 0);
    exchange(up, 1);
    subgroupBarrier();
    for (uint q = gl_SubgroupInvocationID; q < AREA; q += gl_SubgroupSize) {
        const uint column = first + q / SUM_CHUNKS;
        const uint at = area_at(0, q / SUM_CHUNKS, q % SUM_CHUNKS);
        vec4 v = vec4(0.0);
        if (column < columns) {
            const vec4 g = uintBitsToFloat(tiles[at]);
            const vec4 u = uintBitsToFloat(tiles[at + AREA]);
            [[unroll]] for (uint c = 0; c < 4; c++) {
                v[c] = paired(g[c], u[c], column);
            }
            const float most = max(max(abs(v.x), abs(v.y)), max(abs(v.z), abs(v.w)));
            atomicMax(magnitudes[column], floatBitsToUint(most));
        }
        tiles[at] = floatBitsToUint(v);
    }
    subgroupBarrier();
    coopMatLoad(gate, tiles, area_at(0, 0, 0), SUM_CHUNKS, gl_CooperativeMatrixLayoutColumnMajor);
    subgroupBarrier();
}
#endif

// Stores a matrix of sums, or of outputs, at this row of the tile's outputs and this column; with PAIRS and sums, two.
void hand_over(const Sums sums, const Sums more, const uint row, const uint first) {
    exchange(sums, 0);
#ifndef TILE_FACTOR
    if (PAIRS) {
        exchange(more, 1);
    }
#endif
    subgroupBarrier();
#ifdef STORE_EIGHT
    for (uint q = gl_SubgroupInvocationID; q < AREA / 2; q += gl_SubgroupSize) {
        const uint column = first + q / (EDGE / 8);
        if (column < columns) {
#ifdef TILE_FACTOR
            const float factor = power_inverse(tile_factor(uintBitsToFloat(magnitudes[column])));
#else
            const float factor = scaled(1.0, column);
#endif
            vec4 v[2];
            [[unroll]] for (uint h = 0; h < 2; h++) {
                v[h] = uintBitsToFloat(tiles[area_at(0, q / (EDGE / 8), q % (EDGE / 8) * 2 + h)]) * factor;
            }
            store_eight(row + q % (EDGE / 8) * 8, column, v);
        }
    }
#else
    for (uint v = gl_SubgroupInvocationID; v < EDGE * EDGE; v += gl_SubgroupSize) {
        const uint column = first + v / EDGE;
        if (column < columns) {
            const float sum = sum_at(0, v / EDGE, v % EDGE);
            store(row + v % EDGE, column,
                  PAIRS ? paired(sum, sum_at(1, v / EDGE, v % EDGE), column) : scaled(sum, column));
        }
    }
#endif
    subgroupBarrier();
}

void main() {
    if (!begin()) {
        return;
    }
    const uint first_row_of = gl_SubgroupID % ROW_UNITS * WM;
    const uint first_column_of = gl_SubgroupID / ROW_UNITS * WN;
    Sums sums[COLUMN_MATRICES * ROW_MATRICES];
    [[unroll]] for (uint i = 0; i < COLUMN_MATRICES * ROW_MATRICES; i++) {
        sums[i] = Sums(0.0);
    }
    fetch(0);
    stage(0);
    barrier();
    uint part = 0;
    for (uint k = BK; k <= K; k += BK) {
        // The loads of the next step are under way during the products of this one.
        if (k < K) {
            fetch(k);
        }
        Matrix(gl_MatrixUseA) w[K_MATRICES * ROW_MATRICES];
#ifdef SPLIT
        Matrix(gl_MatrixUseA) rest_w[K_MATRICES * ROW_MATRICES];
#endif
        [[unroll]] for (uint m = 0; m < K_MATRICES; m++) {
            [[unroll]] for (uint i = 0; i < ROW_MATRICES; i++) {
                const uint at = w_at(part, first_row_of + EDGE * i) + m * EDGE / CHUNK;
                coopMatLoad(w[m * ROW_MATRICES + i], tiles, at, STRIDE, gl_CooperativeMatrixLayoutRowMajor);
#ifdef SPLIT
                coopMatLoad(rest_w[m * ROW_MATRICES + i], tiles, at + BM * STRIDE, STRIDE,
                            gl_CooperativeMatrixLayoutRowMajor);
#endif
            }
        }
        [[unroll]] for (uint first = 0; first < COLUMN_MATRICES; first += GROUP) {
            // The same for a whole subgroup.
            if (first_column_of + EDGE * first < columns) {
                [[unroll]] for (uint m = 0; m < K_MATRICES; m++) {
                    [[unroll]] for (uint j = 0; j < GROUP; j++) {
                        Matrix(gl_MatrixUseB) x;
                        const uint at = x_at(part, first_column_of + EDGE * (first + j)) + m * EDGE / CHUNK;
                        coopMatLoad(x, tiles, at, STRIDE, gl_CooperativeMatrixLayoutColumnMajor);
#ifdef SPLIT
                        Matrix(gl_MatrixUseB) rest_x;
                        coopMatLoad(rest_x, tiles, at + BN * STRIDE, STRIDE, gl_CooperativeMatrixLayoutColumnMajor);
#endif
                        [[unroll]] for (uint i = 0; i < ROW_MATRICES; i++) {
                            const uint sum = (first + j) * ROW_MATRICES + i;
#ifdef SPLIT
                            sums[sum] = coopMatMulAdd(rest_w[m * ROW_MATRICES + i], x, sums[sum]);
                            sums[sum] = coopMatMulAdd(w[m * ROW_MATRICES + i], rest_x, sums[sum]);
#endif
                            sums[sum] = coopMatMulAdd(w[m * ROW_MATRICES + i], x, sums[sum]);
                        }
                    }
                }
            }
        }
        if (PARTS == 1) {
            barrier();
        } else {
            part ^= 1;
        }
        if (k < K) {
            stage(part);
        }
        barrier();
    }

    // Conditions are the same for all: drivers may take a barrier of a subgroup for one of the workgroup.
    const uint PER_OUTPUT = PAIRS ? 2 : 1;
#ifdef TILE_FACTOR
    // Outputs stay in the sums of the first of each pair until the largest of each column is known.
    for (uint c = gl_LocalInvocationID.x; c < BN; c += THREADS) {
        magnitudes[c] = 0;
    }
    barrier();
    [[unroll]] for (uint j = 0; j < COLUMN_MATRICES; j++) {
        [[unroll]] for (uint i = 0; i + 1 < ROW_MATRICES; i += 2) {
            if (EDGE * j < columns) {
                const uint at = j * ROW_MATRICES + i;
                pair_up(sums[at], sums[at + 1], first_column_of + EDGE * j);
            }
        }
    }
    barrier();
    for (uint c = gl_LocalInvocationID.x; c < columns; c += THREADS) {
        store_factor(c, uintBitsToFloat(magnitudes[c]));
    }
#endif
    [[unroll]] for (uint j = 0; j < COLUMN_MATRICES; j++) {
        [[unroll]] for (uint i = 0; i + PER_OUTPUT <= ROW_MATRICES; i += PER_OUTPUT) {
            if (EDGE * j < columns) {
                const uint at = j * ROW_MATRICES + i;
                const uint row = tile_row(first_row_of + EDGE * i);
                hand_over(sums[at], sums[at + PER_OUTPUT - 1], row, first_column_of + EDGE * j);
            }
        }
    }
}
