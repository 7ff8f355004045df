// Y = W X for up to 8 rows of X (decode), Q8_0 weights in two planes, with cooperative matrices: products of f16, sums of
// f32. Rust side, with the layouts, the forms and the choice of constants: src/kernels/mv_q8.rs.
//
// The subgroups of a workgroup share the columns of W, SLICE each, and keep their part of all rows of X as matrices. They
// take EDGE rows of W at a time, T times, and the sums of all slices are added in order. All of that is the same for any
// NT; columns past NT are zero, and a column of a product depends on no other.
//
// Weights go from memory into the matrices' registers, not through shared memory: lane l holds eight values of a matrix of
// W, where src/kernels/layout.rs has found them on this device. Which column of W a column of
// the matrix stands for is free as long as X is told the same; it is chosen so that a lane's values of four matrices are
// one chunk of 16 codes of each of two rows.
//
// f16 holds a weight times `scale`, a power of two that brings the largest of the tensor near the end of its range, and a
// value of X divided by a power of two above the largest of its row and slice; the sums get both back exactly. What is
// lost of a weight and of a value is 2^-11 of it. What is not finite stays so.
//
// Macros: those of mv.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#include "control.glsl"
#include "logistic.glsl"
#include "power.glsl"
#include "tree.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SG = 32;
layout(constant_id = 2) const uint NSG = 8;   // subgroups of the workgroup
layout(constant_id = 3) const uint NT = 1;    // rows of X
layout(constant_id = 4) const uint T = 1;     // how many times EDGE rows
layout(constant_id = 5) const uint K = 2048;  // NSG * SLICE

const uint EDGE = 16;    // rows and columns of a matrix of W
const uint COLUMNS = 8;  // of a matrix of X, and of sums
const uint SLICE = 256;  // columns of W of a subgroup
const uint STEP = 64;    // columns that four lanes load at a time, and four matrices hold
const uint STEPS = SLICE / STEP;
const uint STEP_MATRICES = STEP / EDGE;
const uint HALVES = 2;   // rows of a matrix that a lane has values of
const uint GROUP = EDGE * T;
// Sums of two passes, so that one barrier for each is enough.
const uint PASSES = T > 1 ? 2 : 1;
// Outputs of an invocation in a pass.
const uint OUTPUTS = (NT * EDGE + NSG * SG - 1) / (NSG * SG);
// Fours of a row of X's slice that a lane holds.
const uint FOURS = SLICE / (4 * SG);
// Words of a row of X in shared memory, a step of it; four more keep neighbouring rows in different banks.
const uint PITCH = STEP / 2 + 4;
const uint AREA = COLUMNS * PITCH; // of a subgroup

layout(set = 0, binding = 1, std430) readonly restrict buffer Codes { uvec4 codes[]; };
layout(set = 0, binding = 2, std430) readonly restrict buffer Scales { uvec4 scales[]; }; // of eight blocks each
#include "mv.glsl"

#define MatrixW coopmat<float16_t, gl_ScopeSubgroup, EDGE, EDGE, gl_MatrixUseA>
#define MatrixX coopmat<float16_t, gl_ScopeSubgroup, EDGE, COLUMNS, gl_MatrixUseB>
#define Sums coopmat<float, gl_ScopeSubgroup, EDGE, COLUMNS, gl_MatrixUseAccumulator>

shared uint tiles[NSG * AREA];
shared float sums_of[PASSES * NSG * COLUMNS * EDGE];
// What the sums of a slice and row of X are multiplied by.
shared float powers[NSG * COLUMNS];

// Makes what lanes wrote visible to their subgroup.
void settle() {
    subgroupMemoryBarrierShared();
    subgroupBarrier();
}

// A lane's share of EDGE rows of the slice: for each step a chunk of codes of rows `lane / 4` and 8 after it, and the
// scales of all blocks of both.
uvec4 w[STEPS * HALVES];
uvec4 d[HALVES];

uint slice_row(const uint first, const uint half_) {
    // A row past the end is computed from the last one and not stored.
    return min(first + half_ * 8 + gl_SubgroupInvocationID / 4, height - 1) * NSG + gl_SubgroupID;
}

void load_step(const uint first, const uint s) {
    [[unroll]] for (uint i = 0; i < HALVES; i++) {
        const uint chunk = s * 4 + gl_SubgroupInvocationID % 4;
        w[s * HALVES + i] = codes[slice_row(first, i) * (SLICE / 16) + chunk];
    }
}

void load_scales(const uint first) {
    [[unroll]] for (uint i = 0; i < HALVES; i++) {
        d[i] = scales[slice_row(first, i)];
    }
}

// Halves of bytes 0 and 2 of a word of codes, exactly: in 0x6400 + byte the unit of the last place is 1.
f16vec2 even_bytes(const uint word) {
    return unpackFloat2x16((word & 0x00ff00ffu) ^ 0x64806480u) - float16_t(1024 + 128);
}

// The slice of X.
MatrixX matrices[STEPS * STEP_MATRICES];

// Four values of a step, as columns of a matrix: the lanes' bytes 0 and 2 are columns 2t and 2t + 1 of matrix j, bytes 1
// and 3 those 8 after them, where the four are word j of chunk t.
void put_x(const uint column, const uint four, const vec4 v) {
    const uint at = gl_SubgroupID * AREA + column * PITCH + four % 4 * (EDGE / 2) + four / 4;
    tiles[at] = packFloat2x16(f16vec2(v.xz));
    tiles[at + EDGE / 4] = packFloat2x16(f16vec2(v.yw));
}

