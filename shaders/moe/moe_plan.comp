// Sorts the slots of a chunk by expert and cuts each expert's slots into tiles of at most BN. Rust side, with the
// layouts: src/kernels/moe_plan.rs.
//
// A workgroup takes the block of tokens that one workgroup of router_pick.comp counted; all know all counts, so
// that none waits for another. The first one writes the tiles. The order of slots is that of tokens.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

#include "control.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint EXPERTS = 256; // at most the workgroup
layout(constant_id = 2) const uint USED = 8;
layout(constant_id = 3) const uint BN = 64; // a multiple of 16

layout(push_constant) uniform Push {
    uint first_grid_x;  // workgroups for each tile of the first product
    uint second_grid_x; // of the second
};

layout(set = 0, binding = 1, std430) readonly restrict buffer Ids { uint ids[]; };
layout(set = 0, binding = 2, std430) readonly restrict buffer Counts { uint counts[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Grids { uint grids[]; };
layout(set = 0, binding = 5, std430) writeonly restrict buffer Tiles { uvec4 tiles[]; };
layout(set = 0, binding = 6, std430) writeonly restrict buffer Slots { uint slots[]; };

const uint BLOCK_SLOTS = 32 * USED;
const uint AHEAD = 8; // loads that are under way together

shared uvec2 parts[64];         // of each subgroup: slots, tiles
shared uint starts[EXPERTS];    // of each expert: where this block's slots begin
shared uint expert_of[BLOCK_SLOTS];

void main() {
    const uint block = gl_WorkGroupID.x;
    const uint tokens = (rows[0].flags & ROW_IDLE) != 0 ? 0 : rows[0].tokens;
    const uint all = tokens * USED;
    if (block > 0 && block * BLOCK_SLOTS >= all) {
        return;
    }
    // Subgroups in order, lanes in order: the scan below is by expert.
    const uint expert = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    uint count = 0;
    uint before = 0;
    if (expert < EXPERTS) {
        const uint blocks = (all + BLOCK_SLOTS - 1) / BLOCK_SLOTS;
        for (uint first = 0; first < blocks; first += AHEAD) {
            uint part[AHEAD];
            [[unroll]] for (uint i = 0; i < AHEAD; i++) {
                part[i] = counts[min(first + i, blocks - 1) * EXPERTS + expert];
            }
            [[unroll]] for (uint i = 0; i < AHEAD; i++) {
                count += first + i < blocks ? part[i] : 0;
                before += first + i < block ? part[i] : 0;
            }
        }
    }
    for (uint s = gl_LocalInvocationID.x; s < BLOCK_SLOTS; s += gl_WorkGroupSize.x) {
        const uint slot = block * BLOCK_SLOTS + s;
        expert_of[s] = slot < all ? ids[slot] : EXPERTS;
    }
    const uint expert_tiles = (count + BN - 1) / BN;
    uvec2 ends = uvec2(subgroupInclusiveAdd(count), subgroupInclusiveAdd(expert_tiles));
    if (gl_SubgroupInvocationID == gl_SubgroupSize - 1) {
        parts[gl_SubgroupID] = ends;
    }
    barrier();
    for (uint s = 0; s < gl_SubgroupID; s++) {
        ends += parts[s];
    }
    const uint first = ends.x - count;
    if (expert < EXPERTS) {
        starts[expert] = first + before;
    }
    barrier();
    for (uint s = gl_LocalInvocationID.x; s < BLOCK_SLOTS; s += gl_WorkGroupSize.x) {
        const uint mine = expert_of[s];
        if (mine < EXPERTS) {
            uint rank = 0;
            for (uint other = 0; other < s; other++) {
                rank += uint(expert_of[other] == mine);
            }
            slots[starts[mine] + rank] = block * BLOCK_SLOTS + s;
        }
    }
    if (block == 0 && expert < EXPERTS) {
        // Tiles of nearly equal size: a full one and a small rest would decode the weights as often for less.
        const uint size = expert_tiles == 0 ? 0 : ((count + expert_tiles - 1) / expert_tiles + 15) / 16 * 16;
        for (uint t = 0; t < expert_tiles; t++) {
            tiles[ends.y - expert_tiles + t] = uvec4(expert, first + t * size, min(size, count - t * size), 0);
        }
        if (expert == EXPERTS - 1) {
            grids[0] = first_grid_x;
            grids[1] = ends.y;
            grids[2] = 1;
            grids[64] = second_grid_x;
            grids[65] = ends.y;
            grids[66] = 1;
        }
    }
}
