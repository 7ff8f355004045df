//! Environment variables: one table, read once, before anything else looks.
//!
//! Reading is a pure function of a look-up, so that the rules are tested without touching the
//! process. A flag beats a variable, a variable beats the built-in default; which is which is
//! decided where the configuration is made.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::debug::DebugSwitches;
use super::server_environment::ServerEnvironment;
use super::values;

/// A variable and what it does.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it does, as shown by `--help env`.
    pub effect: &'static str,
}

/// Every variable that has an effect.
pub const VARIABLES: [Variable; 22] = [
    Variable { name: "Q36_MODEL", effect: "model file, when -m is not given" },
    Variable { name: "Q36_THREADS", effect: "helper threads, when -t is not given" },
    Variable {
        name: "Q36_CPU_PREFILL_CHUNK",
        effect: "prompt tokens in a chunk on the CPU, when --prefill-chunk is not given",
    },
    Variable {
        name: "Q36_VK_SESSION_BATCH",
        effect: "0 makes sessions on a GPU decode one after the other instead of together",
    },
    Variable {
        name: "Q36_LOCK_FILE",
        effect: "lock that keeps a second model off this machine, instead of q36.lock in \
                 XDG_RUNTIME_DIR or /tmp",
    },
    Variable {
        name: "Q36_HOME",
        effect: "saved sessions are in kvcache below it, instead of ~/.q36",
    },
    Variable {
        name: "Q36_API_KEY",
        effect: "key of the server's clients, when --api-key is not given",
    },
    Variable {
        name: "Q36_SERVER_DISABLE_THINK_TOOL_RECOVERY",
        effect: "when set, a tool call that begins inside a thought stays part of it",
    },
    Variable {
        name: "Q36_SERVER_PREFILL_QUANTUM",
        effect: "a server interrupts a prompt after the time that so many of its tokens take, after \
                 250 ms at the latest",
    },
    Variable {
        name: "Q36_SERVER_MIXED_PREFILL_QUANTUM",
        effect: "the same while replies are being written; --max-decode-stall-ms bounds it anyway",
    },
    Variable {
        name: "Q36_SERVER_BATCH_LOG",
        effect: "a server logs how many replies share each step, unless 0",
    },
    Variable { name: "Q36_DEBUG", effect: "developer switches, a list of NAME or NAME=VALUE" },
    Variable { name: "Q36_GGUF_DIR", effect: "where download_model.sh puts files" },
    Variable { name: "HF_TOKEN", effect: "token that download_model.sh sends to the hub" },
    Variable { name: "NO_COLOR", effect: "no colours when set; --color always wins over it" },
    Variable { name: "CLICOLOR_FORCE", effect: "colours into files and pipes too, unless 0" },
    Variable { name: "COLUMNS", effect: "width of the terminal" },
    Variable { name: "TERM", effect: "no colours when it is dumb" },
    Variable {
        name: "HOME",
        effect: "where Q36_HOME, XDG_DATA_HOME and XDG_CACHE_HOME are when not set, and the history \
                 of what was typed",
    },
    Variable { name: "XDG_CACHE_HOME", effect: "compiled GPU programs are kept in q36 below it" },
    Variable { name: "XDG_DATA_HOME", effect: "models are searched in q36/gguf below it" },
    Variable { name: "XDG_RUNTIME_DIR", effect: "the lock is here when Q36_LOCK_FILE is not set" },
];

/// A variable whose value makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid value for {name}: {value}")]
pub struct EnvironmentError {
    /// The variable.
    pub name: &'static str,
    /// Its text.
    pub value: String,
    /// What it accepts.
    pub hint: String,
}

/// What the environment says about the terminal. Reading it cannot fail: errors are printed by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TerminalEnvironment {
    /// `NO_COLOR` is set and not empty.
    pub no_color: bool,
    /// `CLICOLOR_FORCE` is set, not empty and not `0`.
    pub force_color: bool,
    /// `TERM` is `dumb`.
    pub is_dumb: bool,
    /// `COLUMNS`, when it is a positive number.
    pub columns: Option<usize>,
}

impl TerminalEnvironment {
    /// Reads through `lookup`.
    pub fn read(lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name| lookup(name).filter(|value| !value.is_empty());
        let columns = set("COLUMNS").and_then(|text| values::positive(text.to_str()?).ok());
        Self {
            no_color: set("NO_COLOR").is_some(),
            force_color: set("CLICOLOR_FORCE").is_some_and(|value| value != "0"),
            is_dumb: set("TERM").is_some_and(|value| value == "dumb"),
            columns: columns.map(|n| n as usize),
        }
    }
}

