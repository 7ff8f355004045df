//! `Q36_DEBUG`: developer switches in one struct, one table, parsed once.
//!
//! They turn a fast path off or force a choice, so that one binary can be compared with itself.
//! Nothing else reads them from the environment.

use super::environment::EnvironmentError;

/// The switches, all off by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DebugSwitches {
    /// `isa=NAME`: these instructions in the CPU's inner loops instead of the best ones.
    pub isa: Option<&'static str>,
    /// `off=NAME`, any number of times: abilities of the Vulkan device to do without.
    pub off: Vec<&'static str>,
}

/// A switch: its spelling, what it does, and how it is set to one of its values.
struct Switch {
    name: &'static str,
    values: &'static [&'static str],
    effect: &'static str,
    set: fn(&mut DebugSwitches, &'static str),
}

const SWITCHES: [Switch; 2] = [
    Switch {
        name: "isa",
        values: &["scalar", "neon", "avx2", "avx-vnni", "avx512-vnni"],
        effect: "instructions of the CPU backend, instead of the best ones",
        set: |switches, value| switches.isa = Some(value),
    },
    Switch {
        name: "off",
        values: &[
            "float16",
            "denorm16",
            "int-dot",
            "subgroup-size",
            "memory-model",
            "matrix",
            "matrix2",
            "host-import",
            "memory-budget",
            "memory-priority",
            "device-fault",
            "timestamps",
            "statistics",
        ],
        effect: "an ability of the Vulkan device to do without",
        set: |switches, value| switches.off.push(value),
    },
];

impl Switch {
    /// `isa=scalar|avx2`
    fn spelling(&self) -> String {
        format!("{}={}", self.name, self.values.join("|"))
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
            let known = switch.and_then(|switch| {
                switch.values.iter().find(|known| **known == value).map(|known| (switch, known))
            });
            let Some((switch, value)) = known else {
                let known = SWITCHES.map(|switch| switch.spelling()).join(", ");
                let hint = format!("known switches: {known}");
                return Err(EnvironmentError { name: "Q36_DEBUG", value: item.into(), hint });
            };
            (switch.set)(&mut switches, value);
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
        assert_eq!(switches.isa, Some("avx2"));
        let off = DebugSwitches::parse("off=matrix,off=int-dot").unwrap().off;
        assert_eq!(off, ["matrix", "int-dot"]);
        for bad in ["isa", "isa=mmx", "no-such"] {
            let err = DebugSwitches::parse(bad).unwrap_err();
            assert_eq!(err.to_string(), format!("invalid value for Q36_DEBUG: {bad}"));
            let known = "known switches: isa=scalar|neon|avx2|avx-vnni|avx512-vnni, off=float16|";
            assert!(err.hint.starts_with(known), "{}", err.hint);
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
