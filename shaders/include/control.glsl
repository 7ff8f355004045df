// The control block (src/kernels/control.rs): one record for each row of a step, at binding 0. Read with an index
// that is the same for the whole workgroup, so that compilers may keep it in scalar registers.

struct Row {
    uint pos;
    uint tokens;
    uint token;
    uint flags;
    uint source;
    uint target;
    uint page;
    uint span;
    uint query_first;
    uint query_tokens;
    uint mask;
    uint bias;
    uint bias_len;
    float margin;
    float inverse_temperature;
    uint top_k;
    uint logits;
    uint reserved[32];
    uint reserved_end[15];
};

const uint ROW_IDLE = 1;
const uint ROW_FAILED = 2;

#ifndef CONTROL_ACCESS
#define CONTROL_ACCESS readonly
#endif

layout(set = 0, binding = 0, std430) CONTROL_ACCESS restrict buffer Control { Row rows[]; };
