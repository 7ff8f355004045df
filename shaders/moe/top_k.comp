// Chooses experts: the USED largest of a row's router logits, best first, equal ones by lower index, and the softmax
// over them. One workgroup of one subgroup for each row of the batch. Rust side: src/kernels/router.rs.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#include "control.glsl"
#include "tree.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SG = 32;
layout(constant_id = 2) const uint EXPERTS = 256;
layout(constant_id = 3) const uint USED = 8;

layout(set = 0, binding = 3, std430) readonly restrict buffer In { float logits[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Ids { uint ids[]; };
layout(set = 0, binding = 5, std430) writeonly restrict buffer Route { float route[]; };

#include "top_k.glsl"

void main() {
    const uint row = gl_WorkGroupID.x;
    top_k(row, (rows[row].flags & ROW_IDLE) == 0);
}
