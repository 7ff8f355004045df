// Decay and write strength of every value head from the raw projections. Rust side: src/kernels/gates.rs.
#version 460
#extension GL_GOOGLE_include_directive : require

#include "control.glsl"
#include "logistic.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint HEADS = 32;
layout(constant_id = 2) const uint ALPHA_STRIDE = 32; // values from one row of alpha to the next
layout(constant_id = 3) const uint BETA_STRIDE = 32;
layout(constant_id = 4) const bool STEP = false; // rows of a decode step instead of tokens of a chunk

layout(push_constant) uniform Push {
    uint count; // rows of the buffers
};

layout(set = 0, binding = 1, std430) readonly restrict buffer A { float a[]; };
layout(set = 0, binding = 2, std430) readonly restrict buffer Dt { float dt[]; };
layout(set = 0, binding = 3, std430) readonly restrict buffer Alpha { float alpha[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Decay { float decay[]; };
layout(set = 0, binding = 5, std430) readonly restrict buffer Raw { float raw[]; };
layout(set = 0, binding = 6, std430) writeonly restrict buffer Beta { float beta[]; };

void main() {
    const uint i = gl_GlobalInvocationID.x;
    const uint row = i / HEADS;
    const uint head = i % HEADS;
    const uint end = STEP ? count : min(count, rows[0].tokens);
    if (row >= end || (STEP && (rows[row].flags & ROW_IDLE) != 0)) {
        return;
    }
    const float log_decay = a[head] * softplus(alpha[row * ALPHA_STRIDE + head] + dt[head]);
    decay[i] = STEP ? exp(log_decay) : log_decay;
    beta[i] = sigmoid(raw[row * BETA_STRIDE + head]);
}
