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
    const float inverse = largest > 0.0 ? 127.0 / largest : 0.0;
    d = largest / 127.0;
    uvec4 codes;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        const ivec4 q = ivec4(roundEven(v[i] * inverse)) & 0xff;
        codes[i] = uint(q.x | (q.y << 8) | (q.z << 16) | (q.w << 24));
    }
    return codes;
}
