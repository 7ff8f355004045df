//! Replies as the engine would send them, and what clients hear of them.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::super::{Context, Encoder, Frame, Parsed, ResponseStore, Shape, Stamp, answer, parse};
use crate::chat::{Arguments, Conversation, Message, Role};
use crate::server::{Api, Call, Failure, Finish, Input, Logprob, Outcome, Ranked, Update, Usage};
use crate::tokenizer::TokenId;

/// All APIs with a body that each accepts.
pub(super) const MINIMAL: [(Api, &str); 4] = [
    (Api::Chat, r#"{"messages":[{"role":"user","content":"q"}]}"#),
    (Api::Completions, r#"{"prompt":"q"}"#),
    (Api::Responses, r#"{"input":"q"}"#),
    (Api::Messages, r#"{"messages":[{"role":"user","content":"q"}],"max_tokens":100}"#),
];

pub(super) const VOCAB: usize = 1000;

pub(super) fn read(api: Api, body: &str) -> Result<Parsed, Failure> {
    read_with(api, body, &ResponseStore::new(8))
}

pub(super) fn read_with(
    api: Api,
    body: &str,
    responses: &ResponseStore,
) -> Result<Parsed, Failure> {
    parse(api, body.as_bytes(), &Context { strict_media: false, responses, vocab: VOCAB })
}

/// The conversation of a request, and whether its last message goes on.
#[track_caller]
pub(super) fn conversation(parsed: &Parsed) -> (&Conversation, bool) {
    match &parsed.request.input {
        Input::Chat { conversation, continues } => (conversation, *continues),
        other @ (Input::Text(_) | Input::Tokens(_)) => panic!("not a conversation: {other:?}"),
    }
}

/// The messages of a request, each written as `role|thought|text|calls`; `-` is no thought.
#[track_caller]
pub(super) fn lines(parsed: &Parsed) -> Vec<String> {
    let call = |call: &crate::chat::ToolCall| {
        let id = call.id.as_deref().unwrap_or("-");
        format!("{id}:{}{}", call.name, serde_json::to_string(&call.arguments).unwrap())
    };
    let line = |message: &Message| {
        let role = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        let thought = message.reasoning.as_deref().unwrap_or("-");
        let calls: Vec<String> = message.tool_calls.iter().map(call).collect();
        format!("{role}|{thought}|{}|{}", message.content, calls.join(","))
    };
    conversation(parsed).0.messages.iter().map(line).collect()
}

/// Checks that a body is refused with these words about this field.
#[track_caller]
pub(super) fn refused(api: Api, body: &str, message: &str) {
    let failure = read(api, body).expect_err("the body is refused");
    assert_eq!(failure.message, message, "{body}");
}

/// The same stamp at all times.
pub(super) fn stamp(api: Api) -> Stamp {
    Stamp::new(api, [0x71; 16], || 1_790_000_000)
}

/// A reply, in the pieces that it comes in.
#[derive(Debug, Clone, Default)]
pub(super) struct Reply {
    pub(super) reasoning: Vec<String>,
    pub(super) thought_open: bool,
    pub(super) text: Vec<String>,
    pub(super) calls: Vec<(String, Vec<String>)>,
    /// The call that the reply was cut off in.
    pub(super) open: Option<(String, Vec<String>)>,
    pub(super) finish: Finish,
    pub(super) logprobs: bool,
}

fn strings(pieces: &[&str]) -> Vec<String> {
    pieces.iter().map(|&piece| piece.to_owned()).collect()
}

impl Reply {
    pub(super) fn new(reasoning: &[&str], text: &[&str]) -> Self {
        Self { reasoning: strings(reasoning), text: strings(text), ..Self::default() }
    }

    pub(super) fn call(mut self, name: &str, pieces: &[&str]) -> Self {
        self.calls.push((name.to_owned(), strings(pieces)));
        self.finish = Finish::Calls;
        self
    }

    pub(super) fn cut_call(mut self, name: &str, pieces: &[&str]) -> Self {
        self.open = Some((name.to_owned(), strings(pieces)));
        self.finish = Finish::Length;
        self
    }

    pub(super) fn finish(mut self, finish: Finish) -> Self {
        self.finish = finish;
        self
    }

    pub(super) fn with_logprobs(mut self) -> Self {
        self.logprobs = true;
        self
    }

    pub(super) fn usage() -> Usage {
        Usage { prompt_tokens: 2210, cached_tokens: 2048, output_tokens: 58, reasoning_tokens: 20 }
    }

    fn logprob(piece: &str) -> Logprob {
        let token =
            |bytes: &[u8], logprob| Ranked { id: TokenId(1), bytes: bytes.to_vec(), logprob };
        Logprob {
            token: token(piece.as_bytes(), -0.5),
            top: vec![token(piece.as_bytes(), -0.5), token(b"x", -1.5)],
        }
    }

    fn call_of(index: usize, (name, pieces): &(String, Vec<String>)) -> Call {
        let json = pieces.concat();
        let arguments = Arguments::parse(&json).unwrap_or_default();
        Call { id: format!("call_{index:04}"), name: name.clone(), arguments, json }
    }

    pub(super) fn outcome(&self) -> Outcome {
        let count = self.calls.len();
        let all = |pieces: &[String]| pieces.iter().map(|piece| Self::logprob(piece)).collect();
        Outcome {
            finish: self.finish.clone(),
            reasoning: self.reasoning.concat(),
            thought_open: self.thought_open,
            text: self.text.concat(),
            calls: self.calls.iter().enumerate().map(|(i, call)| Self::call_of(i, call)).collect(),
            open_call: self.open.as_ref().map(|call| Self::call_of(count, call)),
            usage: Self::usage(),
            logprobs: if self.logprobs { all(&self.text) } else { Vec::new() },
        }
    }

    pub(super) fn updates(&self) -> Vec<Update> {
        let mut updates = vec![Update::Begin(Usage { output_tokens: 0, ..Self::usage() })];
        updates.extend(self.reasoning.iter().cloned().map(Update::Reasoning));
        for piece in &self.text {
            if self.logprobs {
                updates.push(Update::Logprob(Self::logprob(piece)));
            }
            updates.push(Update::Text(piece.clone()));
        }
        for (index, call) in self.calls.iter().chain(&self.open).enumerate() {
            let id = Self::call_of(index, call).id;
            updates.push(Update::CallBegin { id, name: call.0.clone() });
            updates.extend(call.1.iter().cloned().map(Update::CallArguments));
            if index < self.calls.len() {
                updates.push(Update::CallEnd);
            }
        }
        updates.push(Update::End(Box::new(self.outcome())));
        updates
    }
}

pub(super) fn frames(shape: &Shape, updates: &[Update]) -> Vec<Frame> {
    let mut encoder = Encoder::new(shape.clone(), stamp(shape.api));
    updates.iter().flat_map(|update| encoder.update(update)).collect()
}

pub(super) fn text(frames: &[Frame]) -> String {
    String::from_utf8(frames.iter().flat_map(Frame::to_bytes).collect()).unwrap()
}

/// The events of a stream: names and data. What is no JSON is a string.
pub(super) fn events(frames: &[Frame]) -> Vec<(Option<&'static str>, Value)> {
    let event = |frame: &Frame| match frame {
        Frame::Comment(_) => None,
        Frame::Event { name, data } => {
            Some((*name, serde_json::from_str(data).unwrap_or_else(|_| json!(data))))
        }
    };
    frames.iter().filter_map(event).collect()
}

/// Compares a stream, and the answer that is not streamed where there is one, with a committed file.
/// `Q36_UPDATE_SNAPSHOTS=1` writes it instead.
#[track_caller]
pub(super) fn golden(name: &str, frames: &[Frame], answer: Option<&Value>) {
    let mut found = text(frames);
    if let Some(answer) = answer {
        found = format!("{found}-- not streamed --\n{answer}\n");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/server/api/tests/golden");
    let path = folder.join(format!("{name}.txt"));
    if std::env::var_os("Q36_UPDATE_SNAPSHOTS").is_some() {
        fs::create_dir_all(&folder).expect("the folder can be made");
        fs::write(&path, &found).expect("snapshots can be written");
    }
    let expected = fs::read_to_string(&path).expect("the snapshot is committed");
    assert!(found == expected, "{} differs; it is now:\n{found}", path.display());
}

/// Compares everything that a client of either kind gets of a reply.
#[track_caller]
pub(super) fn golden_reply(name: &str, shape: &Shape, reply: &Reply) {
    let answer = answer(shape, &stamp(shape.api), &reply.outcome());
    golden(name, &frames(shape, &reply.updates()), Some(&answer));
}
