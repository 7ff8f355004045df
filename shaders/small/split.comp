// Splits Q8_0 blocks, as a file has them, into a plane of codes and a plane of scales. The rows of one matrix follow
// each other; those of several lie matrix by matrix, and alternate in the planes. Rust side: src/kernels/split.rs.
#version 460

layout(local_size_x_id = 0) in;

layout(push_constant) uniform Push {
    uint blocks; // of all matrices together
    uint row_blocks;
    uint parts;
    uint codes_at;  // words before the first code
    uint scales_at; // words before the first scale
};

layout(set = 0, binding = 3, std430) readonly restrict buffer Raw { uint raw[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer Codes { uint codes[]; };
layout(set = 0, binding = 5, std430) writeonly restrict buffer Scales { uint scales[]; };

const uint BLOCK_BYTES = 34;
const uint CODE_WORDS = 8;

// Where the block is that becomes number `block` of the planes.
uint source(uint block) {
    const uint row = block / row_blocks;
    const uint source_row = row % parts * (blocks / row_blocks / parts) + row / parts;
    return (source_row * row_blocks + block % row_blocks) * BLOCK_BYTES;
}

// `at` is even.
uint half_at(uint at) {
    return raw[at / 4] >> (at % 4 * 8) & 0xffff;
}

uint word_at(uint at) {
    return at % 4 == 0 ? raw[at / 4] : half_at(at) | half_at(at + 2) << 16;
}

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < blocks * CODE_WORDS; i += step) {
        const uint block = i / CODE_WORDS;
        const uint word = i % CODE_WORDS;
        const uint from = source(block);
        codes[codes_at + i] = word_at(from + 2 + word * 4);
        if (word == 0 && block % 2 == 0) {
            const uint high = block + 1 < blocks ? half_at(source(block + 1)) << 16 : 0;
            scales[scales_at + block / 2] = half_at(from) | high;
        }
    }
}
