//! The grammars of flag values, as pure functions from text to a typed value.
//!
//! A parser says only what it accepts; the flag's name and the offending text are added where the
//! error is printed. Whole numbers are plain decimal digits: no sign, no space, no separator, no
//! exponent. Nothing here looks at another flag.

use clap::ValueEnum;

use crate::util::units::Bytes;

/// The largest whole number a count may have, the reference's `int`.
pub const MAX_COUNT: u32 = 2_147_483_647;

/// What a value had to be, as a phrase that completes "expected …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {0}")]
pub struct ValueError(String);

impl ValueError {
    fn new(expected: impl Into<String>) -> Self {
        Self(expected.into())
    }
}

/// Decimal digits only; `None` on anything else and on overflow.
fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// A whole number in `low..=high`.
fn whole(text: &str, low: u32, high: u32) -> Result<u32, ValueError> {
    digits(text)
        .and_then(|n| u32::try_from(n).ok())
        .filter(|n| (low..=high).contains(n))
        .ok_or_else(|| ValueError::new(format!("a whole number from {low} to {high}")))
}

/// A count of at least 1.
pub fn positive(text: &str) -> Result<u32, ValueError> {
    whole(text, 1, MAX_COUNT)
}

/// A count that may be 0.
pub fn non_negative(text: &str) -> Result<u32, ValueError> {
    whole(text, 0, MAX_COUNT)
}

/// A TCP port; 0 is any free one.
pub fn port(text: &str) -> Result<u16, ValueError> {
    let expected = || ValueError::new("a port from 0 to 65535");
    digits(text).and_then(|n| u16::try_from(n).ok()).ok_or_else(expected)
}

/// Most thinking tokens for each named effort; `None` keeps the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EffortBudgets {
    /// Of `minimal`.
    pub minimal: Option<u32>,
    /// Of `low`.
    pub low: Option<u32>,
    /// Of `medium`.
    pub medium: Option<u32>,
    /// Of `high`.
    pub high: Option<u32>,
}

/// `low=1000,high=20000`: some or all of the efforts, each once or more; the last wins.
pub fn effort_budgets(text: &str) -> Result<EffortBudgets, ValueError> {
    let mut budgets = EffortBudgets::default();
    for item in text.split(',') {
        let expected = || {
            ValueError::new("a list such as low=1000,high=20000 of minimal, low, medium and high")
        };
        let (name, number) = item.split_once('=').ok_or_else(expected)?;
        let number = Some(positive(number).map_err(|_| expected())?);
        match name {
            "minimal" => budgets.minimal = number,
            "low" => budgets.low = number,
            "medium" => budgets.medium = number,
            "high" => budgets.high = number,
            _ => return Err(expected()),
        }
    }
    Ok(budgets)
}

/// A time span: a number and one of s, m, h, d, w. In seconds.
pub fn age(text: &str) -> Result<u64, ValueError> {
    const UNITS: [(char, u64); 5] =
        [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400), ('w', 604_800)];
    let unit = UNITS.iter().find(|(unit, _)| text.ends_with(*unit));
    unit.and_then(|(unit, seconds)| digits(text.strip_suffix(*unit)?)?.checked_mul(*seconds))
        .ok_or_else(|| ValueError::new("a number and s, m, h, d or w, such as 30d"))
}

/// A percentage from 1 to 100.
pub fn percent(text: &str) -> Result<u8, ValueError> {
    whole(text, 1, 100).map(|n| u8::try_from(n).expect("at most 100"))
}

/// A number of layers, of the published model's 40.
pub fn layers(text: &str) -> Result<u32, ValueError> {
    whole(text, 1, 40)
}

/// A finite factor of at least 1. Kept in f64: it multiplies counts that are then rounded up.
pub fn factor(text: &str) -> Result<f64, ValueError> {
    let number = text.parse::<f64>().ok().filter(|x| x.is_finite() && *x >= 1.0);
    number.ok_or_else(|| ValueError::new("a number of at least 1"))
}

/// A sampling seed: any u64 but 0, which internally means "pick from the clock".
pub fn seed(text: &str) -> Result<u64, ValueError> {
    digits(text)
        .filter(|&n| n >= 1)
        .ok_or_else(|| ValueError::new(format!("a whole number from 1 to {}", u64::MAX)))
}

