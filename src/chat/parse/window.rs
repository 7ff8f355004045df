//! Bytes of a reply that are not yet understood.

use std::collections::VecDeque;

/// Added tokens that mean something inside a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chat) enum Mark {
    Think,
    ThinkEnd,
    ToolCall,
    ToolCallEnd,
}

impl Mark {
    pub(in crate::chat) fn text(self) -> &'static str {
        match self {
            Self::Think => "<think>",
            Self::ThinkEnd => "</think>",
            Self::ToolCall => "<tool_call>",
            Self::ToolCallEnd => "</tool_call>",
        }
    }
}

/// The answer to "does this stand here?" when the rest may still be on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chat) enum Match<T = usize> {
    /// It does.
    Yes(T),
    /// It never will.
    No,
    /// So far it does; wait for more.
    Maybe,
}

impl<T> Match<T> {
    pub(in crate::chat) fn map<U>(self, f: impl FnOnce(T) -> U) -> Match<U> {
        self.and(|value| Match::Yes(f(value)))
    }

    pub(in crate::chat) fn and<U>(self, f: impl FnOnce(T) -> Match<U>) -> Match<U> {
        match self {
            Self::Yes(value) => f(value),
            Self::No => Match::No,
            Self::Maybe => Match::Maybe,
        }
    }
}

/// The result of looking for marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chat) enum Found {
    /// The first one, and where.
    At(usize, Mark),
    /// None before this place, where one may be beginning.
    Maybe(usize),
    /// None.
    Nowhere,
}

/// A queue of bytes, with the places of added tokens when those are known.
///
/// Positions are relative to the first byte not yet taken.
#[derive(Debug, Clone)]
pub(in crate::chat) struct Window {
    bytes: Vec<u8>,
    head: usize,
    /// Absolute positions in `bytes`, ascending.
    marks: VecDeque<(usize, Mark)>,
    /// Marks are recognised by their spelling, since no ids come with the bytes.
    spelled: bool,
    ended: bool,
}

/// White space between tags, and what is skipped to look for the tag behind.
pub(in crate::chat) const MAX_GAP_BYTES: usize = 64;

impl Window {
    pub(in crate::chat) fn new(spelled: bool) -> Self {
        Self { bytes: Vec::new(), head: 0, marks: VecDeque::new(), spelled, ended: false }
    }

    pub(in crate::chat) fn push(&mut self, bytes: &[u8]) {
        if self.head == self.bytes.len() {
            self.bytes.clear();
            self.head = 0;
        } else if self.head > self.bytes.len() / 2 {
            self.bytes.drain(..self.head);
            for (at, _) in &mut self.marks {
                *at -= self.head;
            }
            self.head = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    pub(in crate::chat) fn push_mark(&mut self, mark: Mark) {
        self.push(b"");
        self.marks.push_back((self.bytes.len(), mark));
        self.bytes.extend_from_slice(mark.text().as_bytes());
    }

    /// No more bytes will come: from now on nothing is `Maybe`.
    pub(in crate::chat) fn end(&mut self) {
        self.ended = true;
    }

    pub(in crate::chat) fn ended(&self) -> bool {
        self.ended
    }

    /// True when marks are recognised by their spelling.
    pub(in crate::chat) fn spelled(&self) -> bool {
        self.spelled
    }

    /// What is not yet taken.
    pub(in crate::chat) fn rest(&self) -> &[u8] {
        &self.bytes[self.head..]
    }

    /// Takes the next `n` bytes.
    pub(in crate::chat) fn take(&mut self, n: usize) -> &[u8] {
        let start = self.head;
        self.head += n;
        assert!(self.head <= self.bytes.len(), "took {n} of {} bytes", self.bytes.len() - start);
        while self.marks.front().is_some_and(|(at, _)| *at < self.head) {
            self.marks.pop_front();
        }
        &self.bytes[start..self.head]
    }

    /// `text` at position `at`, whatever tokens it came in.
    pub(in crate::chat) fn text(&self, at: usize, text: &str) -> Match {
        let there = &self.rest()[at.min(self.rest().len())..];
        let text = text.as_bytes();
        if there.starts_with(text) {
            Match::Yes(text.len())
        } else if text.starts_with(there) {
            self.undecided()
        } else {
            Match::No
        }
    }

    /// `mark` at position `at`: as an added token, or spelled where no ids are known.
    pub(in crate::chat) fn mark(&self, at: usize, mark: Mark) -> Match {
        if self.spelled {
            return self.text(at, mark.text());
        }
        let here = self.head + at;
        match self.marks.iter().find(|(place, _)| *place >= here) {
            Some((place, found)) if *place == here && *found == mark => {
                Match::Yes(mark.text().len())
            }
            None if here >= self.bytes.len() => self.undecided(),
            _ => Match::No,
        }
    }

    /// The first of the `wanted` marks.
    pub(in crate::chat) fn find(&self, wanted: &[Mark]) -> Found {
        if !self.spelled {
            let found = self.marks.iter().find(|(_, mark)| wanted.contains(mark));
            return found.map_or(Found::Nowhere, |(at, mark)| Found::At(at - self.head, *mark));
        }
        let opens = self.rest().iter().enumerate().filter(|(_, byte)| **byte == b'<');
        for (at, _) in opens {
            for mark in wanted {
                match self.mark(at, *mark) {
                    Match::Yes(_) => return Found::At(at, *mark),
                    Match::Maybe => return Found::Maybe(at),
                    Match::No => {}
                }
            }
        }
        Found::Nowhere
    }

    /// The end of the white space that begins at `at`: `No` when there is more of it than stands between tags.
    pub(in crate::chat) fn gap(&self, at: usize) -> Match {
        let there = &self.rest()[at.min(self.rest().len())..];
        let blank = there.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        if blank > MAX_GAP_BYTES {
            Match::No
        } else if blank == there.len() && !self.ended {
            Match::Maybe
        } else {
            Match::Yes(at + blank)
        }
    }

    pub(in crate::chat) fn undecided<T>(&self) -> Match<T> {
        if self.ended { Match::No } else { Match::Maybe }
    }
}
