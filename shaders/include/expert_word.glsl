// The element in which expert matrices are declared: 16 bytes where blocks are a multiple of that.
#if defined(FORMAT_Q4_K) || defined(FORMAT_Q5_K)
#define WORD uvec4
#else
#define WORD uint
#endif
