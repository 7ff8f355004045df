// The experts of each token from the router's logits, which lack the norm's scale: the USED largest, ties to the
// lower index, with the softmax over them; sigmoid of the shared expert's gate; how many slots of a block of tokens
// chose each expert. Rust side: src/kernels/router_gemm.rs.
//
// A workgroup takes a block of 32 tokens, a subgroup one token at a time. SG >= USED.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#include "control.glsl"
#include "logistic.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SG = 32;
layout(constant_id = 2) const uint K = 2048; // a multiple of 4
layout(constant_id = 3) const uint EXPERTS = 256;
layout(constant_id = 4) const uint USED = 8;

layout(push_constant) uniform Push {
    float eps;
};

layout(set = 0, binding = 1, std430) readonly restrict buffer Norm { vec4 norm[]; };
layout(set = 0, binding = 2, std430) readonly restrict buffer Gate { vec4 gate[]; };
layout(set = 0, binding = 3, std430) readonly restrict buffer Logits { float logits[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Ids { uint ids[]; };
layout(set = 0, binding = 5, std430) writeonly restrict buffer Route { float route[]; };
layout(set = 0, binding = 6, std430) writeonly restrict buffer Sigma { float sigma[]; };
layout(set = 0, binding = 7, std430) writeonly restrict buffer Counts { uint counts[]; };
layout(set = 0, binding = 8, std430) readonly restrict buffer Stream { vec4 h[]; };

const uint BLOCK = 32;
const uint LANE_EXPERTS = (EXPERTS + SG - 1) / SG;

shared uint chosen[EXPERTS];

// Keys in the order of floats. Not finite: 1, behind everything; 0 is an expert that was chosen already.
const uint TAKEN = 0;
const uint NOT_FINITE = 1;

uint key_of(const float logit) {
    const uint bits = floatBitsToUint(logit);
    if ((bits & 0x7f800000u) == 0x7f800000u) {
        return NOT_FINITE;
    }
    const uint plain = bits == 0x80000000u ? 0 : bits; // minus zero equals zero
    return (plain & 0x80000000u) != 0 ? ~plain : plain | 0x80000000u;
}

float value_of(const uint key) {
    return uintBitsToFloat((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key);
}

// The scale of the norm; the sigmoid goes out.
float normalise(const uint token) {
    float squares = 0.0;
    float sum = 0.0;
    for (uint i = gl_SubgroupInvocationID; i < K / 4; i += SG) {
        const vec4 v = h[token * (K / 4) + i];
        const vec4 w = v * norm[i];
        const vec4 g = gate[i];
        [[unroll]] for (uint j = 0; j < 4; j++) {
            squares = fma(v[j], v[j], squares);
            sum = fma(w[j], g[j], sum);
        }
    }
    const float scale = 1.0 / sqrt(subgroupAdd(squares) / float(K) + eps);
    const float x = subgroupAdd(sum) * scale;
    if (gl_SubgroupInvocationID == 0) {
        sigma[token] = sigmoid(x);
    }
    return scale;
}

void choose(const uint token, const float scale) {
    const uint lane = gl_SubgroupInvocationID;
    uint keys[LANE_EXPERTS];
    [[unroll]] for (uint i = 0; i < LANE_EXPERTS; i++) {
        const uint e = i * SG + lane;
        keys[i] = e < EXPERTS ? key_of(logits[token * EXPERTS + e]) : TAKEN;
    }
    uint own_key = 0;
    uint own_expert = 0;
    for (uint place = 0; place < USED; place++) {
        uint most = TAKEN;
        uint expert = 0xffffffffu;
        [[unroll]] for (uint i = 0; i < LANE_EXPERTS; i++) {
            if (keys[i] > most) {
                most = keys[i];
                expert = i * SG + lane;
            }
        }
        const uint best = subgroupMax(most);
        const uint winner = subgroupMin(most == best ? expert : 0xffffffffu);
        [[unroll]] for (uint i = 0; i < LANE_EXPERTS; i++) {
            if (i * SG + lane == winner) {
                keys[i] = TAKEN;
            }
        }
        if (lane == place) {
            own_key = best;
            own_expert = winner;
        }
    }
    const bool enough = subgroupShuffle(own_key, USED - 1) != NOT_FINITE;
    const float own = exp((value_of(own_key) - value_of(subgroupShuffle(own_key, 0))) * scale);
    float sum = 0.0;
    for (uint place = 0; place < USED; place++) {
        sum += subgroupShuffle(own, place);
    }
    if (lane < USED) {
        ids[token * USED + lane] = own_expert;
        // Without a choice the step fails where its logits are checked.
        route[token * USED + lane] = enough ? own / sum : uintBitsToFloat(0x7fc00000u);
        atomicAdd(chosen[own_expert], 1);
    }
}

void main() {
    const uint first = gl_WorkGroupID.x * BLOCK;
    const uint tokens = (rows[0].flags & ROW_IDLE) != 0 ? 0 : rows[0].tokens;
    if (first >= tokens) {
        return;
    }
    for (uint e = gl_LocalInvocationID.x; e < EXPERTS; e += gl_WorkGroupSize.x) {
        chosen[e] = 0;
    }
    barrier();
    for (uint t = gl_SubgroupID; t < BLOCK; t += gl_NumSubgroups) {
        if (first + t < tokens) {
            choose(first + t, normalise(first + t));
        }
    }
    barrier();
    for (uint e = gl_LocalInvocationID.x; e < EXPERTS; e += gl_WorkGroupSize.x) {
        counts[gl_WorkGroupID.x * EXPERTS + e] = chosen[e];
    }
}
