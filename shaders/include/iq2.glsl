// IQ2_XXS (model.md 5.6): 66 bytes for 256 weights: f16 scale d, then for each 32 weights two words. A: four
// bytes, each an index into the grid of 256 entries of eight levels. B: four 7-bit sign fields and, on top, the
// scale s: weight = d * (2 s + 1) / 8 * level * sign. Grid: quant::IQ2_XXS_GRID.

// The 32 signs (1: negative) behind the four fields of word B: the eighth bit of every byte makes the number of
// minus signs even.
uint iq2_signs(const uint word) {
    const uint fields = (word & 0x7fu) | ((word << 1) & 0x7f00u) | ((word << 2) & 0x7f0000u)
        | ((word << 3) & 0x7f000000u);
    uint fold = fields ^ (fields >> 4);
    fold ^= fold >> 2;
    fold ^= fold >> 1;
    return fields | ((fold & 0x01010101u) << 7);
}

// Four levels with the signs of the low four bits of `signs`: four signed bytes.
uint iq2_signed(const uint levels, const uint signs) {
    const uint negative = ((signs & 15u) * 0x00204081u) & 0x01010101u;
    // The complement of a byte that is not zero plus one does not carry.
    return (levels ^ (negative * 255u)) + negative;
}

// The factor of a group of 32 weights.
float iq2_scale(const float d, const uint word) {
    precise const float scale = d * (0.125 * float((word >> 28) * 2 + 1));
    return scale;
}
