//! What a `<` in an answer opens.

use super::{
    tag,
    window::{Mark, Match, Window},
};
use crate::chat::{Repair, Toolset};

/// The meaning of the `<` that stands next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chat) enum Opening {
    /// A block begins; `mark` tells whether with `<tool_call>`.
    Block { mark: bool, repair: Option<Repair> },
    /// A marker that means nothing here.
    Drop(Mark),
    /// A tag of this length that belongs into a block.
    Stray(usize),
    /// This many bytes of text.
    Text(usize),
    /// Not yet known.
    Wait,
}

/// Decides about the `<` at the front of the window. `meant` tells whether a tag in ordinary letters would count here: at
/// the start of a line, and not in code.
pub(in crate::chat) fn opening(window: &Window, meant: bool, tools: &Toolset) -> Opening {
    let mut waiting = false;
    for mark in [Mark::ToolCall, Mark::ToolCallEnd, Mark::Think, Mark::ThinkEnd] {
        let of_thought = matches!(mark, Mark::Think | Mark::ThinkEnd);
        if of_thought && window.spelled() {
            continue;
        }
        match window.mark(0, mark) {
            Match::Yes(_) if mark == Mark::ToolCall => {
                return Opening::Block { mark: true, repair: None };
            }
            Match::Yes(_) => return Opening::Drop(mark),
            Match::Maybe => waiting = true,
            Match::No => {}
        }
    }
    if !meant {
        return if waiting { Opening::Wait } else { Opening::Text(1) };
    }
    for check in [spelled_opener, bare_function, stray_tag] {
        match check(window, tools) {
            Opening::Text(_) => {}
            Opening::Wait => waiting = true,
            found @ (Opening::Block { .. } | Opening::Drop(_) | Opening::Stray(_)) => return found,
        }
    }
    if waiting { Opening::Wait } else { Opening::Text(1) }
}

/// `<tool_call>` in ordinary tokens, with a function behind it.
fn spelled_opener(window: &Window, _: &Toolset) -> Opening {
    let behind = |len| window.gap(len).and(|at| tag::open(window, at, "function"));
    match window.text(0, Mark::ToolCall.text()).and(behind) {
        Match::Yes(_) => Opening::Block { mark: true, repair: Some(Repair::SpelledOpener) },
        Match::Maybe => Opening::Wait,
        Match::No => Opening::Text(1),
    }
}

/// `<function=NAME>` of a function on offer, without `<tool_call>`.
fn bare_function(window: &Window, tools: &Toolset) -> Opening {
    match tag::open(window, 0, "function") {
        Match::Yes(tag) if tools.function(&tag.name).is_some() => {
            Opening::Block { mark: false, repair: Some(Repair::MissingOpener) }
        }
        Match::Yes(tag) => Opening::Stray(tag.len),
        Match::Maybe => Opening::Wait,
        Match::No => Opening::Text(1),
    }
}

fn stray_tag(window: &Window, _: &Toolset) -> Opening {
    let tags = [
        tag::open(window, 0, "parameter").map(|tag| tag.len),
        tag::close(window, 0, "parameter"),
        tag::close(window, 0, "function"),
    ];
    for found in tags {
        match found {
            Match::Yes(len) => return Opening::Stray(len),
            Match::Maybe => return Opening::Wait,
            Match::No => {}
        }
    }
    Opening::Text(1)
}
