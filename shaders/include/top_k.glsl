// The choice of experts for a row by one subgroup. The includer defines SG, EXPERTS, USED (at most 8, at most SG), the
// buffer `logits` and the outputs `ids` and `route`.
//
// Each lane keeps every SG-th logit as a key whose order as an integer is the order of floats; what is not finite comes
// behind everything, so the ids are distinct experts in any case. USED rounds of a maximum over the subgroup.

const uint TOP_K_KEYS = (EXPERTS + SG - 1) / SG;
const uint TOP_K_TAKEN = 0;
const uint TOP_K_NOT_FINITE = 1; // finite keys are larger

uint top_k_key(const float logit) {
    const uint bits = floatBitsToUint(logit);
    if ((bits & 0x7f800000u) == 0x7f800000u) {
        return TOP_K_NOT_FINITE;
    }
    // Minus zero equals zero.
    const uint plain = bits == 0x80000000u ? 0 : bits;
    return (plain & 0x80000000u) != 0 ? ~plain : plain | 0x80000000u;
}

float top_k_value(const uint key) {
    return uintBitsToFloat((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key);
}

void top_k(const uint row, const bool live) {
    const uint lane = gl_SubgroupInvocationID;
    uint keys[TOP_K_KEYS];
    [[unroll]] for (uint i = 0; i < TOP_K_KEYS; i++) {
        const uint expert = i * SG + lane;
        const uint key = top_k_key(logits[row * EXPERTS + min(expert, EXPERTS - 1)]);
        keys[i] = expert < EXPERTS ? key : TOP_K_TAKEN;
    }
    // Lane s keeps the choice of round s.
    uint own_key = 0;
    uint own_id = 0;
    for (uint s = 0; s < USED; s++) {
        uint key = keys[0];
        uint id = lane;
        [[unroll]] for (uint i = 1; i < TOP_K_KEYS; i++) {
            id = keys[i] > key ? i * SG + lane : id;
            key = max(key, keys[i]);
        }
        const uint best = subgroupMax(key);
        id = subgroupMin(key == best ? id : 0xffffffffu);
        [[unroll]] for (uint i = 0; i < TOP_K_KEYS; i++) {
            keys[i] = id == i * SG + lane ? TOP_K_TAKEN : keys[i];
        }
        own_key = lane == s ? best : own_key;
        own_id = lane == s ? id : own_id;
    }
    // With too few finite logits there is no choice: NaN makes the step fail where logits are checked.
    const uint mine = min(lane, USED - 1);
    const bool enough = subgroupShuffle(own_key, USED - 1) != TOP_K_NOT_FINITE;
    const float best = top_k_value(subgroupShuffle(own_key, 0));
    const float part = lane < USED ? exp(top_k_value(subgroupShuffle(own_key, mine)) - best) : 0.0;
    const float sum = tree_sum(part, 8);
    if (lane < USED && live) {
        ids[row * USED + lane] = own_id;
        route[row * USED + lane] = enough ? part / sum : uintBitsToFloat(0x7fc00000u);
    }
}
