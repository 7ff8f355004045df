// Expert weights as they are in the file, 64 at a time: `Unit` holds the raw bits of one unit, `unit_load` fetches it,
// `unit_bytes` gives a quarter of it as 16 signed bytes and `unit_scale` what turns them into weights: weight = x * byte
// + y. One format for each compilation, by macro; HAS_OFFSET where y is not zero. Scales are exact, a half times a small
// integer, and `precise` keeps them apart from what they are multiplied with.
//
// The includer defines `weights(matrix, at)`, word `at` of a matrix: `uint`, or `uvec4` where the block is a multiple of
// 16 bytes (WORD, expert_word.glsl). `matrix` is a constant. For IQ2_XXS also `iq2_levels(index)`, the grid.

float low_half(const uint word) {
    return unpackHalf2x16(word).x;
}

float high_half(const uint word) {
    return unpackHalf2x16(word).y;
}

#if defined(FORMAT_IQ2_XXS)

#include "iq2.glsl"
const uint BLOCK_UNITS = 4;

struct Unit {
    uvec4 groups; // words A and B of two groups
    float d;
};

Unit unit_load(const uint matrix, const uint row_unit) {
    // Blocks of 66 bytes: even ones start on a word, odd ones in the middle of one.
    const uint block = row_unit / BLOCK_UNITS;
    const bool odd = (block & 1) == 1;
    const uint first = block / 2 * 33 + (odd ? 16 : 0);
    const uint head = weights(matrix, first);
    const uint at = first + (odd ? 1 : 0) + row_unit % BLOCK_UNITS * 4;
    uint w[5];
    [[unroll]] for (uint i = 0; i < 4; i++) {
        w[i] = weights(matrix, at + i);
    }
    // An odd block does not need the fifth word, and the last one has none.
    w[4] = weights(matrix, at + (odd ? 3 : 4));
    Unit u;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        u.groups[i] = odd ? w[i] : (w[i] >> 16) | (w[i + 1] << 16);
    }
    u.d = odd ? high_half(head) : low_half(head);
    return u;
}

uvec4 unit_bytes(const Unit u, const uint quarter) {
    const uint indices = u.groups[quarter / 2 * 2] >> (quarter % 2 * 16);
    const uint signs = iq2_signs(u.groups[quarter / 2 * 2 + 1]) >> (quarter % 2 * 16);
    const uvec2 first = iq2_levels(indices & 0xffu);
    const uvec2 second = iq2_levels((indices >> 8) & 0xffu);
    return uvec4(iq2_signed(first.x, signs), iq2_signed(first.y, signs >> 4),
        iq2_signed(second.x, signs >> 8), iq2_signed(second.y, signs >> 12));
}

vec2 unit_scale(const Unit u, const uint quarter) {
    return vec2(iq2_scale(u.d, u.groups[quarter / 2 * 2 + 1]), 0.0);
}

#elif defined(FORMAT_Q8_0)

// Two blocks of 34 bytes (f16 scale, 32 codes) are 17 words.
struct Unit {
    uint w[17];
};

Unit unit_load(const uint matrix, const uint row_unit) {
    Unit u;
    [[unroll]] for (uint i = 0; i < 17; i++) {
        u.w[i] = weights(matrix, row_unit * 17 + i);
    }
    return u;
}

uvec4 unit_bytes(const Unit u, const uint quarter) {
    uvec4 bytes;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        const uint at = quarter * 4 + i;
        bytes[i] = at < 8 ? (u.w[at] >> 16) | (u.w[at + 1] << 16) : u.w[at + 1];
    }
    return bytes;
}

vec2 unit_scale(const Unit u, const uint quarter) {
    return vec2(quarter < 2 ? low_half(u.w[0]) : high_half(u.w[8]), 0.0);
}

#elif defined(FORMAT_Q4_K) || defined(FORMAT_Q5_K)

#include "k_quants.glsl"
#define HAS_OFFSET
const uint BLOCK_UNITS = 4;
#ifdef FORMAT_Q5_K
const uint BLOCK_VECTORS = 11; // scales, 32 bytes of fifth bits, 128 bytes of nibbles
const uint CODES = 3;
#else
const uint BLOCK_VECTORS = 9; // scales, 128 bytes of nibbles
const uint CODES = 1;
#endif

struct Unit {
    uvec4 head;
    uvec4 codes[2];
#ifdef FORMAT_Q5_K
    uvec4 fifth[2];
#endif
    uint part;
};

Unit unit_load(const uint matrix, const uint row_unit) {
    const uint block = row_unit / BLOCK_UNITS * BLOCK_VECTORS;
    Unit u;
    u.part = row_unit % BLOCK_UNITS;
    u.head = weights(matrix, block);
    [[unroll]] for (uint i = 0; i < 2; i++) {
        u.codes[i] = weights(matrix, block + CODES + u.part * 2 + i);
#ifdef FORMAT_Q5_K
        u.fifth[i] = weights(matrix, block + 1 + i);
#endif
    }
    return u;
}

