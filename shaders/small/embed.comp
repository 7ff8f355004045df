// Starts a step: takes the host's records into the control block, and brings the embedding of each row's token into
// the residual. Rust side: src/kernels/embed.rs.
//
// One workgroup for each row of the batch, with the sum of squares of what it wrote; or (TOKENS) one for each token
// of a prompt chunk, whose record is the first one.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

#include "reduce.glsl"
#include "q8.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint K = 2048; // a multiple of 32

layout(push_constant) uniform Push {
    uint first; // token of the first row of this slab
    uint count; // rows of this slab
    uint start; // whether records are taken over here (0 or 1)
};

// Records as words (control.glsl has the fields): the copy is one word for each invocation.
layout(set = 0, binding = 0, std430) writeonly restrict buffer Control { uint control[]; };
#ifdef F32_WEIGHTS
layout(set = 0, binding = 1, std430) readonly restrict buffer Codes { vec4 codes[]; };
#else
layout(set = 0, binding = 1, std430) readonly restrict buffer Codes { uint codes[]; };
layout(set = 0, binding = 2, std430) readonly restrict buffer Scales { float16_t scales[]; };
#endif
layout(set = 0, binding = 3, std430) readonly restrict buffer Mailbox { uint mailbox[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Hidden { vec4 h[]; };
#ifdef TOKENS
layout(set = 0, binding = 5, std430) readonly restrict buffer Ids { uint ids[]; };
#else
layout(set = 0, binding = 5, std430) writeonly restrict buffer Squares { float squares[]; };
#endif

const uint WORDS = 64;
const uint AT_TOKENS = 1;
const uint AT_TOKEN = 2;
const uint AT_FLAGS = 3;
const uint IDLE = 1;

vec4 weights(const uint row, const uint i) {
#ifdef F32_WEIGHTS
    return codes[row * (K / 4) + i];
#else
    return q8_decode(codes[row * (K / 4) + i]) * float(scales[row * (K / 32) + i / 8]);
#endif
}

void main() {
    const uint n = gl_WorkGroupID.x;
#ifdef TOKENS
    const uint record = 0;
    const bool copies = start != 0 && n == 0;
    const bool used = n < mailbox[AT_TOKENS];
    const uint token = used ? ids[n] : 0;
#else
    const uint record = n * WORDS;
    const bool copies = start != 0;
    const bool used = (mailbox[record + AT_FLAGS] & IDLE) == 0;
    const uint token = mailbox[record + AT_TOKEN];
#endif
    if (copies) {
        for (uint i = gl_LocalInvocationID.x; i < WORDS; i += gl_WorkGroupSize.x) {
            control[record + i] = mailbox[record + i];
        }
    }
    const bool here = used && token - first < count;
    float sum = 0.0;
    if (here) {
        for (uint i = gl_LocalInvocationID.x; i < K / 4; i += gl_WorkGroupSize.x) {
            const vec4 v = weights(token - first, i);
            h[n * (K / 4) + i] = v;
            [[unroll]] for (uint b = 0; b < 4; b++) {
                sum = fma(v[b], v[b], sum);
            }
        }
    }
#ifndef TOKENS
    sum = workgroup_sum(sum);
    if (here && gl_LocalInvocationID.x == 0) {
        squares[n] = sum;
    }
#endif
}
