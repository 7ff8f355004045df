// Unit order of activations (src/kernels/expert.rs): the input of an expert matrix is cut into units of 64 values,
// what one lane multiplies at a time; vector v of unit u is at v * units + u, so that neighbouring lanes read
// neighbouring vectors.

const uint ORDER_PLAIN = 0;       // a unit is 64 values in a row
const uint ORDER_INTERLEAVED = 1; // four runs of 16 values, 32 apart: Q2_K and Q6_K

// Where vector `at` of a row of `units` units is.
uint unit_place(const uint at, const uint units, const uint order) {
    if (order == ORDER_PLAIN) {
        return (at % 16) * units + at / 16;
    }
    const uint unit = at / 64 * 4 + (at / 32 % 2) * 2 + at / 4 % 2;
    return ((at / 8 % 4) * 4 + at % 4) * units + unit;
}

// Where value `at` is.
uint unit_place_of_value(const uint at, const uint units, const uint order) {
    return unit_place(at / 4, units, order) * 4 + at % 4;
}

// Where the 16 values from 16 `at` are, in vectors of 16.
uint unit_place_of_16(const uint at, const uint units, const uint order) {
    const uint place = unit_place(4 * at, units, order);
    return place / (4 * units) * units + place % units;
}
