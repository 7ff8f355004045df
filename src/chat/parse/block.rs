//! One `<tool_call>` block as a state machine.
//!
//! ```text
//!  Start --<function=F>--> Function --<parameter=P>--> Opening --newline--> Value
//!    |                       |  ^                                             |
//!    |                       |  +---------------- </parameter> ---------------+
//!    | {"name": …}           | </function>
//!    +------> Body ------> Closed --</tool_call>--> end
//! ```

use super::{
    Channel, Tape,
    body::{self, BodyScan},
    tag,
    value::{self, Place, Verdict},
    window::{Mark, Match},
};
use crate::chat::{
    Arguments, End, ErrorKind, Event, ParsedCall, Phase, Repair, Toolset, canonical,
};

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chat) enum Progress {
    /// Something was taken or decided: go on.
    Again,
    /// Nothing can be decided without more bytes.
    Wait,
    /// The block is over.
    Ended,
    /// The block is no call.
    Failed(ErrorKind),
}

/// What a block needs to know from outside.
pub(in crate::chat) struct Context<'a> {
    pub(in crate::chat) tools: &'a Toolset,
    /// How the reply ended, once it has.
    pub(in crate::chat) end: Option<End>,
}

#[derive(Debug, Clone)]
enum Stage {
    /// Behind `<tool_call>`, or behind a function that was not closed.
    Start,
    /// Inside a function, between parameters.
    Function,
    /// Behind the tag of a parameter: one newline is not part of the value.
    Opening,
    /// Inside a value.
    Value,
    /// Inside a JSON body.
    Body(BodyScan),
    /// Behind a function.
    Closed,
}

/// The call being read.
#[derive(Debug, Clone, Default)]
struct Draft {
    name: String,
    texts: Vec<(String, String)>,
    /// The parameter being read, and its text so far.
    param: String,
    value: String,
    /// Places in this value that look like markup.
    literals: usize,
    repairs: Vec<Repair>,
    ambiguous: bool,
}

/// The state of a block.
#[derive(Debug, Clone)]
pub(in crate::chat) struct Block {
    stage: Stage,
    draft: Draft,
    calls: Vec<ParsedCall>,
    /// Deviations of the block itself.
    repairs: Vec<Repair>,
    /// Opened by `<tool_call>`.
    wrapped: bool,
}

impl Block {
    /// A block whose opening tag was taken, or that begins with a bare function.
    pub(in crate::chat) fn new(wrapped: bool) -> Self {
        Self {
            stage: Stage::Start,
            draft: Draft::default(),
            calls: Vec::new(),
            repairs: Vec::new(),
            wrapped,
        }
    }

    /// Calls completed since the last time.
    pub(in crate::chat) fn take_calls(&mut self) -> Vec<ParsedCall> {
        std::mem::take(&mut self.calls)
    }

    /// Deviations of the block that belong to none of its calls.
    pub(in crate::chat) fn take_repairs(&mut self) -> Vec<Repair> {
        std::mem::take(&mut self.repairs)
    }

    /// What the next token is.
    pub(in crate::chat) fn phase(&self, tape: &Tape) -> Phase {
        match self.stage {
            Stage::Start | Stage::Function | Stage::Closed => Phase::Structural,
            Stage::Opening | Stage::Body(_) => Phase::Payload,
            Stage::Value => {
                // It may begin inside what may yet turn out to be another tag.
                let rest = tape.window.rest();
                let mut opens = (0..rest.len()).filter(|&at| rest[at] == b'<');
                let begun = opens.any(|at| value::may_close(&tape.window, at));
                if begun { Phase::Structural } else { Phase::Payload }
            }
        }
    }

    /// Takes what can be decided.
    pub(in crate::chat) fn step(&mut self, tape: &mut Tape, context: &Context<'_>) -> Progress {
        match &mut self.stage {
            Stage::Opening => {
                match tape.window.rest().first() {
                    None if !tape.window.ended() => return Progress::Wait,
                    Some(b'\n') => tape.skip(1),
                    _ => {}
                }
                self.stage = Stage::Value;
                Progress::Again
            }
            Stage::Value => self.value(tape, context),
            Stage::Body(scan) => match scan.end(&tape.window) {
                Match::Yes(len) => self.body(tape, len),
                Match::No if tape.window.ended() => Progress::Failed(ErrorKind::Unterminated),
                Match::No => Progress::Failed(ErrorKind::BadJson),
                Match::Maybe => Progress::Wait,
            },
            Stage::Start if ready(tape) => self.start(tape),
            Stage::Function if ready(tape) => self.function(tape, context),
            Stage::Closed if ready(tape) => self.closed(tape),
            _ if !tape.window.ended() => Progress::Wait,
            Stage::Closed => self.end_unclosed(),
            Stage::Start | Stage::Function => Progress::Failed(ErrorKind::Unterminated),
        }
    }

