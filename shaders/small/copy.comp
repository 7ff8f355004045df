// Copies a slot of a buffer of equal slots to another, or clears it: source and target of every row of the control
// block, a column of workgroups for each row. Rust side: src/kernels/copy.rs.
#version 460
#extension GL_GOOGLE_include_directive : require

#include "control.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool CLEAR = false;

layout(push_constant) uniform Push {
    uint quads; // of a slot
};

layout(set = 0, binding = 4, std430) restrict buffer Slots { uvec4 slots[]; };

void main() {
    const uint row = gl_WorkGroupID.y;
    if ((rows[row].flags & ROW_IDLE) != 0) {
        return;
    }
    const uint source = rows[row].source * quads;
    const uint target = rows[row].target * quads;
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < quads; i += step) {
        slots[target + i] = CLEAR ? uvec4(0) : slots[source + i];
    }
}
