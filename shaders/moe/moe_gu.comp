// Gate and up projection of the chosen experts: mid = silu(G x) * (U x) * route weight, in unit order.
// Rust side, with shapes: src/kernels/moe_gu.rs.
//
// LANES lanes share a row, each takes every LANES-th unit of 64 weights; SIDE rows lie beside each other in a
// subgroup, R pairs of gate and up rows are in flight. The order of a row's sum depends on LANES alone.
//
// A workgroup belongs to one slot of one row of the batch; or with GROUPED to one expert, decodes its weights once and
// multiplies them with every row that chose it.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#ifdef INT_DOT
#extension GL_EXT_integer_dot_product : require
#endif

#include "control.glsl"
#include "logistic.glsl"
#include "tree.glsl"
#include "units.glsl"
#include "expert_word.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SG = 32;
layout(constant_id = 2) const uint LANES = 32; // a power of two, at most SG
layout(constant_id = 3) const uint R = 2;
layout(constant_id = 4) const uint K = 2048; // a multiple of 64
layout(constant_id = 5) const uint FFN = 512; // rows of an expert
layout(constant_id = 6) const uint EXPERTS = 256;
layout(constant_id = 7) const uint USED = 8;
layout(constant_id = 8) const uint ORDER = 0; // unit order of mid
layout(constant_id = 9) const bool GROUPED = false;
layout(constant_id = 10) const uint NT = 1; // GROUPED: rows of the batch, at most 8; else 1
#ifdef FORMAT_IQ2_XXS
layout(constant_id = 11) const bool SHARED_GRID = true; // the grid in shared memory, or read where it is
#endif