/// What the environment says about everything else.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Environment {
    /// `Q36_MODEL`.
    pub model: Option<PathBuf>,
    /// `Q36_THREADS`.
    pub threads: Option<u32>,
    /// `Q36_CPU_PREFILL_CHUNK`.
    pub cpu_prefill_chunk: Option<u32>,
    /// `Q36_VK_SESSION_BATCH` is `0`.
    pub one_by_one: bool,
    /// `Q36_LOCK_FILE`.
    pub lock_file: Option<PathBuf>,
    /// `Q36_HOME`, or its place in `HOME`.
    pub home: Option<PathBuf>,
    /// `Q36_API_KEY`.
    pub api_key: Option<String>,
    /// What is said to `serve` alone.
    pub server: ServerEnvironment,
    /// `HOME`.
    pub user_home: Option<PathBuf>,
    /// `Q36_DEBUG`.
    pub debug: DebugSwitches,
    /// `XDG_RUNTIME_DIR`.
    pub runtime_dir: Option<PathBuf>,
    /// `XDG_DATA_HOME`, or its place below `HOME`.
    pub data_home: Option<PathBuf>,
    /// The program's own folder in `XDG_CACHE_HOME`, or in its place below `HOME`.
    pub cache_dir: Option<PathBuf>,
}

impl Environment {
    /// Reads through `lookup`. An empty variable counts as not set.
    pub fn read(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, EnvironmentError> {
        let set = |name| lookup(name).filter(|value| !value.is_empty());
        let path = |name| set(name).map(PathBuf::from);
        // The base directory rules ignore a relative path.
        let directory = |name| path(name).filter(|p| Path::is_absolute(p));
        let count = |name: &'static str| -> Result<Option<u32>, EnvironmentError> {
            let Some(value) = set(name) else { return Ok(None) };
            let value = value.to_string_lossy().into_owned();
            values::positive(&value).map(Some).map_err(|err| EnvironmentError {
                name,
                value,
                hint: err.to_string(),
            })
        };
        let debug = set("Q36_DEBUG").unwrap_or_default();
        Ok(Self {
            model: path("Q36_MODEL"),
            threads: count("Q36_THREADS")?,
            cpu_prefill_chunk: count("Q36_CPU_PREFILL_CHUNK")?,
            one_by_one: set("Q36_VK_SESSION_BATCH").is_some_and(|value| value == "0"),
            lock_file: path("Q36_LOCK_FILE"),
            home: path("Q36_HOME").or_else(|| directory("HOME").map(|home| home.join(".q36"))),
            api_key: set("Q36_API_KEY").map(|key| key.to_string_lossy().into_owned()),
            server: ServerEnvironment::read(set)?,
            user_home: directory("HOME"),
            debug: DebugSwitches::parse(&debug.to_string_lossy())?,
            runtime_dir: directory("XDG_RUNTIME_DIR"),
            data_home: directory("XDG_DATA_HOME")
                .or_else(|| directory("HOME").map(|home| home.join(".local/share"))),
            cache_dir: directory("XDG_CACHE_HOME")
                .or_else(|| directory("HOME").map(|home| home.join(".cache")))
                .map(|caches| caches.join("q36")),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Environment, EnvironmentError> {
        Environment::read(|name| {
            pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn every_variable_that_is_read_is_in_the_table_and_the_other_way_round() {
        let asked = RefCell::new(BTreeSet::new());
        let lookup = |name: &str| {
            asked.borrow_mut().insert(name.to_owned());
            None
        };
        Environment::read(lookup).unwrap();
        TerminalEnvironment::read(lookup);
        let of_the_script = ["Q36_GGUF_DIR", "HF_TOKEN"].map(str::to_owned);
        let listed = VARIABLES.iter().map(|v| v.name.to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(listed, asked.into_inner().into_iter().chain(of_the_script).collect());
    }

    #[test]
    fn bad_numbers_name_the_variable() {
        let err = read(&[("Q36_THREADS", "many")]).unwrap_err();
        assert_eq!(err.to_string(), "invalid value for Q36_THREADS: many");
        assert_eq!(err.hint, "expected a whole number from 1 to 2147483647");
        assert_eq!(read(&[("Q36_THREADS", "")]).unwrap().threads, None);
        assert_eq!(read(&[("Q36_THREADS", "8")]).unwrap().threads, Some(8));
    }

    #[test]
    fn only_a_zero_switches_batches_off() {
        let is_off = |value| read(&[("Q36_VK_SESSION_BATCH", value)]).unwrap().one_by_one;
        assert!(is_off("0") && !is_off("1") && !is_off(""));
        assert!(!read(&[]).unwrap().one_by_one);
    }

    #[test]
    fn data_lives_below_home_unless_told_otherwise() {
        let data = |pairs: &[_]| read(pairs).unwrap().data_home;
        assert_eq!(data(&[("HOME", "/h")]), Some("/h/.local/share".into()));
        assert_eq!(data(&[("HOME", "/h"), ("XDG_DATA_HOME", "/d")]), Some("/d".into()));
        assert_eq!(data(&[("HOME", "/h"), ("XDG_DATA_HOME", "d")]), Some("/h/.local/share".into()));
        assert_eq!(data(&[]), None);
    }

    #[test]
    fn colour_switches() {
        let read = |name: &'static str, value: &'static str| {
            TerminalEnvironment::read(move |n| (n == name).then(|| OsString::from(value)))
        };
        assert!(read("NO_COLOR", "0").no_color);
        assert!(!read("NO_COLOR", "").no_color);
        assert!(read("CLICOLOR_FORCE", "1").force_color);
        assert!(!read("CLICOLOR_FORCE", "0").force_color);
        assert!(read("TERM", "dumb").is_dumb);
        assert_eq!(read("COLUMNS", "132").columns, Some(132));
        assert_eq!(read("COLUMNS", "wide").columns, None);
    }
}
