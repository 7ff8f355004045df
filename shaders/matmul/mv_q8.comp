// Y = W X for up to 8 rows of X (decode), Q8_0 weights in two planes or f32 weights. Rust side, with the layouts,
// the forms and the choice of constants: src/kernels/mv_q8.rs.
//
// A subgroup takes R rows of W at a time, T times, for all NT rows of X. A lane takes one chunk (16 bytes of
// codes, or 4 f32) of each row at a time: chunk c belongs to lane c mod SG, so a smaller subgroup only means more
// steps. The order in which an output is summed (chunks of a lane ascending, values of a chunk ascending, lanes by
// the tree of `fold`) depends on none of NT, R, T, U, BLOCK and STAGE_X, nor on other rows.
//
// NORM: X is RMSNorm of the input, whose sums of squares arrive in parts. W times (input * weight) is summed
// and the scale of the row applied at the end, so nothing waits for it.
//
// Macros: F32_WEIGHTS; NORM; one of RING (and/or GATES), RESIDUAL, HEAD or none of them: what happens to outputs.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#include "control.glsl"
#include "logistic.glsl"
#include "opaque.glsl"
#include "q8.glsl"
#include "tree.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SG = 32;
layout(constant_id = 2) const uint NSG = 8;      // subgroups of the workgroup
layout(constant_id = 3) const uint NT = 1;       // rows of X
layout(constant_id = 4) const uint R = 4;        // rows of W of a subgroup at a time, a power of two
layout(constant_id = 5) const uint T = 1;        // how many times
layout(constant_id = 6) const uint U = 2;        // chunks of a row that a lane has in flight
layout(constant_id = 7) const uint K = 2048;     // a multiple of 32
layout(constant_id = 8) const uint BLOCK = 128;  // chunks of X in shared memory: all, or a multiple of SG * U
layout(constant_id = 9) const bool STAGE_X = true;     // or read X from memory each time
layout(constant_id = 10) const bool X_IN_REGS = false; // only where NT = 1 and a row is U chunks for each lane

#ifdef F32_WEIGHTS
#define PACKED vec4
const uint PARTS = 1;
#else
#define PACKED uvec4
const uint PARTS = 4;
#endif
const uint CHUNKS = K / (4 * PARTS);
const bool EVEN = CHUNKS % (U * SG) == 0;
// Sums of a subgroup, and how many of them the lanes can hold one each.
const uint SUMS = R * NT;
const uint WIDTH = SUMS < SG ? SUMS : SG;
const uint SHARE = SG / WIDTH;
const uint EMITS = SUMS / WIDTH;
const uint LOADS = U * R;
const uint KEPT = U * PARTS;
const uint GROUP = NSG * R * T;
// Whether loops over parts and chunks stay loops.
const bool SHORT = NT > 2;
// Lanes write X and read it in fours of 16 bytes: two more chunks keep both free of bank conflicts.
const uint PITCH = BLOCK + 2;

layout(push_constant) uniform Push {
    uint height;      // rows of W
    uint partials;    // NORM: partial sums of squares for each row of X
    float eps;        // NORM
    uint conv;        // RING: first so many rows go to the ring,
    uint inner;       // RING: then so many to z,
    uint heads;       // GATES: then so many to the decay, then so many to beta
    uint first_row;   // HEAD: number of row 0 of this slab
    uint first_group; // HEAD: number of workgroup 0 of this slab
    uint groups;      // HEAD: workgroups of all slabs
    uint vocab;       // HEAD: rows of all slabs
};

layout(set = 0, binding = 1, std430) readonly restrict buffer Codes { PACKED codes[]; };
#ifndef F32_WEIGHTS
layout(set = 0, binding = 2, std430) readonly restrict buffer Scales { float16_t scales[]; };
#endif
layout(set = 0, binding = 3, std430) readonly restrict buffer In { vec4 x[]; };
#ifdef NORM
layout(set = 0, binding = 5, std430) readonly restrict buffer Squares { float squares[]; };
layout(set = 0, binding = 6, std430) readonly restrict buffer Weight { vec4 weight[]; };
#endif

