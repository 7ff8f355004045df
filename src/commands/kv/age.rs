//! Times as people tell them.

/// How long ago a moment was, to about two digits: `now`, `5 min`, `3 h`, `12 d`.
pub(super) fn ago(now: u64, then: u64) -> String {
    match now.saturating_sub(then) {
        0..5 => "now".to_owned(),
        s @ 5..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_grow_with_the_age() {
        let cases = [
            (0, "now"),
            (5, "5 s"),
            (119, "119 s"),
            (120, "2 min"),
            (7199, "119 min"),
            (7200, "2 h"),
            (172_799, "47 h"),
            (172_800, "2 d"),
            (864_000_000, "10000 d"),
        ];
        for (age, expected) in cases {
            assert_eq!(ago(1_000_000_000, 1_000_000_000 - age), expected);
        }
        assert_eq!(ago(5, 9), "now", "a clock that was set back");
    }
}
