//! Variables of `q36 serve` alone: how prompts and replies share the engine.

use std::ffi::OsString;

use super::environment::EnvironmentError;
use super::values::{self, ValueError};

/// What they say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerEnvironment {
    /// `Q36_SERVER_PREFILL_QUANTUM`.
    pub prefill_quantum: Option<u32>,
    /// `Q36_SERVER_MIXED_PREFILL_QUANTUM`.
    pub mixed_prefill_quantum: Option<u32>,
    /// `Q36_SERVER_BATCH_LOG` is set, and not to `0`.
    pub batch_log: bool,
    /// `Q36_SERVER_DISABLE_THINK_TOOL_RECOVERY` is set.
    pub no_call_recovery: bool,
}

impl ServerEnvironment {
    /// Reads through `set`, for which an empty variable is none.
    pub(super) fn read(
        set: impl Fn(&'static str) -> Option<OsString>,
    ) -> Result<Self, EnvironmentError> {
        let number = |name| {
            let Some(value) = set(name) else { return Ok(None) };
            let value = value.to_string_lossy().into_owned();
            let wrong = |err: ValueError| EnvironmentError {
                name,
                value: value.clone(),
                hint: err.to_string(),
            };
            values::positive(&value).map(Some).map_err(wrong)
        };
        Ok(Self {
            prefill_quantum: number("Q36_SERVER_PREFILL_QUANTUM")?,
            mixed_prefill_quantum: number("Q36_SERVER_MIXED_PREFILL_QUANTUM")?,
            batch_log: set("Q36_SERVER_BATCH_LOG").is_some_and(|value| value != "0"),
            no_call_recovery: set("Q36_SERVER_DISABLE_THINK_TOOL_RECOVERY").is_some(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        name: &'static str,
        value: &'static str,
    ) -> Result<ServerEnvironment, EnvironmentError> {
        ServerEnvironment::read(|asked| (asked == name).then(|| value.into()))
    }

    #[test]
    fn values_reach_what_they_are_for() {
        let read = |name, value| read(name, value).unwrap();
        assert_eq!(read("Q36_SERVER_PREFILL_QUANTUM", "2048").prefill_quantum, Some(2048));
        assert_eq!(
            read("Q36_SERVER_MIXED_PREFILL_QUANTUM", "128").mixed_prefill_quantum,
            Some(128)
        );
        assert!(read("Q36_SERVER_BATCH_LOG", "1").batch_log);
        assert!(!read("Q36_SERVER_BATCH_LOG", "0").batch_log);
        assert!(read("Q36_SERVER_DISABLE_THINK_TOOL_RECOVERY", "1").no_call_recovery);
        assert_eq!(read("Q36_OTHER", "1"), ServerEnvironment::default());
    }

    #[test]
    fn values_that_make_no_sense_name_their_variable_and_what_it_takes() {
        let count = "expected a whole number from 1 to 2147483647";
        for (name, value, hint) in [
            ("Q36_SERVER_PREFILL_QUANTUM", "0", count),
            ("Q36_SERVER_MIXED_PREFILL_QUANTUM", "all", count),
        ] {
            let error = read(name, value).unwrap_err();
            assert_eq!(error.to_string(), format!("invalid value for {name}: {value}"));
            assert_eq!(error.hint, hint);
        }
    }
}
