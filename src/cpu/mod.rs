//! The reference backend: the whole model on the CPU.
