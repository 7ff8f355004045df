//! Replies, a token of each at a time.

use std::time::{Duration, Instant};

use super::Error;
use super::floor::Floor;
use super::format::{Form, Values};
use super::prefill::{Filling, rate};
use super::reply::{Begins, Next, Setup, Writing};
use super::slot::{Serving, Work};
use crate::chat::{Budget, CloseEvent, ThinkTokens, Toolset};
use crate::engine::sample::{self, DrawRules, Penalties, Sampler, SamplerParams};
use crate::engine::{self, SessionId, StateIo};
use crate::server::{Choice, Input, Logprob, Ranked, Request, Update, What};
use crate::tokenizer::{TokenId, TokenMask, Tokenizer};

/// Tokens between two lines about a reply.
const LOG_EVERY: usize = 50;

/// Tokens between two lines of the trace about a reply that may call functions: values that wait for their end show
/// nothing else.
const TRACE_EVERY: usize = 128;

/// A reply that is being written.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) serving: Serving,
    pub(super) writing: Writing,
    sampler: Sampler,
    /// Handed out, not yet evaluated.
    pub(super) unfed: Option<TokenId>,
    /// Whether the next token is to be drawn as syntax, as the engine was told last.
    told_syntax: bool,
    /// No call may begin.
    mask: Option<TokenMask>,
    /// What holds the answer to its format.
    form: Option<Form>,
    /// What holds the values of calls to their schemas.
    values: Option<Values>,
    /// Whether the engine was told of either last.
    told_form: bool,
    /// How long it took to work out what the next token may be.
    ruling: Duration,
    pub(super) started: Instant,
    last_token: Option<Instant>,
    /// When it was told about, and how many tokens it had.
    told: (Instant, usize),
}

impl Active {
    /// How the next token is drawn: syntax as its best spelling, everything else as the request says.
    fn params(&self) -> SamplerParams {
        let params = self.serving.prepared.params;
        if self.writing.is_syntax() { SamplerParams { temperature: 0.0, ..params } } else { params }
    }

    /// What the next draw sees besides the logits. Penalties and addends never touch syntax, of which only what is
    /// legal can be drawn.
    fn rules(&self, tokenizer: &Tokenizer) -> DrawRules {
        let rules = DrawRules::default();
        if self.writing.is_syntax() {
            let value = self.values.as_ref().and_then(Values::mask).cloned();
            let legal = value.or_else(|| self.writing.legal(tokenizer));
            return legal.map_or(rules.clone(), |mask| rules.allow(mask));
        }
        let sampling = &self.serving.request.sampling;
        let mut rules = rules.add_to(sampling.bias.iter().copied());
        if let Some(mask) = both(self.mask.as_ref(), self.form_mask()) {
            rules = rules.allow(mask);
        }
        if sampling.penalties == Penalties::default() {
            rules
        } else {
            rules.penalise(sampling.penalties, self.writing.seen())
        }
    }

    /// What the form of the answer, or of the value of a call, allows, where the next token is part of it.
    fn form_mask(&self) -> Option<&TokenMask> {
        let value = self.values.as_ref().and_then(Values::mask);
        value.or_else(|| self.form.as_ref()?.mask(&self.writing))
    }

    /// Whether rules change from token to token.
    fn has_moving_rules(&self) -> bool {
        self.writing.is_syntax() || self.serving.request.sampling.penalties != Penalties::default()
    }

    /// Tells the engine how the next token is drawn, where that has changed.
    fn tell(&mut self, engine: &mut dyn StateIo, id: SessionId) -> Result<(), engine::Error> {
        let syntax = self.writing.is_syntax();
        let changed = syntax != self.told_syntax;
        if changed {
            self.told_syntax = syntax;
            self.sampler.set_params(self.params());
            engine.expect_draws(id, self.params());
        }
        let is_formed = self.form_mask().is_some();
        let was_formed = std::mem::replace(&mut self.told_form, is_formed);
        if changed || is_formed || was_formed || self.has_moving_rules() {
            let began = Instant::now();
            let rules = self.rules(engine.tokenizer());
            self.ruling += began.elapsed();
            engine.set_rules(id, rules)?;
        }
        Ok(())
    }

