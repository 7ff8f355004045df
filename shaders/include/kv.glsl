// The K/V cache of a layer (src/kernels/kv.rs): pages of 64 positions for each KV head. A row's codes are those of the
// GGUF block formats without the scales. K is transposed in chunks of 16 bytes, so that invocations with
// neighbouring keys read neighbouring bytes; V is row-major; scales are planes of halves at the end of the buffer.
//
//   K codes  [page][kv head][chunk of 16 bytes][64 keys]    K scales  [page][kv head][block of 32][64 keys]
//   V codes  [page][kv head][64 keys][chunk of 16 bytes]    V scales  [page][kv head][64 keys][block of 32]
//
// The kernel declares K_TYPE, V_TYPE, KV_HEADS before, and KV_ACCESS (default `readonly`). Kernels that store also
// declare `float staged(uint)` and KV_STORE; those that only do, KV_ONLY_STORE.

const uint HEAD_DIM = 256;
const uint PAGE_KEYS = 64;
const uint KV_F16 = 0;
const uint KV_Q8_0 = 1;
const uint KV_Q4_0 = 2;

#ifndef KV_ACCESS
#define KV_ACCESS readonly
#endif

layout(set = 0, binding = 1, std430) KV_ACCESS restrict buffer KCodes { uvec4 k_codes[]; };
layout(set = 0, binding = 2, std430) KV_ACCESS restrict buffer VCodes { uvec4 v_codes[]; };
layout(set = 0, binding = 5, std430) KV_ACCESS restrict buffer KScales { uint16_t k_scales[]; };
layout(set = 0, binding = 6, std430) KV_ACCESS restrict buffer VScales { uint16_t v_scales[]; };

// Words of a row's codes.
const uint K_WORDS = K_TYPE == KV_F16 ? 128 : K_TYPE == KV_Q8_0 ? 64 : 32;
const uint V_WORDS = V_TYPE == KV_F16 ? 128 : V_TYPE == KV_Q8_0 ? 64 : 32;
// Chunks of a block of 32 values.
const uint K_BLOCK_CHUNKS = K_WORDS / 32;
const uint V_BLOCK_CHUNKS = V_WORDS / 32;

uint k_chunk_at(const uint page, const uint head, const uint chunk, const uint key) {
    return ((page * KV_HEADS + head) * (K_WORDS / 4) + chunk) * PAGE_KEYS + key;
}

uint k_scale_at(const uint page, const uint head, const uint block, const uint key) {
    return ((page * KV_HEADS + head) * 8 + block) * PAGE_KEYS + key;
}

uint v_chunk_at(const uint page, const uint head, const uint key, const uint chunk) {
    return ((page * KV_HEADS + head) * PAGE_KEYS + key) * (V_WORDS / 4) + chunk;
}

uint v_scale_at(const uint page, const uint head, const uint key, const uint block) {
    return ((page * KV_HEADS + head) * PAGE_KEYS + key) * 8 + block;
}

float half_value(const uint bits) {
    return unpackHalf2x16(bits).x;
}

vec4 signed_bytes(const uint word) {
    const int w = int(word);
    return vec4(bitfieldExtract(w, 0, 8), bitfieldExtract(w, 8, 8), bitfieldExtract(w, 16, 8),
                bitfieldExtract(w, 24, 8));
}

// Four codes of Q4_0 at bit `shift` of each byte.
vec4 nibbles(const uint word, const int shift) {
    return vec4(bitfieldExtract(word, shift, 4), bitfieldExtract(word, shift + 8, 4),
                bitfieldExtract(word, shift + 16, 4), bitfieldExtract(word, shift + 24, 4)) - 8.0;
}

// Values 4 g to 4 g + 3 of a block of K, without the scale.
vec4 k_group(const uvec4 chunks[4], const uint g) {
    if (K_TYPE == KV_F16) {
        const uvec4 c = chunks[g / 2];
        const uvec2 w = g % 2 == 0 ? c.xy : c.zw;
        return vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y));
    }
    if (K_TYPE == KV_Q8_0) {
        return signed_bytes(chunks[g / 4][g % 4]);
    }
    return nibbles(chunks[0][g % 4], int(g / 4 * 4));
}

#ifndef KV_ONLY_STORE
// Half of a block of K of one key, sixteen values with the scale. Exact.
void k_half_block(const uint page, const uint head, const uint key, const uint block, const uint half_block,
                  out vec4 v[4]) {
    if (K_TYPE == KV_F16) {
        [[unroll]] for (uint i = 0; i < 2; i++) {
            const uvec4 c = k_codes[k_chunk_at(page, head, block * 4 + half_block * 2 + i, key)];
            v[2 * i] = vec4(unpackHalf2x16(c.x), unpackHalf2x16(c.y));
            v[2 * i + 1] = vec4(unpackHalf2x16(c.z), unpackHalf2x16(c.w));
        }
        return;
    }
    const float scale = half_value(uint(k_scales[k_scale_at(page, head, block, key)]));
    const uint chunk = K_TYPE == KV_Q8_0 ? block * 2 + half_block : block;
    const uvec4 c = k_codes[k_chunk_at(page, head, chunk, key)];
    [[unroll]] for (uint i = 0; i < 4; i++) {
        v[i] = scale * (K_TYPE == KV_Q8_0 ? signed_bytes(c[i]) : nibbles(c[i], int(half_block * 4)));
    }
}

// A row of V is 32 octets: eight values that one invocation takes. The values of octet o are v_dim(o, 0 .. 7): one
// after the other, but for Q4_0 in two fours, as the bytes of that format hold them. All are of block o / 4.
uint v_dim(const uint octet, const uint i) {
    return V_TYPE == KV_Q4_0 ? octet / 4 * 32 + i / 4 * 16 + octet % 4 * 4 + i % 4 : octet * 8 + i;
}

// The words of an octet of a stored row.
uvec4 v_octet(const uint page, const uint head, const uint key, const uint octet) {
    if (V_TYPE == KV_F16) {
        return v_codes[v_chunk_at(page, head, key, octet)];
    }
    if (V_TYPE == KV_Q8_0) {
        const uint at = v_chunk_at(page, head, key, octet / 2);
        return uvec4(v_codes[at][octet % 2 * 2], v_codes[at][octet % 2 * 2 + 1], 0, 0);
    }
    return uvec4(v_codes[v_chunk_at(page, head, key, octet / 4)][octet % 4], 0, 0, 0);
}

#endif

// The values of an octet, with the scale (1 for F16). Exact.
void v_values(const uvec4 words, const float scale, out vec4 low, out vec4 high) {
    if (V_TYPE == KV_F16) {
        low = vec4(unpackHalf2x16(words.x), unpackHalf2x16(words.y));
        high = vec4(unpackHalf2x16(words.z), unpackHalf2x16(words.w));
    } else if (V_TYPE == KV_Q8_0) {
        low = signed_bytes(words.x) * scale;
        high = signed_bytes(words.y) * scale;
    } else {
        low = nibbles(words.x, 0) * scale;
        high = nibbles(words.x, 4) * scale;
    }
}

#ifdef KV_STORE
#include "kv_store.glsl"
#endif
