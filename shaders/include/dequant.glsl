// Expert weights as they are in the file, taken apart for the tiles of matrix products, 16 at a time. The raw bytes of a
// slab of rows lie in shared memory, brought there word by word, so that the odd sizes of blocks (66 bytes for
// IQ2_XXS) cost no uncoalesced loads. Formats: model.md 5; the reference is src/quant.
//
// A slab is what decodes by itself: a block, or for formats with large blocks the 64 weights of a step with the
// block's scales. FORMAT is the number of the storage type in GGUF.

const bool SIXTY_FOUR = FORMAT == Q8_0 || FORMAT == Q4_K || FORMAT == Q5_K;
const uint SLAB = SIXTY_FOUR ? 64 : 256;
const uint SLAB_WORDS = FORMAT == Q8_0 || FORMAT == IQ2_XXS ? 17
    : FORMAT == Q2_K ? 21 : FORMAT == Q4_K ? 12 : FORMAT == Q5_K ? 20 : 53;
// An odd number keeps rows in different banks.
const uint SLAB_STRIDE = SLAB_WORDS | 1;
// Halfwords from one slab of a row to the next; Q4_K and Q5_K are not contiguous.
const uint SLAB_HALVES = FORMAT == Q8_0 ? 34 : FORMAT == IQ2_XXS ? 33 : FORMAT == Q2_K ? 42 : 105;

shared uint raw[RAW_PARTS * BM * SLAB_STRIDE];

// The word of a matrix that is word `w` of a slab; `slab` counts them from the start of the matrix.
uint slab_word(const uint slab, const uint w) {
    if (FORMAT == Q4_K) {
        return slab / 4 * 36 + (w < 4 ? w : slab % 4 * 8 + w);
    }
    if (FORMAT == Q5_K) {
        return slab / 4 * 44 + (w < 12 ? w : slab % 4 * 8 + w);
    }
    return slab * SLAB_HALVES / 2 + w;
}

// Where a slab starts in shared memory, in halfwords: odd ones of odd length start in the middle of a word.
uint raw_at(const uint part, const uint row, const uint slab) {
    return (part * BM + row) * SLAB_STRIDE * 2 + (SIXTY_FOUR ? 0 : slab * SLAB_HALVES % 2);
}

uint raw_half(const uint at) {
    return (raw[at / 2] >> (at % 2 * 16)) & 0xffffu;
}

// 32 bits from any halfword on.
uint raw_word(const uint at) {
    const uint low = raw[at / 2];
    return at % 2 == 0 ? low : (low >> 16) | (raw[at / 2 + 1] << 16);
}

float raw_float(const uint at) {
    return unpackHalf2x16(raw_half(at)).x;
}

#ifdef CODEBOOK
#ifdef HALF
// Levels and signs of IQ2_XXS as halves.
shared uvec4 grid[FORMAT == IQ2_XXS ? 256 : 1];
shared uvec4 flips[FORMAT == IQ2_XXS ? 128 : 1];

void stage_codebook(const uint entry, const uvec2 levels) {
    uvec4 halves;
    [[unroll]] for (uint j = 0; j < 4; j++) {
        const uint bytes = levels[j / 2] >> (j % 2 * 16);
        halves[j] = packFloat2x16(half_bytes(bytes) - float16_t(1024));
    }
    grid[entry] = halves;
    if (entry < 128) {
        const uint signs = entry | (bitCount(entry) % 2 << 7);
        [[unroll]] for (uint j = 0; j < 4; j++) {
            halves[j] = (signs >> (2 * j) & 1u) << 15 | (signs >> (2 * j + 1) & 1u) << 31;
        }
        flips[entry] = halves;
    }
}

// Weights k .. k + 15 of a row, to the tiles.
void put_iq2(const uint part, const uint row, const uint k, const uint base, const uint at, const float scale) {
    const uint group = base + 1 + at / 32 * 4;
    const uint sixteen = at / 16 % 2;
    const uint indices = raw_half(group + sixteen);
    const uint b = raw_word(group + 2);
    const f16vec2 d = f16vec2(float16_t(iq2_scale(raw_float(base), b) * scale));
    [[unroll]] for (uint i = 0; i < 2; i++) {
        uvec4 w = grid[(indices >> (8 * i)) & 0xffu] ^ flips[(b >> (14 * sixteen + 7 * i)) & 0x7fu];
        [[unroll]] for (uint j = 0; j < 4; j++) {
            w[j] = packFloat2x16(unpackFloat2x16(w[j]) * d);
        }
        tiles[w_at(part, row) + k / CHUNK + i] = w;
    }
}
#else
shared uvec2 grid[FORMAT == IQ2_XXS ? 256 : 1];