    /// Draws a token and gives it to the reply.
    fn draw(&mut self, engine: &mut dyn StateIo, id: SessionId) -> Result<(), engine::Error> {
        let token = engine.sample(id, &mut self.sampler)?;
        let bytes = engine.tokenizer().bytes(token).to_vec();
        let wanted = self.serving.request.logprobs.filter(|_| self.writing.is_in_answer());
        let logprob = match wanted {
            Some(top) => logprob(engine, id, token, usize::from(top))?,
            None => None,
        };
        let close = engine.tokenizer().special().think_end;
        let mut failed = None;
        let rank = || match engine.logits(id) {
            Ok(row) => {
                row.and_then(|row| sample::rank_of(row, close)).map_or(usize::MAX, |n| n + 1)
            }
            Err(error) => {
                failed = Some(error);
                usize::MAX
            }
        };
        self.writing.drawn((token, &bytes), logprob, rank);
        failed.map_or(Ok(()), Err)
    }
}

/// How likely a token was, and which ones were likelier, at temperature 1.
fn logprob(
    engine: &mut dyn StateIo,
    id: SessionId,
    token: TokenId,
    top: usize,
) -> Result<Option<Logprob>, engine::Error> {
    let Some(row) = engine.logits(id)? else { return Ok(None) };
    let own = sample::logprob(row, token);
    let best = if top == 0 { Vec::new() } else { sample::top_n(row, top) };
    let tokenizer = engine.tokenizer();
    let ranked = |id: TokenId, logprob| Ranked { id, bytes: tokenizer.bytes(id).to_vec(), logprob };
    let top = best.iter().map(|scored| ranked(scored.token, scored.logprob)).collect();
    Ok(Some(Logprob { token: ranked(token, own), top }))
}

/// What a reply starts with; `room` is in tokens.
fn setup(tokenizer: &Tokenizer, serving: &Serving, recover_calls: bool, room: usize) -> Setup {
    let Serving { request, prepared, .. } = serving;
    Setup {
        api: request.api,
        special: *tokenizer.special(),
        think: ThinkTokens::new(tokenizer),
        begins: match &request.input {
            Input::Chat { .. } if prepared.thinking => Begins::Thought,
            Input::Chat { .. } => Begins::Answer,
            Input::Text(_) | Input::Tokens(_) => Begins::Plain,
        },
        budget: prepared.budget.within(room).filter(|_| prepared.thinking),
        recover_calls,
        tools: prepared.tools.clone(),
        opening: prepared.opening.clone(),
        single_call: !request.calls.parallel,
        strict: request.calls.strict.clone(),
        formed: prepared.form.is_some(),
        stop: request.stop.clone(),
        room,
    }
}

/// Everything that may be drawn but the opening of a call, where calls were ruled out.
fn mask_of(tokenizer: &Tokenizer, request: &Request) -> Option<TokenMask> {
    let has_tools = match &request.input {
        Input::Chat { conversation, .. } => {
            !Toolset::new(&conversation.tools).functions().is_empty()
        }
        Input::Text(_) | Input::Tokens(_) => false,
    };
    (has_tools && request.calls.choice == Choice::None).then(|| {
        let mut mask = tokenizer.drawable().clone();
        mask.remove(tokenizer.special().tool_call);
        mask
    })
}

/// What is in both, where there are both.
fn both(one: Option<&TokenMask>, other: Option<&TokenMask>) -> Option<TokenMask> {
    match (one.cloned(), other) {
        (Some(mut mask), Some(other)) => {
            mask.intersect(other);
            Some(mask)
        }
        (one, other) => one.or_else(|| other.cloned()),
    }
}

/// What the first draw of a reply sees besides the logits.
pub(super) fn first_rules(tokenizer: &Tokenizer, serving: &Serving) -> DrawRules {
    let Serving { request, prepared, .. } = serving;
    let rules = DrawRules::default().add_to(request.sampling.bias.iter().copied());
    let form = prepared.form.as_ref().filter(|_| !prepared.thinking).map(Form::first);
    match both(mask_of(tokenizer, request).as_ref(), form) {
        Some(mask) => rules.allow(mask),
        None => rules,
    }
}