#if defined(RING) || defined(GATES)
#ifdef RING
layout(set = 0, binding = 4, std430) writeonly restrict buffer Ring { float ring[]; };
layout(set = 0, binding = 7, std430) writeonly restrict buffer Z { float z[]; };
#endif
#ifdef GATES
layout(set = 0, binding = 8, std430) writeonly restrict buffer Decay { float decay[]; };
layout(set = 0, binding = 9, std430) writeonly restrict buffer Beta { float beta[]; };
layout(set = 0, binding = 10, std430) readonly restrict buffer A { float a[]; };
layout(set = 0, binding = 11, std430) readonly restrict buffer Dt { float dt[]; };
#endif
#elif defined(RESIDUAL)
layout(set = 0, binding = 4, std430) restrict buffer Hidden { float h[]; };
layout(set = 0, binding = 7, std430) writeonly restrict buffer Parts { float parts[]; };
// Rows of a partial sum of squares. The same for every NT, or the bits of whoever adds them up would differ.
const uint PART = 8;
#elif defined(HEAD)
layout(set = 0, binding = 4, std430) writeonly restrict buffer Logits { float logits[]; };
layout(set = 0, binding = 7, std430) writeonly restrict buffer Pairs { uvec2 pairs[]; };
layout(set = 0, binding = 8, std430) readonly restrict buffer Mask { uint mask_words[]; };
layout(set = 0, binding = 9, std430) readonly restrict buffer Bias { uvec2 biases[]; };
#include "vocab.glsl"
#else
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { float y[]; };
#endif

// X by row, part and chunk: lanes of a subgroup, which hold neighbouring chunks, then read 16 bytes beside each
// other.
shared vec4 staged[STAGE_X ? NT * PARTS * PITCH : 1];
#ifdef NORM
shared float row_scale[NT];
#endif
#if defined(RESIDUAL) || defined(HEAD)
// The workgroup's outputs.
shared float outputs[NT * GROUP];
#endif

bool idle(const uint n) {
    return (rows[n].flags & ROW_IDLE) != 0;
}

// Where a row's outputs go: read before the sums, so that the end does not wait for the control block.
struct Target {
    bool skip;
#ifdef RING
    uint ring; // first value of the row of the ring
#endif
};

Target target_of(const uint n) {
    Target to;
    to.skip = idle(n);
#ifdef RING
    to.ring = (rows[n].target * 4 + rows[n].pos % 4) * conv;
#endif
    return to;
}

// Four values of X before the scale of the row.
vec4 input_at(const uint n, const uint at) {
#ifdef NORM
    return x[n * (K / 4) + at] * weight[at];
#else
    return x[n * (K / 4) + at];
#endif
}

void stage(const uint block) {
    const uint count = min(BLOCK, CHUNKS - block) * PARTS;
    [[unroll]] for (uint m = 0; m < NT; m++) {
        // Workgroups begin with different rows: all at the same one would queue for the same bank of the cache.
        const uint n = (m + gl_WorkGroupID.x) % NT;
        for (uint i = gl_LocalInvocationID.x; i < count; i += gl_WorkGroupSize.x) {
            staged[(n * PARTS + i % PARTS) * PITCH + i / PARTS] = input_at(n, block * PARTS + i);
        }
    }
}

vec4 read_x(const uint n, const uint part, const uint chunk, const uint block) {
    if (STAGE_X) {
        return staged[(n * PARTS + part) * PITCH + chunk - block];
    }
    return input_at(n, chunk * PARTS + part);
}

