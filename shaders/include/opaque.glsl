// A number that compilers do not know, so that a loop of so many rounds stays a loop: some unroll it whatever the
// attributes say, and a program for eight rows then has 50 KB and no registers left.
uint opaque(const uint count) {
    return min(count, gl_NumWorkGroups.x * count);
}
