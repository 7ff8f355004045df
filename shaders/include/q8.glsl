// Q8_0 weights as two planes (src/kernels/mv_q8.rs): 32 codes of a block as two `uvec4`, and one f16 scale.

// The four codes of a word. `bitfieldExtract` of a signed word is the form that compilers turn into one
// conversion for each weight.
vec4 q8_decode(const uint codes) {
    const int word = int(codes);
    return vec4(
        bitfieldExtract(word, 0, 8),
        bitfieldExtract(word, 8, 8),
        bitfieldExtract(word, 16, 8),
        bitfieldExtract(word, 24, 8)
    );
}

// Sum of 16 codes times their activations, in one chain of explicit `fma`; `dot` is not contracted. `precise`,
// because the order is part of the promise that a row's bits do not depend on its company.
float q8_dot16(const uvec4 codes, const vec4 x[4]) {
    precise float sum = 0.0;
    [[unroll]] for (int j = 0; j < 4; j++) {
        const vec4 weights = q8_decode(codes[j]);
        [[unroll]] for (int b = 0; b < 4; b++) {
            sum = fma(weights[b], x[j][b], sum);
        }
    }
    return sum;
}
