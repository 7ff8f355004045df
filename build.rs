//! Compiles the table of shader variants. Nothing else.

fn main() {}