    fn start(&mut self, tape: &mut Tape) -> Progress {
        if tape.window.rest()[0] == b'{' {
            self.stage = Stage::Body(BodyScan::default());
            return Progress::Again;
        }
        match tag::open(&tape.window, 0, "function") {
            Match::Yes(tag) => return self.open_function(tape, tag),
            Match::Maybe => return Progress::Wait,
            Match::No => {}
        }
        let misplaced = [
            (tape.window.text(0, Mark::ToolCallEnd.text()), ErrorKind::EmptyBlock),
            (tag::close(&tape.window, 0, "function"), ErrorKind::UnopenedFunction),
            (tape.window.text(0, "<parameter"), ErrorKind::ParameterOutsideFunction),
        ];
        for (found, kind) in misplaced {
            match found {
                Match::Yes(len) => {
                    tape.skip(len);
                    return Progress::Failed(kind);
                }
                Match::Maybe => return Progress::Wait,
                Match::No => {}
            }
        }
        Progress::Failed(ErrorKind::UnexpectedText)
    }

    fn open_function(&mut self, tape: &mut Tape, tag: tag::Open) -> Progress {
        tape.skip(tag.len);
        if tag.name.is_empty() {
            return Progress::Failed(ErrorKind::MissingName);
        }
        self.draft = Draft { name: tag.name, ..Draft::default() };
        self.note_odd(tag.odd);
        tape.report(Event::CallStart(self.draft.name.clone()));
        self.stage = Stage::Function;
        Progress::Again
    }

    fn function(&mut self, tape: &mut Tape, context: &Context<'_>) -> Progress {
        match tag::open(&tape.window, 0, "parameter") {
            Match::Yes(tag) => return self.open_parameter(tape, tag),
            Match::Maybe => return Progress::Wait,
            Match::No => {}
        }
        match tag::close(&tape.window, 0, "function") {
            Match::Yes(len) => {
                tape.skip(len);
                self.complete(tape, context);
                return Progress::Again;
            }
            Match::Maybe => return Progress::Wait,
            Match::No => {}
        }
        let next = tag::open(&tape.window, 0, "function").map(|tag| tag.len);
        for found in [tape.window.text(0, Mark::ToolCallEnd.text()), next] {
            match found {
                Match::Yes(_) => {
                    self.draft.repairs.push(Repair::MissingFunctionClose);
                    self.complete(tape, context);
                    return Progress::Again;
                }
                Match::Maybe => return Progress::Wait,
                Match::No => {}
            }
        }
        Progress::Failed(ErrorKind::UnexpectedText)
    }

    fn open_parameter(&mut self, tape: &mut Tape, tag: tag::Open) -> Progress {
        tape.skip(tag.len);
        if tag.name.is_empty() {
            return Progress::Failed(ErrorKind::MissingName);
        }
        self.note_odd(tag.odd);
        if self.draft.texts.iter().any(|(name, _)| *name == tag.name) {
            self.draft.repairs.push(Repair::RepeatedParameter);
        }
        tape.report(Event::ParamStart(tag.name.clone()));
        self.draft.param = tag.name;
        self.draft.value.clear();
        self.draft.literals = 0;
        self.stage = Stage::Opening;
        Progress::Again
    }

    fn note_odd(&mut self, odd: bool) {
        if odd && !self.draft.repairs.contains(&Repair::OddTag) {
            self.draft.repairs.push(Repair::OddTag);
        }
    }

