// Causal convolution over the tokens of a chunk, SiLU, and the L2 norms of query and key heads; the last raw rows go
// to the ring. Rust side, with the formula: src/kernels/conv.rs.
//
// A team of up to 32 lanes takes one head for RUN tokens, 4 * QUADS channels a lane, so that a norm is a sum over
// lanes and nothing needs a barrier. The team of a head's first run alone touches the ring: it has read the old rows
// when it writes the new ones, so source and target may be one slot.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#include "control.glsl"
#include "recurrent.glsl"
#include "logistic.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SG = 32;
layout(constant_id = 2) const uint RUN = 8; // tokens of a team, at least 3
layout(constant_id = 3) const uint KEY_HEADS = 16;
layout(constant_id = 4) const uint VALUE_HEADS = 32;
layout(constant_id = 5) const uint U_STRIDE = 8192; // values from one row of u to the next, a multiple of 4

layout(set = 0, binding = 1, std430) readonly restrict buffer Taps { vec4 taps[]; };
layout(set = 0, binding = 3, std430) readonly restrict buffer In { vec4 u[]; };
#ifdef F16
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { f16vec4 conv[]; };
#else
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { vec4 conv[]; };
#endif
layout(set = 0, binding = 5, std430) restrict buffer Ring { vec4 ring[]; };

layout(constant_id = 6) const uint PAD = 1; // rows past the chunk are zero up to a multiple of this

const uint HEADS = 2 * KEY_HEADS + VALUE_HEADS;
const uint ROW4 = HEADS * D4;
const uint LANES = SG < D4 ? SG : D4;
const uint QUADS = D4 / LANES;

// The raw row of token `t` of the chunk; negative tokens come from the ring of the source slot.
vec4 raw(const int t, const uint at) {
    if (t >= 0) {
        return u[uint(t) * (U_STRIDE / 4) + at];
    }
    const uint place = (rows[0].pos + uint(t + 4)) % 4;
    return ring[(rows[0].source * 4 + place) * ROW4 + at];
}

// Leaves the last four rows in the ring of the target slot.
void store_rows(const uint at) {
    const int n = int(rows[0].tokens);
    [[unroll]] for (int back = 4; back > 0; back--) {
        const int t = n - back;
        if (t >= 0 || rows[0].source != rows[0].target) {
            const uint place = (rows[0].pos + uint(t + 4)) % 4;
            ring[(rows[0].target * 4 + place) * ROW4 + at] = raw(t, at);
        }
    }
}

void main() {
    const uint team = (gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID) * (SG / LANES) +
        gl_SubgroupInvocationID / LANES;
    const uint head = team % HEADS;
    const uint first = team / HEADS * RUN;
    const uint n = rows[0].tokens;
    const uint lane = gl_SubgroupInvocationID % LANES;
    const uint padded = (n + PAD - 1) / PAD * PAD;
    // A team as a whole: its sums are its own.
    if (first >= padded) {
        return;
    }
    vec4 x[4][QUADS]; // rows of tokens t - 3 to t
    vec4 tap[QUADS][4];
    [[unroll]] for (uint i = 0; i < QUADS; i++) {
        const uint at = head * D4 + i * LANES + lane;
        [[unroll]] for (uint j = 0; j < 3; j++) {
            x[j][i] = raw(int(first) + int(j) - 3, at);
        }
        [[unroll]] for (uint e = 0; e < 4; e++) {
            tap[i][e] = taps[at * 4 + e];
        }
        if (first == 0) {
            store_rows(at);
        }
    }
    const float scale = head < KEY_HEADS ? 1.0 / sqrt(float(D)) : 1.0;
    const uint end = min(first + RUN, padded);
    for (uint t = first; t < end; t++) {
        vec4 value[QUADS];
        float square = 0.0;
        [[unroll]] for (uint i = 0; i < QUADS; i++) {
            if (t >= n) {
                value[i] = vec4(0.0);
                continue;
            }
            x[3][i] = u[t * (U_STRIDE / 4) + head * D4 + i * LANES + lane];
            [[unroll]] for (uint e = 0; e < 4; e++) {
                const vec4 w = tap[i][e];
                const float sum =
                    fma(w.w, x[3][i][e], fma(w.z, x[2][i][e], fma(w.y, x[1][i][e], w.x * x[0][i][e])));
                value[i][e] = silu(sum);
                square = fma(value[i][e], value[i][e], square);
            }
            x[0][i] = x[1][i];
            x[1][i] = x[2][i];
            x[2][i] = x[3][i];
        }
        const float length = sqrt(lanes_sum(square, LANES) + L2_EPS);
        const float factor = head < 2 * KEY_HEADS ? scale / length : 1.0;
        [[unroll]] for (uint i = 0; i < QUADS; i++) {
            const uint at = t * ROW4 + head * D4 + i * LANES + lane;
#ifdef F16
            conv[at] = f16vec4(value[i] * factor);
#else
            conv[at] = value[i] * factor;
#endif
        }
    }
}
