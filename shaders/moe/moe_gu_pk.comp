// Gate and up projection of the chosen experts, IQ2_XXS, in packed pairs of f16: for devices that multiply two halves at
// once and have neither matrix units nor dot products of bytes. What moe_gu.comp computes, and its layouts, are the same.
// Rust side: src/kernels/moe_gu/packed.rs.
//
// Such a device is bound by instructions and by shared memory, not by the bytes of the weights. So levels and signs of
// eight weights are one read each of tables of halves, of which COPIES lie side by side: a lane reads its own copy, and
// sixteen bytes at random places do not meet in a bank. The activations lie in shared memory as halves, scaled by a power
// of two for each group of 32, which the group's scale undoes. Tables of that size want few, large workgroups: one takes
// pairs of rows of any slots, T times in turn.
//
// A lane takes every LANES-th group of 32 weights. Four chains of eight products in f16, added in f32 by the scale of
// their group; a row's sum depends on LANES alone.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#include "control.glsl"
#include "iq2.glsl"
#include "logistic.glsl"
#include "power.glsl"
#include "tree.glsl"
#include "units.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SG = 32;
layout(constant_id = 2) const uint LANES = 32; // share a row; a power of two, at most SG
layout(constant_id = 3) const uint R = 2; // pairs of a gate and an up row at a time
layout(constant_id = 4) const uint T = 1; // how many times
layout(constant_id = 5) const uint K = 2048; // a multiple of 256
layout(constant_id = 6) const uint FFN = 512; // rows of an expert, a multiple of R times the rows side by side
layout(constant_id = 7) const uint EXPERTS = 256;
layout(constant_id = 8) const uint USED = 8;
layout(constant_id = 9) const uint ORDER = 0; // unit order of mid
layout(constant_id = 10) const bool GROUPED = false; // slots are the entries of moe_group.comp
layout(constant_id = 11) const uint NT = 1; // GROUPED: rows of the batch, at most 8; else 1
layout(constant_id = 12) const uint COPIES = 8;

