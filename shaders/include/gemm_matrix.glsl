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

#define EXCHANGE(sums, second) coopMatStore(sums, tiles, area_at(second, 0, 0), SUM_CHUNKS, \
                                            gl_CooperativeMatrixLayoutColumnMajor)

#define first_row_of (gl_SubgroupID % ROW_UNITS * WM)
#define first_column_of (gl_SubgroupID / ROW_UNITS * WN)
// The subgroup's sums, column by column. Private, so that the steps below can be functions.
Sums sums[COLUMN_MATRICES * ROW_MATRICES];

// Adds up the products of all columns of the weights.
void accumulate() {
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
        [[unroll]] for (uint m = 0; m < K_MATRICES; m++) {
            [[unroll]] for (uint i = 0; i < ROW_MATRICES; i++) {
                const uint at = w_at(part, first_row_of + EDGE * i) + m * EDGE / CHUNK;
                coopMatLoad(w[m * ROW_MATRICES + i], tiles, at, STRIDE, gl_CooperativeMatrixLayoutRowMajor);
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
                        [[unroll]] for (uint i = 0; i < ROW_MATRICES; i++) {
                            const uint sum = (first + j) * ROW_MATRICES + i;
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
}

#ifdef TILE_FACTOR
// Pairs up the sums and finds the factor of each column.
void find_factors() {
    const uint lane = gl_SubgroupInvocationID;
    // Outputs stay in the sums of the first of each pair until the largest of each column is known.
    for (uint c = gl_LocalInvocationID.x; c < BN; c += THREADS) {
        magnitudes[c] = 0;
    }
    barrier();
    [[unroll]] for (uint j = 0; j < COLUMN_MATRICES; j++) {
        [[unroll]] for (uint i = 0; i + 1 < ROW_MATRICES; i += 2) {
            // The same for all: drivers may take a barrier of a subgroup for one of the workgroup.
            if (EDGE * j < columns) {
                EXCHANGE(sums[j * ROW_MATRICES + i], 0);
                EXCHANGE(sums[j * ROW_MATRICES + i + 1], 1);
                subgroupBarrier();
                for (uint q = lane; q < AREA; q += gl_SubgroupSize) {
                    const uint of_matrix = q / SUM_CHUNKS;
                    const uint column = first_column_of + EDGE * j + of_matrix;
                    vec4 v = vec4(0.0);
                    if (column < columns) {
                        const vec4 gate = uintBitsToFloat(tiles[area_at(0, of_matrix, q % SUM_CHUNKS)]);
                        const vec4 up = uintBitsToFloat(tiles[area_at(1, of_matrix, q % SUM_CHUNKS)]);
                        [[unroll]] for (uint c = 0; c < 4; c++) {
                            v[c] = paired(gate[c], up[c], column);
                        }
                        const float most = max(max(abs(v.x), abs(v.y)), max(abs(v.z), abs(v.w)));
                        atomicMax(magnitudes[column], floatBitsToUint(most));
                    }
                    tiles[area_at(0, of_matrix, q % SUM_CHUNKS)] = floatBitsToUint(v);
                }
                subgroupBarrier();
                coopMatLoad(sums[j * ROW_MATRICES + i], tiles, area_at(0, 0, 0), SUM_CHUNKS,
                            gl_CooperativeMatrixLayoutColumnMajor);
                subgroupBarrier();
            }
        }
    }
    barrier();
    for (uint c = gl_LocalInvocationID.x; c < columns; c += THREADS) {
        store_factor(c, uintBitsToFloat(magnitudes[c]));
    }
}
#endif

// Hands the sums to the kernel.
void hand_out() {
    const uint lane = gl_SubgroupInvocationID;
    const uint PER_OUTPUT = PAIRS ? 2 : 1;
    [[unroll]] for (uint j = 0; j < COLUMN_MATRICES; j++) {
        [[unroll]] for (uint i = 0; i + PER_OUTPUT <= ROW_MATRICES; i += PER_OUTPUT) {
            if (EDGE * j < columns) {
                const uint row = tile_row(first_row_of + EDGE * i);
                EXCHANGE(sums[j * ROW_MATRICES + i], 0);
#ifndef TILE_FACTOR
                if (PAIRS) {
                    EXCHANGE(sums[j * ROW_MATRICES + i + 1], 1);
                }
#endif
                subgroupBarrier();
#ifdef STORE_EIGHT
                for (uint q = lane; q < AREA / 2; q += gl_SubgroupSize) {
                    const uint of_matrix = q / (EDGE / 8);
                    const uint column = first_column_of + EDGE * j + of_matrix;
                    if (column < columns) {
                        vec4 v[2];
                        [[unroll]] for (uint h = 0; h < 2; h++) {
                            v[h] = uintBitsToFloat(tiles[area_at(0, of_matrix, q % (EDGE / 8) * 2 + h)]);
#ifdef TILE_FACTOR
                            v[h] *= power_inverse(tile_factor(uintBitsToFloat(magnitudes[column])));
#else
                            v[h] *= scaled(1.0, column);
#endif
                        }
                        store_eight(row + q % (EDGE / 8) * 8, column, v);
                    }
                }
#else
                for (uint v = lane; v < EDGE * EDGE; v += gl_SubgroupSize) {
                    const uint column = first_column_of + EDGE * j + v / EDGE;
                    if (column < columns) {
                        const float sum = sum_at(0, v / EDGE, v % EDGE);
                        const float value =
                            PAIRS ? paired(sum, sum_at(1, v / EDGE, v % EDGE), column) : scaled(sum, column);
                        store(row + v % EDGE, column, value);
                    }
                }
#endif
                subgroupBarrier();
            }
        }
    }
}

void main() {
    if (!begin()) {
        return;
    }
    accumulate();
#ifdef TILE_FACTOR
    find_factors();
#endif
    hand_out();
}
