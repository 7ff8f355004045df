// The products of gemm.glsl with a block of WM rows and WN columns for each invocation: in f32, or with HALF in
// packed f16 pairs along k, which are added to f32 sums every BK = 32 columns, so that a chain of f16 sums has 16
// terms. Invocations are 16 along the rows, whose numbers differ by 16 within a block: neighbours read neighbouring
// rows of shared memory and write neighbouring outputs.

const uint ROW_LANES = BM / WM;
const uint COLUMN_LANES = BN / WN;

float sums[WN * WM];

#ifdef HALF
// No loop: RADV takes every pair of halves that one carries apart and together again. Nor are chunks further ahead than
// the next loaded, for which there are no registers.
#define ROUNDS [[unroll]]
#define END_ROUND subgroupMemoryBarrierShared()
const uint ROUND = CHUNKS % 2 == 0 ? 2 : 1;
#else
#define ROUNDS
#define END_ROUND
const uint ROUND = 1;
#endif

// GROUP columns of the block from `first` on, a constant.
void multiply_group(const uint part, const uint lane_row, const uint lane_column, const uint first) {
#ifdef HALF
    f16vec2 pairs[GROUP * WM];
    [[unroll]] for (uint i = 0; i < GROUP * WM; i++) {
        pairs[i] = f16vec2(0.0);
    }
#endif
    ROUNDS for (uint round = 0; round < CHUNKS; round += ROUND) {
        [[unroll]] for (uint c = 0; c < ROUND; c++) {
            const uint at_w = w_at(part, lane_row) + round + c;
            const uint at_x = x_at(part, first * COLUMN_LANES + lane_column) + round + c;
            Chunk w[WM];
            [[unroll]] for (uint i = 0; i < WM; i++) {
                w[i] = tiles[at_w + i * ROW_LANES * STRIDE];
            }
            [[unroll]] for (uint j = 0; j < GROUP; j++) {
                const Chunk x = tiles[at_x + j * COLUMN_LANES * STRIDE];
                [[unroll]] for (uint q = 0; q < 4; q++) {
                    [[unroll]] for (uint i = 0; i < WM; i++) {
#ifdef HALF
                        pairs[j * WM + i] = fma(unpackFloat2x16(w[i][q]), unpackFloat2x16(x[q]), pairs[j * WM + i]);
#else
                        const uint at = (first + j) * WM + i;
                        sums[at] = fma(w[i][q], x[q], sums[at]);
#endif
                    }
                }
            }
        }
        END_ROUND;
    }
#ifdef HALF
    [[unroll]] for (uint i = 0; i < GROUP * WM; i++) {
        sums[first * WM + i] += float(pairs[i].x) + float(pairs[i].y);
    }
#endif
}

// The products of a step. Groups are written out, at most four: not all drivers unroll a loop around another, and
// sums that a variable addresses would be picked out of the registers by comparing, one after the other.
void multiply(const uint part, const uint lane_row, const uint lane_column) {
    multiply_group(part, lane_row, lane_column, 0);
    // The same for all: the columns of a block are COLUMN_LANES apart.
    if (WN > GROUP && GROUP * COLUMN_LANES < columns) {
        multiply_group(part, lane_row, lane_column, GROUP % WN);
    }
    if (WN > 2 * GROUP && 2 * GROUP * COLUMN_LANES < columns) {
        multiply_group(part, lane_row, lane_column, 2 * GROUP % WN);
    }
    if (WN > 3 * GROUP && 3 * GROUP * COLUMN_LANES < columns) {
        multiply_group(part, lane_row, lane_column, 3 * GROUP % WN);
    }
}

#ifdef TILE_FACTOR
shared uint magnitudes[BN];
#endif

// Hands the sums over.
void finish(const uint lane_row, const uint lane_column) {
    [[unroll]] for (uint j = 0; j < WN; j++) {
        const uint column = j * COLUMN_LANES + lane_column;
        if (column < columns) {
            if (PAIRS) {
                [[unroll]] for (uint i = 0; i + 1 < WM; i += 2) {
                    sums[j * WM + i] = paired(sums[j * WM + i], sums[j * WM + i + 1], column);
                }
            } else {
                [[unroll]] for (uint i = 0; i < WM; i++) {
                    sums[j * WM + i] = scaled(sums[j * WM + i], column);
                }
            }
        }
    }
#ifdef TILE_FACTOR
    for (uint c = gl_LocalInvocationID.x; c < BN; c += THREADS) {
        magnitudes[c] = 0;
    }
    barrier();
    [[unroll]] for (uint j = 0; j < WN; j++) {
        const uint column = j * COLUMN_LANES + lane_column;
        float most = 0.0;
        [[unroll]] for (uint i = 0; i < WM; i += 2) {
            most = max(most, abs(sums[j * WM + i]));
        }
        if (column < columns) {
            atomicMax(magnitudes[column], floatBitsToUint(most));
        }
    }
    barrier();
    for (uint c = gl_LocalInvocationID.x; c < columns; c += THREADS) {
        store_factor(c, uintBitsToFloat(magnitudes[c]));
    }
#endif
    [[unroll]] for (uint j = 0; j < WN; j++) {
        const uint column = j * COLUMN_LANES + lane_column;
        if (column < columns) {
#ifdef TILE_FACTOR
            const float factor = power_inverse(tile_factor(uintBitsToFloat(magnitudes[column])));
#else
            const float factor = 1.0;
#endif
            [[unroll]] for (uint i = 0; i < WM; i++) {
                if (!PAIRS || i % 2 == 0) {
                    store(tile_row(i * ROW_LANES + lane_row), column, sums[j * WM + i] * factor);
                }
            }
        }
    }
}

void main() {
    if (!begin()) {
        return;
    }
    const uint lane_row = gl_LocalInvocationID.x % ROW_LANES;
    const uint lane_column = gl_LocalInvocationID.x / ROW_LANES;
    [[unroll]] for (uint i = 0; i < WN * WM; i++) {
        sums[i] = 0.0;
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
        multiply(part, lane_row, lane_column);
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
    finish(lane_row, lane_column);
}
