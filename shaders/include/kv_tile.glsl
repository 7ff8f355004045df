// Rows of K and V as halves in shared memory, for matrix products. Included after kv.glsl.
//
// Codes become halves without conversions: a byte or nibble in the mantissa of 1024 is that integer, and what has to be
// subtracted is exact; the product with the scale is rounded once. Words hold their values in the order 0, 2, 1, 3
// then, which is left as it is: queries are brought to the same order, and outputs back from it. F16 rows are
// copied, and stay in order.

// A block of 32 values as loaded, and the bits of its scale.
struct Block {
    uvec4 c[4];
    uint scale;
};

// A uvec4 is 8 halves; a row of 256 is padded by one against bank conflicts.
const uint TILE_ROW = HEAD_DIM / 8 + 1;

Block load_k_block(const uint page, const uint head, const uint key, const uint block) {
    Block b;
    [[unroll]] for (uint i = 0; i < K_BLOCK_CHUNKS; i++) {
        b.c[i] = k_codes[k_chunk_at(page, head, block * K_BLOCK_CHUNKS + i, key)];
    }
    b.scale = K_TYPE == KV_F16 ? 0 : uint(k_scales[k_scale_at(page, head, block, key)]);
    return b;
}

Block load_v_block(const uint page, const uint head, const uint key, const uint block) {
    Block b;
    [[unroll]] for (uint i = 0; i < V_BLOCK_CHUNKS; i++) {
        b.c[i] = v_codes[v_chunk_at(page, head, key, block * V_BLOCK_CHUNKS + i)];
    }
    b.scale = V_TYPE == KV_F16 ? 0 : uint(v_scales[v_scale_at(page, head, key, block)]);
    return b;
}

uint scaled_pair(const uint codes, const float16_t offset, const float16_t scale) {
    return packFloat2x16((unpackFloat2x16(codes) - offset) * scale);
}

// Values 8 i to 8 i + 7 of a block.
uvec4 half_chunk(const uint type, const Block b, const uint i) {
    if (type == KV_F16) {
        return b.c[i];
    }
    const float16_t scale = unpackFloat2x16(b.scale).x;
    uvec2 even;
    uvec2 odd;
    float16_t offset;
    if (type == KV_Q8_0) {
        const uvec2 w = i % 2 == 0 ? b.c[i / 2].xy : b.c[i / 2].zw;
        // The sign bit flipped: the code plus 128.
        even = (w & 0x00ff00ffu) ^ 0x64806480u;
        odd = ((w >> 8) & 0x00ff00ffu) ^ 0x64806480u;
        offset = float16_t(1152.0);
    } else {
        const uvec2 w = (i % 2 == 0 ? b.c[0].xy : b.c[0].zw) >> (i / 2 * 4);
        even = (w & 0x000f000fu) | 0x64006400u;
        odd = ((w >> 8) & 0x000f000fu) | 0x64006400u;
        offset = float16_t(1032.0);
    }
    return uvec4(scaled_pair(even.x, offset, scale), scaled_pair(odd.x, offset, scale),
                 scaled_pair(even.y, offset, scale), scaled_pair(odd.y, offset, scale));
}

// Where chunk i of a block of V lies in a row: chunks of neighbouring blocks side by side, for neighbouring
// invocations write those. K stays in order, as they write neighbouring keys.
uint v_place(const uint block, const uint i) {
    return i * 8 + block;
}

// Which four values, counted from the start of a row, hold dimensions 4 q to 4 q + 3 of V.
uint v_quad(const uint q) {
    return v_place(q / 8, q % 8 / 2) * 2 + q % 2;
}

// Back in order.
vec4 v_ordered(const vec4 quad) {
    return V_TYPE == KV_F16 ? quad : quad.xzyw;
}