impl Floor {
    /// The prompt is evaluated: the reply begins.
    pub(super) fn begin_reply(&mut self, index: usize) -> Result<(), Error> {
        let work = std::mem::take(&mut self.slots[index].work);
        let Work::Prefill(filling) = work else { return Ok(()) };
        let Filling { mut serving, tokens, reused, started, .. } = *filling;
        let config = &self.common.config;
        let took = started.elapsed();
        let limit = serving.request.limit.unwrap_or(config.default_limit);
        // One position stays free, so that the turn can be closed.
        let free = self.engine.info().ctx_tokens.saturating_sub(tokens.len() + 1);
        let setup = setup(&self.tokenizer, &serving, config.recover_calls, limit.min(free));
        let (evaluated, budget) = (tokens.len() - reused, setup.budget);
        let thinks = setup.begins == Begins::Thought;
        self.common.note(serving.number, || {
            let seconds = took.as_secs_f64();
            let free_thought = if thinks { "any thought" } else { "no thought" };
            let thought = budget.map_or(free_thought.to_owned(), |budget| {
                let Budget { tokens, soft, hard, top_rank } = budget;
                format!("a thought of {tokens}, closed at {soft} left if that is among the {top_rank} likeliest, at {hard} in any case")
            });
            format!("prefill done, {evaluated} tokens in {seconds:.3} s; at most {limit} tokens, room for {free}, {thought}")
        });
        let now = Instant::now();
        let active = Active {
            sampler: Sampler::new(serving.prepared.params, serving.prepared.seed),
            writing: Writing::new(setup),
            unfed: None,
            told_syntax: false,
            mask: mask_of(&self.tokenizer, &serving.request),
            told_form: serving.prepared.form.is_some(),
            form: serving.prepared.form.take(),
            values: serving.prepared.values.take(),
            ruling: Duration::ZERO,
            started: now,
            last_token: None,
            told: (now, 0),
            serving,
        };
        self.common.desk.counters().count_prefill(tokens.len() - reused, took);
        self.slots[index].work = Work::Decode(Box::new(active));
        self.changed = true;
        self.say(index, What::PromptDone { tokens: tokens.len() - reused, took });
        self.write(index)
    }

