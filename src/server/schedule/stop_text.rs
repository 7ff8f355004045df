//! Stop texts in a stream (server.md 4.5).
//!
//! The earliest match counts, of those at one place the first one named. What later text could turn into a match, or into
//! an earlier one, is held back; so a reply that is cut anywhere gives the same.

/// Looks for stop texts in an answer.
#[derive(Debug, Clone, Default)]
pub(super) struct StopText {
    stops: Vec<String>,
    held: String,
}

/// What has been decided.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Passed {
    /// Text that no stop text is part of.
    pub(super) text: String,
    /// The stop text that came behind it.
    pub(super) stop: Option<String>,
}

impl StopText {
    /// For these texts, none of which is empty.
    pub(super) fn new(stops: Vec<String>) -> Self {
        Self { stops, held: String::new() }
    }

    /// Takes a piece of the answer.
    pub(super) fn push(&mut self, text: &str) -> Passed {
        if self.stops.is_empty() {
            return Passed { text: text.to_owned(), stop: None };
        }
        self.held.push_str(text);
        self.decide(false)
    }

    /// The answer ends, or something else stands between: nothing more belongs to what is held.
    pub(super) fn flush(&mut self) -> Passed {
        self.decide(true)
    }

    fn decide(&mut self, ended: bool) -> Passed {
        for (at, _) in self.held.char_indices() {
            let rest = &self.held[at..];
            for stop in &self.stops {
                if rest.starts_with(stop.as_str()) {
                    let stop = Some(stop.clone());
                    self.held.truncate(at);
                    return Passed { text: std::mem::take(&mut self.held), stop };
                }
                if !ended && stop.starts_with(rest) {
                    // One that is named earlier, or begins earlier, may still come: wait for it.
                    let held = self.held.split_off(at);
                    return Passed { text: std::mem::replace(&mut self.held, held), stop: None };
                }
            }
        }
        Passed { text: std::mem::take(&mut self.held), stop: None }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same by looking at the whole text.
    fn whole(stops: &[String], text: &str) -> (String, Option<String>) {
        for (at, _) in text.char_indices() {
            if let Some(stop) = stops.iter().find(|stop| text[at..].starts_with(stop.as_str())) {
                return (text[..at].to_owned(), Some(stop.clone()));
            }
        }
        (text.to_owned(), None)
    }

    fn pieces(stops: &[String], pieces: &[&str]) -> (String, Option<String>) {
        let mut scan = StopText::new(stops.to_vec());
        let mut out = String::new();
        for piece in pieces {
            let passed = scan.push(piece);
            out.push_str(&passed.text);
            if passed.stop.is_some() {
                return (out, passed.stop);
            }
        }
        let last = scan.flush();
        (out + &last.text, last.stop)
    }

    #[test]
    fn the_earliest_counts_and_of_those_the_first_named() {
        let stops = ["abc", "b"].map(str::to_owned);
        assert_eq!(pieces(&stops, &["xa", "b", "c"]), ("x".into(), Some("abc".into())));
        assert_eq!(pieces(&stops, &["xa", "b", "d"]), ("xa".into(), Some("b".into())));
        assert_eq!(pieces(&stops, &["xa", "b"]), ("xa".into(), Some("b".into())));
        let stops = ["ab", "a"].map(str::to_owned);
        assert_eq!(pieces(&stops, &["a", "b"]), (String::new(), Some("ab".into())));
        assert_eq!(pieces(&stops, &["a", "c"]), (String::new(), Some("a".into())));
    }

    #[test]
    fn nothing_is_held_back_that_cannot_match() {
        let mut scan = StopText::new(vec!["END".into()]);
        assert_eq!(scan.push("an E").text, "an ");
        assert_eq!(scan.push("gg").text, "Egg");
        assert_eq!(StopText::new(Vec::new()).push("all").text, "all");
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(
            stops in prop::collection::vec("[abé]{1,4}", 0..4),
            parts in prop::collection::vec("[abé]{0,3}", 0..12),
        ) {
            let text = parts.concat();
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            prop_assert_eq!(pieces(&stops, &parts), whole(&stops, &text));
        }
    }
}
