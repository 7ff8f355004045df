// Which values of a 16x16 f16 matrix of weights each lane of a subgroup holds: the driver's secret, asked by loading the
// numbers of the places. Rust side: src/kernels/layout.rs.
#version 460
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require

layout(local_size_x_id = 0) in;

const uint EDGE = 16;
const uint VALUES = 8; // of a lane, of 32

layout(set = 0, binding = 3, std430) writeonly restrict buffer Places { uint places[]; };

shared float16_t numbers[EDGE * EDGE];

void main() {
    const uint lane = gl_SubgroupInvocationID;
    for (uint i = gl_LocalInvocationID.x; i < EDGE * EDGE; i += gl_WorkGroupSize.x) {
        numbers[i] = float16_t(i);
    }
    barrier();
    coopmat<float16_t, gl_ScopeSubgroup, EDGE, EDGE, gl_MatrixUseA> matrix;
    coopMatLoad(matrix, numbers, 0, EDGE, gl_CooperativeMatrixLayoutRowMajor);
    const uint held = uint(matrix.length());
    [[unroll]] for (uint i = 0; i < VALUES; i++) {
        places[lane * VALUES + i] = i < held ? uint(matrix[i]) : 0xffffffffu;
    }
}