void load_x() {
    vec4 mine[NT * FOURS];
    [[unroll]] for (uint n = 0; n < NT; n++) {
        float most = 0.0;
        [[unroll]] for (uint i = 0; i < FOURS; i++) {
            const vec4 v = input_at(n, gl_SubgroupID * (SLICE / 4) + i * SG + gl_SubgroupInvocationID);
            const vec4 magnitude = abs(v);
            most = max(most, max(max(magnitude.x, magnitude.y), max(magnitude.z, magnitude.w)));
            mine[n * FOURS + i] = v;
        }
        const float power = power_above(lanes_max(most, SG));
        [[unroll]] for (uint i = 0; i < FOURS; i++) {
            mine[n * FOURS + i] *= power_inverse(power);
        }
        if (gl_SubgroupInvocationID == n) {
            powers[gl_SubgroupID * COLUMNS + n] = power * unscale;
        }
    }
    const uint area = gl_SubgroupID * AREA;
    for (uint i = gl_SubgroupInvocationID; i < (COLUMNS - NT) * PITCH; i += SG) {
        tiles[area + NT * PITCH + i] = 0;
    }
    [[unroll]] for (uint s = 0; s < STEPS; s++) {
        [[unroll]] for (uint i = 0; i < FOURS; i++) {
            const uint four = i * SG + gl_SubgroupInvocationID;
            if (four / (STEP / 4) == s) {
                [[unroll]] for (uint n = 0; n < NT; n++) {
                    put_x(n, four % (STEP / 4), mine[n * FOURS + i]);
                }
            }
        }
        settle();
        [[unroll]] for (uint m = 0; m < STEP_MATRICES; m++) {
            coopMatLoad(matrices[s * STEP_MATRICES + m], tiles, area + m * (EDGE / 2), PITCH,
                        gl_CooperativeMatrixLayoutColumnMajor);
        }
        settle();
    }
}

// Adds the products of a slice of EDGE rows, and shows their sums to the workgroup. What is used makes room for the rows
// from `next` on, which are under way during the rest.
void multiply(const uint pass, const uint next) {
    f16vec2 factors[STEPS * HALVES];
    [[unroll]] for (uint s = 0; s < STEPS; s++) {
        [[unroll]] for (uint i = 0; i < HALVES; i++) {
            const vec2 pair = unpackHalf2x16(d[i][s]);
            const float factor = (gl_SubgroupInvocationID & 2) == 0 ? pair.x : pair.y;
            factors[s * HALVES + i] = f16vec2(float16_t(factor * scale));
        }
    }
    if (pass + 1 < T) {
        load_scales(next);
    }
    Sums sums = Sums(0.0);
    [[unroll]] for (uint s = 0; s < STEPS; s++) {
        [[unroll]] for (uint m = 0; m < STEP_MATRICES; m++) {
            MatrixW part;
            [[unroll]] for (uint i = 0; i < HALVES; i++) {
                const uint word = w[s * HALVES + i][m];
                const f16vec2 even = even_bytes(word) * factors[s * HALVES + i];
                const f16vec2 odd = even_bytes(word >> 8) * factors[s * HALVES + i];
                part[4 * i] = even.x;
                part[4 * i + 1] = even.y;
                part[4 * i + 2] = odd.x;
                part[4 * i + 3] = odd.y;
            }
            sums = coopMatMulAdd(part, matrices[s * STEP_MATRICES + m], sums);
        }
        if (pass + 1 < T) {
            load_step(next, s);
        }
    }
    coopMatStore(sums, sums_of, (pass % PASSES * NSG + gl_SubgroupID) * COLUMNS * EDGE, EDGE,
                 gl_CooperativeMatrixLayoutColumnMajor);
}

// The whole sum of a row of W and a row of X.
float total(const uint pass, const uint n, const uint row) {
    precise float sum = 0.0;
    [[unroll]] for (uint s = 0; s < NSG; s++) {
        const float part = sums_of[((pass % PASSES * NSG + s) * COLUMNS + n) * EDGE + row];
        sum = fma(part, powers[s * COLUMNS + n], sum);
    }
    return sum;
}

void main() {
    const uint group = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    // The first weights do not depend on X: under way before anything else.
    load_scales(group * GROUP);
    [[unroll]] for (uint s = 0; s < STEPS; s++) {
        load_step(group * GROUP, s);
    }
#ifdef NORM
    scale_rows();
#endif
    load_x();
    for (uint t = 0; t < T; t++) {
        const uint first = group * GROUP + t * EDGE;
#ifdef RESIDUAL
        // Read early, so that the end does not wait for it.
        float before[OUTPUTS];
        [[unroll]] for (uint i = 0; i < OUTPUTS; i++) {
            const uint v = min(gl_LocalInvocationID.x + i * gl_WorkGroupSize.x, NT * EDGE - 1);
            before[i] = h[v / EDGE * height + min(first + v % EDGE, height - 1)];
        }
#endif
        multiply(t, first + EDGE);
        barrier();
        [[unroll]] for (uint i = 0; i < OUTPUTS; i++) {
            const uint v = gl_LocalInvocationID.x + i * gl_WorkGroupSize.x;
            if (v < NT * EDGE) {
                const uint n = v / EDGE;
#ifdef RESIDUAL
                deliver(target_of(n), n, first + v % EDGE, group, total(t, n, v % EDGE), before[i]);
#else
                deliver(target_of(n), n, first + v % EDGE, group, total(t, n, v % EDGE), 0.0);
#endif
            }
        }
    }
#if defined(RESIDUAL) || defined(HEAD)
    barrier();
    finish(group);
#endif
}
