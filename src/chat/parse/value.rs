//! Where the value of a parameter ends.
//!
//! A value is any text, even text about this very syntax, and nothing is escaped. So a closing tag counts only when the
//! next tag agrees (agent.md 8.1), and a missing one is understood only at the start of a line.

use super::{
    tag,
    window::{Match, Window},
};

/// What a `<` inside a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// `</parameter>`, of this length.
    Closed(usize),
    /// The start of what follows a value whose closing tag is missing.
    Missing,
    /// Part of the value; `true` when it looks like markup, so that another reading exists.
    Literal(bool),
    /// Not yet known.
    Wait,
}

/// What is known about the place of a `<`.
pub(super) struct Place<'a> {
    /// Position in the window.
    pub(super) at: usize,
    /// Nothing but a newline, or the start of the value, stands before it.
    pub(super) line_start: bool,
    /// Whether a name is a parameter of this function that was not given yet.
    pub(super) expected: &'a dyn Fn(&str) -> bool,
    /// The model ended its turn: what is missing now never comes.
    pub(super) turn_ended: bool,
}

/// What makes a closing tag before it a real one.
const BEHIND_CLOSE: [&str; 4] = ["<parameter=", "<parameter ", "</function", "</tool_call>"];

/// Whether two bytes or more of `</parameter>` stand at `at`, with nothing behind that makes them part of the value.
pub(super) fn may_close(window: &Window, at: usize) -> bool {
    let place = Place { at, line_start: false, expected: &|_| false, turn_ended: false };
    window.rest().len() - at >= 2 && !matches!(parameter_close(window, &place), Verdict::Literal(_))
}

/// Decides about the `<` at `place`.
pub(super) fn judge(window: &Window, place: &Place<'_>) -> Verdict {
    let checks = [parameter_close, function_close, next_parameter, block_close];
    let mut literal = false;
    for check in checks {
        match check(window, place) {
            Verdict::Literal(markup) => literal |= markup,
            decided @ (Verdict::Closed(_) | Verdict::Missing | Verdict::Wait) => return decided,
        }
    }
    Verdict::Literal(literal)
}

/// `</parameter>` before another tag.
fn parameter_close(window: &Window, place: &Place<'_>) -> Verdict {
    let len = match tag::close(window, place.at, "parameter") {
        Match::Yes(len) => len,
        Match::No => return Verdict::Literal(false),
        Match::Maybe => return Verdict::Wait,
    };
    match followed(window, place, place.at + len, &BEHIND_CLOSE) {
        Match::Yes(()) => Verdict::Closed(len),
        Match::No => Verdict::Literal(true),
        Match::Maybe => Verdict::Wait,
    }
}

/// `</function>` at the start of a line, before what may follow a function; or anywhere, when it and `</tool_call>` are
/// all that is left of the turn.
fn function_close(window: &Window, place: &Place<'_>) -> Verdict {
    let len = match tag::close(window, place.at, "function") {
        Match::Yes(len) => len,
        Match::No => return Verdict::Literal(false),
        Match::Maybe => return Verdict::Wait,
    };
    let behind = place.at + len;
    let found = if place.line_start {
        let follows = &["</tool_call>", "<tool_call>", "<function=", "<function "];
        followed(window, place, behind, follows)
    } else {
        let block_end = |at| window.text(at, "</tool_call>").map(|len| at + len);
        window.gap(behind).and(block_end).and(|at| followed(window, place, at, &[]))
    };
    match found {
        Match::Yes(()) => Verdict::Missing,
        Match::No => Verdict::Literal(true),
        Match::Maybe => Verdict::Wait,
    }
}

/// `<parameter=NAME>` at the start of a line, for a parameter that is still to come.
fn next_parameter(window: &Window, place: &Place<'_>) -> Verdict {
    match tag::open(window, place.at, "parameter") {
        Match::Yes(tag) if place.line_start && (place.expected)(&tag.name) => Verdict::Missing,
        Match::Yes(_) => Verdict::Literal(true),
        Match::No => Verdict::Literal(false),
        Match::Maybe => Verdict::Wait,
    }
}

/// `</tool_call>` and then the end of the turn.
fn block_close(window: &Window, place: &Place<'_>) -> Verdict {
    let len = match window.text(place.at, "</tool_call>") {
        Match::Yes(len) => len,
        Match::No => return Verdict::Literal(false),
        Match::Maybe => return Verdict::Wait,
    };
    match followed(window, place, place.at + len, &[]) {
        Match::Yes(()) => Verdict::Missing,
        Match::No => Verdict::Literal(true),
        Match::Maybe => Verdict::Wait,
    }
}

/// Whether one of `texts`, or the end of the turn, stands at `at`, behind white space.
fn followed(window: &Window, place: &Place<'_>, at: usize, texts: &[&str]) -> Match<()> {
    window.gap(at).and(|at| {
        if at == window.rest().len() {
            return if place.turn_ended { Match::Yes(()) } else { window.undecided() };
        }
        let mut waiting = Match::No;
        for text in texts {
            match window.text(at, text) {
                Match::Yes(_) => return Match::Yes(()),
                Match::Maybe => waiting = Match::Maybe,
                Match::No => {}
            }
        }
        waiting
    })
}
