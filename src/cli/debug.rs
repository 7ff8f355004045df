//! `Q36_DEBUG`: developer switches in one struct, one table, parsed once.
//!
//! They turn a fast path off or force a choice, so that one binary can be compared with itself.
//! Nothing else reads them from the environment.

use super::environment::EnvironmentError;

/// Instructions for the CPU's inner loops, by name; what a machine lacks is refused by the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuPath {
    /// Plain Rust.
    Scalar,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 with VNNI.
    Vnni,
    /// Arm NEON.
    Neon,
}

/// The switches, all off by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DebugSwitches {
    /// `isa=NAME`: take this path instead of the best one the machine has.
    pub isa: Option<CpuPath>,
}

/// A switch: its spelling, what it does, and how it is set. `set` is given the text behind `=`.
struct Switch {
    name: &'static str,
    values: &'static [&'static str],
    effect: &'static str,
    set: fn(&mut DebugSwitches, &str) -> Option<()>,
}

const SWITCHES: [Switch; 1] = [Switch {
    name: "isa",
    values: &["scalar", "avx2", "vnni", "neon"],
    effect: "instructions of the CPU backend, instead of the best ones",
    set: |switches, value| {
        switches.isa = Some(match value {
            "scalar" => CpuPath::Scalar,
            "avx2" => CpuPath::Avx2,
            "vnni" => CpuPath::Vnni,
            "neon" => CpuPath::Neon,
            _ => return None,
        });
        Some(())
    },
}];

impl Switch {
    /// `isa=scalar|avx2|vnni|neon`
    fn spelling(&self) -> String {
        let equals = if self.values.is_empty() { "" } else { "=" };
        format!("{}{equals}{}", self.name, self.values.join("|"))
    }
}

/// Spelling and effect of every switch.
pub fn switches() -> impl Iterator<Item = (String, &'static str)> {
    SWITCHES.iter().map(|switch| (switch.spelling(), switch.effect))
}

impl DebugSwitches {
    /// Parses a comma-separated list. An unknown name is an error that lists the known ones.
    pub fn parse(list: &str) -> Result<Self, EnvironmentError> {
        let mut switches = Self::default();
        for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, value) = item.split_once('=').unwrap_or((item, ""));
            let switch = SWITCHES.iter().find(|switch| switch.name == name);
            if switch.and_then(|switch| (switch.set)(&mut switches, value)).is_none() {
                let known = SWITCHES.map(|switch| switch.spelling()).join(", ");
                let hint = format!("known switches: {known}");
                return Err(EnvironmentError { name: "Q36_DEBUG", value: item.into(), hint });
            }
        }
        Ok(switches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_parsed_and_unknown_names_refused_with_the_known_ones() {
        assert_eq!(DebugSwitches::parse("").unwrap(), DebugSwitches::default());
        let switches = DebugSwitches::parse(" isa=avx2 ,").unwrap();
        assert_eq!(switches.isa, Some(CpuPath::Avx2));
        for bad in ["isa", "isa=mmx", "no-such"] {
            let err = DebugSwitches::parse(bad).unwrap_err();
            assert_eq!(err.to_string(), format!("invalid value for Q36_DEBUG: {bad}"));
            assert_eq!(err.hint, "known switches: isa=scalar|avx2|vnni|neon");
        }
    }

    #[test]
    fn every_listed_value_is_accepted() {
        for switch in SWITCHES {
            for value in switch.values {
                assert!(DebugSwitches::parse(&format!("{}={value}", switch.name)).is_ok());
            }
        }
    }
}
