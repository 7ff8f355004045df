//! Sums of the experts' kernels leave compilers no choice, or a row's bits would depend on the batch: `precise` must have
//! reached every one of them, also through the optimiser.

use crate::kernels::registry::MODULES;
use std::collections::BTreeSet;

// Numbers of the SPIR-V specification.
const HEADER_WORDS: usize = 5;
const DECORATE: u32 = 71;
const NO_CONTRACTION: u32 = 42;
const ADD: u32 = 129;
const SUBTRACT: u32 = 131;
const DOT: u32 = 148;

/// Sums of floats in a module, and those of them that may become part of another operation or change their order.
fn sums(words: &[u32]) -> (usize, usize) {
    let (mut kept, mut found) = (BTreeSet::new(), Vec::new());
    let mut rest = &words[HEADER_WORDS..];
    while let Some(&first) = rest.first() {
        let (instruction, after) = rest.split_at((first >> 16) as usize);
        match first & 0xffff {
            DECORATE if instruction[2] == NO_CONTRACTION => {
                kept.insert(instruction[1]);
            }
            ADD | SUBTRACT | DOT => found.push(instruction[2]),
            _ => {}
        }
        rest = after;
    }
    (found.len(), found.iter().filter(|id| !kept.contains(id)).count())
}

#[test]
fn sums_of_decode_steps_are_precise() {
    let mut all = 0;
    for module in MODULES {
        let experts =
            ["moe_gu_", "moe_down_", "moe_sum"].iter().any(|p| module.name.starts_with(p));
        if experts && !module.name.contains("gemm") {
            let (count, loose) = sums(module.words());
            assert_eq!(loose, 0, "of {count} sums in {}", module.name);
            all += count;
        }
    }
    assert!(all > 100, "{all} sums in all modules");
}
