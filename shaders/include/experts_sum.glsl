// A row's sum over experts: slots as a tree in the order of selection, missing ones zero, then the shared expert.
float experts_sum(const float s[8], const float sigma, const float shared_part) {
    precise const float sum = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    return fma(sigma, shared_part, sum);
}
