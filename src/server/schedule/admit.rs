//! Giving requests sessions: where most of the prompt is already, in memory or on disk (server.md 13.1, 13.6).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::bindings::{self, Key};
use super::floor::{Floor, Waiter};
use super::prefill::Filling;
use super::queue::Queue;
use super::saved::Loaded;
use super::slot::{Serving, Visible, Work};
use super::slots::{Choice, View, choose};
use super::{Error, Prepared};
use crate::engine::{self, Reuse, SyncReport, Target};
use crate::kv::{Hit, Moment, Name};
use crate::server::{Continuation, Update, Usage, Waiting, What};
use crate::tokenizer::TokenId;

/// How a session would come to a prompt.
#[derive(Debug)]
pub(super) struct Plan {
    /// What it will hold.
    pub(super) tokens: Vec<TokenId>,
    pub(super) report: SyncReport,
    /// Where the beginning comes from (server.md 13.1).
    pub(super) source: &'static str,
    /// Tokens that stand for so many bytes of the prompt that are not their own.
    pub(super) stands_for: Option<(usize, usize)>,
    /// The file that it was loaded from.
    pub(super) loaded: Option<Name>,
}

impl Floor {
    /// Gives waiting requests sessions, as long as there are free ones. Whether it did.
    pub(super) fn admit(&mut self, queue: &mut Queue<Waiter>) -> Result<bool, Error> {
        for waiter in queue.remove(|waiter| waiter.outbox.is_abandoned()) {
            let took = waiter.arrived.elapsed();
            self.common.desk.counters().count_finish("cancelled", 0, took);
            let what = What::Finish { finish: "cancelled", tokens: 0, error: None, took };
            self.common.say(Some(&waiter.id), None, what);
        }
        let mut admitted = false;
        while let Some(waiter) = queue.front() {
            if self.slots.iter().all(|slot| !slot.is_idle()) {
                break;
            }
            // Comparing a prompt with every session takes time, and nothing has changed.
            let may_wait = waiter.arrived.elapsed() < self.common.config.best_slot_wait;
            if may_wait && waiter.waits_since == Some(self.uses) {
                break;
            }
            let (index, plan) = match self.choose(waiter, may_wait) {
                Ok(Some(chosen)) => chosen,
                Ok(None) => {
                    waiter.waits_since = Some(self.uses);
                    break;
                }
                Err(error) => {
                    // The engine refuses the prompt itself.
                    let waiter = queue.pop().expect("there was a first");
                    waiter.outbox.send(Update::Failed(Self::failure_of(&error)));
                    continue;
                }
            };
            let waiter = queue.pop().expect("there was a first");
            self.start(index, waiter, plan)?;
            admitted = true;
        }
        queue.tell(|waiter, position| {
            waiter.outbox.send(Update::Waiting(Waiting::Queued { position }));
        });
        Ok(admitted)
    }

    /// The session for a request; `None` when it waits for a better one.
    fn choose(
        &self,
        waiter: &Waiter,
        may_wait: bool,
    ) -> Result<Option<(usize, Plan)>, engine::Error> {
        let mut views = Vec::with_capacity(self.slots.len());
        let mut plans = Vec::with_capacity(self.slots.len());
        for (index, slot) in self.slots.iter().enumerate() {
            let plan = self.plan(index, &waiter.prepared)?;
            let affinity = waiter.request.affinity.as_ref();
            views.push(View {
                busy: !slot.is_idle(),
                tokens: self.engine.tokens(slot.session).len(),
                reuse: plan.report.reused,
                last_used: slot.last_used,
                akin: affinity.is_some() && slot.affinity.as_ref() == affinity,
            });
            plans.push(plan);
        }
        let worth_waiting = may_wait.then_some(self.common.config.best_slot_tokens);
        Ok(match choose(&views, worth_waiting) {
            Some(Choice::Take(index)) => Some((index, plans.swap_remove(index))),
            Some(Choice::Wait) | None => None,
        })
    }

