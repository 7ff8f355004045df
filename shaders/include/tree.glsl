// Sums over neighbouring lanes as an explicit tree (lane i with lane i xor 1, then 2, 4, …), so that the order
// is the same in every kernel that must have the same bits. `SG` is the subgroup size.

// The sum over each run of `width` lanes, a power of two, in every lane of the run.
float tree_sum(const float value, const uint width) {
    precise float sum = value;
    [[unroll]] for (uint m = 1; m < width; m <<= 1) {
        sum = sum + subgroupShuffleXor(sum, m);
    }
    return sum;
}
