//! GPU kernels: formula, parameters, variants, reference and tests, a file for each family.