void stage_codebook(const uint entry, const uvec2 levels) {
    grid[entry] = levels;
}
#endif
#endif

// The codes of the weights at k .. k + 15 of a row, whose slab is at `base`, and what they are multiplied by and,
// without OFFSET, less.
void codes_at(const uint base, const uint k, out uvec4 codes, out vec2 dm) {
    const uint at = k % SLAB;
    codes = uvec4(0);
    dm = vec2(0.0);
#if defined(CODEBOOK) && !defined(HALF)
    if (FORMAT == IQ2_XXS) {
        const uint group = base + 1 + at / 32 * 4;
        const uint sixteen = at / 16 % 2;
        const uint indices = raw_half(group + sixteen);
        const uint b = raw_word(group + 2);
        const uint signs = iq2_signs(b) >> (16 * sixteen);
        dm.x = iq2_scale(raw_float(base), b);
        [[unroll]] for (uint i = 0; i < 2; i++) {
            const uvec2 levels = grid[(indices >> (8 * i)) & 0xffu];
            codes[2 * i] = iq2_signed(levels.x, signs >> (8 * i)) ^ 0x80808080u;
            codes[2 * i + 1] = iq2_signed(levels.y, signs >> (8 * i + 4)) ^ 0x80808080u;
        }
    }
#endif
    if (FORMAT == Q8_0) {
        const uint block = base + at / 32 * 17;
        dm.x = raw_float(block);
        [[unroll]] for (uint i = 0; i < 4; i++) {
            codes[i] = raw_word(block + 1 + at % 32 / 2 + 2 * i) ^ 0x80808080u;
        }
    }
    if (FORMAT == Q2_K) {
        const uint first = base / 2;
        const uint s = raw[first + at / 64] >> (at / 16 % 4 * 8);
        dm = unpackHalf2x16(raw[first + 20]) * vec2(s & 15u, (s >> 4) & 15u);
        [[unroll]] for (uint i = 0; i < 4; i++) {
            const uint word = raw[first + 4 + at / 128 * 8 + at / 16 % 2 * 4 + i];
            codes[i] = word >> (at / 32 % 4 * 2) & 0x03030303u;
        }
    }
    if (FORMAT == Q4_K || FORMAT == Q5_K) {
        const uint first = base / 2;
        const uint group = k / 32 % 8;
        const uvec2 sm = k_scale_min(uvec3(raw[first + 1], raw[first + 2], raw[first + 3]), group);
        dm = unpackHalf2x16(raw[first]) * vec2(sm);
        [[unroll]] for (uint i = 0; i < 4; i++) {
            const uint word = first + 4 + at / 16 % 2 * 4 + i;
            codes[i] = raw[FORMAT == Q5_K ? word + 8 : word] >> (at / 32 * 4) & 0x0f0f0f0fu;
            if (FORMAT == Q5_K) {
                codes[i] |= (raw[word] >> group & 0x01010101u) << 4;
            }
        }
    }
    if (FORMAT == Q6_K) {
        const uint s = raw_half(base + 96 + at / 32);
        dm.x = raw_float(base + 104) * float(bitfieldExtract(int(s), int(at / 16 % 2 * 8), 8));
        [[unroll]] for (uint i = 0; i < 4; i++) {
            const uint low = raw_word(base + at / 128 * 32 + at / 16 % 4 * 8 + 2 * i) >> (at / 64 % 2 * 4);
            const uint high = raw_word(base + 64 + at / 128 * 16 + at / 16 % 2 * 8 + 2 * i) >> (at / 32 % 4 * 2);
            codes[i] = (low & 0x0f0f0f0fu) | (high & 0x03030303u) << 4;
        }
    }
}

// Decodes the weights at k .. k + 15 of a row, times `scale`, into the tiles.
void put_weights(const uint part, const uint row, const uint k, const uint base, const float scale) {
    const uint of_step = k % BK;
#if defined(CODEBOOK) && defined(HALF)
    if (FORMAT == IQ2_XXS) {
        put_iq2(part, row, of_step, base, k % SLAB, scale);
        return;
    }
#endif
    uvec4 codes;
    vec2 dm;
    codes_at(base, k, codes, dm);
    put_codes(part, row, of_step, codes, dm.x * scale, dm.y * scale);
}
