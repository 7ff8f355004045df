// Gate functions (src/ops/swiglu.rs, src/ops/delta.rs). Large arguments of either sign end at the limits, never
// at NaN.

float sigmoid(const float x) {
    return 1.0 / (1.0 + exp(-x));
}

float silu(const float x) {
    return x / (1.0 + exp(-x));
}

// log(1 + exp(x)). GPU logarithms promise no relative accuracy near 1, so the small part is the series of
// 2 atanh(e / (2 + e)), whose argument is at most 1/3: the term left out is below 1e-8.
float softplus(const float x) {
    const float e = exp(-abs(x));
    const float s = e / (2.0 + e);
    const float q = s * s;
    float p = 1.0 / 15.0;
    p = fma(p, q, 1.0 / 13.0);
    p = fma(p, q, 1.0 / 11.0);
    p = fma(p, q, 1.0 / 9.0);
    p = fma(p, q, 1.0 / 7.0);
    p = fma(p, q, 1.0 / 5.0);
    p = fma(p, q, 1.0 / 3.0);
    p = fma(p, q, 1.0);
    return max(x, 0.0) + 2.0 * s * p;
}