uvec4 unit_bytes(const Unit u, const uint quarter) {
    uvec4 bytes = (u.codes[quarter % 2] >> (quarter / 2 * 4)) & 0x0f0f0f0fu;
#ifdef FORMAT_Q5_K
    bytes |= ((u.fifth[quarter % 2] >> (u.part * 2 + quarter / 2)) & 0x01010101u) << 4;
#endif
    return bytes;
}

vec2 unit_scale(const Unit u, const uint quarter) {
    const uvec2 s = k_scale_min(u.head.yzw, u.part * 2 + quarter / 2);
    const vec2 d = unpackHalf2x16(u.head.x);
    precise const vec2 scale = vec2(d.x * float(s.x), -d.y * float(s.y));
    return scale;
}

#elif defined(FORMAT_Q2_K)

#define HAS_OFFSET
const uint BLOCK_UNITS = 4;

struct Unit {
    uvec4 codes;
    uvec2 scales; // in the order of quarters: a low nibble for each scale, a high one for each min
    vec2 d;
};

Unit unit_load(const uint matrix, const uint row_unit) {
    // 21 words: 16 bytes of scales, 64 bytes of codes, d and dmin.
    const uint block = row_unit / BLOCK_UNITS * 21;
    const uint half_block = row_unit % BLOCK_UNITS / 2;
    const uint part = row_unit % 2;
    Unit u;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        u.codes[i] = weights(matrix, block + 4 + half_block * 8 + part * 4 + i);
    }
    [[unroll]] for (uint i = 0; i < 2; i++) {
        u.scales[i] = weights(matrix, block + half_block * 2 + i) >> (8 * part);
    }
    u.d = unpackHalf2x16(weights(matrix, block + 20));
    return u;
}

uvec4 unit_bytes(const Unit u, const uint quarter) {
#ifdef PACKED
    // As they are: expert_dot.glsl takes its quarter of every byte.
    return u.codes;
#else
    return (u.codes >> (2 * quarter)) & 0x03030303u;
#endif
}

vec2 unit_scale(const Unit u, const uint quarter) {
    // Nibbles of a word as bytes first, which compilers convert from where they are.
    const uint low = u.scales[quarter / 2] & 0x0f0f0f0fu;
    const uint high = (u.scales[quarter / 2] >> 4) & 0x0f0f0f0fu;
    const uint at = quarter % 2 * 16;
    precise const vec2 scale = vec2(u.d.x * float((low >> at) & 0xffu), -u.d.y * float((high >> at) & 0xffu));
    return scale;
}

#elif defined(FORMAT_Q6_K)

#define HAS_OFFSET
const uint BLOCK_UNITS = 4;

struct Unit {
    uvec4 low[2]; // low nibbles of quarters 0 and 2, of quarters 1 and 3
    uvec4 high;   // two more bits of each
    uvec2 scales; // signed bytes, every second one, from the lowest
    float d;
};

// Four words from byte `at`, which is even.
uvec4 words_at(const uint matrix, const uint at) {
    const bool odd = (at & 2) == 2;
    uint w[5];
    [[unroll]] for (uint i = 0; i < 4; i++) {
        w[i] = weights(matrix, at / 4 + i);
    }
    w[4] = weights(matrix, at / 4 + (odd ? 4 : 3));
    uvec4 r;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        r[i] = odd ? (w[i] >> 16) | (w[i + 1] << 16) : w[i];
    }
    return r;
}

uint half_at(const uint matrix, const uint at) {
    return (weights(matrix, at / 4) >> ((at & 2) * 8)) & 0xffffu;
}

Unit unit_load(const uint matrix, const uint row_unit) {
    // 210 bytes: 128 of nibbles, 64 of high bits, 16 scales, d.
    const uint block = row_unit / BLOCK_UNITS * 210;
    const uint half_block = row_unit % BLOCK_UNITS / 2;
    const uint part = row_unit % 2;
    Unit u;
    [[unroll]] for (uint i = 0; i < 2; i++) {
        u.low[i] = words_at(matrix, block + 64 * half_block + 32 * i + 16 * part);
        const uint at = block + 192 + 8 * half_block + 4 * i;
        u.scales[i] = (half_at(matrix, at) | (half_at(matrix, at + 2) << 16)) >> (8 * part);
    }
    u.high = words_at(matrix, block + 128 + 32 * half_block + 16 * part);
    u.d = low_half(half_at(matrix, block + 208));
    return u;
}

uvec4 unit_bytes(const Unit u, const uint quarter) {
    const uvec4 low = (u.low[quarter % 2] >> (quarter / 2 * 4)) & 0x0f0f0f0fu;
    const uvec4 high = (u.high >> (2 * quarter)) & 0x03030303u;
    return low | (high << 4);
}

vec2 unit_scale(const Unit u, const uint quarter) {
    const int s = bitfieldExtract(int(u.scales[quarter / 2]), int(quarter % 2 * 16), 8);
    precise const float scale = u.d * float(s);
    precise const vec2 both = vec2(scale, -32.0 * scale);
    return both;
}

#endif