/// A parser of finite decimal numbers in the closed range `low..=high`.
///
/// The comparison is made in f64, so that a text just outside the range does not round into it.
pub fn float_in(
    low: f32,
    high: f32,
) -> impl Fn(&str) -> Result<f32, ValueError> + Clone + Send + Sync + 'static {
    move |text| {
        text.parse::<f64>()
            .ok()
            .filter(|x| (f64::from(low)..=f64::from(high)).contains(x))
            .map(|x| {
                #[expect(clippy::cast_possible_truncation, reason = "in range; rounds to nearest")]
                let narrowed = x as f32;
                narrowed
            })
            .ok_or_else(|| ValueError::new(format!("a number from {low} to {high}")))
    }
}

const GIB: u64 = 1 << 30;
/// So that a size in bytes and any sum of a few of them stay far from overflow.
const MAX_GIB: u64 = 1 << 20;

fn gib_digits(text: &str) -> Option<Bytes> {
    digits(text).filter(|n| (1..=MAX_GIB).contains(n)).map(|n| Bytes(n * GIB))
}

/// `text` without a `GB` suffix in any case, or `None` if it has none.
fn strip_gb(text: &str) -> Option<&str> {
    let cut = text.len().checked_sub(2)?;
    let (number, suffix) = text.split_at_checked(cut)?;
    suffix.eq_ignore_ascii_case("gb").then_some(number)
}

/// A size in whole GiB: `8`, `8GB`, `8gb`.
pub fn gib(text: &str) -> Result<Bytes, ValueError> {
    gib_digits(strip_gb(text).unwrap_or(text))
        .ok_or_else(|| ValueError::new("whole GiB, such as 8 or 8GB"))
}

/// How large the expert cache may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheSize {
    /// So many expert slots.
    Slots(u32),
    /// So many bytes.
    Size(Bytes),
}

/// `256` is a number of slots, `6GB` a size: the suffix decides.
pub fn cache_size(text: &str) -> Result<CacheSize, ValueError> {
    let parsed = match strip_gb(text) {
        Some(number) => gib_digits(number).map(CacheSize::Size),
        None => positive(text).ok().map(CacheSize::Slots),
    };
    parsed.ok_or_else(|| ValueError::new("a number of experts, such as 256, or GiB, such as 6GB"))
}

/// How the rows of the K or V cache are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CacheType {
    /// IEEE half, two bytes a value.
    #[value(name = "f16")]
    F16,
    /// 34 bytes for 32 values. The alias is a frequent slip of the finger.
    #[value(name = "q8_0", alias = "q8_o")]
    Q8_0,
    /// 18 bytes for 32 values.
    #[value(name = "q4_0", alias = "q4_o")]
    Q4_0,
}

/// What computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// Vulkan when a real GPU can run it, else the CPU.
    Auto,
    /// A Vulkan device.
    Vulkan,
    /// The processor.
    Cpu,
}

/// When output is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ColorChoice {
    /// When the destination is a terminal and the environment does not object.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Where the model's reasoning is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ShowThinking {
    /// Grey on a terminal, nowhere when stdout is not one.
    #[default]
    Auto,
    /// On stdout, in front of the answer.
    Stdout,
    /// On stderr.
    Stderr,
    /// Nowhere.
    Never,
}

/// How the server's log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Programs whose configuration the server can print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Client {
    /// opencode.
    Opencode,
    /// Pi.
    Pi,
    /// Codex CLI.
    Codex,
    /// Claude Code.
    ClaudeCode,
}

