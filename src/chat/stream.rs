//! The reader of replies: thought, answer and calls out of ids and bytes, as they arrive.
//!
//! One state machine for all three, so that they cannot disagree. It never looks back at what it has decided, and it
//! reports nothing that later bytes could change: a reply cut anywhere gives the same events.
//!
//! ```text
//!  Thinking --</think>--> Answer --<tool_call>--> Block --</tool_call>--> Between --anything else--> Done
//!                           ^                      |  ^--- <tool_call> ----+
//!                           +---- no call at all --+   (then the rest of the answer passes as it is)
//! ```

use super::{
    End, ErrorKind, Event, Failure, ParsedCall, Phase, Repair, Reply, Toolset,
    parse::{self, Block, Channel, CodeSpans, Context, Found, Mark, Progress, Tape, Window},
};
use crate::tokenizer::{Special, TokenId};

/// How the reader knows the markers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// By id: the same letters in ordinary tokens are text. For replies being generated.
    Ids(Special),
    /// By spelling. For replies that are stored as text.
    Text,
}

/// What a reader starts with.
#[derive(Debug, Clone)]
pub struct ReaderOptions {
    /// How markers are known.
    pub source: Source,
    /// The prompt ends inside a thought.
    pub thinking: bool,
    /// The functions on offer; `None` when the request has no tools, and all markup of calls is text.
    pub tools: Option<Toolset>,
}

#[derive(Debug, Clone)]
enum State {
    Thinking,
    Answer,
    Block(Box<Block>),
    /// Behind a block, where another may follow.
    Between,
    /// Behind a block that was no call: all is text.
    Plain,
    /// Behind the calls: nothing counts any more.
    Done,
}

/// Reads one reply.
#[derive(Debug, Clone)]
pub struct Reader {
    source: Source,
    tools: Option<Toolset>,
    tape: Tape,
    state: State,
    code: CodeSpans,
    /// White space that is shown only if text follows.
    blank: Vec<u8>,
    /// The answer follows a thought, so its first two newlines are the template's.
    after_thought: bool,
    end: Option<End>,
    reply: Reply,
}

impl Reader {
    /// A reader for a reply that has not begun.
    pub fn new(options: ReaderOptions) -> Self {
        let ReaderOptions { source, thinking, tools } = options;
        Self {
            source,
            tools,
            tape: Tape::new(Window::new(source == Source::Text)),
            state: if thinking { State::Thinking } else { State::Answer },
            code: CodeSpans::default(),
            blank: Vec::new(),
            after_thought: false,
            end: None,
            reply: Reply::default(),
        }
    }

    /// Takes a token that was fed to the model: its id and its bytes.
    pub fn token(&mut self, id: TokenId, bytes: &[u8]) -> Vec<Event> {
        let mark = match &self.source {
            Source::Ids(special) => {
                if [special.im_start, special.im_end, special.endoftext].contains(&id) {
                    return Vec::new();
                }
                mark_of(special, id)
            }
            Source::Text => None,
        };
        match mark {
            Some(mark) => self.tape.window.push_mark(mark),
            None => self.tape.window.push(bytes),
        }
        self.run();
        self.tape.take_events()
    }

    /// Takes bytes without an id. With [`Source::Ids`] they are ordinary text.
    pub fn bytes(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.tape.window.push(bytes);
        self.run();
        self.tape.take_events()
    }

    /// Where the next token stands.
    pub fn state(&self) -> Phase {
        match &self.state {
            State::Thinking => Phase::Thinking,
            State::Block(block) => block.phase(&self.tape),
            State::Answer | State::Between | State::Plain | State::Done => Phase::Outside,
        }
    }

    /// True when calls are complete and something else follows them: nothing more will be read, so the generation
    /// should end.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// The calls completed so far.
    pub fn calls(&self) -> &[ParsedCall] {
        &self.reply.calls
    }

    /// Ends the reply: the last events, and the whole.
    pub fn finish(mut self, end: End) -> (Vec<Event>, Reply) {
        self.end = Some(end);
        self.tape.window.end();
        self.run();
        match self.state {
            State::Thinking => self.reply.thought_open = true,
            State::Answer => self.show_blank(),
            State::Block(_) | State::Between | State::Plain | State::Done => {}
        }
        self.flush_text();
        if !self.reply.calls.is_empty() {
            self.reply.block = self.tape.kept_block();
        }
        (self.tape.take_events(), self.reply)
    }

    fn run(&mut self) {
        while self.step() {}
    }

