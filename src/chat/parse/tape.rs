//! Between the window and the events: what is taken is recorded, what is emitted is decoded.

use std::ops::Range;

use super::window::{Mark, Window};
use crate::{
    chat::{Event, RawBlock},
    tokenizer::StreamDecoder,
};

/// Where emitted text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chat) enum Channel {
    Reasoning,
    Text,
    Param,
}

/// The window of a reply, the record of its blocks and the events on their way out.
#[derive(Debug, Clone)]
pub(in crate::chat) struct Tape {
    pub(in crate::chat) window: Window,
    events: Vec<Event>,
    channel: Channel,
    decoder: StreamDecoder,
    recording: bool,
    raw: Vec<u8>,
    markers: Vec<Range<usize>>,
    /// Length of the record up to the last complete call or block.
    kept: usize,
    /// Where the present block begins in the record.
    block_start: usize,
}

impl Tape {
    pub(in crate::chat) fn new(window: Window) -> Self {
        Self {
            window,
            events: Vec::new(),
            channel: Channel::Text,
            decoder: StreamDecoder::new(),
            recording: false,
            raw: Vec::new(),
            markers: Vec::new(),
            kept: 0,
            block_start: 0,
        }
    }

    pub(in crate::chat) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Starts recording with the white space `before` the first block.
    pub(in crate::chat) fn record(&mut self, before: &[u8]) {
        assert!(!self.recording, "blocks are recorded once");
        self.recording = true;
        self.raw.extend_from_slice(before);
    }

    /// The present block begins behind what is kept: with the white space between.
    pub(in crate::chat) fn begin_block(&mut self) {
        self.block_start = self.kept;
    }

    /// Everything taken so far belongs to complete calls.
    pub(in crate::chat) fn keep(&mut self) {
        self.kept = self.raw.len();
    }

    /// The record of the complete calls.
    pub(in crate::chat) fn kept_block(&self) -> Option<RawBlock> {
        let text = String::from_utf8(self.raw[..self.kept].to_vec()).ok()?;
        let inside = |marker: &&Range<usize>| marker.end <= self.kept;
        Some(RawBlock::new(text, self.markers.iter().filter(inside).cloned().collect()))
    }

    /// The text of the present block up to here.
    pub(in crate::chat) fn block_text(&self) -> String {
        String::from_utf8_lossy(&self.raw[self.block_start..]).into_owned()
    }

    /// What is taken from now on is no part of a block.
    pub(in crate::chat) fn stop_recording(&mut self) {
        self.recording = false;
    }

    /// Takes `n` bytes that are markup.
    pub(in crate::chat) fn skip(&mut self, n: usize) {
        let bytes = self.window.take(n);
        if self.recording {
            self.raw.extend_from_slice(bytes);
        }
    }

    /// Takes the outer tag `mark`, which stands next.
    pub(in crate::chat) fn skip_mark(&mut self, mark: Mark) {
        let start = self.raw.len();
        self.skip(mark.text().len());
        if self.recording {
            self.markers.push(start..self.raw.len());
        }
    }

    /// Takes the white space that stands next.
    pub(in crate::chat) fn skip_blank(&mut self) {
        let blank = self.window.rest().iter().take_while(|b| b.is_ascii_whitespace()).count();
        self.skip(blank);
    }

    /// Takes `n` bytes and emits them; returns the text that became complete.
    pub(in crate::chat) fn emit_next(&mut self, n: usize, channel: Channel) -> String {
        let bytes = self.window.take(n).to_vec();
        if self.recording {
            self.raw.extend_from_slice(&bytes);
        }
        self.emit(&bytes, channel)
    }

    /// Emits bytes that were taken before; returns the text that became complete.
    pub(in crate::chat) fn emit(&mut self, bytes: &[u8], channel: Channel) -> String {
        assert!(self.decoder.held().is_empty() || self.channel == channel, "flushed at the border");
        self.channel = channel;
        let text = self.decoder.push(bytes);
        self.send(&text);
        text
    }

    /// Ends a run of text: a character that was cut becomes U+FFFD. Returns it.
    pub(in crate::chat) fn flush(&mut self) -> String {
        let text = std::mem::take(&mut self.decoder).finish_lossy();
        self.send(&text);
        text
    }

    /// True when part of a character was emitted and waits for the rest.
    pub(in crate::chat) fn is_holding(&self) -> bool {
        !self.decoder.held().is_empty()
    }

    /// Reports anything but a piece of text.
    pub(in crate::chat) fn report(&mut self, event: Event) {
        self.events.push(event);
    }

    fn send(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match (self.events.last_mut(), self.channel) {
            (Some(Event::Reasoning(last)), Channel::Reasoning)
            | (Some(Event::Text(last)), Channel::Text)
            | (Some(Event::ParamBytes(last)), Channel::Param) => last.push_str(text),
            (_, Channel::Reasoning) => self.events.push(Event::Reasoning(text.to_owned())),
            (_, Channel::Text) => self.events.push(Event::Text(text.to_owned())),
            (_, Channel::Param) => self.events.push(Event::ParamBytes(text.to_owned())),
        }
    }
}
