// Sums of the words of a buffer, one for each block of 16,384 of them, every word weighted by its place. All
// arithmetic is modulo 2^32, so order does not matter. Rust side: src/kernels/checksum.rs.
#version 460

layout(local_size_x_id = 0) in; // at most 256

layout(push_constant) uniform Push {
    uint words;
};

layout(set = 0, binding = 3, std430) readonly restrict buffer Words { uint data[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Sums { uint sums[]; };

const uint BLOCK = 16384;

shared uint parts[256];

void main() {
    const uint first = gl_WorkGroupID.x * BLOCK;
    uint sum = 0;
    for (uint i = gl_LocalInvocationID.x; i < BLOCK; i += gl_WorkGroupSize.x) {
        const uint at = first + i;
        if (at < words) {
            sum += data[at] * (2 * at + 1);
        }
    }
    parts[gl_LocalInvocationID.x] = sum;
    barrier();
    if (gl_LocalInvocationID.x == 0) {
        for (uint i = 1; i < gl_WorkGroupSize.x; i++) {
            sum += parts[i];
        }
        sums[gl_WorkGroupID.x] = sum;
    }
}
