// Does the compiler know packed integer dot products?
#version 460
#extension GL_EXT_integer_dot_product : require

layout(local_size_x = 32) in;
layout(set = 0, binding = 0, std430) readonly buffer A { uint a[]; };
layout(set = 0, binding = 1, std430) writeonly buffer C { int c[]; };

void main() {
    const uint i = gl_GlobalInvocationID.x;
    c[i] = dotPacked4x8EXT(int(a[i]), int(a[i + 32]));
}
