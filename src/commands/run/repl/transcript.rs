//! A conversation as the tokens that the model reads: pure book-keeping, no engine, no terminal.
//!
//! What was evaluated stays as it was: a turn is rendered once, when it is asked, and the reply keeps exactly the tokens
//! that were drawn, the thought among them. So the tokens of the next prompt begin with what the session holds, and only
//! what is new is evaluated. The text is that of the official template with the thoughts kept.
//!
//! ```text
//! head   <|im_start|>system\n … <|im_end|>\n                          rendered again when the system text changes
//! turn   <|im_start|>user\n … <|im_end|>\n<|im_start|>assistant\n …   its prompt
//!        … the reply …<|im_end|>\n
//! ```

use crate::chat::{
    self, Conversation, Message, RenderOptions, THINK_MAX_TEXT, ThinkMode, ThinkTokens,
};
use crate::engine::{Border, BorderKind};
use crate::tokenizer::{TokenId, Tokenizer};

/// A message of the user and the reply to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// The message, as it was typed.
    pub text: String,
    /// The message and the opening of the reply.
    prompt: Vec<TokenId>,
    /// The reply, its thought closed, without the end of the turn.
    reply: Vec<TokenId>,
}

/// A turn that is being answered.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Open {
    turn: Turn,
    /// The answered turn in whose place it is, which comes back if there will be no answer.
    former: Option<Turn>,
}

/// A conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    system: String,
    is_max: bool,
    head: Vec<TokenId>,
    turns: Vec<Turn>,
    open: Option<Open>,
    /// What ends a turn.
    end: Vec<TokenId>,
}

/// What could be made of the tokens of a saved session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// The conversation.
    pub transcript: Transcript,
    /// Tokens at the end that are no part of it: those of a message that is not finished.
    pub left_out: usize,
}

impl Transcript {
    /// A conversation that has not begun. An empty `system` leaves the system block out.
    ///
    /// # Errors
    /// When the template refuses the system text.
    pub fn new(tokenizer: &Tokenizer, system: &str, mode: ThinkMode) -> Result<Self, chat::Error> {
        let is_max = mode == ThinkMode::Max;
        Ok(Self {
            system: system.to_owned(),
            is_max,
            head: head(tokenizer, system, is_max)?,
            turns: Vec::new(),
            open: None,
            end: tokenizer.encode_control(b"<|im_end|>\n"),
        })
    }

    /// The system text.
    pub fn system(&self) -> &str {
        &self.system
    }

    /// Whether the head asks for exhaustive reasoning.
    pub fn is_max(&self) -> bool {
        self.is_max
    }

    /// The turns that were answered, oldest first.
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// Replaces what stands before the first turn. The turns stay, and are evaluated anew behind it.
    ///
    /// # Errors
    /// When the template refuses the system text; nothing is changed.
    pub fn set_head(
        &mut self,
        tokenizer: &Tokenizer,
        system: &str,
        mode: ThinkMode,
    ) -> Result<(), chat::Error> {
        let is_max = mode == ThinkMode::Max;
        if (system, is_max) != (self.system.as_str(), self.is_max) {
            self.head = head(tokenizer, system, is_max)?;
            (self.system, self.is_max) = (system.to_owned(), is_max);
        }
        Ok(())
    }

    /// Opens a turn.
    ///
    /// # Errors
    /// When the template refuses the message; nothing is changed.
    ///
    /// # Panics
    /// When a turn is open.
    pub fn ask(
        &mut self,
        tokenizer: &Tokenizer,
        text: &str,
        mode: ThinkMode,
    ) -> Result<(), chat::Error> {
        assert!(self.open.is_none(), "a turn is being answered");
        let prompt = question(tokenizer, text, mode)?;
        let turn = Turn { text: text.to_owned(), prompt, reply: Vec::new() };
        self.open = Some(Open { turn, former: None });
        Ok(())
    }