// The weights of U chunks of R rows.
void load(out PACKED w[LOADS], out float d[LOADS], const uint first, const uint chunk) {
    [[unroll]] for (uint u = 0; u < U; u++) {
        // Past the last chunk the last one is loaded again and not counted.
        const uint mine = EVEN ? chunk + u * SG : min(chunk + u * SG, CHUNKS - 1);
        [[unroll]] for (uint r = 0; r < R; r++) {
            // A row past the end is computed from the last one and not stored: nothing may leave the subgroup
            // before its reductions.
            const uint at = min(first + r, height - 1) * CHUNKS + mine;
            w[u * R + r] = codes[at];
#ifdef F32_WEIGHTS
            d[u * R + r] = 1.0;
#else
            d[u * R + r] = float(scales[at / 2]);
#endif
        }
    }
}

vec4 decode(const PACKED w, const uint part) {
#ifdef F32_WEIGHTS
    return w;
#else
    return q8_decode(w[part]);
#endif
}

PACKED next_part(const PACKED w) {
    return w.yzwx;
}

// Adds part `j` of a chunk of R rows, given the words that hold it. Weights are decoded, and multiplied by their
// scales, once for all rows of X. `precise`: the bits of a row may not depend on what the compiler makes of a batch.
void add_part(inout float sums[SUMS], const PACKED w[R], const float d[R], const uint part, const vec4 v[NT]) {
    precise vec4 q[R];
    [[unroll]] for (uint r = 0; r < R; r++) {
        q[r] = decode(w[r], part) * d[r];
    }
    [[unroll]] for (uint n = 0; n < NT; n++) {
        [[unroll]] for (uint r = 0; r < R; r++) {
            precise float sum = sums[n * R + r];
            [[unroll]] for (uint b = 0; b < 4; b++) {
                sum = fma(q[r][b], v[n][b], sum);
            }
            sums[n * R + r] = sum;
        }
    }
}

// Adds the chunk number `mine` of R rows. Programs for many rows of X are kept short: unrolled, that for R = 4 and
// NT = 8 takes 255 registers and 53 KB on an H200.
void add_chunk(
    inout float sums[SUMS],
    PACKED w[R],
    const float d[R],
    const vec4 kept[KEPT],
    const uint u,
    const uint mine,
    const uint block
) {
    vec4 v[NT];
    if (SHORT && PARTS > 1) {
        const uint parts = opaque(PARTS);
        for (uint j = 0; j < parts; j++) {
            [[unroll]] for (uint n = 0; n < NT; n++) {
                v[n] = read_x(n, j, mine, block);
            }
            add_part(sums, w, d, 0, v);
            [[unroll]] for (uint r = 0; r < R; r++) {
                w[r] = next_part(w[r]);
            }
        }
        return;
    }
    [[unroll]] for (uint j = 0; j < PARTS; j++) {
        [[unroll]] for (uint n = 0; n < NT; n++) {
            v[n] = X_IN_REGS ? kept[u * PARTS + j] : read_x(n, j, mine, block);
        }
        add_part(sums, w, d, j, v);
    }
}

// Adds what `load` brought.
void accumulate(
    inout float sums[SUMS],
    const PACKED w[LOADS],
    const float d[LOADS],
    const vec4 kept[KEPT],
    const uint chunk,
    const uint block
) {
    [[unroll]] for (uint u = 0; u < U; u++) {
        const uint mine = chunk + u * SG;
        if (EVEN || mine < CHUNKS) {
            PACKED words[R];
            float factors[R];
            [[unroll]] for (uint r = 0; r < R; r++) {
                words[r] = w[u * R + r];
                factors[r] = d[u * R + r];
            }
            add_chunk(sums, words, factors, kept, u, mine, block);
        }
    }
}

