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
    /// `load=WAY`: how weights get to the Vulkan device.
    pub load: Option<&'static str>,
    /// `lacks=NAME`, any number of times: required features that no Vulkan device is to have.
    pub lacks: Vec<&'static str>,
    /// `lose=N`, any number of times: submissions, counted from 1, at which the Vulkan device is lost.
    pub lose: Vec<u64>,
    /// `memory=MIB`: where the memory of Vulkan devices ends.
    pub memory_mib: Option<u64>,
}

/// A switch: its spelling, what it does, and how it is set.
struct Switch {
    name: &'static str,
    value: Value,
    effect: &'static str,
}

/// What a switch takes.
enum Value {
    /// One of some names.
    Name(&'static [&'static str], fn(&mut DebugSwitches, &'static str)),
    /// A number, with what it stands for.
    Number(&'static str, fn(&mut DebugSwitches, u64)),
}

const SWITCHES: [Switch; 6] = [
    Switch {
        name: "isa",
        value: Value::Name(
            &["scalar", "neon", "avx2", "avx-vnni", "avx512-vnni", "avx512-vbmi"],
            |switches, value| switches.isa = Some(value),
        ),
        effect: "instructions of the CPU backend, instead of the best ones",
    },
    Switch {
        name: "off",
        value: Value::Name(
            &[
                "float16",
                "denorm16",
                "int-dot",
                "subgroup-size",
                "memory-model",
                "matrix",
                "matrix-thin",
                "matrix2",
                "host-import",
                "memory-budget",
                "memory-priority",
                "device-fault",
                "timestamps",
                "statistics",
            ],
            |switches, value| switches.off.push(value),
        ),
        effect: "an ability of the Vulkan device to do without",
    },
    Switch {
        name: "load",
        value: Value::Name(&["in-place", "direct", "cached"], |switches, value| {
            switches.load = Some(value);
        }),
        effect: "weights left in the file, or read past or through the page cache",
    },
    Switch {
        name: "lacks",
        value: Value::Name(
            &["timelineSemaphore", "synchronization2", "maintenance4"],
            |switches, value| switches.lacks.push(value),
        ),
        effect: "a required feature that no Vulkan device is to have",
    },
    Switch {
        name: "lose",
        value: Value::Number("N", |switches, n| switches.lose.push(n)),
        effect: "the Vulkan device is lost at the Nth submission",
    },
    Switch {
        name: "memory",
        value: Value::Number("MIB", |switches, mib| switches.memory_mib = Some(mib)),
        effect: "Vulkan devices have so much memory and no more",
    },
];

impl Switch {
    /// `isa=scalar|avx2`
    fn spelling(&self) -> String {
        let values = match &self.value {
            Value::Name(names, _) => names.join("|"),
            Value::Number(what, _) => (*what).to_owned(),
        };
        format!("{}={values}", self.name)
    }

    /// Sets it; false when it does not take this value.
    fn set(&self, switches: &mut DebugSwitches, value: &str) -> bool {
        match &self.value {
            Value::Name(names, set) => {
                let known = names.iter().find(|known| **known == value);
                known.map(|known| set(switches, known)).is_some()
            }
            Value::Number(_, set) => value.parse().map(|number| set(switches, number)).is_ok(),
        }
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
            if !switch.is_some_and(|switch| switch.set(&mut switches, value)) {
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
        assert_eq!(switches.isa, Some("avx2"));
        let off = DebugSwitches::parse("off=matrix,off=int-dot").unwrap().off;
        assert_eq!(off, ["matrix", "int-dot"]);
        let drill = DebugSwitches::parse("lose=3,lose=9,memory=64").unwrap();
        assert_eq!((drill.lose, drill.memory_mib), (vec![3, 9], Some(64)));
        for bad in ["isa", "isa=mmx", "no-such", "lose", "lose=x", "memory=-1"] {
            let err = DebugSwitches::parse(bad).unwrap_err();
            assert_eq!(err.to_string(), format!("invalid value for Q36_DEBUG: {bad}"));
            let known = "known switches: isa=scalar|neon|avx2|avx-vnni|avx512-vnni|avx512-vbmi, off=float16|";
            assert!(err.hint.starts_with(known), "{}", err.hint);
        }
    }

    #[test]
    fn every_listed_value_is_accepted() {
        for switch in SWITCHES {
            let values = match switch.value {
                Value::Name(names, _) => names,
                Value::Number(..) => &["1"],
            };
            for value in values {
                assert!(DebugSwitches::parse(&format!("{}={value}", switch.name)).is_ok());
            }
        }
    }
}
