// Storage types by their number in GGUF. A kernel that has several declares FORMAT, a specialization constant.

const uint Q8_0 = 8;
const uint Q2_K = 10;
const uint Q4_K = 12;
const uint Q5_K = 13;
const uint Q6_K = 14;
const uint IQ2_XXS = 16;

// Codes minus this are the numbers that the scale multiplies; 0 for formats with minimums.
const uint OFFSET = FORMAT == Q8_0 || FORMAT == IQ2_XXS ? 128 : FORMAT == Q6_K ? 32 : 0;