// One step of the sums over the lanes: each lane adds the value of the lane whose number differs in the bit
// `mask`. While there are several values, the two lanes share them, so that a step costs half as much as the one
// before; every value is still summed by the same tree.
void fold(inout float sums[SUMS], const uint base, const uint mask) {
    if (SG <= mask) {
        return;
    }
    const bool upper = (gl_SubgroupInvocationID & mask) != 0;
    const uint count = WIDTH * mask / SG;
    if (count == 0) {
        sums[base] += subgroupShuffleXor(sums[base], mask);
    }
    [[unroll]] for (uint i = 0; i < count; i++) {
        const float low = sums[base + i];
        const float high = sums[base + i + count];
        sums[base + i] = (upper ? high : low) + subgroupShuffleXor(upper ? low : high, mask);
    }
}

// Afterwards sums[base] of lane l is the whole value number base + l / SHARE.
void reduce(inout float sums[SUMS]) {
    [[unroll]] for (uint base = 0; base < SUMS; base += WIDTH) {
        fold(sums, base, 32);
        fold(sums, base, 16);
        fold(sums, base, 8);
        fold(sums, base, 4);
        fold(sums, base, 2);
        fold(sums, base, 1);
    }
}

#ifdef NORM
// The scales of the rows of X; a barrier must follow.
void scale_rows() {
    for (uint n = gl_SubgroupID; n < NT; n += NSG) {
        float sum = 0.0;
        for (uint i = gl_SubgroupInvocationID; i < partials; i += SG) {
            sum += squares[n * partials + i];
        }
        sum = lanes_sum(sum, SG);
        if (subgroupElect()) {
            row_scale[n] = 1.0 / sqrt(sum / float(K) + eps);
        }
    }
}
#endif

#if defined(RING) || defined(GATES)
void emit(const Target to, const uint n, const uint row, const float value) {
    uint at = row;
#ifdef RING
    if (at < conv) {
        ring[to.ring + at] = value;
        return;
    }
    at -= conv;
    if (at < inner) {
        z[n * inner + at] = silu(value);
        return;
    }
    at -= inner;
#endif
#ifdef GATES
    if (at < heads) {
        // Not one operation with the product that `value` is, in one form for few rows and in another for many.
        precise const float t = value + dt[at];
        decay[n * heads + at] = exp(a[at] * softplus(t));
    } else {
        beta[n * heads + at - heads] = sigmoid(value);
    }
#endif
}
#elif !defined(RESIDUAL) && !defined(HEAD)
void emit(const Target to, const uint n, const uint row, const float value) {
    y[n * height + row] = value;
}
#endif

#ifdef RESIDUAL
// Partial sums of squares of the new rows.
void finish(const uint group) {
    const uint all = (height + PART - 1) / PART;
    for (uint i = gl_LocalInvocationID.x; i < NT * (GROUP / PART); i += gl_WorkGroupSize.x) {
        const uint n = i / (GROUP / PART);
        const uint part = i % (GROUP / PART);
        float sum = 0.0;
        for (uint k = 0; k < PART; k++) {
            const float v = outputs[n * GROUP + part * PART + k];
            sum = fma(v, v, sum);
        }
        const uint at = group * (GROUP / PART) + part;
        if (at < all && !idle(n)) {
            parts[n * all + at] = sum;
        }
    }
}
#endif

#ifdef HEAD
// The best of the workgroup's logits for each row of X. `outputs` holds them as sampling sees them, with NaN for
// those that fail the row.
void finish(const uint group) {
    const uint count = min(GROUP, height - min(group * GROUP, height));
    for (uint n = gl_SubgroupID; n < NT; n += NSG) {
        float best = MINUS_INFINITY;
        uint index = 0xffffffffu;
        bool failed = false;
        for (uint i = gl_SubgroupInvocationID; i < count; i += SG) {
            const float value = outputs[n * GROUP + i];
            failed = failed || not_a_logit(value);
            if (value > best) {
                best = value;
                index = i;
            }
        }
        const float most = subgroupMax(best);
        index = subgroupMin(best == most ? index : 0xffffffffu);
        const bool any_failed = subgroupMax(failed ? 1u : 0u) != 0;
        if (subgroupElect() && count > 0 && !idle(n)) {
            const uint id = index == 0xffffffffu ? 0 : first_row + group * GROUP + index;
            pairs[n * groups + first_group + group] =
                uvec2(floatBitsToUint(most), any_failed ? 0xffffffffu : id);
        }
    }
}
#endif