    /// One token each of all replies that have one ready; whether there was any.
    pub(super) fn decode_step(&mut self) -> Result<bool, Error> {
        let mut rows = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Work::Decode(active) = &mut slot.work else { continue };
            if active.serving.outbox.is_full() {
                active.serving.stalled.get_or_insert_with(Instant::now);
                continue;
            }
            rows.extend(active.unfed.map(|token| (index, (slot.session, token))));
        }
        if rows.is_empty() {
            return Ok(false);
        }
        let steps: Vec<_> = rows.iter().map(|(_, step)| *step).collect();
        self.common.desk.counters().count_batch(steps.len());
        let began = Instant::now();
        let decoded = self.engine.decode(&steps);
        if self.common.config.sharing.log_steps {
            let what = What::Batch { rows: steps.len(), took: began.elapsed() };
            self.common.say(None, None, what);
        }
        if let Err(error) = decoded {
            // Some may have advanced: all of them are where the engine could keep them.
            let failure = Self::failure_of(&error);
            for (index, _) in rows {
                self.fail(index, failure.clone());
            }
            return if Self::is_fatal(&error) { Err(error.into()) } else { Ok(true) };
        }
        for (index, _) in rows {
            if let Work::Decode(active) = &mut self.slots[index].work {
                active.unfed = None;
            }
            self.save_at_frontier(index)?;
            self.write(index)?;
        }
        Ok(true)
    }

    /// Hands out the next token of a reply, or ends it.
    fn write(&mut self, index: usize) -> Result<(), Error> {
        loop {
            let slot = &mut self.slots[index];
            let Work::Decode(active) = &mut slot.work else { return Ok(()) };
            match active.writing.next() {
                Next::Over => return self.finish_reply(index),
                // What was handed out is evaluated first, and what is drawn then is told now.
                Next::Draw | Next::Feed(_) if active.unfed.is_some() => {
                    let told = active.tell(&mut *self.engine, slot.session);
                    let ruling = std::mem::take(&mut active.ruling);
                    if !ruling.is_zero() {
                        self.common.desk.counters().count_rules(ruling);
                    }
                    return match told {
                        Ok(()) => Ok(()),
                        Err(error) => self.failed(index, error),
                    };
                }
                Next::Draw => {
                    let was_closed = active.writing.closed().is_some();
                    if let Err(error) = active.draw(&mut *self.engine, slot.session) {
                        return self.failed(index, error);
                    }
                    if let Some(closed) = active.writing.closed().filter(|_| !was_closed) {
                        self.common.note(active.serving.number, || {
                            let CloseEvent { kind, index, remaining, rank } = closed;
                            format!("thought closed, {}, at token {index}; budget left {remaining:?}, rank {rank:?}", kind.name())
                        });
                    }
                }
                Next::Feed(_) => self.hand_out(index),
            }
        }
    }

    /// Reports the token that is next; it is evaluated with the next step.
    fn hand_out(&mut self, index: usize) {
        let Work::Decode(active) = &mut self.slots[index].work else { return };
        let Next::Feed(fed) = active.writing.next() else { return };
        let in_answer = active.writing.is_in_answer();
        let raw = active.serving.prepared.chat.is_none();
        let bytes =
            if raw { self.tokenizer.visible_bytes(fed.id) } else { self.tokenizer.bytes(fed.id) };
        for update in active.writing.fed(bytes) {
            if let Some(trace) = &mut self.common.trace {
                trace.update(active.serving.number, &update);
            }
            active.serving.outbox.send(update);
        }
        active.unfed = Some(fed.id);
        let began = Instant::now();
        let is_held = active.form.is_some() || active.values.is_some();
        let form = active.form.as_mut().filter(|_| in_answer);
        let held = form.map_or(Ok(()), |form| form.fed(fed)).and_then(|()| {
            let open = active.writing.open_value();
            active
                .values
                .as_mut()
                .map_or(Ok(()), |values| values.fed(&self.tokenizer, fed.id, open))
        });
        if is_held {
            active.ruling += began.elapsed();
        }
        if let Err(failure) = held {
            self.fail(index, failure);
            return;
        }
        let now = Instant::now();
        let counters = self.common.desk.counters();
        match active.last_token.replace(now) {
            None => counters.first_token(active.serving.arrived.elapsed()),
            Some(last) => counters.next_token(now - last),
        }
        let (tokens, (since, from)) = (active.writing.tokens(), active.told);
        if active.serving.prepared.tools.is_some() && tokens.is_multiple_of(TRACE_EVERY) {
            let phase = active.writing.phase();
            self.common.note(active.serving.number, || format!("{tokens} tokens, {phase:?}"));
        }
        if tokens - from >= LOG_EVERY {
            active.told = (now, tokens);
            let what = What::Decoding {
                tokens,
                thinking: !active.writing.is_in_answer() && !active.writing.is_in_call(),
                in_call: active.writing.is_in_call(),
                chunk_tps: rate(tokens - from, since.elapsed()),
                average_tps: rate(tokens, active.started.elapsed()),
            };
            self.say(index, what);
        }
    }

    /// The reply is over: it is answered first, then remembered, and saved where that was put off.
    fn finish_reply(&mut self, index: usize) -> Result<(), Error> {
        let work = std::mem::take(&mut self.slots[index].work);
        let Work::Decode(active) = work else { return Ok(()) };
        let Active { serving, writing, unfed, started, .. } = *active;
        let (updates, mut written) = writing.finish();
        let usage = &mut written.outcome.usage;
        (usage.prompt_tokens, usage.cached_tokens) =
            (serving.usage.prompt_tokens, serving.usage.cached_tokens);
        for update in updates {
            if let Some(trace) = &mut self.common.trace {
                trace.update(serving.number, &update);
            }
            serving.outbox.send(update);
        }
        let outcome = written.outcome.clone();
        serving.outbox.send(Update::End(Box::new(outcome)));
        let unfed = unfed.filter(|_| written.keeps_last);
        self.remember(index, &serving, &written, unfed);
        self.touch(index);
        self.report(index, &serving, &written, started.elapsed());
        self.save_finished(index, &serving)
    }
}
