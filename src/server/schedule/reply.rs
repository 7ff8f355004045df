//! One reply as a state machine: drawn tokens go in, tokens to feed and updates come out.
//!
//! ```text
//!  drawn ── thinking controller ──► queue ── fed ──► reader ── stop texts, JSON of calls ──► updates
//!                    ▲ a forced call opening joins the queue when the thought is over
//! ```
//!
//! No engine, no clock: whoever drives it samples when it asks, feeds what it says, and passes on what it reports. A
//! token is reported when it is handed out, before it is evaluated; the last one never is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::call_json::CallJson;
use super::replay::new_call_id;
use super::stop_text::{Passed, StopText};
use super::syntax::Tags;
use crate::chat::{
    Budget, CloseEvent, CloseKind, End, ErrorKind, Event, Fed, ParsedCall, Phase, RawBlock, Reader,
    ReaderOptions, Repair, Sampled, Show, Source, Step, ThinkController, ThinkOptions, ThinkTokens,
    Toolset,
};
use crate::server::{Api, Call, Finish, Logprob, Outcome, Update};
use crate::tokenizer::{Special, StreamDecoder, TokenId, TokenMask, Tokenizer};

/// What a reply starts with.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    /// Decides the form of ids.
    pub(super) api: Api,
    /// The markers of the vocabulary.
    pub(super) special: Special,
    /// The ids that close a thought.
    pub(super) think: ThinkTokens,
    /// Where the prompt ends.
    pub(super) begins: Begins,
    /// The limit on the thought.
    pub(super) budget: Option<Budget>,
    /// A call that opens inside the thought closes the thought.
    pub(super) recover_calls: bool,
    /// The functions that may be called; `None` for none.
    pub(super) tools: Option<Toolset>,
    /// How a call that must come begins; empty where none must.
    pub(super) opening: Vec<TokenId>,
    /// The reply ends behind its first call.
    pub(super) single_call: bool,
    /// The answer has a form in which nothing comes first, so that the newlines behind the thought are not drawn.
    pub(super) formed: bool,
    /// Functions that must be given everything that they require.
    pub(super) strict: BTreeSet<String>,
    /// Texts that end the answer.
    pub(super) stop: Vec<String>,
    /// Most tokens.
    pub(super) room: usize,
}

/// Where a reply begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begins {
    /// In plain text: nothing in it is markup.
    Plain,
    /// Inside a thought.
    Thought,
    /// In the answer.
    Answer,
}

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// A token is to be drawn and given to [`Writing::drawn`].
    Draw,
    /// This token is to be given to [`Writing::fed`] and to be evaluated.
    Feed(Fed),
    /// The reply is over: [`Writing::finish`].
    Over,
}

/// Why it is over.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ending {
    Turn,
    Stop(String),
    Length,
    /// The one call that there may be is complete.
    OneCall,
    /// Something stands behind the calls, which is no part of the reply.
    Behind,
    /// A call that was reported turned out to be none.
    Broken,
}

/// What came of a reply.
#[derive(Debug)]
pub(super) struct Written {
    /// For the client; its usage is the caller's to fill in, but for the tokens of the reply.
    pub(super) outcome: Outcome,
    /// The calls as the model wrote them.
    pub(super) block: Option<(RawBlock, Vec<ParsedCall>)>,
    /// Whether the last token that was handed out is part of the reply.
    pub(super) keeps_last: bool,
    /// How the thought was closed.
    pub(super) closed: Option<CloseEvent>,
    /// Markup that was no call.
    pub(super) failure: Option<ErrorKind>,
    /// Deviations that were understood.
    pub(super) repairs: Vec<Repair>,
    /// The model ended the text, not its turn.
    pub(super) ended_text: bool,
}

#[derive(Debug)]
enum Reading {
    Chat(Box<Reader>),
    Raw(StreamDecoder),
}

