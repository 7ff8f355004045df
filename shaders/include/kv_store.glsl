// Quantising rows of K and V, with the bits of `quant::quantize_kv`. Included by kv.glsl.

// Halves are made from bits, because `packHalf2x16` may round either way: nearest, ties to even, NaN to 0x7e00.
uint half_bits(const float x) {
    const uint bits = floatBitsToUint(x);
    const uint magnitude = bits & 0x7fffffffu;
    uint rounded;
    if (magnitude > 0x7f800000u) {
        rounded = 0x7e00u;
    } else if (magnitude >= 0x47800000u) {
        rounded = 0x7c00u;
    } else if (magnitude >= 0x38800000u) {
        const uint rebased = magnitude - (112u << 23);
        rounded = (rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13;
    } else {
        // Adding 0.5 leaves a multiple of 2^-24 in the low bits, rounded.
        precise float sum = uintBitsToFloat(magnitude) + 0.5;
        rounded = floatBitsToUint(sum) - floatBitsToUint(0.5);
    }
    return ((bits >> 16) & 0x8000u) | rounded;
}

// 1 / b and a / b, rounded once: a driver's own division may be off by more, and then a code or the last bit of a
// scale would differ from the CPU's. Newton steps whose error is computed with fused operations.
float reciprocal(const float b) {
    precise float y = 1.0 / b;
    y = fma(fma(-b, y, 1.0), y, y);
    y = fma(fma(-b, y, 1.0), y, y);
    return y;
}

float quotient(const float a, const float b) {
    const float y = reciprocal(b);
    precise float q = a * y;
    q = fma(fma(-b, q, a), y, q);
    return q;
}

// What a block of 32 values shares: the scale as stored, and its reciprocal before rounding to a half.
struct BlockScale {
    uint bits;
    float inverse;
    bool finite;
};

BlockScale block_scale(const uint type, const uint first) {
    // The value of largest magnitude, the first one on ties; compared as bits, in which NaN counts most.
    uint largest = 0;
    float extreme = 0.0;
    for (uint i = 0; i < 32; i++) {
        const float v = staged(first + i);
        const uint magnitude = floatBitsToUint(v) & 0x7fffffffu;
        extreme = magnitude > largest ? v : extreme;
        largest = max(largest, magnitude);
    }
    const bool finite = largest < 0x7f800000u;
    float d = type == KV_Q4_0 ? extreme * -0.125 : abs(extreme);
    if (type == KV_Q8_0 && finite) {
        d = quotient(d, 127.0);
    }
    // Scales below the normal numbers are stored as zero and need no codes.
    const bool normal = finite && abs(d) >= 1.1754944e-38;
    return BlockScale(half_bits(d), normal ? reciprocal(d) : 0.0, finite);
}

uint q8_code(const float x, const BlockScale scale) {
    precise float scaled = x * scale.inverse;
    return scale.finite ? uint(clamp(int(roundEven(scaled)), -127, 127)) & 0xffu : 0u;
}

uint q4_code(const float x, const BlockScale scale) {
    precise float scaled = x * scale.inverse;
    scaled = scaled + 8.5;
    return scale.finite ? uint(clamp(int(scaled), 0, 15)) : 0u;
}

// A word of a row's codes, and the scale of its block.
struct Encoded {
    uint word;
    uint scale;
};

// Word `w` of the row of f32 values from staged(row) on.
Encoded encode(const uint type, const uint row, const uint w) {
    if (type == KV_F16) {
        return Encoded(half_bits(staged(row + 2 * w)) | half_bits(staged(row + 2 * w + 1)) << 16, 0u);
    }
    uint word = 0;
    if (type == KV_Q8_0) {
        const BlockScale scale = block_scale(type, row + w / 8 * 32);
        for (uint i = 0; i < 4; i++) {
            word |= q8_code(staged(row + 4 * w + i), scale) << 8 * i;
        }
        return Encoded(word, scale.bits);
    }
    const uint block = row + w / 4 * 32;
    const BlockScale scale = block_scale(type, block);
    for (uint i = 0; i < 4; i++) {
        const uint at = block + w % 4 * 4 + i;
        word |= (q4_code(staged(at), scale) | q4_code(staged(at + 16), scale) << 4) << 8 * i;
    }
    return Encoded(word, scale.bits);
}

// Words of a block.
uint block_words(const uint type) {
    return type == KV_Q8_0 ? 8 : 4;
}

void store_k(const uint page, const uint head, const uint key, const uint w, const Encoded e) {
    k_codes[k_chunk_at(page, head, w / 4, key)][w % 4] = e.word;
    if (K_TYPE != KV_F16 && w % block_words(K_TYPE) == 0) {
        k_scales[k_scale_at(page, head, w / block_words(K_TYPE), key)] = uint16_t(e.scale);
    }
}

void store_v(const uint page, const uint head, const uint key, const uint w, const Encoded e) {
    v_codes[v_chunk_at(page, head, key, w / 4)][w % 4] = e.word;
    if (V_TYPE != KV_F16 && w % block_words(V_TYPE) == 0) {
        v_scales[v_scale_at(page, head, key, w / block_words(V_TYPE))] = uint16_t(e.scale);
    }
}
