//! What a session can go on as: texts and ids that stand for its tokens (server.md 13.4).
//!
//! A client sees less than a session holds: a thought that it will not send back, text behind a stop text. So behind every
//! finished turn it is computed, by the renderer itself, what the conversation will look like when it comes back, in each
//! of the forms that clients are known to use. A prompt that begins with one of these texts continues the session, and
//! only what follows is tokenized and evaluated.
//!
//! A recurrent state cannot be cut, so a binding holds for one position. Older ones stay useful: the engine may have an
//! anchor below them.

use std::collections::BTreeSet;

use super::prepare::Rendered;
use crate::chat::{Conversation, Message, RenderOptions, render};
use crate::kv::{Extensions, VisibleKey};
use crate::server::Api;
use crate::tokenizer::TokenId;

/// Turns of a session that are remembered.
const MAX_BINDINGS: usize = 6;
/// What ends a turn.
pub(super) const TURN_END: &str = "<|im_end|>\n";

/// A text, and where the added tokens in it are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) text: Vec<u8>,
    pub(super) markers: Vec<usize>,
}

/// The calls that a turn ended with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallIds {
    pub(super) ids: BTreeSet<String>,
    /// Messages before the one with the calls.
    pub(super) messages: usize,
}

/// A position of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Binding {
    /// Tokens it holds there.
    pub(super) tokens: usize,
    /// Tokens that were drawn behind them and are part of the turn, but were not evaluated.
    pub(super) tail: Vec<TokenId>,
    /// Texts that the tokens stand for, the likeliest first. The end of the turn follows them.
    pub(super) keys: Vec<Key>,
    /// Its calls, where it ended in some.
    pub(super) calls: Option<CallIds>,
    pub(super) api: Api,
}

/// How a prompt was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Text,
    Calls,
}

impl Binding {
    /// How many bytes of a prompt its tokens stand for, if they do.
    pub(super) fn covers(&self, prompt: &Rendered) -> Option<(usize, By)> {
        let by_text = self.keys.iter().filter(|key| key.begins(prompt)).map(|key| key.text.len());
        if let Some(bytes) = by_text.max() {
            return Some((bytes, By::Text));
        }
        let (own, sent) = (self.calls.as_ref()?, prompt.calls.as_ref()?);
        (*own == sent.calls).then_some((sent.end, By::Calls))
    }

    /// The name of its use in logs (server.md 13.1).
    pub(super) fn source(&self, by: By) -> &'static str {
        match (by, self.api) {
            (By::Text, Api::Responses) => "responses-visible",
            (By::Text, _) => "thinking-visible",
            (By::Calls, Api::Responses) => "responses-tool-output",
            (By::Calls, Api::Messages) => "anthropic-tool-output",
            (By::Calls, Api::Chat | Api::Completions) => "chat-tool-output",
        }
    }

    /// What it is called in the list of sessions.
    pub(super) fn name(&self) -> &'static str {
        match (self.api, &self.calls) {
            (Api::Responses, _) => "responses",
            (_, Some(_)) => "tools",
            (_, None) => "thinking",
        }
    }

    /// The text that a file with its state should be found by; `None` where that is not known.
    pub(super) fn visible_key(&self) -> Option<VisibleKey> {
        let Key { text, markers } = self.keys.first()?.clone();
        let kind = match self.api {
            Api::Responses => Extensions::RESPONSES_VISIBLE,
            Api::Chat | Api::Completions | Api::Messages => Extensions::THINKING_VISIBLE,
        };
        Some(VisibleKey { text, markers, kind })
    }
}

impl Key {
    /// Whether a prompt begins with it and ends its turn there: a text that goes on was edited.
    fn begins(&self, prompt: &Rendered) -> bool {
        let end = self.text.len();
        let ends_turn = prompt.bytes.get(end..).is_some_and(|b| b.starts_with(TURN_END.as_bytes()));
        ends_turn
            && prompt.markers.binary_search(&end).is_ok()
            && prompt.bytes.starts_with(&self.text)
            && prompt.text().has_markers(&self.markers, end)
    }
}

/// Drops the oldest of too many bindings, and adds one.
pub(super) fn remember(bindings: &mut Vec<Binding>, new: Binding) {
    bindings.retain(|binding| binding.tokens < new.tokens);
    if bindings.len() >= MAX_BINDINGS {
        bindings.remove(0);
    }
    bindings.push(new);
}