/// A reply on its way.
#[derive(Debug)]
pub(super) struct Writing {
    api: Api,
    special: Special,
    think: ThinkController,
    pair: Vec<TokenId>,
    reading: Reading,
    tools: Toolset,
    opening: Vec<TokenId>,
    single_call: bool,
    formed: bool,
    stop: StopText,
    tags: Tags,
    call: Option<(String, String, CallJson)>,
    queue: VecDeque<Fed>,
    room: usize,
    fed: usize,
    seen: BTreeMap<TokenId, u32>,
    logprob: Option<Logprob>,
    over: Option<Ending>,
    keeps_last: bool,
    failure: Option<ErrorKind>,
    /// What ended the text, where that and not its turn was ended.
    text_end: Option<TokenId>,
    outcome: Outcome,
    updates: Vec<Update>,
}

impl Writing {
    /// A reply that has not begun.
    pub(super) fn new(setup: Setup) -> Self {
        let Setup { api, special, think, begins, tools, stop, room, .. } = setup;
        let thinking = begins == Begins::Thought;
        let options = ThinkOptions {
            thinking,
            budget: setup.budget,
            recover_calls: setup.recover_calls && tools.is_some(),
        };
        let reading = if begins == Begins::Plain {
            Reading::Raw(StreamDecoder::new())
        } else {
            let source = Source::Ids(special);
            let options = ReaderOptions { source, thinking, tools: tools.clone() };
            Reading::Chat(Box::new(Reader::new(options)))
        };
        let mut writing = Self {
            api,
            special,
            pair: think.newline_pair.clone(),
            think: ThinkController::new(think, options),
            reading,
            tools: tools.unwrap_or_default(),
            opening: setup.opening,
            single_call: setup.single_call,
            formed: setup.formed,
            stop: StopText::new(stop),
            tags: Tags::new(setup.strict),
            call: None,
            queue: VecDeque::new(),
            room,
            fed: 0,
            seen: BTreeMap::new(),
            logprob: None,
            over: None,
            keeps_last: true,
            failure: None,
            text_end: None,
            outcome: Outcome::default(),
            updates: Vec::new(),
        };
        if !thinking {
            writing.open_call(0);
        }
        writing
    }

    /// What happens next.
    pub(super) fn next(&mut self) -> Next {
        if self.over.is_none() && self.room == 0 {
            self.over = Some(Ending::Length);
        }
        match self.queue.front() {
            _ if self.over.is_some() => Next::Over,
            Some(&fed) => Next::Feed(fed),
            None => Next::Draw,
        }
    }

    /// Whether the next token is syntax: its best spelling is wanted, whatever the request says.
    pub(super) fn is_syntax(&self) -> bool {
        self.phase() == Phase::Structural
    }

    /// The tokens that can continue the tags of the open call; `None` where anything may follow.
    pub(super) fn legal(&self, tokenizer: &Tokenizer) -> Option<TokenMask> {
        if self.is_syntax() { self.tags.legal(tokenizer, &self.tools) } else { None }
    }

    /// The value of a parameter that is being written: its function, its name, and which one of the function's it is.
    pub(super) fn open_value(&self) -> Option<(&str, &str, usize)> {
        self.tags.open_value()
    }

    /// Whether a call is open, or may be.
    pub(super) fn is_in_call(&self) -> bool {
        matches!(self.phase(), Phase::Structural | Phase::Payload)
    }

    /// Whether the next token is part of the answer's text.
    pub(super) fn is_in_answer(&self) -> bool {
        self.phase() == Phase::Outside
    }

    /// How the thought was closed, once it is.
    pub(super) fn closed(&self) -> Option<CloseEvent> {
        self.think.closed()
    }

    /// How often each token of prose and values was fed.
    pub(super) fn seen(&self) -> &BTreeMap<TokenId, u32> {
        &self.seen
    }

    /// Tokens handed out.
    pub(super) fn tokens(&self) -> usize {
        self.fed
    }

    /// Takes a token that was drawn. `close_rank` tells the place of the token that closes a thought among the logits,
    /// 1 for the largest.
    pub(super) fn drawn(
        &mut self,
        (id, bytes): (TokenId, &[u8]),
        logprob: Option<Logprob>,
        close_rank: impl FnOnce() -> usize,
    ) {
        if id == self.special.endoftext && matches!(self.reading, Reading::Chat(_)) {
            self.text_end = Some(id);
        }
        let thought = self.think.is_thinking();
        match self.think.step(Sampled { id, bytes, room: self.room }, close_rank) {
            Step::Feed(fed) => self.queue.extend(fed),
            Step::End(_) => self.over = Some(Ending::Turn),
        }
        self.logprob = logprob;
        if thought && !self.think.is_thinking() {
            let kind = self.think.closed().map(|event| event.kind);
            if kind == Some(CloseKind::Natural) && (self.formed || !self.opening.is_empty()) {
                let hidden = |&id| Fed { id, show: Show::Hidden };
                self.queue.extend(self.pair.iter().map(hidden));
            }
            self.open_call(usize::from(kind == Some(CloseKind::Call)));
        }
    }

