// Q8_0 weights as two planes (src/kernels/mv_q8.rs): 32 codes of a block as two `uvec4`, and one f16 scale.

// Sum of 16 codes times their activations. `bitfieldExtract` of a signed word with an explicit `fma` is the
// form that compilers turn into one conversion and one multiply-add for each weight; `dot` is not contracted.
// `precise`, because the order is part of the promise that a row's bits do not depend on its company.
float q8_dot16(const uvec4 codes, const vec4 x[4]) {
    precise float sum = 0.0;
    [[unroll]] for (int j = 0; j < 4; j++) {
        const int word = int(codes[j]);
        [[unroll]] for (int b = 0; b < 4; b++) {
            sum = fma(float(bitfieldExtract(word, 8 * b, 8)), x[j][b], sum);
        }
    }
    return sum;
}
