// The candidates for sampling: every allowed (id, logit) within a margin of the best and, where wanted, among about
// the k best, in ascending order of ids; and the sum of exp((logit - best) / temperature) over the allowed ids.
// Rust side, with the order of the passes: src/kernels/head.rs.
//
// A workgroup takes a block of ids of one row (grid: blocks, rows). Passes:
// COUNT   adds the block to the row's histogram below the best logit (only for rows that want k best)
// MARK    a bit for each candidate, their number, and the block's share of the sum
// COLLECT where the block's candidates start follows from the numbers of the blocks before it
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

#include "control.glsl"
#include "reduce.glsl"
#include "result.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint WIDTH = 256; // of the workgroup, a multiple of 32
layout(constant_id = 2) const uint PER = 8;     // ids of an invocation
#ifdef MARK
layout(constant_id = 3) const bool TOP_K = false; // a histogram was made
#endif

const uint BLOCK = WIDTH * PER;
const uint BLOCK_WORDS = BLOCK / 32;

layout(push_constant) uniform Push {
    uint vocab;
};

layout(set = 0, binding = 3, std430) readonly restrict buffer Logits { float logits[]; };
layout(set = 0, binding = 8, std430) readonly restrict buffer Mask { uint mask_words[]; };
layout(set = 0, binding = 9, std430) readonly restrict buffer Bias { uvec2 biases[]; };
#ifdef COLLECT
layout(set = 0, binding = 4, std430) restrict buffer Results { uint results[]; };
layout(set = 0, binding = 7, std430) readonly restrict buffer Marks { uint marks[]; };
layout(set = 0, binding = 10, std430) readonly restrict buffer Tallies { uvec2 tallies[]; };
#else
layout(set = 0, binding = 4, std430) readonly restrict buffer Results { uint results[]; };
#endif
#ifdef COUNT
layout(set = 0, binding = 6, std430) restrict buffer Histogram { uint histogram[]; };
#endif
#ifdef MARK
layout(set = 0, binding = 6, std430) readonly restrict buffer Histogram { uint histogram[]; };
layout(set = 0, binding = 7, std430) writeonly restrict buffer Marks { uint marks[]; };
// Number of candidates, and the share of the sum, of each block.
layout(set = 0, binding = 10, std430) writeonly restrict buffer Tallies { uvec2 tallies[]; };
#endif

#include "vocab.glsl"

shared uint scan_slots[64];

// The sum over the invocations before this one. All must call it; a second call needs a `barrier()` in between.
uint workgroup_before(const uint value) {
    const uint inside = subgroupInclusiveAdd(value);
    if (gl_SubgroupInvocationID == gl_SubgroupSize - 1) {
        scan_slots[gl_SubgroupID] = inside;
    }
    barrier();
    uint sum = inside - value;
    for (uint i = 0; i < gl_SubgroupID; i++) {
        sum += scan_slots[i];
    }
    return sum;
}

#ifdef COUNT
shared uint bins[BINS];

void main() {
    const uint n = gl_WorkGroupID.y;
    const uint local = gl_LocalInvocationID.x;
    if ((rows[n].flags & ROW_IDLE) != 0 || rows[n].inverse_temperature == 0.0 || rows[n].top_k == 0) {
        return; // the whole workgroup
    }
    for (uint i = local; i < BINS; i += WIDTH) {
        bins[i] = 0;
    }
    barrier();
    const float best = uintBitsToFloat(results[n * RESULT_WORDS + RESULT_MAX]);
    [[unroll]] for (uint i = 0; i < PER; i++) {
        const uint id = gl_WorkGroupID.x * BLOCK + i * WIDTH + local;
        if (id < vocab) {
            const float logit = adjusted(n, id, logits[rows[n].logits * vocab + id]);
            const uint bin = bin_of(best - logit);
            // The last bin holds most ids and is never asked for.
            if (bin < BINS - 1) {
                atomicAdd(bins[bin], 1);
            }
        }
    }
    barrier();
    for (uint i = local; i < BINS; i += WIDTH) {
        if (bins[i] > 0) {
            atomicAdd(histogram[n * BINS + i], bins[i]);
        }
    }
}
#endif

#ifdef MARK
shared uint block_marks[BLOCK_WORDS];
shared uint marked;
shared uint last_bin;

// The bin with the k-th best, in `last_bin` after a barrier: the first up to which at least k logits lie.
void find_last_bin(const uint n, const uint k) {
    const uint own = BINS / WIDTH;
    const uint from = n * BINS + gl_LocalInvocationID.x * own;
    uint sum = 0;
    for (uint i = 0; i < own; i++) {
        sum += histogram[from + i];
    }
    uint before = workgroup_before(sum);
    if (before < k && before + sum >= k) {
        uint bin = gl_LocalInvocationID.x * own;
        for (uint i = 0; before + histogram[from + i] < k; i++) {
            before += histogram[from + i];
            bin++;
        }
        last_bin = bin;
    }
}