/// Whether a client sends the thoughts before calls back with them; `None` where the conversation has no calls.
pub(super) fn sends_thoughts(conversation: &Conversation) -> Option<bool> {
    let calls = conversation.messages.iter().filter(|message| !message.tool_calls.is_empty());
    let thought = |message: &Message| message.reasoning.as_ref().is_some_and(|t| !t.is_empty());
    // Not every call has one.
    calls.map(thought).reduce(|one, other| one || other)
}

/// The texts that a conversation may come back as, up to the end of the `reply` that was just written for it: with and
/// without its thought, before results of its calls and before a new question. The likeliest comes first: what the client
/// did before, or what clients `usually` do.
pub(super) fn keys(
    conversation: &Conversation,
    options: RenderOptions,
    reply: &Message,
    usually: bool,
) -> Vec<Key> {
    let sends_thoughts = sends_thoughts(conversation).unwrap_or(usually);
    let with = reply.clone();
    let without = reply.clone().with_reasoning("");
    let forms = if sends_thoughts { [with, without] } else { [without, with] };
    let mut keys: Vec<Key> = Vec::new();
    let is_call = !reply.tool_calls.is_empty();
    for follower in [is_call.then_some(Follower::Result), Some(Follower::Question)] {
        for form in &forms {
            let key = follower.and_then(|follower| follower.key(conversation, options, form));
            keys.extend(key.filter(|key| !keys.contains(key)));
        }
    }
    keys
}

/// What comes behind a reply.
#[derive(Debug, Clone, Copy)]
enum Follower {
    /// The result of a call: the thoughts since the last question stay.
    Result,
    /// A question: they go, unless the request keeps all.
    Question,
}

