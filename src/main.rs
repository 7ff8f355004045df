//! The `q36` program.

fn main() {}