    /// Queues the opening of a call that must come, but for tokens that are there already. Without room for it there
    /// is none.
    fn open_call(&mut self, there: usize) {
        let opening = std::mem::take(&mut self.opening);
        if self.queue.len() + opening.len() <= self.room {
            let answer = |id| Fed { id, show: Show::Answer };
            self.queue.extend(opening.into_iter().skip(there).map(answer));
        }
    }

    /// Hands out the token that [`Writing::next`] named; returns what there is to report.
    pub(super) fn fed(&mut self, bytes: &[u8]) -> Vec<Update> {
        let fed = self.queue.pop_front().expect("only what is in the queue is fed");
        let syntax = self.is_syntax();
        let in_answer = self.is_in_answer();
        self.room = self.room.saturating_sub(1);
        self.fed += 1;
        if !syntax {
            *self.seen.entry(fed.id).or_default() += 1;
        }
        let logprob = self.logprob.take().filter(|logprob| logprob.token.id == fed.id);
        if let Some(logprob) = logprob.filter(|_| in_answer && !self.is_marker(fed.id)) {
            self.outcome.logprobs.push(logprob.clone());
            self.updates.push(Update::Logprob(logprob));
        }
        match &mut self.reading {
            Reading::Raw(decoder) => {
                let text = decoder.push(bytes);
                self.text(&text);
            }
            Reading::Chat(reader) => {
                let events = reader.token(fed.id, bytes);
                if fed.id == self.special.tool_call {
                    self.tags.begin();
                } else {
                    self.tags.write(bytes);
                }
                let done = reader.is_done();
                self.events(events, None);
                if done {
                    self.end(Ending::Behind);
                }
            }
        }
        if self.single_call && !self.outcome.calls.is_empty() && !self.is_in_call() {
            self.end(Ending::OneCall);
        }
        std::mem::take(&mut self.updates)
    }

    /// Ends the reply: the last updates, and all of it.
    pub(super) fn finish(mut self) -> (Vec<Update>, Written) {
        let over = self.over.get_or_insert(Ending::Length).clone();
        let end = if over == Ending::Turn { End::Turn } else { End::Cut };
        let reading = std::mem::replace(&mut self.reading, Reading::Raw(StreamDecoder::new()));
        let goes_on = matches!(over, Ending::Turn | Ending::Length | Ending::OneCall);
        if goes_on {
            // What is held back now counts.
            self.over = None;
        }
        let mut parsed = None;
        match reading {
            Reading::Raw(decoder) => {
                let text = decoder.finish_lossy();
                self.text(&text);
            }
            Reading::Chat(reader) => {
                let (events, reply) = reader.finish(end);
                self.events(events, Some(end));
                parsed = Some(reply);
            }
        }
        if goes_on {
            let last = self.stop.flush();
            self.passed(last);
        }
        let over = self.over.take().unwrap_or(over);
        let reply = parsed.unwrap_or_default();
        self.outcome.thought_open = reply.thought_open;
        self.outcome.open_call = self.call.take().map(|(id, name, json)| Call {
            id,
            name,
            arguments: json.cut(),
            json: json.json().to_owned(),
        });
        self.outcome.finish = self.finish_reason(over);
        self.outcome.usage.output_tokens = self.fed;
        self.outcome.usage.reasoning_tokens = self.think.thought_tokens();
        let whole = reply.calls.len() == self.outcome.calls.len() && !reply.calls.is_empty();
        let written = Written {
            block: reply.block.filter(|_| whole).map(|block| (block, reply.calls)),
            keeps_last: self.keeps_last,
            closed: self.think.closed(),
            failure: self.failure,
            repairs: reply.repairs,
            ended_text: self.text_end.is_some(),
            outcome: self.outcome,
        };
        (self.updates, written)
    }

