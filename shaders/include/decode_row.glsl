// A row of a decode step before attention: norm and rotation of its heads, and the new row of K and V. Included after
// kv.glsl (with KV_STORE) and heads.glsl by the kernels of src/kernels/attention.rs, which declare H, `stride` and `eps`.

layout(set = 0, binding = 3, std430) readonly restrict buffer Proj { float proj[]; };
layout(set = 0, binding = 8, std430) readonly restrict buffer QNorm { float q_norm[]; };
layout(set = 0, binding = 9, std430) readonly restrict buffer KNorm { float k_norm[]; };

// Scores are kept in units of log 2: 1/16 times log2(e).
const float Q_SCALE = 0.0625 * 1.44269504;
// Below every score, and finite, so that differences are.
const float LOWEST = -3e38;

// The new row as stored: words of codes, bits of scales.
shared uint fresh_k[128];
shared uint fresh_v[128];
shared uint fresh_k_scales[8];
shared uint fresh_v_scales[8];

// A head of the row, of which each of 32 invocations has every 32nd value.
struct Head {
    float v[8];
    float weight[8];
};

// Unit u: a query head below H, then K, then V.
Head load_head(const uint row, const uint head, const uint unit) {
    const uint lane = gl_LocalInvocationID.x % 32;
    const uint query_width = KV_HEADS * H * HEAD_DIM;
    uint from = row * stride + 2 * HEAD_DIM * (head * H + min(unit, H - 1));
    if (unit >= H) {
        from = row * stride + 2 * query_width + (unit == H ? head : KV_HEADS + head) * HEAD_DIM;
    }
    Head h;
    [[unroll]] for (uint m = 0; m < 8; m++) {
        h.v[m] = unit < H + 2 ? proj[from + 32 * m + lane] : 0.0;
        h.weight[m] = unit < H ? q_norm[32 * m + lane] : k_norm[32 * m + lane];
    }
    return h;
}

// Rotation that keeps to one invocation: pairs are a multiple of 32 values apart.
const bool ROTATE_IN_PLACE = PAIRS % 32 == 0;
// Angles of an invocation.
const uint ANGLES = (PAIRS + 31) / 32;

void load_angles(out vec2 angles[ANGLES], const uint pos) {
    [[unroll]] for (uint a = 0; a < ANGLES; a++) {
        angles[a] = rope_angle(pos, min(a * 32 + gl_LocalInvocationID.x % 32, PAIRS - 1));
    }
}

// Norm, and rotation where it keeps to one invocation.
void normalise(inout Head h, const bool value, const vec2 angles[ANGLES]) {
    float sum = 0.0;
    [[unroll]] for (uint m = 0; m < 8; m++) {
        sum = fma(h.v[m], h.v[m], sum);
    }
    const float scale = 1.0 / sqrt(head_sum(sum) / float(HEAD_DIM) + eps);
    [[unroll]] for (uint m = 0; m < 8; m++) {
        precise float x = h.v[m] * scale;
        x = x * h.weight[m];
        h.v[m] = value ? h.v[m] : x;
    }
    if (ROTATE_IN_PLACE && !value) {
        [[unroll]] for (uint a = 0; a < ANGLES; a++) {
            const uint other = min(a + PAIRS / 32, 7);
            const vec2 pair = rotated(h.v[a], h.v[other], angles[a]);
            h.v[a] = pair.x;
            h.v[other] = pair.y;
        }
    }
}

// Quantises and stores the new row, and keeps its codes for this workgroup, whose loads are already under way.
void store_fresh(const uint pos, const uint first_page, const uint head) {
    const uint page = first_page + pos / PAGE_KEYS;
    const uint key = pos % PAGE_KEYS;
    const uint lane = gl_LocalInvocationID.x % 128;
    if (gl_LocalInvocationID.x < 128) {
        for (uint w = lane; w < K_WORDS; w += 128) {
            const Encoded e = encode(K_TYPE, 0, w);
            store_k(page, head, key, w, e);
            fresh_k[w] = e.word;
            if (K_TYPE != KV_F16) {
                fresh_k_scales[w / block_words(K_TYPE)] = e.scale;
            }
        }
    } else {
        for (uint w = lane; w < V_WORDS; w += 128) {
            const Encoded e = encode(V_TYPE, HEAD_DIM, w);
            store_v(page, head, key, w, e);
            fresh_v[w] = e.word;
            if (V_TYPE != KV_F16) {
                fresh_v_scales[w / block_words(V_TYPE)] = e.scale;
            }
        }
    }
}
