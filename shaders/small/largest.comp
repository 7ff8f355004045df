// The largest weight that the scales of some blocks allow, kept where it is more than what is there: the maximum over
// blocks of |scale 0| factor 0 + |scale 1| factor 1, over finite scales. Rust side: src/kernels/largest.rs.
#version 460
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool FLOATS = false; // a block is one f32, and its scale

layout(push_constant) uniform Push {
    uint blocks;
    uint block_bytes; // even
    uvec2 at;         // bytes from the start of a block to its scales, even
    vec2 factors;     // 0 where there is no second scale
};

layout(set = 0, binding = 3, std430) readonly restrict buffer Blocks { uint data[]; };
layout(set = 0, binding = 4, std430) restrict buffer Largest { uint largest; }; // bits of an f32 that is not negative

// Size of an f16, subnormal ones included; 0 when it is not finite.
float scale_at(uint byte) {
    const uint bits = data[byte / 4] >> (byte % 4 * 8) & 0x7fff;
    if (bits >= 0x7c00) {
        return 0.0;
    }
    return bits < 0x0400 ? float(bits) * uintBitsToFloat(103u << 23) : uintBitsToFloat((bits << 13) + (112u << 23));
}

float of_block(uint block) {
    if (FLOATS) {
        const uint bits = data[block] & 0x7fffffff;
        return bits < 0x7f800000 ? uintBitsToFloat(bits) : 0.0;
    }
    const uint first = block * block_bytes;
    return factors[0] * scale_at(first + at[0]) + factors[1] * scale_at(first + at[1]);
}

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    float most = 0.0;
    for (uint i = gl_GlobalInvocationID.x; i < blocks; i += step) {
        most = max(most, of_block(i));
    }
    most = subgroupMax(most);
    if (subgroupElect()) {
        atomicMax(largest, floatBitsToUint(most));
    }
}
