// Sums over neighbouring lanes as explicit trees, so that the order is the same in every kernel that must have the same
// bits. Steps are written out: not all drivers unroll a loop over powers of two, and an exchange between lanes whose
// distance is a constant costs a fraction of another.

float exchange_sum(const float value, const uint width, const uint mask) {
    precise float sum = value;
    if (mask < width) {
        sum = sum + subgroupShuffleXor(sum, mask);
    }
    return sum;
}

// The sum over each run of `width` lanes, a power of two, in every lane of the run: lane i with lane i xor 1, then 2, 4, …
float tree_sum(const float value, const uint width) {
    float sum = exchange_sum(value, width, 1);
    sum = exchange_sum(sum, width, 2);
    sum = exchange_sum(sum, width, 4);
    sum = exchange_sum(sum, width, 8);
    sum = exchange_sum(sum, width, 16);
    return exchange_sum(sum, width, 32);
}

// The same from the farthest lane to the nearest.
float lanes_sum(const float value, const uint width) {
    float sum = exchange_sum(value, width, 32);
    sum = exchange_sum(sum, width, 16);
    sum = exchange_sum(sum, width, 8);
    sum = exchange_sum(sum, width, 4);
    sum = exchange_sum(sum, width, 2);
    return exchange_sum(sum, width, 1);
}

float exchange_max(const float value, const uint width, const uint mask) {
    if (mask < width) {
        return max(value, subgroupShuffleXor(value, mask));
    }
    return value;
}

// The maximum over each run of `width` lanes in every lane of the run.
float lanes_max(const float value, const uint width) {
    float most = exchange_max(value, width, 32);
    most = exchange_max(most, width, 16);
    most = exchange_max(most, width, 8);
    most = exchange_max(most, width, 4);
    most = exchange_max(most, width, 2);
    return exchange_max(most, width, 1);
}
