// What the mat-vecs share (src/kernels/mv_q8.rs): the operands besides the weights, the scales of normalised rows, and
// where outputs go. mv_q8.comp and mv_matrix.comp define NT, NSG, SG, K and GROUP, the rows of W of a workgroup.
//
// NORM: X is RMSNorm of the input, whose sums of squares arrive in parts. W times (input * weight) is summed
// and the scale of the row applied at the end, so nothing waits for it.
//
// Macros: NORM; one of RING (and/or GATES), RESIDUAL, HEAD or none of them: what happens to outputs.

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
    float scale;      // mv_matrix: power of two that W is multiplied by, for f16,
    float unscale;    // and its reciprocal
};

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

#ifdef NORM
// Rounded up to 16 bytes: Mesa places shared arrays in the order of their use with no more alignment than a float's, and
// reads vectors behind them in pieces where they do not begin at 16.
shared float row_scale[(NT + 3) / 4 * 4];
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

// An output whose sum is complete: row `row` of W, row `n` of X. `before` is what the residual held.
void deliver(const Target to, const uint n, const uint row, const uint group, const float sum, const float before) {
    precise float value = sum;
#ifdef NORM
    value *= row_scale[n];
#endif
    const bool is_stored = row < height && !to.skip;
#ifdef RESIDUAL
    value += before;
    outputs[n * GROUP + row - group * GROUP] = row < height ? value : 0.0;
    if (is_stored) {
        h[n * height + row] = value;
    }
#elif defined(HEAD)
    if (is_stored) {
        logits[rows[n].logits * vocab + first_row + row] = value;
        outputs[n * GROUP + row - group * GROUP] =
            not_a_logit(value) ? value : adjusted(n, first_row + row, value);
    }
#else
    if (is_stored) {
        emit(to, n, row, value);
    }
#endif
}