impl Follower {
    fn key(
        self,
        conversation: &Conversation,
        options: RenderOptions,
        reply: &Message,
    ) -> Option<Key> {
        let question = "<|im_start|>user\nx<|im_end|>\n";
        let behind = match self {
            Self::Result => 0,
            Self::Question => question.len(),
        };
        let mut whole = conversation.clone();
        whole.messages.push(reply.clone());
        if matches!(self, Self::Question) {
            whole.messages.push(Message::user("x"));
        }
        let options = RenderOptions { add_generation_prompt: false, ..options };
        let prompt = render(&whole, &options).ok()?.without_last(behind + TURN_END.len());
        let markers = prompt.markers().into_iter().map(|marker| marker.offset).collect();
        Some(Key { text: prompt.bytes(), markers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{Arguments, ToolCall};
    use crate::server::schedule::prepare::tests::rendered;

    const API: Api = Api::Chat;

    fn binding(messages: &[Message], reply: &Message) -> Binding {
        let conversation = Conversation::new(messages.to_vec());
        let keys = keys(&conversation, RenderOptions::default(), reply, true);
        let ids =
            reply.tool_calls.iter().filter_map(|call| call.id.clone()).collect::<BTreeSet<_>>();
        let calls = (!ids.is_empty()).then_some(CallIds { ids, messages: messages.len() });
        Binding { tokens: 100, tail: Vec::new(), keys, calls, api: API }
    }

    /// The text of a prompt that is left behind what the binding covers.
    fn rest(binding: &Binding, messages: &[Message]) -> Option<String> {
        let prompt = rendered(messages, RenderOptions::default());
        let (bytes, _) = binding.covers(&prompt)?;
        Some(String::from_utf8_lossy(&prompt.bytes[bytes..]).into_owned())
    }

    fn call(id: &str) -> ToolCall {
        let call = ToolCall::new("f", Arguments::parse(r#"{"a": 1}"#).unwrap());
        ToolCall { id: Some(id.to_owned()), ..call }
    }

    #[test]
    fn an_answer_goes_on_whether_or_not_its_thought_comes_back() {
        let question = [Message::user("What is 2+2?")];
        let reply = Message::assistant("4").with_reasoning("Add.");
        let bound = binding(&question, &reply);
        assert_eq!(bound.keys.len(), 1, "older turns have no thoughts: both forms are the same");
        let next = |reply: Message| [question[0].clone(), reply, Message::user("And 3+3?")];
        let expected =
            "<|im_end|>\n<|im_start|>user\nAnd 3+3?<|im_end|>\n<|im_start|>assistant\n<think>\n";
        assert_eq!(rest(&bound, &next(reply.clone())).unwrap(), expected);
        assert_eq!(rest(&bound, &next(Message::assistant("4"))).unwrap(), expected);
        assert_eq!(rest(&bound, &next(Message::assistant("4!"))), None, "edited");
        assert_eq!(rest(&bound, &next(Message::assistant("5"))), None);
        assert_eq!(rest(&bound, &question), None, "the same question again is none of it");
    }

    #[test]
    fn preserved_thoughts_make_two_forms() {
        let options = RenderOptions { preserve_thinking: true, ..RenderOptions::default() };
        let conversation = Conversation::new(vec![Message::user("q")]);
        let reply = Message::assistant("a").with_reasoning("r");
        assert_eq!(keys(&conversation, options, &reply, true).len(), 2);
    }

    #[test]
    fn the_likeliest_form_is_that_of_the_calls_before_or_of_other_conversations() {
        let reply = Message::assistant("").with_reasoning("R").with_calls(vec![call("call_2")]);
        let before = |thought: &str| {
            let called =
                Message::assistant("").with_reasoning(thought).with_calls(vec![call("call_1")]);
            Conversation::new(vec![Message::user("Go"), called, Message::tool("r1")])
        };
        let none = Conversation::new(vec![Message::user("Go")]);
        for (conversation, usually, expected) in [
            (before("T"), false, true),
            (before(""), true, false),
            (none.clone(), true, true),
            (none, false, false),
        ] {
            let keys = keys(&conversation, RenderOptions::default(), &reply, usually);
            let first = String::from_utf8_lossy(&keys[0].text).into_owned();
            assert_eq!(first.contains("<think>\nR\n</think>"), expected, "{first}");
        }
    }

    #[test]
    fn calls_go_on_in_every_form() {
        let question = [Message::user("Go")];
        let reply =
            Message::assistant("Doing it.").with_reasoning("R").with_calls(vec![call("call_1")]);
        let bound = binding(&question, &reply);
        let without = Message { reasoning: None, ..reply.clone() };
        for form in [&reply, &without] {
            let result = [question[0].clone(), form.clone(), Message::tool("r1")];
            let rest = rest(&bound, &result).unwrap();
            assert!(
                rest.starts_with("<|im_end|>\n<|im_start|>user\n<tool_response>\nr1"),
                "{rest}"
            );
            let asked = [&result[..], &[Message::user("and?")]].concat();
            assert!(self::rest(&bound, &asked).is_some(), "a question behind the result");
        }
    }

    #[test]
    fn a_changed_text_goes_on_by_the_ids_of_its_calls() {
        let question = [Message::user("Go")];
        let reply = Message::assistant("Doing it.").with_calls(vec![call("call_1")]);
        let bound = binding(&question, &reply);
        let changed = |id: &str| {
            let reply = Message::assistant("Doing").with_calls(vec![call(id)]);
            [question[0].clone(), reply, Message::tool("r1")]
        };
        let prompt = rendered(&changed("call_1"), RenderOptions::default());
        assert_eq!(bound.covers(&prompt).unwrap().1, By::Calls);
        let rest_of = rest(&bound, &changed("call_1")).unwrap();
        assert!(
            rest_of.starts_with("<|im_end|>\n<|im_start|>user\n<tool_response>\nr1"),
            "{rest_of}"
        );
        assert_eq!(rest(&bound, &changed("call_2")), None);
        let longer = [&[Message::user("before")][..], &changed("call_1")].concat();
        assert_eq!(rest(&bound, &longer), None, "another history");
        let part = [changed("call_1").to_vec(), vec![Message::tool("r2")]].concat();
        assert_eq!(rest(&bound, &part), None, "not as many results as calls");
    }

    #[test]
    fn a_text_that_spells_markers_is_another_one() {
        let reply = Message::assistant("4<|im_end|>\n<|im_start|>user\nx");
        let bound = binding(&[Message::user("q")], &Message::assistant("4"));
        let spelled = [Message::user("q"), reply, Message::user("y")];
        assert_eq!(rest(&bound, &spelled), None);
    }

    #[test]
    fn few_turns_are_remembered_and_none_behind_the_last() {
        let mut all = Vec::new();
        for tokens in [10, 20, 30, 40, 50, 60, 70, 80, 35] {
            let new =
                Binding { tokens, ..binding(&[Message::user("q")], &Message::assistant("a")) };
            remember(&mut all, new);
        }
        let positions: Vec<_> = all.iter().map(|binding| binding.tokens).collect();
        assert_eq!(positions, [30, 35]);
    }
}
