// Logistic functions in their stable forms, as in src/ops/swiglu.rs: the exponential is always of a value <= 0.

float sigmoid(const float x) {
    const float e = exp(-abs(x));
    return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

float silu(const float x) {
    return x * sigmoid(x);
}

// log(1 + x) for x in [0, 1] by the series of 2 atanh(x / (2 + x)), because log() may be off by 2^-21 near 1: a
// step size of e^-20 must survive. The first term left out is below 1e-8 of the sum.
float log1p_unit(const float x) {
    const float s = x / (2.0 + x);
    const float s2 = s * s;
    float p = 1.0 / 13.0;
    p = fma(p, s2, 1.0 / 11.0);
    p = fma(p, s2, 1.0 / 9.0);
    p = fma(p, s2, 1.0 / 7.0);
    p = fma(p, s2, 1.0 / 5.0);
    p = fma(p, s2, 1.0 / 3.0);
    p = fma(p, s2, 1.0);
    return 2.0 * s * p;
}

// log(1 + e^t).
float softplus(const float t) {
    return max(t, 0.0) + log1p_unit(exp(-abs(t)));
}