    fn value(&mut self, tape: &mut Tape, context: &Context<'_>) -> Progress {
        let rest = tape.window.rest();
        let open = rest.iter().position(|byte| *byte == b'<');
        // A newline at the end may be the one before the closing tag.
        let text = &rest[..open.unwrap_or(rest.len())];
        let held = usize::from(text.last() == Some(&b'\n'));
        let ready = text.len() - held;
        let Some(at) = open else {
            if ready > 0 {
                self.pass(tape, ready);
            }
            let ended = tape.window.ended();
            return if ended { Progress::Failed(ErrorKind::Unterminated) } else { Progress::Wait };
        };
        if ready > 0 {
            self.pass(tape, ready);
            return Progress::Again;
        }
        let draft = &self.draft;
        let given =
            |name: &str| name == draft.param || draft.texts.iter().any(|(known, _)| known == name);
        let function = context.tools.function(&draft.name);
        let expected =
            |name: &str| function.is_some_and(|f| f.param(name).is_some()) && !given(name);
        let place = Place {
            at,
            line_start: held == 1 || at == 0 && draft.value.is_empty() && !tape.is_holding(),
            expected: &expected,
            turn_ended: context.end == Some(End::Turn),
        };
        match value::judge(&tape.window, &place) {
            Verdict::Closed(len) => self.close_parameter(tape, at + len),
            Verdict::Missing => {
                self.draft.repairs.push(Repair::MissingParameterClose);
                self.draft.ambiguous |= self.draft.literals > 0;
                self.close_parameter(tape, at);
            }
            Verdict::Literal(markup) => {
                self.draft.literals += usize::from(markup);
                self.pass(tape, at + 1);
            }
            Verdict::Wait => return Progress::Wait,
        }
        Progress::Again
    }

    /// The next `n` bytes belong to the value.
    fn pass(&mut self, tape: &mut Tape, n: usize) {
        let text = tape.emit_next(n, Channel::Param);
        self.draft.value.push_str(&text);
    }

    /// The next `markup` bytes end the value.
    fn close_parameter(&mut self, tape: &mut Tape, markup: usize) {
        let rest = tape.flush();
        self.draft.value.push_str(&rest);
        tape.skip(markup);
        let name = std::mem::take(&mut self.draft.param);
        let value = std::mem::take(&mut self.draft.value);
        tape.report(Event::ParamEnd { name: name.clone(), value: value.clone() });
        self.draft.texts.push((name, value));
        self.stage = Stage::Function;
    }

    /// The function is complete.
    fn complete(&mut self, tape: &mut Tape, context: &Context<'_>) {
        let draft = std::mem::take(&mut self.draft);
        let arguments = context.tools.arguments(&draft.name, &draft.texts);
        self.finish_call(tape, draft, arguments);
    }

    fn finish_call(&mut self, tape: &mut Tape, draft: Draft, arguments: Arguments) {
        let Draft { name, texts, repairs, ambiguous, .. } = draft;
        self.calls.push(ParsedCall { name, texts, arguments, repairs, ambiguous });
        tape.report(Event::CallEnd);
        tape.keep();
        self.stage = Stage::Closed;
    }

    /// The next `len` bytes are a call as JSON.
    fn body(&mut self, tape: &mut Tape, len: usize) -> Progress {
        let parsed = body::parse(&tape.window.rest()[..len]);
        tape.skip(len);
        let Some((name, arguments)) = parsed else {
            return Progress::Failed(ErrorKind::BadJson);
        };
        tape.report(Event::CallStart(name.clone()));
        let mut draft = Draft { name, repairs: vec![Repair::JsonBody], ..Draft::default() };
        for (name, value) in arguments.iter() {
            let text = canonical::argument(value);
            tape.report(Event::ParamStart(name.to_owned()));
            tape.emit(text.as_bytes(), Channel::Param);
            tape.report(Event::ParamEnd { name: name.to_owned(), value: text.clone() });
            draft.texts.push((name.to_owned(), text));
        }
        self.finish_call(tape, draft, arguments);
        Progress::Again
    }

    fn closed(&mut self, tape: &mut Tape) -> Progress {
        match tape.window.text(0, Mark::ToolCallEnd.text()) {
            Match::Yes(_) => {
                tape.skip_mark(Mark::ToolCallEnd);
                tape.keep();
                return Progress::Ended;
            }
            Match::Maybe => return Progress::Wait,
            Match::No => {}
        }
        match tag::open(&tape.window, 0, "function") {
            Match::Yes(_) => {
                self.stage = Stage::Start;
                Progress::Again
            }
            Match::Maybe => Progress::Wait,
            Match::No => self.end_unclosed(),
        }
    }

    fn end_unclosed(&mut self) -> Progress {
        if self.wrapped {
            self.repairs.push(Repair::MissingBlockClose);
        }
        Progress::Ended
    }
}

/// Skips white space; false when nothing stands behind it yet.
fn ready(tape: &mut Tape) -> bool {
    tape.skip_blank();
    !tape.window.rest().is_empty()
}