    /// Opens the last turn again, for another reply, in the thinking mode of now. False when there is none.
    ///
    /// # Errors
    /// When the template refuses the message; nothing is changed.
    ///
    /// # Panics
    /// When a turn is open.
    pub fn ask_again(
        &mut self,
        tokenizer: &Tokenizer,
        mode: ThinkMode,
    ) -> Result<bool, chat::Error> {
        let Some(text) = self.turns.last().map(|turn| turn.text.clone()) else { return Ok(false) };
        self.ask(tokenizer, &text, mode)?;
        let former = self.turns.pop();
        if let Some(open) = &mut self.open {
            open.former = former;
        }
        Ok(true)
    }

    /// Closes the open turn with a reply. One of no tokens is none: see [`Transcript::withdraw`].
    pub fn answer(&mut self, reply: Vec<TokenId>) {
        if reply.is_empty() {
            return self.withdraw();
        }
        if let Some(open) = self.open.take() {
            self.turns.push(Turn { reply, ..open.turn });
        }
    }

    /// Takes the open turn back: the message is gone, and a turn in whose place it was has its former reply again.
    pub fn withdraw(&mut self) {
        self.turns.extend(self.open.take().and_then(|open| open.former));
    }

    /// Removes the last turn that was answered.
    pub fn undo(&mut self) -> Option<Turn> {
        self.turns.pop()
    }

    /// Removes all turns.
    pub fn clear(&mut self) {
        self.turns.clear();
        self.open = None;
    }

    /// Everything that the model is to have read.
    pub fn tokens(&self) -> Vec<TokenId> {
        let mut tokens = self.head.clone();
        for turn in &self.turns {
            for part in [&turn.prompt, &turn.reply, &self.end] {
                tokens.extend_from_slice(part);
            }
        }
        if let Some(open) = &self.open {
            tokens.extend_from_slice(&open.turn.prompt);
        }
        tokens
    }

    /// Where the prompt of the open turn is worth stopping at: before its message, so that undoing it costs nothing, and
    /// before the opening of the reply, so that another reply costs no more than that opening.
    pub fn borders(&self, tokenizer: &Tokenizer) -> Vec<Border> {
        let Some(Open { turn, .. }) = &self.open else { return Vec::new() };
        let message = self.tokens().len() - turn.prompt.len();
        let start = tokenizer.special().im_start;
        let opening = turn.prompt.iter().rposition(|&id| id == start);
        let kind = if self.turns.is_empty() { BorderKind::Shared } else { BorderKind::Turn };
        let opening = opening.map(|at| Border { pos: message + at, kind: BorderKind::Turn });
        let borders = [Some(Border { pos: message, kind }), opening];
        borders.into_iter().flatten().filter(|border| border.pos > 0).collect()
    }
}

/// What stands before the first message.
fn head(tokenizer: &Tokenizer, system: &str, is_max: bool) -> Result<Vec<TokenId>, chat::Error> {
    // The template renders no head without a message, so one is rendered and taken off again. A marker stands between
    // them, so no token reaches over the border.
    let message = Message::user("x");
    let thinking = if is_max { ThinkMode::Max } else { ThinkMode::On };
    let system = (!system.is_empty()).then(|| Message::system(system));
    let messages = system.into_iter().chain([message.clone()]).collect();
    let mut whole = render(tokenizer, messages, thinking)?;
    let message = render(tokenizer, vec![message], ThinkMode::On)?;
    assert!(whole.ends_with(&message), "a prompt ends with its last message");
    whole.truncate(whole.len() - message.len());
    Ok(whole)
}

/// A message and the opening of the reply to it.
fn question(
    tokenizer: &Tokenizer,
    text: &str,
    mode: ThinkMode,
) -> Result<Vec<TokenId>, chat::Error> {
    let thinking = if mode.thinks() { ThinkMode::On } else { ThinkMode::Off };
    render(tokenizer, vec![Message::user(text)], thinking)
}

fn render(
    tokenizer: &Tokenizer,
    messages: Vec<Message>,
    thinking: ThinkMode,
) -> Result<Vec<TokenId>, chat::Error> {
    let options = RenderOptions { thinking, ..RenderOptions::default() };
    let prompt = chat::render(&Conversation::new(messages).normalised(), &options)?;
    Ok(tokenizer.encode_prompt(&prompt.token_segments()))
}

