// Scales of the K-quants (model.md 5.4, 5.5): six-bit scales and mins of Q4_K and Q5_K.

// Scale and min of group `group` (0 to 7) out of the twelve bytes.
uvec2 k_scale_min(const uvec3 s, const uint group) {
    const uint at = 8 * (group % 4);
    const uvec3 bytes = (s >> at) & 0xffu;
    if (group < 4) {
        return bytes.xy & 63u;
    }
    const uvec2 high = (bytes.xy >> 6) << 4;
    return uvec2(bytes.z & 15u, bytes.z >> 4) | high;
}
