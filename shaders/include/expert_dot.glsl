// A quarter of a unit (expert.glsl) times 16 activations in unit order (units.glsl): f32; with ACT_I8 signed bytes with a
// scale for each 16 (units_i8.glsl), whose sums are exact integers; with PACKED f32 that are multiplied as pairs of f16.
//
// The includer defines `activations(at)` and `activation_word(at)`: vector and word `at` of the input.

// The sum of sixteen values, each four as a tree. Not a loop: unrolling one loses what `precise` says of its copies.
float sum16(const vec4 v[4]) {
    precise const float a = (v[0].x + v[0].y) + (v[0].z + v[0].w);
    precise const float b = (v[1].x + v[1].y) + (v[1].z + v[1].w);
    precise const float c = (v[2].x + v[2].y) + (v[2].z + v[2].w);
    precise const float d = (v[3].x + v[3].y) + (v[3].z + v[3].w);
    precise const float sum = ((a + b) + c) + d;
    return sum;
}

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

#elif defined(PACKED)

// Q2_K in packed pairs of f16. The two bits of a code become the upper bits of a fraction, 1 + code / 4, so that pairs
// are made by a shift, a mask and nothing else; the ones are taken off with the sum of the activations, which the
// minimums want anyway. Activations are scaled by a power of two for each sixteen.
struct Act {
    uint even[4]; // values 0 and 2 of each four
    uint odd[4];  // values 1 and 3
    float sum;
    float unit;   // what undoes the power of two and the fourth
    uint shift;   // of the codes in their bytes
};

const float RANGE = 256.0;

uint act_pair(const float low, const float high) {
    return packFloat2x16(f16vec2(float16_t(low), float16_t(high)));
}

Act act_load(const uint first, const uint units, const uint unit, const uint quarter) {
    vec4 v[4];
    vec4 most = vec4(0.0);
    [[unroll]] for (uint i = 0; i < 4; i++) {
        v[i] = uintBitsToFloat(activations(first + (quarter * 4 + i) * units + unit));
        most = max(most, abs(v[i]));
    }
    const float power = power_above(max(max(most.x, most.y), max(most.z, most.w)));
    const float factor = power_inverse(power) * RANGE;
    Act a;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        a.even[i] = act_pair(v[i].x * factor, v[i].z * factor);
        a.odd[i] = act_pair(v[i].y * factor, v[i].w * factor);
    }
    a.sum = sum16(v) * factor;
    a.unit = power * (4.0 / RANGE);
    a.shift = 2 * quarter;
    return a;
}

f16vec2 fractions(const uint bits) {
    return unpackFloat2x16((bits & 0x03000300u) | 0x3c003c00u);
}

float quarter_dot(const uvec4 codes, const vec2 scale, const Act a, const float sum) {
    precise f16vec2 even = f16vec2(0.0);
    precise f16vec2 odd = f16vec2(0.0);
    [[unroll]] for (uint i = 0; i < 4; i++) {
        even = fma(fractions(codes[i] << (8 - a.shift)), unpackFloat2x16(a.even[i]), even);
        odd = fma(fractions(codes[i] >> a.shift), unpackFloat2x16(a.odd[i]), odd);
    }
    precise const f16vec2 both = even + odd;
    precise float dot = float(both.x) + float(both.y);
    precise float part = fma(0.25, scale.y, -scale.x) * a.sum;
    part = fma(scale.x, dot, part);
    return fma(a.unit, part, sum);
}

#else

struct Act {
    vec4 v[4];
    float sum;
};

Act act_load(const uint first, const uint units, const uint unit, const uint quarter) {
    Act a;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        a.v[i] = uintBitsToFloat(activations(first + (quarter * 4 + i) * units + unit));
    }
    a.sum = sum16(a.v);
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