    /// Decides one thing; false when more bytes are needed.
    fn step(&mut self) -> bool {
        match self.state {
            State::Thinking => self.think(),
            State::Answer => self.answer(),
            State::Block(_) => self.block(),
            State::Between => self.between(),
            State::Plain => {
                let all = self.tape.window.rest().len();
                self.show(all);
                false
            }
            State::Done => {
                let all = self.tape.window.rest().len();
                self.tape.skip(all);
                false
            }
        }
    }

    fn think(&mut self) -> bool {
        match self.tape.window.find(&[Mark::Think, Mark::ThinkEnd]) {
            Found::At(at, mark) => {
                self.reason(at);
                self.tape.skip_mark(mark);
                if mark == Mark::ThinkEnd {
                    let text = self.tape.flush();
                    self.reply.reasoning.push_str(&text);
                    self.blank.clear();
                    self.after_thought = true;
                    self.state = State::Answer;
                }
                true
            }
            Found::Maybe(at) => {
                self.reason(at);
                false
            }
            Found::Nowhere => {
                let all = self.tape.window.rest().len();
                self.reason(all);
                if self.end.is_some() {
                    let text = self.tape.flush();
                    self.reply.reasoning.push_str(&text);
                }
                false
            }
        }
    }

    /// The next `n` bytes are thought. White space at its ends is not shown.
    fn reason(&mut self, n: usize) {
        let bytes = self.tape.window.take(n).to_vec();
        let begun = !self.reply.reasoning.is_empty() || self.tape.is_holding();
        let bytes = if begun { &bytes[..] } else { bytes.trim_ascii_start() };
        let body = bytes.trim_ascii_end().len();
        if body > 0 {
            let mut shown = std::mem::take(&mut self.blank);
            shown.extend_from_slice(&bytes[..body]);
            let text = self.tape.emit(&shown, Channel::Reasoning);
            self.reply.reasoning.push_str(&text);
        }
        self.blank.extend_from_slice(&bytes[body..]);
    }

    fn answer(&mut self) -> bool {
        let Some(tools) = &self.tools else { return self.answer_without_tools() };
        let rest = self.tape.window.rest();
        if rest.is_empty() {
            return false;
        }
        let plain = rest.iter().position(|byte| *byte == b'<').unwrap_or(rest.len());
        if plain > 0 {
            self.show_trimmed(plain);
            return true;
        }
        let meant = self.code.at_line_start() && !self.code.inside();
        match parse::opening(&self.tape.window, meant, tools) {
            parse::Opening::Block { mark, repair } => self.begin_block(mark, repair),
            parse::Opening::Drop(mark) => {
                self.tape.window.take(mark.text().len());
                if mark == Mark::ToolCallEnd && !self.reply.repairs.contains(&Repair::OrphanClose) {
                    self.reply.repairs.push(Repair::OrphanClose);
                }
            }
            parse::Opening::Stray(len) => self.stray(len),
            parse::Opening::Text(len) => self.show_trimmed(len),
            parse::Opening::Wait => return false,
        }
        true
    }

    /// Only stray markers of a thought are dropped.
    fn answer_without_tools(&mut self) -> bool {
        let found = if self.tape.window.spelled() {
            Found::Nowhere
        } else {
            self.tape.window.find(&[Mark::Think, Mark::ThinkEnd])
        };
        match found {
            Found::At(at, mark) => {
                self.show_trimmed(at);
                self.tape.window.take(mark.text().len());
                true
            }
            Found::Maybe(_) | Found::Nowhere => {
                let all = self.tape.window.rest().len();
                self.show_trimmed(all);
                false
            }
        }
    }

    /// The next `n` bytes are text; white space at their end waits for what follows.
    fn show_trimmed(&mut self, n: usize) {
        let bytes = &self.tape.window.rest()[..n];
        self.code.advance(bytes);
        let lead = n - bytes.trim_ascii_start().len();
        let body = bytes.trim_ascii().len();
        self.blank.extend_from_slice(self.tape.window.take(lead));
        if body > 0 {
            self.show_blank();
            self.show(body);
        }
        self.blank.extend_from_slice(self.tape.window.take(n - lead - body));
    }

    /// Text follows the white space, so it is shown, but for newlines in front of everything.
    fn show_blank(&mut self) {
        let blank = std::mem::take(&mut self.blank);
        let first = self.reply.content.is_empty() && !self.tape.is_holding();
        let lines = blank.iter().take_while(|byte| first && **byte == b'\n').count();
        let text = self.tape.emit(&blank[lines..], Channel::Text);
        self.reply.content.push_str(&text);
    }

