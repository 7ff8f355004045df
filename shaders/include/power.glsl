// Powers of two as factors of f16 values: exact to apply and to undo.

// The smallest power of two above a value that is not negative, within the normal numbers on either side: 2^-60 below
// that, 2^60 above (no f16 value times such a factor could matter or be finite in a model that works). NaN gives 2^60.
float power_above(const float value) {
    const float clamped = value < 8.6736174e-19 ? 8.6736174e-19 : (value < 5.7646075e17 ? value : 5.7646075e17);
    return uintBitsToFloat((floatBitsToUint(clamped) & 0x7f800000u) + 0x00800000u);
}

// The reciprocal of a power of two, exactly (division may be off by a few units in the last place).
float power_inverse(const float power) {
    return uintBitsToFloat(0x7f000000u - floatBitsToUint(power));
}

// One power of two divided by another that is not smaller; 0 below 2^-30.
float power_ratio(const float power, const float other) {
    const uint down = floatBitsToUint(other) - floatBitsToUint(power);
    return down > (30u << 23) ? 0.0 : uintBitsToFloat(0x3f800000u - down);
}
