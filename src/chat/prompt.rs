//! A rendered prompt: control text of the program, payload text of everybody else.
//!
//! The difference is what keeps a file that contains `<|im_end|>` from ending a turn: added tokens are recognised in
//! control segments only. It survives until the tokenizer; bytes alone cannot tell.

use std::ops::Range;

use crate::tokenizer;

/// Whether added tokens are recognised in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text of the program: added tokens are recognised.
    Control,
    /// Text of a user, a tool, a file or a model: added tokens are plain letters.
    Payload,
}

/// A stretch of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Whether added tokens are recognised.
    pub kind: Kind,
    /// The text, never empty.
    pub text: String,
}

/// An added token in control text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// Byte offset in the prompt.
    pub offset: usize,
    /// The token's text.
    pub text: &'static str,
}

/// A block of tool calls exactly as the model wrote it, for [`Message::replay`](super::Message::replay).
///
/// From the white space before the first `<tool_call>` to the last `</tool_call>`. The outer tags are control text; a
/// marker quoted inside a value is payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawBlock {
    text: String,
    markers: Vec<Range<usize>>,
}

impl RawBlock {
    /// `markers` are the ranges of the outer tags in `text`, in order and without overlap: what the reader of a reply
    /// found (`Reply::block`).
    pub(crate) fn new(text: String, markers: Vec<Range<usize>>) -> Self {
        let mut end = 0;
        for marker in &markers {
            assert!(end <= marker.start && text.get(marker.clone()).is_some(), "marker {marker:?}");
            end = marker.end;
        }
        Self { text, markers }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A rendered prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prompt {
    segments: Vec<Segment>,
    replays: Vec<Range<usize>>,
    bytes: usize,
}

impl Prompt {
    /// An empty prompt.
    pub fn new() -> Self {
        Self::default()
    }

    /// True for a text that begins as a rendered chat does (cli.md 4.1).
    pub fn looks_rendered(text: &str) -> bool {
        ["<|im_start|>", "<|endoftext|>"].iter().any(|start| text.starts_with(start))
    }

    /// Takes a text that is a rendered chat already: all of it is control text.
    pub fn rendered(text: &str) -> Self {
        let mut prompt = Self::new();
        prompt.control(text);
        prompt
    }

    /// Takes a text that is to be continued as plain text: all of it is payload.
    pub fn plain(text: &str) -> Self {
        let mut prompt = Self::new();
        prompt.payload(text);
        prompt
    }

    /// Appends text of the program.
    pub fn control(&mut self, text: &str) {
        self.push(Kind::Control, text);
    }

    /// Appends text of anybody else.
    pub fn payload(&mut self, text: &str) {
        self.push(Kind::Payload, text);
    }

    /// Appends a block of calls as the model wrote it.
    pub fn replay(&mut self, block: &RawBlock) {
        let start = self.bytes;
        let mut done = 0;
        for marker in &block.markers {
            self.payload(&block.text[done..marker.start]);
            self.control(&block.text[marker.clone()]);
            done = marker.end;
        }
        self.payload(&block.text[done..]);
        self.replays.push(start..self.bytes);
    }

    /// Without its last `n` bytes: a turn that is to go on has no end yet.
    ///
    /// # Panics
    /// When that would cut a character.
    #[must_use]
    pub fn without_last(mut self, n: usize) -> Self {
        let end = self.bytes.saturating_sub(n);
        while self.bytes > end {
            let Some(mut last) = self.segments.pop() else { break };
            self.bytes -= last.text.len();
            if self.bytes < end {
                last.text.truncate(end - self.bytes);
                self.push(last.kind, &last.text);
            }
        }
        self.replays.retain(|range| range.end <= end);
        self
    }

    /// The segments; neighbours differ in kind.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The segments as the tokenizer takes them.
    pub fn token_segments(&self) -> Vec<tokenizer::Segment<'_>> {
        let mut out = Vec::with_capacity(self.segments.len());
        for Segment { kind, text } in &self.segments {
            out.push(match kind {
                Kind::Control => tokenizer::Segment::Control(text),
                Kind::Payload => tokenizer::Segment::Payload(text),
            });
        }
        out
    }

    /// The whole text.
    pub fn text(&self) -> String {
        self.segments.iter().map(|segment| segment.text.as_str()).collect()
    }

    /// The bytes of the whole text: what caches are keyed by, together with [`markers`](Self::markers).
    pub fn bytes(&self) -> Vec<u8> {
        self.text().into_bytes()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// True when there is no text.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The added tokens of the control text, by offset. A stored state fits this prompt only if its own added tokens
    /// stand at the same offsets (model.md 8.4).
    pub fn markers(&self) -> Vec<Marker> {
        let mut markers = Vec::new();
        let mut start = 0;
        for segment in &self.segments {
            if segment.kind == Kind::Control {
                find_added(&segment.text, start, &mut markers);
            }
            start += segment.text.len();
        }
        markers
    }

    /// Byte ranges of blocks replayed as the model wrote them. Inside one, a stored state may have an added token where
    /// this prompt has its letters: the model may have quoted a marker by its single id.
    pub fn replays(&self) -> &[Range<usize>] {
        &self.replays
    }

    fn push(&mut self, kind: Kind, text: &str) {
        if text.is_empty() {
            return;
        }
        self.bytes += text.len();
        match self.segments.last_mut() {
            Some(last) if last.kind == kind => last.text.push_str(text),
            _ => self.segments.push(Segment { kind, text: text.to_owned() }),
        }
    }
}

/// The added tokens of a control text that starts at byte `start` of the prompt.
fn find_added(text: &str, start: usize, markers: &mut Vec<Marker>) {
    let mut at = 0;
    while let Some(open) = text[at..].find('<') {
        at += open;
        match tokenizer::ADDED_TOKENS.iter().find(|token| text[at..].starts_with(**token)) {
            Some(token) => {
                markers.push(Marker { offset: start + at, text: token });
                at += token.len();
            }
            None => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prompt_can_be_taken_off() {
        let mut prompt = Prompt::new();
        prompt.control("<|im_start|>");
        prompt.payload("é and");
        prompt.control(" end<|im_end|>\n");
        let whole = prompt.text();
        for (n, kinds) in [(0, 3), (11, 3), (15, 2), (18, 2), (21, 1), (100, 0)] {
            let cut = prompt.clone().without_last(n);
            assert_eq!(cut.text(), whole[..whole.len().saturating_sub(n)], "without {n}");
            assert_eq!((cut.len(), cut.segments().len()), (cut.text().len(), kinds));
        }
    }
}