    /// The next `n` bytes are text.
    fn show(&mut self, n: usize) {
        let text = self.tape.emit_next(n, Channel::Text);
        self.reply.content.push_str(&text);
    }

    fn flush_text(&mut self) {
        let text = self.tape.flush();
        if matches!(self.state, State::Answer | State::Plain) {
            self.reply.content.push_str(&text);
        }
    }

    /// A tag of a call that opens none stands next: it is reported, and stays part of the answer.
    fn stray(&mut self, len: usize) {
        self.show_blank();
        self.flush_text();
        let bytes = self.tape.window.take(len);
        let raw = String::from_utf8_lossy(bytes).into_owned();
        self.code.advance(raw.as_bytes());
        self.reply.content.push_str(&raw);
        self.tape.report(Event::Error { kind: ErrorKind::StrayTag, raw });
    }

    /// The first block begins: the white space before it belongs to it, except what the template itself puts between a
    /// thought and an empty answer.
    fn begin_block(&mut self, mark: bool, repair: Option<Repair>) {
        self.flush_text();
        let mut before = std::mem::take(&mut self.blank);
        if self.after_thought && self.reply.content.is_empty() {
            let pair = before.iter().take(2).take_while(|byte| **byte == b'\n').count();
            before.drain(..pair);
        }
        self.tape.record(&before);
        self.enter_block(mark, repair);
    }

    fn enter_block(&mut self, mark: bool, repair: Option<Repair>) {
        self.tape.begin_block();
        self.reply.repairs.extend(repair);
        if mark {
            self.tape.skip_mark(Mark::ToolCall);
        }
        self.state = State::Block(Box::new(Block::new(mark)));
    }

    fn block(&mut self) -> bool {
        let State::Block(block) = &mut self.state else { return false };
        let none = Toolset::default();
        let context = Context { tools: self.tools.as_ref().unwrap_or(&none), end: self.end };
        let progress = block.step(&mut self.tape, &context);
        for call in block.take_calls() {
            self.reply.repairs.extend_from_slice(&call.repairs);
            self.reply.calls.push(call);
        }
        self.reply.repairs.append(&mut block.take_repairs());
        match progress {
            Progress::Again => true,
            Progress::Wait => false,
            Progress::Ended => {
                self.state = State::Between;
                true
            }
            Progress::Failed(kind) => {
                self.block_failed(kind);
                true
            }
        }
    }

    /// The block is no call. Without calls before it, it is part of the answer, and so is all that follows.
    fn block_failed(&mut self, kind: ErrorKind) {
        self.tape.flush();
        if kind == ErrorKind::Unterminated {
            let all = self.tape.window.rest().len();
            self.tape.skip(all);
        }
        let raw = self.tape.block_text();
        self.tape.stop_recording();
        if self.reply.calls.is_empty() {
            if kind != ErrorKind::Unterminated || self.end == Some(End::Turn) {
                self.reply.content.push_str(&raw);
            }
            self.state = State::Plain;
        } else {
            self.state = State::Done;
        }
        self.reply.failure = Some(Failure { kind, raw: raw.clone() });
        self.tape.report(Event::Error { kind, raw });
    }

    fn between(&mut self) -> bool {
        self.tape.skip_blank();
        if self.tape.window.rest().is_empty() {
            return false;
        }
        let Some(tools) = &self.tools else { return false };
        match parse::opening(&self.tape.window, true, tools) {
            parse::Opening::Block { mark, repair } => self.enter_block(mark, repair),
            parse::Opening::Drop(Mark::ToolCallEnd) => {
                self.tape.skip_mark(Mark::ToolCallEnd);
                self.reply.repairs.push(Repair::OrphanClose);
            }
            parse::Opening::Wait => return false,
            parse::Opening::Drop(_) | parse::Opening::Stray(_) | parse::Opening::Text(_) => {
                self.tape.stop_recording();
                self.state = State::Done;
            }
        }
        true
    }
}

fn mark_of(special: &Special, id: TokenId) -> Option<Mark> {
    let marks = [
        (special.think, Mark::Think),
        (special.think_end, Mark::ThinkEnd),
        (special.tool_call, Mark::ToolCall),
        (special.tool_call_end, Mark::ToolCallEnd),
    ];
    marks.iter().find(|(known, _)| *known == id).map(|(_, mark)| *mark)
}

#[cfg(test)]
mod tests;
