//! This one model: dimensions, weights by name, memory arithmetic.
