// What sampling adds to logits: a bit mask over the vocabulary and a list of (id, addend) pairs, for each row
// of the control block (src/kernels/head.rs). The including shader declares `mask_words` and `biases`.

#define MINUS_INFINITY uintBitsToFloat(0xff800000u)

// NaN or plus infinity, told from the bits: compilers may assume that floats are numbers.
bool not_a_logit(const float value) {
    const uint bits = floatBitsToUint(value);
    return (bits & 0x7fffffffu) > 0x7f800000u || bits == 0x7f800000u;
}

// The number of the first pair of a sorted list whose id is not below `id`.
uint bias_at(const uint first, const uint count, const uint id) {
    uint low = 0;
    uint high = count;
    while (low < high) {
        const uint middle = (low + high) / 2;
        if (biases[first + middle].x < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// The logit with the row's addend, minus infinity where the row's mask does not allow the id.
float adjusted(const uint row, const uint id, const float logit) {
    if ((mask_words[rows[row].mask + id / 32] >> (id % 32) & 1) == 0) {
        return MINUS_INFINITY;
    }
    const uint count = rows[row].bias_len;
    if (count > 0) {
        const uint first = rows[row].bias;
        const uint at = bias_at(first, count, id);
        if (at < count && biases[first + at].x == id) {
            // The same bits from a logit that was stored and from one that has just become a product.
            precise const float sum = logit + uintBitsToFloat(biases[first + at].y);
            return sum;
        }
    }
    return logit;
}
