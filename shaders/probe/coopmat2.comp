// Does the compiler know NVIDIA's workgroup-scope matrices with tensor addressing?
#version 460
#extension GL_KHR_cooperative_matrix : require
#extension GL_NV_cooperative_matrix2 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require

layout(local_size_x = 128) in;
layout(set = 0, binding = 0, std430) readonly buffer A { float16_t a[]; };
layout(set = 0, binding = 1, std430) writeonly buffer C { float16_t c[]; };

void main() {
    tensorLayoutNV<2> shape = createTensorLayoutNV(2);
    shape = setTensorLayoutDimensionNV(shape, 64, 64);
    shape = sliceTensorLayoutNV(shape, 0, 64, 0, 64);
    coopmat<float16_t, gl_ScopeWorkgroup, 64, 64, gl_MatrixUseAccumulator> m;
    coopMatLoadTensorNV(m, a, 0, shape);
    coopMatStoreTensorNV(m, c, 0, shape);
}