    /// How a session would come to a prompt, from what is in memory.
    fn plan(&self, index: usize, prepared: &Prepared) -> Result<Plan, engine::Error> {
        let slot = &self.slots[index];
        let prompt = &prepared.prompt;
        let by_text = prompt.is_text();
        let target = Target { by_text, ..Target::tokens(&prompt.ids) };
        let told = self.engine.foresee(slot.session, target)?;
        let mut best = Plan {
            tokens: told.tokens,
            report: told.report,
            source: told.report.reuse.name(),
            stands_for: None,
            loaded: None,
        };
        let live = self.engine.tokens(slot.session);
        for binding in slot.bindings.iter().filter(|binding| binding.tokens <= live.len()) {
            let Some((bytes, by)) = binding.covers(prompt) else { continue };
            let Some(rest) = prompt.rest(&self.tokenizer, bytes) else { continue };
            let tokens = [&live[..binding.tokens], &binding.tail, &rest].concat();
            if tokens.len() >= self.engine.info().ctx_tokens {
                continue;
            }
            let told = self.engine.foresee(slot.session, Target::tokens(&tokens))?;
            if told.report.reused > best.report.reused {
                let goes_on = told.report.reuse == Reuse::Live;
                let source = if goes_on { binding.source(by) } else { told.report.reuse.name() };
                let stands_for = Some((binding.tokens + binding.tail.len(), bytes));
                best = Plan { tokens, report: told.report, source, stands_for, loaded: None };
            }
        }
        Ok(best)
    }

    /// Brings the request to the session: what is saved is loaded, what gives way is saved, and the prompt begins.
    fn start(&mut self, index: usize, waiter: Waiter, plan: Plan) -> Result<(), Error> {
        let Waiter { id, request, body, prepared, outbox, arrived, .. } = waiter;
        self.common.requests += 1;
        let usage = Usage::default();
        let number = self.common.requests;
        let serving =
            Serving { id, number, request, body, prepared, outbox, arrived, usage, stalled: None };
        let before = self.engine.tokens(self.slots[index].session).to_vec();
        let plan = match self.make_room(index, &serving, plan) {
            Ok(plan) => plan,
            Err(error) => {
                serving.outbox.send(Update::Failed(Self::failure_of(&error)));
                return if Self::is_fatal(&error) { Err(error.into()) } else { Ok(()) };
            }
        };
        self.begin(index, serving, plan, &before)
    }

    /// Loads a file where that leaves less to evaluate, and saves what would be lost.
    fn make_room(
        &mut self,
        index: usize,
        serving: &Serving,
        mut plan: Plan,
    ) -> Result<Plan, engine::Error> {
        let session = self.slots[index].session;
        if matches!(plan.report.reuse, Reuse::Live | Reuse::LiveText) {
            return Ok(plan);
        }
        // Looked up first: the save below must not delete what is about to be loaded.
        let prompt = &serving.prepared.prompt;
        let hit = if prompt.is_text() {
            self.common.saved.lookup(&prompt.text(), plan.report.reused)
        } else {
            None
        };
        let live = self.engine.tokens(session).len();
        let kept = if hit.is_some() { 0 } else { plan.report.reused };
        // A session that keeps most of itself is the same conversation, only edited.
        let is_unrelated = 2 * kept < live;
        if is_unrelated && self.common.saved.is_worth(live) {
            self.save(index, Moment::Evict)?;
            if self.engine.tokens(session).len() < live {
                // A reply that was cut short is gone, and perhaps what the plan began with.
                plan = self.plan(index, &serving.prepared)?;
            }
        }
        self.common.saved.finish(&mut *self.engine, session)?;
        if let Some(hit) = hit {
            return self.load(index, serving, hit);
        }
        if plan.report.reuse == Reuse::Cold {
            self.common.saved.forget(session);
        }
        Ok(plan)
    }

    fn load(&mut self, index: usize, serving: &Serving, hit: Hit) -> Result<Plan, engine::Error> {
        let session = self.slots[index].session;
        let prompt = &serving.prepared.prompt;
        let loaded = self.common.saved.restore(&mut *self.engine, session, hit)?;
        self.slots[index].cut(0);
        let Loaded::State { name, text_bytes } = loaded else {
            self.common.saved.forget(session);
            return self.plan(index, &serving.prepared);
        };
        let held = self.engine.tokens(session).to_vec();
        let rest = prompt.rest(&self.tokenizer, text_bytes);
        let tokens = rest.map(|rest| [&held[..], &rest].concat());
        let fits = |tokens: &Vec<TokenId>| tokens.len() < self.engine.info().ctx_tokens;
        let Some(tokens) = tokens.filter(fits) else {
            self.engine.reset(session)?;
            self.common.saved.forget(session);
            return self.plan(index, &serving.prepared);
        };
        let report = self.engine.foresee(session, Target::tokens(&tokens))?.report;
        let own = self.tokenizer.text(&held);
        let is_own = own.bytes == prompt.bytes[..text_bytes];
        let stands_for = (!is_own).then_some((held.len(), text_bytes));
        Ok(Plan { tokens, report, source: "disk-text", stands_for, loaded: Some(name) })
    }

