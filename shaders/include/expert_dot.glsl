// A quarter of a unit (expert.glsl) times 16 activations in unit order (units.glsl): f32, or with ACT_I8 signed bytes with
// a scale for each 16 (units_i8.glsl), whose sums are exact integers.
//
// The includer defines `activations(at)` and `activation_word(at)`: vector and word `at` of the input.

#ifdef ACT_I8

struct Act {
    uvec4 codes;
    float d;
    float sum; // of the codes
};

int dot4(const uint a, const uint b, const int sum) {
#ifdef INT_DOT
    return sum + dotPacked4x8EXT(int(a), int(b));
#else
    int r = sum;
    [[unroll]] for (int i = 0; i < 4; i++) {
        r += bitfieldExtract(int(a), 8 * i, 8) * bitfieldExtract(int(b), 8 * i, 8);
    }
    return r;
#endif
}

int dot16(const uvec4 a, const uvec4 b) {
    return dot4(a.w, b.w, dot4(a.z, b.z, dot4(a.y, b.y, dot4(a.x, b.x, 0))));
}

// Quarter `quarter` of unit `unit` of the vector of `units` units that starts at vector `first`.
Act act_load(const uint first, const uint units, const uint unit, const uint quarter) {
    const uint at = quarter * units + unit;
    Act a;
    a.codes = activations(first + at);
    a.d = uintBitsToFloat(activation_word((first + units * 4) * 4 + at));
#ifdef HAS_OFFSET
    a.sum = float(dot16(uvec4(0x01010101u), a.codes));
#endif
    return a;
}

float quarter_dot(const uvec4 bytes, const vec2 scale, const Act a, const float sum) {
    precise float part = scale.x * float(dot16(bytes, a.codes));
#ifdef HAS_OFFSET
    part = fma(scale.y, a.sum, part);
#endif
    return fma(a.d, part, sum);
}

#else

struct Act {
    vec4 v[4];
    float sum;
};

Act act_load(const uint first, const uint units, const uint unit, const uint quarter) {
    Act a;
    precise float sum = 0.0;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        a.v[i] = uintBitsToFloat(activations(first + (quarter * 4 + i) * units + unit));
        sum = sum + ((a.v[i].x + a.v[i].y) + (a.v[i].z + a.v[i].w));
    }
    a.sum = sum;
    return a;
}

// The form that compilers turn into one conversion and one multiply-add for each weight.
float quarter_dot(const uvec4 bytes, const vec2 scale, const Act a, const float sum) {
    precise float r = 0.0;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        [[unroll]] for (int b = 0; b < 4; b++) {
            r = fma(float(bitfieldExtract(int(bytes[i]), 8 * b, 8)), a.v[i][b], r);
        }
    }
    precise float part = sum;
#ifdef HAS_OFFSET
    part = fma(scale.y, a.sum, part);
#endif
    return fma(scale.x, r, part);
}

#endif