layout(set = 0, binding = 1, std430) readonly restrict buffer Gate { WORD gate[]; };
layout(set = 0, binding = 2, std430) readonly restrict buffer Up { WORD up[]; };
layout(set = 0, binding = 3, std430) readonly restrict buffer In { uvec4 x[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { uint mid[]; };
// Ids of experts by slot; or with GROUPED the entries of moe_group.comp.
layout(set = 0, binding = 5, std430) readonly restrict buffer Ids { uint ids[]; };
layout(set = 0, binding = 6, std430) readonly restrict buffer Route { float route[]; };

const uint UNITS = K / 64;
const uint SIDE = SG / LANES;
const uint STEPS = (UNITS + LANES - 1) / LANES;
const uint PAIRS = gl_WorkGroupSize.x / LANES * R; // of a workgroup; with ACT_I8 a multiple of 16

WORD weights(const uint matrix, const uint at) {
    return matrix == 0 ? gate[at] : up[at];
}

uvec4 activations(const uint at) {
    return x[at];
}

uint activation_word(const uint at) {
    return x[at / 4][at % 4];
}

#ifdef FORMAT_IQ2_XXS
layout(set = 0, binding = 7, std430) readonly restrict buffer Grid { uvec2 grid[]; };
shared uvec2 staged_grid[SHARED_GRID ? 256 : 1];
// Entries that an invocation brings in.
const uint GRID_SHARE = (256 + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;

uvec2 iq2_levels(const uint index) {
    if (SHARED_GRID) {
        return staged_grid[index];
    }
    return grid[index];
}
#endif

#include "expert.glsl"
#include "expert_dot.glsl"

void load(out Unit w[R][2], const uint expert, const uint first, const uint unit) {
    [[unroll]] for (uint r = 0; r < R; r++) {
        // A row past the end is computed from the last one and not stored.
        const uint row = expert * FFN + min(first + r, FFN - 1);
        [[unroll]] for (uint m = 0; m < 2; m++) {
            w[r][m] = unit_load(m, row * UNITS + min(unit, UNITS - 1));
        }
    }
}

// Four bits for each row of the batch: one more than the slot in which the row has this expert, or 0.
uint slots;

uint row_of(const uint n) {
    return GROUPED ? n : gl_WorkGroupID.z;
}

bool has(const uint n) {
    return ((slots >> (4 * n)) & 15) != 0;
}

uint slot_of(const uint n) {
    return row_of(n) * USED + ((slots >> (4 * n)) & 15) - 1;
}

void add(inout float sums[R][2][NT], const Unit w[R][2], const uint unit) {
    [[unroll]] for (uint quarter = 0; quarter < 4; quarter++) {
        uvec4 bytes[R][2];
        vec2 scale[R][2];
        [[unroll]] for (uint r = 0; r < R; r++) {
            [[unroll]] for (uint m = 0; m < 2; m++) {
                bytes[r][m] = unit_bytes(w[r][m], quarter);
                scale[r][m] = unit_scale(w[r][m], quarter);
            }
        }
        [[unroll]] for (uint n = 0; n < NT; n++) {
            if (has(n)) {
                const Act a = act_load(row_of(n) * (K / 4), UNITS, unit, quarter);
                [[unroll]] for (uint r = 0; r < R; r++) {
                    [[unroll]] for (uint m = 0; m < 2; m++) {
                        sums[r][m][n] = quarter_dot(bytes[r][m], scale[r][m], a, sums[r][m][n]);
                    }
                }
            }
        }
    }
}

#ifdef ACT_I8
#include "units_i8.glsl"

shared float tile[NT][PAIRS];

// The tile as bytes, sixteen pairs for each of the first invocations.
void store_tile(const bool live) {
    barrier();
    const uint sixteen = gl_LocalInvocationID.x % (PAIRS / 16);
    const uint first = gl_WorkGroupID.x * (PAIRS / 16) + sixteen;
    for (uint n = gl_LocalInvocationID.x / (PAIRS / 16); n < NT; n += gl_WorkGroupSize.x / (PAIRS / 16)) {
        if (has(n) && first < FFN / 16 && live) {
            vec4 v[4];
            [[unroll]] for (uint i = 0; i < 16; i++) {
                v[i / 4][i % 4] = tile[n][sixteen * 16 + i];
            }
            float d;
            const uvec4 codes = quantize16(v, d);
            const uint at = unit_place_of_16(first, FFN / 64, ORDER);
            const uint start = slot_of(n) * FFN;
            [[unroll]] for (uint i = 0; i < 4; i++) {
                mid[start + at * 4 + i] = codes[i];
            }
            mid[start + FFN / 4 + at] = floatBitsToUint(d);
        }
    }
}
#endif

void main() {
    const uint lane = gl_SubgroupInvocationID % LANES;
    const uint side = gl_SubgroupInvocationID / LANES;
    const uint local = (gl_SubgroupID * SIDE + side) * R;
    const uint first = gl_WorkGroupID.x * PAIRS + local;
#ifdef FORMAT_IQ2_XXS
    // Under way before anything waits for the id.
    uvec2 share[GRID_SHARE];
    if (SHARED_GRID) {
        [[unroll]] for (uint i = 0; i < GRID_SHARE; i++) {
            share[i] = grid[(i * gl_WorkGroupSize.x + gl_LocalInvocationID.x) % 256];
        }
    }
#endif
    uint expert;
    bool live = true;
    if (GROUPED) {
        expert = ids[2 * gl_WorkGroupID.y];
        slots = ids[2 * gl_WorkGroupID.y + 1];
        if (slots == 0) {
            return;
        }
    } else {
        // The ids of an idle row may be anything.
        expert = min(ids[gl_WorkGroupID.z * USED + gl_WorkGroupID.y], EXPERTS - 1);
        slots = gl_WorkGroupID.y + 1;
        live = (rows[gl_WorkGroupID.z].flags & ROW_IDLE) == 0;
    }

    Unit w[R][2];
    load(w, expert, first, lane);
#ifdef FORMAT_IQ2_XXS
    if (SHARED_GRID) {
        [[unroll]] for (uint i = 0; i < GRID_SHARE; i++) {
            staged_grid[(i * gl_WorkGroupSize.x + gl_LocalInvocationID.x) % 256] = share[i];
        }
        barrier();
    }
#endif
    float sums[R][2][NT];
    [[unroll]] for (uint r = 0; r < R; r++) {
        [[unroll]] for (uint n = 0; n < NT; n++) {
            sums[r][0][n] = 0.0;
            sums[r][1][n] = 0.0;
        }
    }
    for (uint step = 0; step < STEPS; step++) {
        const uint unit = step * LANES + lane;
        if (step > 0) {
            load(w, expert, first, unit);
        }
        if (unit < UNITS) {
            add(sums, w, unit);
        }
    }
    [[unroll]] for (uint n = 0; n < NT; n++) {
        if (has(n)) {
            [[unroll]] for (uint r = 0; r < R; r++) {
                const float g = tree_sum(sums[r][0][n], LANES);
                const float u = tree_sum(sums[r][1][n], LANES);
                precise const float value = silu(g) * u * route[slot_of(n)];
                if (lane == r % LANES) {
#ifdef ACT_I8
                    tile[n][local + r] = value;
#else
                    if (first + r < FFN && live) {
                        const uint place = unit_place_of_value(first + r, FFN / 64, ORDER);
                        mid[slot_of(n) * FFN + place] = floatBitsToUint(value);
                    }
#endif
                }
            }
        }
    }
#ifdef ACT_I8
    store_tile(live);
#endif
}