    /// Begins to evaluate.
    fn begin(
        &mut self,
        index: usize,
        mut serving: Serving,
        plan: Plan,
        before: &[TokenId],
    ) -> Result<(), Error> {
        let Plan { tokens, report, source, stands_for, loaded } = plan;
        serving.usage =
            Usage { prompt_tokens: tokens.len(), cached_tokens: report.reused, ..Usage::default() };
        let slot = &mut self.slots[index];
        slot.cut(report.common.max(report.reused));
        slot.loose = None;
        let prompt = &serving.prepared.prompt;
        slot.visible = stands_for.map(|(tokens, bytes)| {
            let markers = prompt.markers.iter().copied().take_while(|&at| at < bytes).collect();
            Visible { tokens, key: Key { text: prompt.bytes[..bytes].to_vec(), markers } }
        });
        slot.affinity.clone_from(&serving.request.affinity);
        slot.calls = call_ids(&serving.prepared);
        let chat = serving.prepared.chat.as_ref().filter(|_| serving.prepared.thinking);
        if let Some(sends) = chat.and_then(|(said, _)| bindings::sends_thoughts(said)) {
            self.common.sends_thoughts = sends;
        }
        self.common.desk.counters().count_prompt(tokens.len(), report.reused, source);
        let continuation = Continuation {
            source,
            miss: report.miss.map(engine::Miss::name),
            live: before.len(),
            common: report.common,
            cached: report.reused,
            prompt: tokens.len(),
        };
        if let Some(trace) = &mut self.common.trace {
            trace.begin(&serving, &continuation);
            trace.mismatch(serving.number, (before, &tokens), &self.tokenizer);
        }
        serving.outbox.send(Update::Begin(serving.usage));
        let flags = serving.flags();
        let lessened = serving.prepared.lessened;
        let session = slot.session;
        let filling = Filling {
            borders: engine::turn_borders(&self.tokenizer, &tokens),
            parts: self.parts(session, &tokens, report.reused),
            reused: report.reused,
            loaded,
            started: Instant::now(),
            chunk: (Instant::now(), report.reused),
            worked: Duration::ZERO,
            serving,
            tokens,
        };
        self.slots[index].work = Work::Prefill(Box::new(filling));
        self.touch(index);
        self.say(index, What::PromptStart { flags, continuation });
        if let Some(text) = lessened {
            self.say(index, What::Warning(text.to_owned()));
        }
        self.begin_part(index)
    }

    /// Where the evaluation stops, and what it is saved as there.
    pub(super) fn parts(
        &self,
        session: engine::SessionId,
        tokens: &[TokenId],
        reused: usize,
    ) -> VecDeque<(usize, Option<Moment>)> {
        let opens = |role: &str| self.tokenizer.encode_control(role.as_bytes());
        let (user, assistant) = (opens("<|im_start|>user\n"), opens("<|im_start|>assistant\n"));
        let anchor = crate::kv::chat_anchor(tokens, &user, &assistant);
        let stops = self.common.saved.stops(session, (tokens.len(), reused), anchor);
        let mut parts: VecDeque<_> =
            stops.into_iter().map(|stop| (stop.tokens, Some(stop.moment))).collect();
        if parts.back().is_none_or(|(end, _)| *end < tokens.len()) {
            parts.push_back((tokens.len(), None));
        }
        parts
    }
}

/// Ids of the calls in a request's history.
fn call_ids(prepared: &Prepared) -> Vec<String> {
    let messages = prepared.chat.iter().flat_map(|(conversation, _)| &conversation.messages);
    messages.flat_map(|message| &message.tool_calls).filter_map(|call| call.id.clone()).collect()
}
