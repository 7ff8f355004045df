// One decode step of the gated DeltaNet mixer, a workgroup for each value head and row: convolution with SiLU, L2
// norms, delta rule, head norm, gate. Rust side, with the formula: src/kernels/recurrent.rs.
//
// An invocation holds D / PARTS rows of one column of the state in registers from the first instruction on; the
// rest is arranged around these loads. Queries and keys stay unnormalised in shared memory: their norm is a factor
// of sums.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#include "control.glsl"
#include "recurrent.glsl"
#include "logistic.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SG = 32;
layout(constant_id = 2) const uint PARTS = 4; // the workgroup is D * PARTS
layout(constant_id = 3) const uint KEY_HEADS = 16;
layout(constant_id = 4) const uint VALUE_HEADS = 32;
layout(constant_id = 5) const uint Y_STRIDE = 4096; // values from one row of y to the next

layout(push_constant) uniform Push {
    float eps; // of the head norm
};

layout(set = 0, binding = 1, std430) readonly restrict buffer Taps { vec4 taps[]; };
layout(set = 0, binding = 2, std430) readonly restrict buffer Norm { float norm[]; };
layout(set = 0, binding = 3, std430) restrict buffer Ring { float ring[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { float y[]; };
layout(set = 0, binding = 5, std430) restrict buffer State { float state[]; };
layout(set = 0, binding = 6, std430) readonly restrict buffer Gate { float z[]; };
layout(set = 0, binding = 7, std430) readonly restrict buffer Decay { float decay[]; };
layout(set = 0, binding = 8, std430) readonly restrict buffer Beta { float beta[]; };

const uint CHANNELS = (2 * KEY_HEADS + VALUE_HEADS) * D;
const uint STATE_ROWS = D / PARTS;
const uint Q = 0;
const uint K = 1;
const uint V = 2;

// Convolved channels of query, key and value.
shared vec4 heads[3][D4];
// Sums of their squares by subgroup, 4 values where a subgroup has 32 lanes.
shared float squares[3 * D / SG];
shared float predicted[PARTS][D];
shared float read[PARTS][D];
shared float out_squares[D / SG];

// Invocations in the order of subgroups.
uint local_index() {
    return gl_SubgroupID * SG + gl_SubgroupInvocationID;
}

// Convolves this head's channels, and copies the rows of the next steps where the slots differ.
void convolve(const uint row, const uint head) {
    const uint pos = rows[row].pos;
    const uint source = rows[row].source * 4 * CHANNELS;
    const uint target = rows[row].target * 4 * CHANNELS;
    const uint key_head = head % KEY_HEADS;
    for (uint i = local_index(); i < 3 * D; i += gl_WorkGroupSize.x) {
        const uint which = i / D;
        const uint c = i % D;
        const uint first = which == Q ? key_head : which == K ? KEY_HEADS + key_head : 2 * KEY_HEADS + head;
        const uint channel = first * D + c;
        const vec4 tap = taps[channel];
        const float x0 = ring[source + (pos + 1) % 4 * CHANNELS + channel];
        const float x1 = ring[source + (pos + 2) % 4 * CHANNELS + channel];
        const float x2 = ring[source + (pos + 3) % 4 * CHANNELS + channel];
        const float x3 = ring[target + pos % 4 * CHANNELS + channel];
        const float sum = fma(tap.w, x3, fma(tap.z, x2, fma(tap.y, x1, tap.x * x0)));
        const float value = silu(sum);
        heads[which][c / 4][c % 4] = value;
        const float part = lanes_sum(value * value, SG);
        if (gl_SubgroupInvocationID == 0) {
            squares[i / SG] = part;
        }
        // Value heads that share a key head leave its channels to the first of them.
        if (source != target && (which == V || head < KEY_HEADS)) {
            ring[target + (pos + 2) % 4 * CHANNELS + channel] = x1;
            ring[target + (pos + 3) % 4 * CHANNELS + channel] = x2;
        }
    }
}

// What makes a query or key of length 1.
float inverse_length(const uint which) {
    float sum = 0.0;
    [[unroll]] for (uint i = 0; i < D / SG; i++) {
        sum += squares[which * (D / SG) + i];
    }
    return 1.0 / sqrt(sum + L2_EPS);
}

void main() {
    const uint row = gl_WorkGroupID.y;
    const uint head = gl_WorkGroupID.x;
    // The whole workgroup or none of it.
    if ((rows[row].flags & ROW_IDLE) != 0) {
        return;
    }
    const uint column = local_index() % D;
    const uint part = local_index() / D;
    const uint mine = head * D * D + part * STATE_ROWS * D + column;
    const uint source = rows[row].source * VALUE_HEADS * D * D + mine;
    const uint target = rows[row].target * VALUE_HEADS * D * D + mine;
    vec4 s[STATE_ROWS / 4];
    [[unroll]] for (uint i = 0; i < STATE_ROWS; i++) {
        s[i / 4][i % 4] = state[source + i * D];
    }
    const float factor = decay[row * VALUE_HEADS + head];
    const float strength = beta[row * VALUE_HEADS + head];
    const float gate = z[(row * VALUE_HEADS + head) * D + column];
    const float weight = norm[column];
    convolve(row, head);
    barrier();

    const float k_length = inverse_length(K);
    vec4 sum = vec4(0.0);
    [[unroll]] for (uint i = 0; i < STATE_ROWS / 4; i++) {
        s[i] *= factor;
        sum = fma(heads[K][part * (STATE_ROWS / 4) + i], s[i], sum);
    }
    predicted[part][column] = sum4(sum);
    barrier();

    float prediction = 0.0;
    [[unroll]] for (uint p = 0; p < PARTS; p++) {
        prediction += predicted[p][column];
    }
    const float value = heads[V][column / 4][column % 4];
    const float d = strength * fma(-k_length, prediction, value);
    const float step = k_length * d;
    sum = vec4(0.0);
    [[unroll]] for (uint i = 0; i < STATE_ROWS / 4; i++) {
        s[i] = fma(heads[K][part * (STATE_ROWS / 4) + i], vec4(step), s[i]);
        sum = fma(heads[Q][part * (STATE_ROWS / 4) + i], s[i], sum);
    }
    [[unroll]] for (uint i = 0; i < STATE_ROWS; i++) {
        state[target + i * D] = s[i / 4][i % 4];
    }
    read[part][column] = sum4(sum);
    barrier();

    float o = 0.0;
    [[unroll]] for (uint p = 0; p < PARTS; p++) {
        o += read[p][column];
    }
    o *= inverse_length(Q) / sqrt(float(D));
    // Every part has the sum; the first one writes.
    const float square = lanes_sum(o * o, SG);
    if (part == 0 && gl_SubgroupInvocationID == 0) {
        out_squares[column / SG] = square;
    }
    barrier();

    float squared = 0.0;
    [[unroll]] for (uint i = 0; i < D / SG; i++) {
        squared += out_squares[i];
    }
    if (part == 0) {
        const float scale = 1.0 / sqrt(squared / float(D) + eps);
        y[row * Y_STRIDE + head * D + column] = o * scale * weight * gate;
    }
}
