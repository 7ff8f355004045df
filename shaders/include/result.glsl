// What the host reads of a sampled row (src/kernels/head.rs): a header of 16 words, then pairs (id, logit).

const uint RESULT_TOKEN = 0;
const uint RESULT_FLAGS = 1;
const uint RESULT_MAX = 2;
const uint RESULT_SUM = 3;
const uint RESULT_COUNT = 4;
const uint RESULT_PAIRS = 16;

const uint MOST_PAIRS = 1024;
const uint RESULT_WORDS = RESULT_PAIRS + 2 * MOST_PAIRS;

// Flags; the first is ROW_FAILED of the control block.
const uint RESULT_FAILED = 2;
const uint RESULT_OVERFLOW = 4;

// Bins of the histogram below the best logit, each 1/64 wide; the last one holds everything further away.
const uint BINS = 2048;

uint bin_of(const float below_best) {
    return min(uint(clamp(below_best * 64.0, 0.0, 2047.0)), BINS - 1);
}
