//! What stays of a finished reply: what its session can go on as, the text of its calls, lines about it.

use std::time::Duration;

use super::bindings::{self, Binding, CallIds};
use super::floor::Floor;
use super::reply::Written;
use super::slot::Serving;
use crate::chat::{CloseKind, Conversation, ErrorKind, Message, Role, ToolCall, Toolset};
use crate::server::{Finish, Input, What};
use crate::tokenizer::TokenId;

impl Floor {
    /// Remembers what the session stands for now. `unfed` is the last token of the reply, which was not evaluated.
    pub(super) fn remember(
        &mut self,
        index: usize,
        serving: &Serving,
        written: &Written,
        unfed: Option<TokenId>,
    ) {
        let outcome = &written.outcome;
        let ids: Vec<String> = outcome.calls.iter().map(|call| call.id.clone()).collect();
        if let Some((raw, calls)) = &written.block {
            let (raw, calls) = (raw.clone(), calls.clone());
            self.common.office.with_memory(|memory| memory.insert(ids.clone(), raw, calls));
        }
        self.slots[index].calls.extend(ids.iter().cloned());
        // A reply that was cut off is no turn that anybody sends back.
        if outcome.finish == Finish::Length || !serving.can_be_bound() {
            self.slots[index].loose =
                serving.prepared.thinking.then_some(serving.usage.prompt_tokens);
            return;
        }
        let Some((conversation, options)) = &serving.prepared.chat else { return };
        let mut conversation = conversation.clone();
        let mut reply = reply_of(&mut conversation, serving, written);
        let tools = serving.prepared.tools.clone().unwrap_or_default();
        self.restore_reply(&mut reply, &tools);
        let messages = conversation.messages.len();
        let binding = Binding {
            tokens: self.engine.tokens(self.slots[index].session).len(),
            tail: unfed.into_iter().collect(),
            keys: bindings::keys(&conversation, *options, &reply, self.common.sends_thoughts),
            calls: (!ids.is_empty()).then(|| CallIds { ids: ids.into_iter().collect(), messages }),
            api: serving.request.api,
        };
        self.common.note(serving.number, || {
            let calls = match (&written.block, outcome.calls.is_empty()) {
                (_, true) => "",
                (Some(_), false) => "; its calls come back as they were written",
                (None, false) => "; its calls come back as the template writes them",
            };
            format!("the session stands for the turn, {} tokens{calls}", binding.tokens)
        });
        bindings::remember(&mut self.slots[index].bindings, binding);
    }

    /// The calls of a reply as they will be rendered when they come back.
    fn restore_reply(&self, reply: &mut Message, tools: &Toolset) {
        let mut alone = Conversation::new(vec![std::mem::replace(reply, Message::user(""))]);
        self.common.office.restore_calls(&mut alone, tools);
        if let Some(restored) = alone.messages.pop() {
            *reply = restored;
        }
    }

    /// Lines, counters and the trace about a finished reply.
    pub(super) fn report(
        &mut self,
        index: usize,
        serving: &Serving,
        written: &Written,
        decoding: Duration,
    ) {
        let outcome = &written.outcome;
        let id = Some(serving.id.as_str());
        if let Some(event) = written.closed.filter(|event| event.kind != CloseKind::Natural) {
            self.common.desk.counters().count_thought_closed(event.kind.name());
            let what = What::ThoughtClosed { how: event.kind.name(), tokens: event.index };
            self.common.say(id, Some(index), what);
        }
        let calls = match (written.failure, &outcome.open_call) {
            (Some(ErrorKind::Unterminated), _) | (_, Some(_)) => Some("cut"),
            (Some(_), None) => Some("invalid"),
            (None, None) if outcome.calls.is_empty() => None,
            (None, None) if written.repairs.is_empty() => Some("whole"),
            (None, None) => Some("repaired"),
        };
        if let Some(how) = calls {
            self.common.desk.counters().count_calls(how);
        }
        if !written.repairs.is_empty() {
            self.common.note(serving.number, || {
                format!("calls understood although written otherwise: {:?}", written.repairs)
            });
        }
        if let Some(kind) = written.failure {
            self.common.note(serving.number, || format!("invalid tool call: {kind}"));
            self.common.say(id, Some(index), What::Warning(format!("invalid tool call: {kind}")));
        }
        if written.ended_text {
            let text = "the model ended the text instead of its turn: <|endoftext|>";
            self.common.say(id, Some(index), What::Warning(text.to_owned()));
        }
        if !outcome.calls.is_empty() {
            let calls = outcome.calls.iter().map(|c| (c.name.clone(), c.id.clone())).collect();
            let what = What::Calls { calls, raw_known: written.block.is_some() };
            self.common.say(id, Some(index), what);
        }
        let finish = match &outcome.finish {
            Finish::Stop | Finish::StopText(_) => "stop",
            Finish::Length => "length",
            Finish::Calls => "tool_calls",
        };
        let (tokens, took) = (outcome.usage.output_tokens, serving.arrived.elapsed());
        self.common.desk.counters().count_finish(finish, tokens, decoding);
        if let Some(trace) = &mut self.common.trace {
            trace.outcome(serving.number, outcome);
            trace.end(serving.number, finish, None);
        }
        let what = What::Finish { finish, tokens, error: None, took };
        self.common.say(id, Some(index), what);
    }
}

/// The reply as a message of the conversation; one that went on joins the message that it went on from.
fn reply_of(conversation: &mut Conversation, serving: &Serving, written: &Written) -> Message {
    let outcome = &written.outcome;
    let call = |call: &crate::server::Call| ToolCall {
        id: Some(call.id.clone()),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
    };
    let calls = outcome.calls.iter().map(call).collect();
    let continues = matches!(serving.request.input, Input::Chat { continues: true, .. });
    let begun = conversation.messages.pop_if(|m| continues && m.role == Role::Assistant);
    match begun {
        Some(mut message) => {
            message.content.push_str(&outcome.text);
            message.with_calls(calls)
        }
        None => Message::assistant(outcome.text.clone())
            .with_reasoning(outcome.reasoning.clone())
            .with_calls(calls),
    }
}
