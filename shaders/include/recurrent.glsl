// What the kernels of the gated DeltaNet mixer share (src/kernels/recurrent.rs).

#include "tree.glsl"

// Channels of a head. The loader accepts no other size, nor another number of taps than 4.
const uint D = 128;
const uint D4 = D / 4;

// Added to the squared length of a query or key head, inside the root.
const float L2_EPS = 1e-6;

// The sum of the components.
float sum4(const vec4 v) {
    return (v.x + v.y) + (v.z + v.w);
}