void main() {
    const uint n = gl_WorkGroupID.y;
    const uint local = gl_LocalInvocationID.x;
    if ((rows[n].flags & ROW_IDLE) != 0 || rows[n].inverse_temperature == 0.0) {
        return; // the whole workgroup
    }
    // All under way before the first is used.
    float values[PER];
    [[unroll]] for (uint i = 0; i < PER; i++) {
        const uint id = gl_WorkGroupID.x * BLOCK + i * WIDTH + local;
        values[i] = logits[rows[n].logits * vocab + min(id, vocab - 1)];
    }
    for (uint i = local; i < BLOCK_WORDS; i += WIDTH) {
        block_marks[i] = 0;
    }
    if (local == 0) {
        marked = 0;
        last_bin = BINS - 1;
    }
    barrier();
    if (TOP_K && rows[n].top_k > 0) {
        find_last_bin(n, rows[n].top_k);
        barrier();
    }
    const float best = uintBitsToFloat(results[n * RESULT_WORDS + RESULT_MAX]);
    const float least = best - rows[n].margin;
    const float inverse_temperature = rows[n].inverse_temperature;
    float sum = 0.0;
    [[unroll]] for (uint i = 0; i < PER; i++) {
        const uint place = i * WIDTH + local;
        const uint id = gl_WorkGroupID.x * BLOCK + place;
        const float logit = id < vocab ? adjusted(n, id, values[i]) : MINUS_INFINITY;
        if (logit > MINUS_INFINITY) {
            sum += exp((logit - best) * inverse_temperature);
            if (logit >= least && bin_of(best - logit) <= last_bin) {
                atomicOr(block_marks[place / 32], 1u << (place % 32));
                atomicAdd(marked, 1);
            }
        }
    }
    sum = workgroup_sum(sum);
    const uint block = n * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    for (uint i = local; i < BLOCK_WORDS; i += WIDTH) {
        marks[block * BLOCK_WORDS + i] = block_marks[i];
    }
    if (local == 0) {
        tallies[block] = uvec2(marked, floatBitsToUint(sum));
    }
}
#endif

#ifdef COLLECT
shared uint earlier[64];

// Candidates of the row's blocks before `block`.
uint candidates_before(const uint first, const uint block) {
    uint sum = 0;
    for (uint i = gl_LocalInvocationID.x; i < block; i += WIDTH) {
        sum += tallies[first + i].x;
    }
    sum = subgroupAdd(sum);
    if (subgroupElect()) {
        earlier[gl_SubgroupID] = sum;
    }
    barrier();
    sum = 0;
    for (uint i = 0; i < gl_NumSubgroups; i++) {
        sum += earlier[i];
    }
    return sum;
}

// Number of candidates and sum of the row, by the workgroup of its last block.
void total(const uint n, const uint first, const uint count) {
    float sum = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < gl_NumWorkGroups.x; i += WIDTH) {
        sum += uintBitsToFloat(tallies[first + i].y);
    }
    sum = workgroup_sum(sum);
    if (gl_LocalInvocationID.x == 0) {
        const uint at = n * RESULT_WORDS;
        results[at + RESULT_SUM] = floatBitsToUint(sum);
        results[at + RESULT_COUNT] = count;
        if (count > MOST_PAIRS) {
            results[at + RESULT_FLAGS] |= RESULT_OVERFLOW;
        }
    }
}

void main() {
    const uint n = gl_WorkGroupID.y;
    const uint local = gl_LocalInvocationID.x;
    if ((rows[n].flags & ROW_IDLE) != 0 || rows[n].inverse_temperature == 0.0) {
        return; // the whole workgroup
    }
    const uint first = n * gl_NumWorkGroups.x;
    const uint block = gl_WorkGroupID.x;
    const uint here = tallies[first + block].x;
    const bool last = block == gl_NumWorkGroups.x - 1;
    if (here == 0 && !last) {
        return; // the whole workgroup
    }
    const uint before = candidates_before(first, block);
    if (last) {
        total(n, first, before + here);
    }
    // Words of the block are no more than invocations.
    uint word = local < BLOCK_WORDS ? marks[(first + block) * BLOCK_WORDS + local] : 0;
    uint at = before + workgroup_before(bitCount(word));
    while (word != 0 && at < MOST_PAIRS) {
        const uint id = block * BLOCK + local * 32 + findLSB(word);
        const uint pair = n * RESULT_WORDS + RESULT_PAIRS + 2 * at;
        results[pair] = id;
        results[pair + 1] = floatBitsToUint(adjusted(n, id, logits[rows[n].logits * vocab + id]));
        word &= word - 1;
        at++;
    }
}
#endif
