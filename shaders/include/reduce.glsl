// Reductions in an order that does not depend on scheduling. No clustered operations: Mesa's CPU driver
// lacks them.

// One slot for each subgroup; a kernel's `select` keeps workgroups at 64 subgroups or fewer.
shared float reduce_slots[64];

// The sum over the workgroup, in every invocation: subgroup sums, added in subgroup order. All
// invocations must call it. A second call needs a `barrier()` in between.
float workgroup_sum(float value) {
    const float part = subgroupAdd(value);
    if (subgroupElect()) {
        reduce_slots[gl_SubgroupID] = part;
    }
    barrier();
    float sum = 0.0;
    for (uint i = 0; i < gl_NumSubgroups; i++) {
        sum += reduce_slots[i];
    }
    return sum;
}
