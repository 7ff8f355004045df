//! A reply that is held to a format: which tokens its answer may go on with.
//!
//! The thought is free, and so is a call: a reply that may call a tool either does so at once, or answers in the form
//! that was asked for. Where the answer may end, the end of the turn is among the tokens; once it is complete, nothing
//! else is.

use std::sync::{Arc, OnceLock};

use super::reply::Writing;
use crate::chat::{Fed, Show};
use crate::server::grammar::{Constraint, Grammar, ValueForms};
use crate::server::{Api, Choice, Failure, FailureKind, Format, Input, Request};
use crate::tokenizer::{TokenId, TokenMask, Tokenizer};

/// The field of a request that says what its answer must be.
pub(super) fn field_of(api: Api) -> &'static str {
    match api {
        Api::Responses => "text.format",
        Api::Messages => "output_config.format",
        Api::Chat | Api::Completions => "response_format",
    }
}

/// Grammars for the vocabulary, from the first request that needs one.
#[derive(Debug, Default)]
pub(super) struct Forms(OnceLock<Result<Arc<Grammar>, Failure>>);

impl Forms {
    /// What holds the reply to a request to its format, if anything does.
    ///
    /// # Errors
    /// What of the format cannot be enforced.
    pub(super) fn form(
        &self,
        tokenizer: &Tokenizer,
        request: &Request,
    ) -> Result<Option<Form>, Failure> {
        if request.format == Format::Text {
            return Ok(None);
        }
        let grammar = self.grammar(tokenizer)?;
        let field = field_of(request.api);
        let about = |failure: Failure| {
            if failure.kind == FailureKind::Invalid { failure.about(field) } else { failure }
        };
        let Some(mut constraint) = grammar.constraint(&request.format).map_err(about)? else {
            return Ok(None);
        };
        if let Some(begun) = begun(request)
            && !constraint.accept_all(&tokenizer.encode_text(begun.as_bytes()))
        {
            let text = "the answer that is to be continued has another format";
            return Err(Failure::invalid(field, text));
        }
        let may_call = matches!(&request.input, Input::Chat { conversation, continues: false }
            if !conversation.tools.is_empty());
        let call = tokenizer.special().tool_call;
        let mut form = Form { constraint, call, may_call, called: false, mask: TokenMask::none(0) };
        form.mask = form.allowed().map_err(|failure| Failure::invalid(field, failure.message))?;
        Ok(Some(form))
    }

    /// What holds the calls of a reply to the schemas of strict functions, if there are any.
    ///
    /// # Errors
    /// What of a schema cannot be enforced.
    pub(super) fn values(
        &self,
        tokenizer: &Tokenizer,
        request: &Request,
    ) -> Result<Option<Values>, Failure> {
        let strict = &request.calls.strict;
        let Input::Chat { conversation, .. } = &request.input else { return Ok(None) };
        if strict.is_empty()
            || conversation.tools.is_empty()
            || request.calls.choice == Choice::None
        {
            return Ok(None);
        }
        let forms = self.grammar(tokenizer)?.values(&conversation.tools, strict)?;
        Ok(Some(Values { forms, open: None, mask: None }))
    }

    fn grammar(&self, tokenizer: &Tokenizer) -> Result<Arc<Grammar>, Failure> {
        self.0.get_or_init(|| Grammar::new(tokenizer).map(Arc::new)).clone()
    }
}

/// The text of an answer that the client began.
fn begun(request: &Request) -> Option<&str> {
    match &request.input {
        Input::Chat { conversation, continues: true } => {
            conversation.messages.last().map(|message| message.content.trim())
        }
        Input::Chat { .. } | Input::Text(_) | Input::Tokens(_) => None,
    }
}

/// The answer on its way.
#[derive(Debug)]
pub(super) struct Form {
    constraint: Constraint,
    call: TokenId,
    /// Nothing of the answer is there, so that a call may begin.
    may_call: bool,
    /// A call was begun: what follows is no answer.
    called: bool,
    /// What may be drawn next, as long as that is a token of the answer.
    mask: TokenMask,
}

impl Form {
    /// What the next draw may give; `None` where anything goes.
    pub(super) fn mask(&self, writing: &Writing) -> Option<&TokenMask> {
        (writing.is_in_answer() && !self.called).then_some(&self.mask)
    }

    /// What the first draw may give in a reply without a thought.
    pub(super) fn first(&self) -> &TokenMask {
        &self.mask
    }

    /// A token was handed out that stands in the answer.
    ///
    /// # Errors
    /// When the form cannot be held to any further.
    pub(super) fn fed(&mut self, fed: Fed) -> Result<(), Failure> {
        if fed.show != Show::Answer || self.called {
            return Ok(());
        }
        if fed.id == self.call && self.may_call {
            self.called = true;
            return Ok(());
        }
        self.may_call = false;
        self.constraint.accept(fed.id)?;
        self.mask = self.allowed()?;
        Ok(())
    }

    fn allowed(&mut self) -> Result<TokenMask, Failure> {
        let mut mask = self.constraint.mask()?;
        if self.may_call {
            mask.insert(self.call);
        }
        Ok(mask)
    }
}

/// The values of calls on their way.
#[derive(Debug)]
pub(super) struct Values {
    forms: ValueForms,
    /// The value that is being written: which of its function's it is, and what holds it.
    open: Option<(usize, Option<Constraint>)>,
    /// What may be drawn next, as long as that is part of a value that is held to something.
    mask: Option<TokenMask>,
}

impl Values {
    /// What the next draw may give; `None` where this says nothing.
    pub(super) fn mask(&self) -> Option<&TokenMask> {
        self.mask.as_ref()
    }

    /// A token was handed out; `value` is the value that is open now, with its function, its name and its number.
    ///
    /// # Errors
    /// When a value cannot be held to its schema any further.
    pub(super) fn fed(
        &mut self,
        tokenizer: &Tokenizer,
        id: TokenId,
        value: Option<(&str, &str, usize)>,
    ) -> Result<(), Failure> {
        let Some((function, param, number)) = value else {
            (self.open, self.mask) = (None, None);
            return Ok(());
        };
        match &mut self.open {
            Some((open, constraint)) if *open == number => {
                if let Some(constraint) = constraint {
                    constraint.accept(id)?;
                }
            }
            _ => self.open = Some((number, self.begin(tokenizer, id, (function, param)))),
        }
        // Behind the closing tag, what follows is no longer the value's matter.
        let constraint = self.open.as_mut().map(|(_, constraint)| constraint);
        let Some(constraint) = constraint else { return Ok(()) };
        if constraint.as_ref().is_some_and(Constraint::is_over) {
            *constraint = None;
        }
        self.mask = constraint.as_mut().map(Constraint::mask).transpose()?;
        Ok(())
    }

    /// What holds a value that was opened by a token which may reach into it.
    fn begin(
        &self,
        tokenizer: &Tokenizer,
        id: TokenId,
        (function, param): (&str, &str),
    ) -> Option<Constraint> {
        let mut constraint = self.forms.held.get(&(function.to_owned(), param.to_owned()))?.clone();
        let bytes = tokenizer.bytes(id);
        let tag = bytes.iter().rposition(|byte| *byte == b'>').map_or(bytes.len(), |at| at + 1);
        constraint.accept_all(&tokenizer.encode_text(&bytes[tag..])).then_some(constraint)
    }
}
