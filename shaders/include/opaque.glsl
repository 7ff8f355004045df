// A number that compilers do not know, so that a loop of so many rounds stays a loop: some unroll it whatever the
// attributes say, and a long program leaves the instruction cache and needs too many registers.
uint opaque(const uint count) {
    return min(count, gl_NumWorkGroups.x * count);
}