layout(set = 0, binding = 1, std430) readonly restrict buffer Gate { uint gate[]; };
layout(set = 0, binding = 2, std430) readonly restrict buffer Up { uint up[]; };
layout(set = 0, binding = 3, std430) readonly restrict buffer In { vec4 x[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { float mid[]; };
layout(set = 0, binding = 5, std430) readonly restrict buffer Ids { uint ids[]; };
layout(set = 0, binding = 6, std430) readonly restrict buffer Route { float route[]; };
layout(set = 0, binding = 7, std430) readonly restrict buffer Grid { uvec2 grid[]; };

const uint GROUPS = K / 32;
const uint BLOCKS = K / 256;
const uint STEPS = (GROUPS + LANES - 1) / LANES;
const uint SIDE = SG / LANES;
const uint SLOTS = USED * NT;
// Levels are stored as level / 64.
const float LEVEL_UNIT = 64.0;
// Activations are below this in size, so that a chain of eight stays in range and what is small keeps its bits.
const float RANGE = 256.0;

shared uvec4 levels[256 * COPIES];
shared uvec4 flips[128 * COPIES];
// Activations by row of the batch, quarter of a group, group.
shared uvec4 acts[NT * 4 * GROUPS];
// What undoes the powers of two.
shared float units[NT * GROUPS];

uint pack(const float low, const float high) {
    return packFloat2x16(f16vec2(float16_t(low), float16_t(high)));
}

void stage_tables() {
    for (uint i = gl_LocalInvocationID.x; i < 256 * COPIES; i += gl_WorkGroupSize.x) {
        const uvec2 bytes = grid[i / COPIES];
        uvec4 halves;
        [[unroll]] for (uint j = 0; j < 4; j++) {
            const uint two = bytes[j / 2] >> (j % 2 * 16);
            halves[j] = pack(float(two & 0xffu) / LEVEL_UNIT, float((two >> 8) & 0xffu) / LEVEL_UNIT);
        }
        levels[i] = halves;
    }
    for (uint i = gl_LocalInvocationID.x; i < 128 * COPIES; i += gl_WorkGroupSize.x) {
        const uint field = i / COPIES;
        const uint signs = field | (bitCount(field) % 2 << 7);
        uvec4 halves;
        [[unroll]] for (uint j = 0; j < 4; j++) {
            halves[j] = (signs >> (2 * j) & 1u) << 15 | (signs >> (2 * j + 1) & 1u) << 31;
        }
        flips[i] = halves;
    }
}

// Each invocation a group of 32 of a row.
void stage_acts() {
    for (uint i = gl_LocalInvocationID.x; i < NT * GROUPS; i += gl_WorkGroupSize.x) {
        const uint n = i / GROUPS;
        const uint g = i % GROUPS;
        const uint row = GROUPED ? n : gl_WorkGroupID.z;
        vec4 v[8];
        vec4 most = vec4(0.0);
        [[unroll]] for (uint j = 0; j < 8; j++) {
            v[j] = x[row * (K / 4) + (g % 2 * 8 + j) * (K / 64) + g / 2];
            most = max(most, abs(v[j]));
        }
        const float power = power_above(max(max(most.x, most.y), max(most.z, most.w)));
        const float factor = power_inverse(power) * RANGE;
        [[unroll]] for (uint q = 0; q < 4; q++) {
            const vec4 a = v[2 * q] * factor;
            const vec4 b = v[2 * q + 1] * factor;
            acts[(n * 4 + q) * GROUPS + g] = uvec4(pack(a.x, a.y), pack(a.z, a.w), pack(b.x, b.y), pack(b.z, b.w));
        }
        units[i] = power * (LEVEL_UNIT / RANGE);
    }
}

// A group as it is in the file: words A and B (iq2.glsl), and the block's scale.
struct Group {
    uvec2 words;
    float d;
};

uint weights(const uint matrix, const uint at) {
    return matrix == 0 ? gate[at] : up[at];
}

Group group_load(const uint matrix, const uint row, const uint g) {
    // Blocks of 66 bytes: even ones start on a word, odd ones in the middle of one.
    const uint block = row * BLOCKS + g / 8;
    const bool odd = (block & 1) == 1;
    const uint first = block / 2 * 33 + (odd ? 16 : 0);
    const uint at = first + (odd ? 1 : 0) + g % 8 * 2;
    const uint head = weights(matrix, first);
    const uint a = weights(matrix, at);
    const uint b = weights(matrix, at + 1);
    // An odd block does not need the third word, and the last one has none.
    const uint c = weights(matrix, at + (odd ? 1 : 2));
    Group group;
    group.words = odd ? uvec2(a, b) : uvec2((a >> 16) | (b << 16), (b >> 16) | (c << 16));
    group.d = unpackHalf2x16(odd ? head >> 16 : head).x;
    return group;
}

// Eight weights, q of a group, as four pairs of halves.
uvec4 eight(const Group group, const uint q, const uint copy) {
    const uint index = bitfieldExtract(group.words.x, int(8 * q), 8);
    const uint field = bitfieldExtract(group.words.y, int(7 * q), 7);
    return levels[index * COPIES + copy] ^ flips[field * COPIES + copy];
}

// The products of a group; `sums` in units of the group's scale.
float group_dot(const uvec4 w[4], const uint n, const uint g) {
    precise f16vec2 even = f16vec2(0.0);
    precise f16vec2 odd = f16vec2(0.0);
    [[unroll]] for (uint q = 0; q < 4; q++) {
        const uvec4 a = acts[(n * 4 + q) * GROUPS + g];
        even = fma(unpackFloat2x16(w[q].x), unpackFloat2x16(a.x), even);
        odd = fma(unpackFloat2x16(w[q].y), unpackFloat2x16(a.y), odd);
        even = fma(unpackFloat2x16(w[q].z), unpackFloat2x16(a.z), even);
        odd = fma(unpackFloat2x16(w[q].w), unpackFloat2x16(a.w), odd);
    }
    precise const f16vec2 both = even + odd;
    precise float sum = float(both.x) + float(both.y);
    return sum;
}

// Four bits for each row of the batch: one more than the slot in which the row has this expert, or 0.
uint slots;

bool has(const uint n) {
    return ((slots >> (4 * n)) & 15) != 0;
}

uint slot_of(const uint n) {
    return (GROUPED ? n : gl_WorkGroupID.z) * USED + ((slots >> (4 * n)) & 15) - 1;
}

void add(inout float sums[R][2][NT], const Group groups[R][2], const uint g, const uint copy) {
    [[unroll]] for (uint r = 0; r < R; r++) {
        [[unroll]] for (uint m = 0; m < 2; m++) {
            uvec4 w[4];
            [[unroll]] for (uint q = 0; q < 4; q++) {
                w[q] = eight(groups[r][m], q, copy);
            }
            const float scale = iq2_scale(groups[r][m].d, groups[r][m].words.y);
            [[unroll]] for (uint n = 0; n < NT; n++) {
                if (!GROUPED || has(n)) {
                    precise float part = scale * units[n * GROUPS + g];
                    sums[r][m][n] = fma(part, group_dot(w, n, g), sums[r][m][n]);
                }
            }
        }
    }
}

// R pairs of rows of a slot, or of an entry, from row `first` on.
void pairs(const uint slot, const uint first, const bool live) {
    const uint lane = gl_SubgroupInvocationID % LANES;
    const uint copy = gl_SubgroupInvocationID % COPIES;
    uint expert;
    if (GROUPED) {
        expert = ids[2 * slot];
        slots = ids[2 * slot + 1];
    } else {
        // The ids of an idle row may be anything.
        expert = min(ids[gl_WorkGroupID.z * USED + slot], EXPERTS - 1);
        slots = slot + 1;
    }
    float sums[R][2][NT];
    [[unroll]] for (uint r = 0; r < R; r++) {
        [[unroll]] for (uint n = 0; n < NT; n++) {
            sums[r][0][n] = 0.0;
            sums[r][1][n] = 0.0;
        }
    }
    [[unroll]] for (uint step = 0; step < STEPS; step++) {
        const uint g = step * LANES + lane;
        const uint mine = min(g, GROUPS - 1);
        Group groups[R][2];
        [[unroll]] for (uint r = 0; r < R; r++) {
            groups[r][0] = group_load(0, expert * FFN + first + r, mine);
            groups[r][1] = group_load(1, expert * FFN + first + r, mine);
        }
        if (g < GROUPS) {
            add(sums, groups, g, copy);
        }
    }
    [[unroll]] for (uint n = 0; n < NT; n++) {
        if (!GROUPED || has(n)) {
            [[unroll]] for (uint r = 0; r < R; r++) {
                const float g = tree_sum(sums[r][0][n], LANES);
                const float u = tree_sum(sums[r][1][n], LANES);
                if (lane == r % LANES && live) {
                    const uint place = unit_place_of_value(first + r, FFN / 64, ORDER);
                    precise const float value = silu(g) * u * route[slot_of(n)];
                    mid[slot_of(n) * FFN + place] = value;
                }
            }
        }
    }
}

void main() {
    const uint side = gl_SubgroupInvocationID / LANES;
    const uint turn = gl_NumSubgroups * SIDE * R;
    const uint begin = gl_WorkGroupID.x * T * turn;
    // Entries are in front, so that a workgroup whose first one is empty has none.
    if (GROUPED && ids[2 * min(begin / FFN, SLOTS - 1) + 1] == 0) {
        return;
    }
    const bool live = GROUPED || (rows[gl_WorkGroupID.z].flags & ROW_IDLE) == 0;
    stage_tables();
    stage_acts();
    barrier();
    for (uint t = 0; t < T; t++) {
        const uint pair = begin + t * turn + gl_SubgroupID * SIDE * R;
        // All rows of a subgroup are of one slot. Past the last one nothing is stored.
        const uint slot = pair / FFN;
        if (slot < SLOTS) {
            pairs(slot, pair % FFN + side * R, live);
        }
    }
}
