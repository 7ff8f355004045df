// Activations as signed bytes in unit order (src/kernels/expert.rs): 16 values that follow each other are one vector of
// bytes, at quarter * units + unit; the scales of all sixteens follow, a float each, in the same order. A vector of `units`
// units takes the place that it would take as f32.

// Sixteen values as bytes; `d` is what one step of a byte is worth.
uvec4 quantize16(const vec4 v[4], out float d) {
    vec4 most = abs(v[0]);
    [[unroll]] for (uint i = 1; i < 4; i++) {
        most = max(most, abs(v[i]));
    }
    const float largest = max(max(most.x, most.y), max(most.z, most.w));
    precise const float inverse = largest > 0.0 ? 127.0 / largest : 0.0;
    precise const float step = largest / 127.0;
    d = step;
    uvec4 codes;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        precise const vec4 steps = v[i] * inverse;
        const ivec4 q = ivec4(roundEven(steps)) & 0xff;
        codes[i] = uint(q.x | (q.y << 8) | (q.z << 16) | (q.w << 24));
    }
    return codes;
}
