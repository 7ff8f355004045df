//! What switches of `Q36_DEBUG` set for the whole process.

use anyhow::{Result, bail};

use crate::cli::debug::DebugSwitches;
use crate::quant::{Isa, select_isa};

/// Sets it, once, before anything computes.
pub(super) fn apply(debug: &DebugSwitches) -> Result<()> {
    let Some(name) = debug.isa else { return Ok(()) };
    let known = Isa::ALL.into_iter().find(|isa| isa.name() == name);
    if known.is_some_and(select_isa) {
        return Ok(());
    }
    let available = Isa::available().map(Isa::name).collect::<Vec<_>>().join(", ");
    bail!("Q36_DEBUG: this machine has no {name}\nhint: it has {available}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::debug;

    #[test]
    fn the_switch_names_every_instruction_set() {
        let names = Isa::ALL.map(Isa::name).join("|");
        assert!(debug::switches().any(|(spelling, _)| spelling == format!("isa={names}")));
    }
}