/// What closes a thought behind these tokens, as the template writes it.
pub(super) fn closing(tokenizer: &Tokenizer, reply: &[TokenId]) -> Vec<TokenId> {
    let tokens = ThinkTokens::new(tokenizer);
    let ends_in_newline = reply.last().is_some_and(|&id| tokenizer.bytes(id).ends_with(b"\n"));
    let newline = if ends_in_newline { Vec::new() } else { tokens.newline };
    [newline, vec![tokens.close], tokens.newline_pair].concat()
}

impl Transcript {
    /// Reads a conversation back from the tokens of a session, whoever wrote it. `None` when they are none: when
    /// something else than a message stands first, or nobody answers.
    ///
    /// # Errors
    /// When the template refuses the system text.
    pub fn parse(tokenizer: &Tokenizer, tokens: &[TokenId]) -> Result<Option<Parsed>, chat::Error> {
        let mut transcript = Self::new(tokenizer, "", ThinkMode::On)?;
        let mut rest = tokens;
        if let Some(message) = Said::first(tokenizer, rest).filter(|said| said.role == "system") {
            let text = message.content.trim();
            let own = text.strip_prefix(THINK_MAX_TEXT);
            transcript.is_max = own.is_some();
            own.unwrap_or(text).trim_start().clone_into(&mut transcript.system);
            transcript.head = rest[..message.len].to_vec();
            rest = &rest[message.len..];
        }
        while let Some((turn, len)) = read_turn(tokenizer, rest, &transcript.end) {
            transcript.turns.push(turn);
            rest = &rest[len..];
        }
        let found = !transcript.turns.is_empty();
        Ok(found.then_some(Parsed { transcript, left_out: rest.len() }))
    }
}

/// A finished message.
struct Said {
    role: String,
    content: String,
    /// Tokens of it, its end included.
    len: usize,
}

impl Said {
    /// The message that tokens begin with.
    fn first(tokenizer: &Tokenizer, tokens: &[TokenId]) -> Option<Self> {
        let special = tokenizer.special();
        let (&first, body) = tokens.split_first()?;
        if first != special.im_start {
            return None;
        }
        let end = body.iter().position(|&id| id == special.im_end)?;
        let next = body[end + 1..].iter().position(|&id| id == special.im_start);
        let gap = &body[end + 1..next.map_or(body.len(), |at| end + 1 + at)];
        let text = String::from_utf8_lossy(&tokenizer.decode(&body[..end])).into_owned();
        let (role, content) = text.split_once('\n')?;
        let is_sound = !body[..end].contains(&special.im_start) && tokenizer.decode(gap) == b"\n";
        is_sound.then(|| Self {
            role: role.to_owned(),
            content: content.to_owned(),
            len: 1 + end + 1 + gap.len(),
        })
    }
}

/// The turn that tokens begin with, and how many are its: messages of the user and of tools up to a reply, and whatever
/// follows before the user speaks again.
fn read_turn(tokenizer: &Tokenizer, tokens: &[TokenId], end: &[TokenId]) -> Option<(Turn, usize)> {
    let (mut at, mut texts, mut reply) = (0, Vec::new(), None);
    let mut answered = 0;
    while let Some(said) = Said::first(tokenizer, &tokens[at..]) {
        let is_user = said.role == "user";
        if is_user && reply.is_some() {
            break;
        }
        let start = at;
        at += said.len;
        if is_user {
            texts.push(said.content.trim().to_owned());
        } else if said.role == "assistant" {
            reply.get_or_insert(start);
            answered = at;
        } else {
            return None;
        }
    }
    let opening = reply.filter(|_| !texts.is_empty())?;
    let (prompt, reply) = (&tokens[..=opening], &tokens[opening + 1..answered]);
    // The end of a turn is written by the transcript itself.
    let reply = reply.strip_suffix(end)?;
    let turn = Turn { text: texts.join("\n\n"), prompt: prompt.to_vec(), reply: reply.to_vec() };
    Some((turn, answered))
}

#[cfg(test)]
#[path = "transcript/tests.rs"]
mod tests;
