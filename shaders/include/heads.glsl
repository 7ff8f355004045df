// Heads of 256 values, each handled by 32 neighbouring invocations: reductions over those, and rotation. The
// kernel declares SG and PAIRS before; its workgroup is 256 invocations.

#include "tree.glsl"

layout(set = 0, binding = 7, std430) readonly restrict buffer Rope { vec2 rope[]; };

// One slot for each subgroup.
shared float head_slots[32];

// The sum over the 32 invocations of a head, in each of them: a tree of exchanges. Where subgroups are smaller
// than that, their sums are added in order. Every invocation of the workgroup must call it.
float head_sum(float v) {
    v = lanes_sum(v, min(SG, 32));
    if (SG < 32) {
        barrier();
        head_slots[gl_LocalInvocationID.x / SG] = v;
        barrier();
        v = 0.0;
        for (uint i = 0; i < 32 / SG; i++) {
            v += head_slots[gl_LocalInvocationID.x / 32 * (32 / SG) + i];
        }
    }
    return v;
}

// As head_sum(), the maximum.
float head_max(float v) {
    v = lanes_max(v, min(SG, 32));
    if (SG < 32) {
        barrier();
        head_slots[gl_LocalInvocationID.x / SG] = v;
        barrier();
        for (uint i = 0; i < 32 / SG; i++) {
            v = max(v, head_slots[gl_LocalInvocationID.x / 32 * (32 / SG) + i]);
        }
    }
    return v;
}

// Cosine and sine of pair `i` at `pos`: tables for the position mod 512, then for its multiples of 512, joined by
// the addition theorem (src/kernels/rope.rs). Not contracted: the CPU has the same bits.
vec2 rope_angle(const uint pos, const uint i) {
    const vec2 low = rope[pos % 512 * PAIRS + i];
    const vec2 high = rope[(512 + pos / 512) * PAIRS + i];
    precise vec2 angle = vec2(high.x * low.x - high.y * low.y, high.y * low.x + high.x * low.y);
    return angle;
}

// The pair (a, b) rotated by that angle.
vec2 rotated(const float a, const float b, const vec2 angle) {
    precise vec2 pair = vec2(a * angle.x - b * angle.y, b * angle.x + a * angle.y);
    return pair;
}