/// How the model is asked to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThinkMode {
    /// Reasoning before the answer.
    #[default]
    On,
    /// Exhaustive reasoning; needs a large context.
    Max,
    /// The answer at once.
    Off,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whole_numbers() {
        for bad in ["", "0", "-1", "+1", "1x", " 1", "1 ", "1.0", "2147483648", "1_000", "٣"] {
            assert!(positive(bad).is_err(), "{bad:?}");
        }
        assert_eq!(positive("1"), Ok(1));
        assert_eq!(positive("0007"), Ok(7));
        assert_eq!(positive("2147483647"), Ok(MAX_COUNT));
        assert_eq!(non_negative("0"), Ok(0));
        assert!(non_negative("-0").is_err());
        assert_eq!(percent("100"), Ok(100));
        assert!(percent("101").is_err());
        assert!(percent("0").is_err());
    }

    #[test]
    fn seeds() {
        assert_eq!(seed("18446744073709551615"), Ok(u64::MAX));
        assert!(seed("18446744073709551616").is_err());
        assert!(seed("0").is_err());
        assert_eq!(
            seed("x").unwrap_err().to_string(),
            "expected a whole number from 1 to 18446744073709551615"
        );
    }

    #[test]
    fn floats() {
        let unit = float_in(0.0, 1.0);
        for (text, value) in [("0", 0.0), ("1", 1.0), (".5", 0.5), ("1e-3", 0.001), ("-0", 0.0)] {
            assert_eq!(unit(text), Ok(value), "{text}");
        }
        for bad in ["", "nan", "inf", "-inf", "1.00000001", "-1", "0.5x", "0,5", " 1"] {
            assert!(unit(bad).is_err(), "{bad:?}");
        }
        assert_eq!(unit("2").unwrap_err().to_string(), "expected a number from 0 to 1");
    }

    #[test]
    fn layers_and_factors() {
        assert_eq!((layers("1"), layers("40")), (Ok(1), Ok(40)));
        assert!(layers("0").is_err() && layers("41").is_err());
        assert_eq!((factor("1"), factor("1.1")), (Ok(1.0), Ok(1.1)));
        for bad in ["0.99", "-2", "nan", "inf", "", "2x"] {
            assert!(factor(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn ports() {
        assert_eq!((port("0"), port("8000"), port("65535")), (Ok(0), Ok(8000), Ok(65535)));
        for bad in ["65536", "-1", "", "http", "80.0"] {
            assert!(port(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn budgets_of_efforts() {
        let given = effort_budgets("low=10,high=2000,low=20").unwrap();
        assert_eq!((given.low, given.high, given.medium), (Some(20), Some(2000), None));
        for bad in ["", "low", "low=", "low=0", "none=5", "low=1,", "low=1;high=2", "LOW=1"] {
            assert!(effort_budgets(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn sizes() {
        for good in ["8", "8GB", "8gb", "8Gb"] {
            assert_eq!(gib(good), Ok(Bytes(8 << 30)), "{good}");
        }
        for bad in ["", "0", "0GB", "GB", "8G", "8MB", "1.5GB", "8 GB", "99999999999", "é"] {
            assert!(gib(bad).is_err(), "{bad:?}");
        }
        assert_eq!(cache_size("256"), Ok(CacheSize::Slots(256)));
        assert_eq!(cache_size("6GB"), Ok(CacheSize::Size(Bytes(6 << 30))));
        for bad in ["0", "0GB", "1.5", "1.5GB", "6MB", ""] {
            assert!(cache_size(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn cache_types_with_their_slips() {
        let parse = |text| CacheType::from_str(text, false).ok();
        assert_eq!(parse("q8_0"), Some(CacheType::Q8_0));
        assert_eq!(parse("q8_o"), Some(CacheType::Q8_0));
        assert_eq!(parse("q4_o"), Some(CacheType::Q4_0));
        assert_eq!(parse("Q8_0"), None);
        assert_eq!(parse("f32"), None);
    }

    proptest! {
        #[test]
        fn every_count_parses_to_itself(n in 1..=MAX_COUNT) {
            prop_assert_eq!(positive(&n.to_string()), Ok(n));
            prop_assert_eq!(non_negative(&n.to_string()), Ok(n));
            prop_assert_eq!(cache_size(&n.to_string()), Ok(CacheSize::Slots(n)));
        }

        #[test]
        fn floats_keep_their_value(x in -100.0f32..=100.0) {
            prop_assert_eq!(float_in(-100.0, 100.0)(&x.to_string()), Ok(x));
        }

        #[test]
        fn any_text_is_a_value_or_an_error(text in "\\PC*") {
            let _ = (positive(&text), seed(&text), gib(&text), cache_size(&text), percent(&text));
            if let Ok(x) = float_in(-1.0, 1.0)(&text) {
                prop_assert!((-1.0..=1.0).contains(&x));
            }
        }
    }
}
