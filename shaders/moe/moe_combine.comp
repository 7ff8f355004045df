// Adds the outputs of a token's experts to the residual stream: h[t] += sum over its slots, in the order of choice,
// of down[slot]. The slots carry their weights. Rust side: src/kernels/moe_combine.rs.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef HALF
#extension GL_EXT_shader_16bit_storage : require
#endif

#include "control.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint K = 2048; // a multiple of 4
layout(constant_id = 2) const uint USED = 8;

#ifdef HALF
layout(set = 0, binding = 3, std430) readonly restrict buffer Down { f16vec4 down[]; };
#else
layout(set = 0, binding = 3, std430) readonly restrict buffer Down { vec4 down[]; };
#endif
layout(set = 0, binding = 4, std430) restrict buffer Stream { vec4 h[]; };

void main() {
    const uint i = gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    const uint token = gl_WorkGroupID.y;
    const uint tokens = (rows[0].flags & ROW_IDLE) != 0 ? 0 : rows[0].tokens;
    if (token < tokens && i < K / 4) {
        vec4 sum = vec4(0.0);
        [[unroll]] for (uint place = 0; place < USED; place++) {
            sum += vec4(down[(token * USED + place) * (K / 4) + i]);
        }
#ifdef HALF
        sum *= 16.0;
#endif
        h[token * (K / 4) + i] += sum;
    }
}