    /// An open call is never executed, so a reply that has one was cut off, however it ended (server.md 4.6, 11.5).
    fn finish_reason(&self, over: Ending) -> Finish {
        match over {
            _ if self.outcome.open_call.is_some() => Finish::Length,
            _ if !self.outcome.calls.is_empty() => Finish::Calls,
            Ending::Turn | Ending::Behind | Ending::OneCall => Finish::Stop,
            Ending::Stop(text) => Finish::StopText(text),
            Ending::Length | Ending::Broken => Finish::Length,
        }
    }

    /// Where in the protocol the next token stands.
    pub(super) fn phase(&self) -> Phase {
        match &self.reading {
            Reading::Raw(_) => Phase::Outside,
            Reading::Chat(reader) => reader.state(),
        }
    }

    fn is_marker(&self, id: TokenId) -> bool {
        let Special { think, think_end, tool_call, tool_call_end, .. } = self.special;
        [think, think_end, tool_call, tool_call_end].contains(&id)
    }

    fn end(&mut self, ending: Ending) {
        if self.over.is_none() {
            self.keeps_last = !matches!(ending, Ending::Behind | Ending::Broken);
            self.over = Some(ending);
        }
    }

    /// `end` tells how the reply ended, once it has.
    fn events(&mut self, events: Vec<Event>, end: Option<End>) {
        for event in events {
            if self.over.is_some() {
                return;
            }
            match event {
                Event::Reasoning(text) => {
                    self.outcome.reasoning.push_str(&text);
                    self.updates.push(Update::Reasoning(text));
                }
                Event::Text(text) => self.text(&text),
                Event::CallStart(name) => self.begin_call(name),
                Event::ParamStart(name) => {
                    self.tags.parameter(&name);
                    self.arguments(|call, tools| call.begin(&name, tools));
                }
                Event::ParamBytes(text) => self.arguments(|call, _| call.text(&text)),
                Event::ParamEnd { value, .. } => {
                    self.tags.value();
                    self.arguments(|call, _| call.end(&value));
                }
                Event::CallEnd => self.end_call(),
                Event::Error { kind, raw } => self.no_call(kind, &raw, end),
            }
        }
    }

    fn begin_call(&mut self, name: String) {
        if self.single_call && !self.outcome.calls.is_empty() {
            self.end(Ending::Behind);
            return;
        }
        let held = self.stop.flush();
        self.passed(held);
        if self.over.is_some() {
            return;
        }
        self.tags.function(&name);
        let id = new_call_id(self.api);
        self.call = Some((id.clone(), name.clone(), CallJson::new(&name)));
        self.updates.push(Update::CallBegin { id, name });
    }

    fn arguments(&mut self, piece: impl FnOnce(&mut CallJson, &Toolset) -> String) {
        if let Some((_, _, call)) = &mut self.call {
            let piece = piece(call, &self.tools);
            if !piece.is_empty() {
                self.updates.push(Update::CallArguments(piece));
            }
        }
    }

    fn end_call(&mut self) {
        let Some((id, name, mut call)) = self.call.take() else { return };
        self.tags.close();
        let (last, arguments) = call.finish();
        self.updates.push(Update::CallArguments(last));
        self.updates.push(Update::CallEnd);
        let json = call.json().to_owned();
        self.outcome.calls.push(Call { id, name, arguments, json });
    }

    /// Markup that is no call is part of the answer, unless it was reported as one already.
    fn no_call(&mut self, kind: ErrorKind, raw: &str, end: Option<End>) {
        self.failure = Some(kind);
        if self.call.is_some() {
            self.end(Ending::Broken);
        } else if self.outcome.calls.is_empty()
            && (kind != ErrorKind::Unterminated || end == Some(End::Turn))
        {
            self.text(raw);
        }
    }

    fn text(&mut self, text: &str) {
        let passed = self.stop.push(text);
        self.passed(passed);
    }

    fn passed(&mut self, Passed { text, stop }: Passed) {
        if !text.is_empty() {
            self.outcome.text.push_str(&text);
            self.updates.push(Update::Text(text));
        }
        if let Some(stop) = stop {
            self.end(Ending::Stop(stop));
        }
    }
}

#[cfg(test)]
mod tests;
