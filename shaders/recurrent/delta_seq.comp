// The gated delta rule over the tokens of a chunk, one after the other, state in registers. Rust side, with the
// formula: src/kernels/delta.rs.
//
// Eight neighbouring lanes share a column of the state, 16 rows each, so a token costs three shuffles and no
// barrier. Both sums of a token are taken from the state before it, which leaves one pass and one reduction:
//
//   d = beta (v - e^g S^T k),  o = e^g S^T q + (k . q) d,  S <- e^g S + k d^T
//
// Queries, keys and values of a round of tokens pass through shared memory, in two halves: one barrier a round, and
// the next round's loads are under way while this one is computed.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#include "control.glsl"
#include "recurrent.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SG = 32;
layout(constant_id = 2) const uint WORKGROUP = 256; // a multiple of 32, at most 256
layout(constant_id = 3) const uint COLUMNS = 1;     // of a lane, at most 4
layout(constant_id = 4) const uint KEY_HEADS = 16;
layout(constant_id = 5) const uint VALUE_HEADS = 32;

layout(set = 0, binding = 3, std430) readonly restrict buffer In { vec4 conv[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Out { float o[]; };
layout(set = 0, binding = 5, std430) restrict buffer State { float state[]; };
layout(set = 0, binding = 6, std430) readonly restrict buffer Decay { float log_decay[]; };
layout(set = 0, binding = 7, std430) readonly restrict buffer Beta { float beta[]; };

const uint ROW4 = (2 * KEY_HEADS + VALUE_HEADS) * D4;
const uint PARTS = 8;           // lanes of a column
const uint QUADS = D4 / PARTS;  // four rows of the state each
const uint ROUND = WORKGROUP / D4; // tokens of a round: a quad of q and one of k for each invocation
const uint WIDTH = WORKGROUP / PARTS * COLUMNS; // columns of the workgroup
const uint LANES = SG < D4 ? SG : D4;
const uint SUMS = D4 / LANES;

shared vec4 keys[2][ROUND][D4];
shared vec4 queries[2][ROUND][D4];
shared float values[2][ROUND][WIDTH];
// Decay factor, write strength.
shared vec2 gates[2][ROUND];
// k . q, in parts.
shared float products[2][ROUND][SUMS];

// An invocation's share of a round.
struct Share {
    vec4 k;
    vec4 q;
    vec4 v; // COLUMNS of it
    float log_decay;
    float beta;
};

uint local_index() {
    return gl_SubgroupID * SG + gl_SubgroupInvocationID;
}

// Tokens past the end change nothing: no decay, nothing to write.
Share fetch(const uint base, const uint head) {
    const uint slot = local_index() % D4;
    const uint t = base + local_index() / D4;
    Share share;
    share.k = vec4(0.0);
    share.q = vec4(0.0);
    share.v = vec4(0.0);
    share.log_decay = 0.0;
    share.beta = 0.0;
    if (t < rows[0].tokens) {
        const uint key = head % KEY_HEADS * D4 + slot;
        share.q = conv[t * ROW4 + key];
        share.k = conv[t * ROW4 + KEY_HEADS * D4 + key];
        [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
            const uint column = gl_WorkGroupID.y * WIDTH + c * D4 + slot;
            if (c * D4 + slot < WIDTH) {
                share.v[c] = conv[t * ROW4 + (2 * KEY_HEADS + head) * D4 + column / 4][column % 4];
            }
        }
        share.log_decay = log_decay[t * VALUE_HEADS + head];
        share.beta = beta[t * VALUE_HEADS + head];
    }
    return share;
}

void stage(const Share share, const uint half_) {
    const uint slot = local_index() % D4;
    const uint t = local_index() / D4;
    keys[half_][t][slot] = share.k;
    queries[half_][t][slot] = share.q;
    [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
        if (c * D4 + slot < WIDTH) {
            values[half_][t][c * D4 + slot] = share.v[c];
        }
    }
    if (slot == 0) {
        gates[half_][t] = vec2(exp(share.log_decay), share.beta);
    }
    const float product = lanes_sum(sum4(share.k * share.q), LANES);
    if (slot % LANES == 0) {
        products[half_][t][slot / LANES] = product;
    }
}

void main() {
    const uint head = gl_WorkGroupID.x;
    const uint part = local_index() % PARTS;
    const uint group = local_index() / PARTS * COLUMNS;
    const uint column = gl_WorkGroupID.y * WIDTH + group;
    const uint n = rows[0].tokens;
    const uint source = (rows[0].source * VALUE_HEADS + head) * D * D + column;
    const uint target = (rows[0].target * VALUE_HEADS + head) * D * D + column;

    vec4 s[COLUMNS][QUADS];
    [[unroll]] for (uint r = 0; r < D / PARTS; r++) {
        const uint at = source + (r / 4 * 4 * PARTS + part * 4 + r % 4) * D;
        [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
            s[c][r / 4][r % 4] = state[at + c];
        }
    }
    Share share = fetch(0, head);
    uint half_ = 0;
    for (uint base = 0; base < n; base += ROUND) {
        stage(share, half_);
        barrier();
        share = fetch(base + ROUND, head);
        float kept[COLUMNS];
        [[unroll]] for (uint t = 0; t < ROUND; t++) {
            vec4 k[QUADS];
            vec4 q[QUADS];
            [[unroll]] for (uint i = 0; i < QUADS; i++) {
                k[i] = keys[half_][t][i * PARTS + part];
                q[i] = queries[half_][t][i * PARTS + part];
            }
            float product = 0.0;
            [[unroll]] for (uint i = 0; i < SUMS; i++) {
                product += products[half_][t][i];
            }
            const vec2 gate = gates[half_][t];
            [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
                vec4 by_k = vec4(0.0);
                vec4 by_q = vec4(0.0);
                [[unroll]] for (uint i = 0; i < QUADS; i++) {
                    by_k = fma(k[i], s[c][i], by_k);
                    by_q = fma(q[i], s[c][i], by_q);
                }
                const float prediction = gate.x * lanes_sum(sum4(by_k), PARTS);
                const float old = gate.x * lanes_sum(sum4(by_q), PARTS);
                const float d = gate.y * (values[half_][t][group + c] - prediction);
                [[unroll]] for (uint i = 0; i < QUADS; i++) {
                    s[c][i] = fma(k[i], vec4(d), gate.x * s[c][i]);
                }
                // Every lane of a column has the result; lane t keeps token t, and one store serves the round.
                kept[c] = part == t ? fma(product, d, old) : kept[c];
            }
        }
        if (part < ROUND && base + part < n) {
            [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
                o[((base + part) * VALUE_HEADS + head) * D + column + c] = kept[c];
            }
        }
        half_ = 1 - half_;
    }
    [[unroll]] for (uint r = 0; r < D / PARTS; r++) {
        const uint at = target + (r / 4 * 4 * PARTS + part * 4 + r % 4) * D;
        [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
            state[at + c] = s[c][r / 4][r % 4];
        }
    }
}
