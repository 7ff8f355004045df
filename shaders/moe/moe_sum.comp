// Adds what moe_down.comp left of a batch grouped by expert: h += slots' parts + sigma * the shared expert's, with the
// partial sums of squares of the new h; with PLAIN the sum alone is written. In the order of moe_down.comp.
// Rust side: src/kernels/moe_group.rs.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#include "control.glsl"
#include "tree.glsl"
#include "experts_sum.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint HIDDEN = 2048;
layout(constant_id = 2) const uint USED = 8;
#ifndef PLAIN
layout(constant_id = 3) const uint ROWS = 8; // values of a partial sum, a power of two, at most a subgroup
#endif

layout(set = 0, binding = 3, std430) readonly restrict buffer In { float parts[]; };
#ifdef PLAIN
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { float sum_out[]; };
#else
layout(set = 0, binding = 4, std430) restrict buffer Residual { float h[]; };
layout(set = 0, binding = 6, std430) writeonly restrict buffer Squares { float squares[]; };
#endif
layout(set = 0, binding = 5, std430) readonly restrict buffer Sigma { float sigma[]; };

void main() {
    const uint row = gl_WorkGroupID.y;
    const uint i = min(gl_GlobalInvocationID.x, HIDDEN - 1);
    const bool mine = gl_GlobalInvocationID.x < HIDDEN && (rows[row].flags & ROW_IDLE) == 0;
    float s[8];
    [[unroll]] for (uint slot = 0; slot < 8; slot++) {
        s[slot] = slot < USED ? parts[(row * (USED + 1) + slot) * HIDDEN + i] : 0.0;
    }
    precise float v = experts_sum(s, sigma[row], parts[(row * (USED + 1) + USED) * HIDDEN + i]);
#ifdef PLAIN
    if (mine) {
        sum_out[row * HIDDEN + i] = v;
    }
#else
    v = h[row * HIDDEN + i] + v;
    precise const float square = v * v;
    const float sum = tree_sum(square, ROWS);
    if (mine) {
        h[row * HIDDEN + i] = v;
        if (i % ROWS == 0) {
            squares[row * (HIDDEN / ROWS) + i / ROWS] = sum;
        }
    }
#endif
}
