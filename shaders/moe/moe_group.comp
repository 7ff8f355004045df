// Groups the choices of a batch by expert: entry i is the i-th smallest distinct expert and, four bits for each row, one
// more than the slot in which the row has it. Entries that are left over, and those of idle rows, are zero.
// One workgroup. Rust side: src/kernels/moe_group.rs.
#version 460
#extension GL_GOOGLE_include_directive : require

#include "control.glsl"

layout(local_size_x_id = 0) in; // at least NT * USED
layout(constant_id = 1) const uint NT = 2;
layout(constant_id = 2) const uint USED = 8;

layout(set = 0, binding = 3, std430) readonly restrict buffer Ids { uint ids[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Entries { uvec2 entries[]; };

const uint SLOTS = NT * USED;
const uint NONE = 0xffffffffu;

shared uint expert[SLOTS];
shared uint is_first[SLOTS];

void main() {
    const uint i = gl_LocalInvocationID.x;
    const uint row = min(i / USED, NT - 1);
    const bool live = i < SLOTS && (rows[row].flags & ROW_IDLE) == 0;
    const uint mine = live ? ids[i] : NONE;
    if (i < SLOTS) {
        expert[i] = mine;
    }
    barrier();
    uint slots = 0;
    bool first = live;
    for (uint other = 0; other < SLOTS; other++) {
        if (expert[other] == mine) {
            slots |= (other % USED + 1) << (4 * (other / USED));
            first = first && other >= i;
        }
    }
    if (i < SLOTS) {
        is_first[i] = uint(first);
    }
    barrier();
    uint before = 0;
    uint all = 0;
    for (uint other = 0; other < SLOTS; other++) {
        all += is_first[other];
        before += expert[other] < mine ? is_first[other] : 0;
    }
    if (first) {
        entries[before] = uvec2(mine, slots);
    }
    if (i >= all && i < SLOTS) {
        entries[i] = uvec2(0);
    }
}