void main() {
    const uint lane = gl_SubgroupInvocationID;
    const uint group = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    vec4 kept[KEPT];
    Target targets[EMITS];
    [[unroll]] for (uint g = 0; g < EMITS; g++) {
        targets[g] = target_of((g * WIDTH + lane / SHARE) / R);
    }
    for (uint t = 0; t < T; t++) {
        const uint first = (group * T + t) * NSG * R + gl_SubgroupID * R;
        float sums[SUMS];
        [[unroll]] for (uint v = 0; v < SUMS; v++) {
            sums[v] = 0.0;
        }
#ifdef RESIDUAL
        // Read early, so that the end does not wait for it.
        float before[EMITS];
        [[unroll]] for (uint g = 0; g < EMITS; g++) {
            const uint v = g * WIDTH + lane / SHARE;
            before[g] = h[v / R * height + min(first + v % R, height - 1)];
        }
#endif
        const uint chunks = SHORT ? opaque(CHUNKS) : CHUNKS;
        for (uint block = 0; block < chunks; block += BLOCK) {
            PACKED w[LOADS];
            float d[LOADS];
            // The first weights do not depend on X: under way before the barrier.
            load(w, d, first, block + lane);
            if (STAGE_X && (t == 0 || BLOCK < CHUNKS)) {
                if (t + block > 0) {
                    barrier();
                }
                stage(block);
            }
#ifdef NORM
            if (t + block == 0) {
                scale_rows();
            }
#endif
            if (t + block == 0 || (STAGE_X && BLOCK < CHUNKS)) {
                barrier();
            }
            if (X_IN_REGS && t == 0) {
                [[unroll]] for (uint i = 0; i < KEPT; i++) {
                    kept[i] = read_x(0, i % PARTS, min(i / PARTS * SG + lane, CHUNKS - 1), 0);
                }
            }
            const uint end = min(block + BLOCK, chunks);
            for (uint chunk = block; chunk < end; chunk += U * SG) {
                PACKED now[LOADS];
                float now_d[LOADS];
                [[unroll]] for (uint i = 0; i < LOADS; i++) {
                    now[i] = w[i];
                    now_d[i] = d[i];
                }
                // The next ones are under way during the products of these.
                if (chunk + U * SG < end) {
                    load(w, d, first, chunk + U * SG + lane);
                }
                accumulate(sums, now, now_d, kept, chunk + lane, block);
            }
        }
        reduce(sums);
        [[unroll]] for (uint g = 0; g < EMITS; g++) {
            const uint v = g * WIDTH + lane / SHARE;
            const uint n = v / R;
            const uint row = first + v % R;
            if (lane % SHARE == 0) {
                float value = sums[g * WIDTH];
#ifdef NORM
                value *= row_scale[n];
#endif
#if defined(RESIDUAL) || defined(HEAD)
                const uint at = n * GROUP + row - group * GROUP;
#endif
#ifdef RESIDUAL
                value += before[g];
                outputs[at] = row < height ? value : 0.0;
                if (row < height && !targets[g].skip) {
                    h[n * height + row] = value;
                }
#elif defined(HEAD)
                if (row < height && !targets[g].skip) {
                    logits[rows[n].logits * vocab + first_row + row] = value;
                    outputs[at] = not_a_logit(value) ? value : adjusted(n, first_row + row, value);
                }
#else
                if (row < height && !targets[g].skip) {
                    emit(targets[g], n, row, value);
                }
#endif
            }
        }
    }
#if defined(RESIDUAL) || defined(HEAD)
    barrier();
    finish(group);
#endif
}
