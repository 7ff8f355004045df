// Logistic functions in their stable forms, as in src/ops/swiglu.rs: the exponential is always of a value <= 0.
// `precise`: a row's bits may not depend on what a compiler makes of the expressions around them.

float sigmoid(const float x) {
    precise const float e = exp(-abs(x));
    precise const float s = (x < 0.0 ? e : 1.0) / (1.0 + e);
    return s;
}

float silu(const float x) {
    precise const float y = x * sigmoid(x);
    return y;
}

// base + log(1 + x) for x in [0, 1] by the series of 2 atanh(x / (2 + x)), because log() may be off by 2^-21 near 1: a
// step size of e^-20 must survive. The first term left out is below 1e-8 of the sum.
float add_log1p_unit(const float base, const float x) {
    precise const float s = x / (2.0 + x);
    precise const float s2 = s * s;
    float p = 1.0 / 13.0;
    p = fma(p, s2, 1.0 / 11.0);
    p = fma(p, s2, 1.0 / 9.0);
    p = fma(p, s2, 1.0 / 7.0);
    p = fma(p, s2, 1.0 / 5.0);
    p = fma(p, s2, 1.0 / 3.0);
    p = fma(p, s2, 1.0);
    return fma(2.0 * s, p, base);
}

// log(1 + e^t).
float softplus(const float t) {
    return add_log1p_unit(max(t, 0.0), exp(-abs(t)));
}
