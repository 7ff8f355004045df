//! What the model wrote for a tool call, by the id that a client knows the call by (server.md 11.6).
//!
//! A client sends a call back as JSON, which can be spelled as tags in many ways; the session holds one of them. So the
//! block is kept, and rendered again in place of the client's JSON, provided that both mean the same: a client that has
//! edited its history is taken at its word. Ids cannot be guessed, so nobody names a block that he was not given.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::sync::Arc;

use serde_json::Value;

use crate::chat::{
    Arguments, Conversation, End, Json, ParsedCall, RawBlock, Reader, ReaderOptions, Role, Source,
    ToolCall, Toolset, canonical,
};
use crate::kv::{Config, Container, ModelKey, Store, ToolBlock};
use crate::server::Api;
use crate::util::{hex, random};

/// How much is remembered; what was used longest ago is forgotten first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayLimits {
    /// Ids.
    pub ids: usize,
    /// Bytes of ids and blocks.
    pub bytes: usize,
}

impl Default for ReplayLimits {
    fn default() -> Self {
        Self { ids: 100_000, bytes: 512 << 20 }
    }
}

/// The calls of one message.
#[derive(Debug)]
pub(super) struct Block {
    raw: RawBlock,
    calls: Vec<ParsedCall>,
}

/// Where blocks of a request's history came from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Replayed {
    /// Messages whose block was in memory.
    pub(super) memory: usize,
    /// Messages whose block was read from disk.
    pub(super) disk: usize,
    /// Messages whose calls are rendered anew.
    pub(super) canonical: usize,
    /// Ids that nobody knows.
    pub(super) missing_ids: usize,
}

#[derive(Debug)]
struct Held {
    block: Arc<Block>,
    ids: Vec<String>,
    used: u64,
    from_disk: bool,
}

/// Ids and their blocks.
#[derive(Debug)]
pub(super) struct Memory {
    limits: ReplayLimits,
    ids: HashMap<String, u64>,
    blocks: HashMap<u64, Held>,
    /// Blocks by when they were used.
    order: BTreeMap<u64, u64>,
    bytes: usize,
    clock: u64,
}

/// The files that know calls, as the threads that prepare requests see them. They are listed when the first unknown id
/// is looked for: an index of their own, so that neither these threads nor the engine's waits for the other.
pub(super) struct ToolFiles {
    config: Config,
    model: ModelKey,
    store: Option<Store>,
}

impl ToolFiles {
    /// Of a directory that was found to be good.
    pub(super) fn new(config: Config, model: ModelKey) -> Self {
        Self { config, model, store: None }
    }

    /// The index; `None` while the directory cannot be read.
    fn store(&mut self) -> Option<&mut Store> {
        if self.store.is_none() {
            self.store = Store::for_model(self.config.clone(), self.model.clone()).ok();
        }
        self.store.as_mut()
    }
}

impl Memory {
    /// One that knows nothing.
    pub(super) fn new(limits: ReplayLimits) -> Self {
        Self {
            limits,
            ids: HashMap::new(),
            blocks: HashMap::new(),
            order: BTreeMap::new(),
            bytes: 0,
            clock: 0,
        }
    }

    /// Remembers the block of a message whose calls have these ids. An id that is known already stays with its block.
    pub(super) fn insert(&mut self, ids: Vec<String>, raw: RawBlock, calls: Vec<ParsedCall>) {
        self.insert_from(ids, Block { raw, calls }, false);
    }

    fn insert_from(&mut self, ids: Vec<String>, block: Block, from_disk: bool) {
        let ids: Vec<String> = ids.into_iter().filter(|id| !self.ids.contains_key(id)).collect();
        if ids.is_empty() {
            return;
        }
        self.clock += 1;
        let key = self.clock;
        self.ids.extend(ids.iter().map(|id| (id.clone(), key)));
        let held = Held { block: Arc::new(block), ids, used: key, from_disk };
        self.bytes += held.bytes();
        self.order.insert(key, key);
        self.blocks.insert(key, held);
        while self.ids.len() > self.limits.ids || self.bytes > self.limits.bytes {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            let Some(held) = self.blocks.remove(&oldest) else { break };
            self.bytes -= held.bytes();
            for id in &held.ids {
                self.ids.remove(id);
            }
        }
    }

    /// The block that all of these calls come from and that means the same as they do, and whether it was read from
    /// disk.
    fn block_of(&mut self, calls: &[ToolCall]) -> Option<(RawBlock, bool)> {
        let known = |call: &ToolCall| self.ids.get(call.id.as_ref()?).copied();
        let key = known(calls.first()?)?;
        if calls.iter().any(|call| known(call) != Some(key)) {
            return None;
        }
        self.clock += 1;
        let held = self.blocks.get_mut(&key)?;
        self.order.remove(&held.used);
        held.used = self.clock;
        self.order.insert(held.used, key);
        let same = held.block.calls.len() == calls.len()
            && held.block.calls.iter().zip(calls).all(|(own, sent)| means(own, sent));
        same.then(|| (held.block.raw.clone(), held.from_disk))
    }

    fn knows(&self, id: &str) -> bool {
        self.ids.contains_key(id)
    }

    /// What a file should know of these ids.
    pub(super) fn for_disk(&self, ids: &[String]) -> Vec<ToolBlock> {
        let block = |id: &String| {
            let held = self.blocks.get(self.ids.get(id)?)?;
            let block = held.block.raw.text().as_bytes().to_vec();
            Some(ToolBlock { id: id.as_bytes().to_vec(), block })
        };
        ids.iter().filter_map(block).collect()
    }

    /// Gives every assistant message with calls its block, or else the order of arguments that the schema has. Ids that
    /// are not known are looked up on `disk`.
    pub(super) fn restore(
        &mut self,
        conversation: &mut Conversation,
        tools: &Toolset,
        mut disk: Option<&mut ToolFiles>,
    ) -> Replayed {
        let mut found = Replayed::default();
        for message in &mut conversation.messages {
            if message.role != Role::Assistant || message.tool_calls.is_empty() {
                continue;
            }
            if let Some(disk) = &mut disk {
                self.fetch(&message.tool_calls, tools, disk);
            }
            let missing = |call: &&ToolCall| call.id.as_ref().is_none_or(|id| !self.knows(id));
            found.missing_ids += message.tool_calls.iter().filter(missing).count();
            if let Some((block, from_disk)) = self.block_of(&message.tool_calls) {
                message.replay = Some(block);
                *(if from_disk { &mut found.disk } else { &mut found.memory }) += 1;
            } else {
                found.canonical += 1;
                order(&mut message.tool_calls, tools);
            }
        }
        found
    }

    /// Reads what files know of calls that memory does not.
    fn fetch(&mut self, calls: &[ToolCall], tools: &Toolset, files: &mut ToolFiles) {
        let wanted: Vec<&str> = calls.iter().filter_map(|call| call.id.as_deref()).collect();
        let Some(id) = wanted.iter().find(|id| !self.knows(id)) else { return };
        let Some(disk) = files.store() else { return };
        let Some(entry) = disk.with_tool(id.as_bytes()) else { return };
        let name = entry.name;
        let opened = File::open(disk.path_of(&name)).ok().and_then(|f| Container::open(f).ok());
        let Some(Ok((sections, _))) = opened.map(|mut file| file.sections()) else { return };
        let mut by_block: BTreeMap<Vec<u8>, Vec<String>> = BTreeMap::new();
        for tool in sections.tools {
            let Ok(id) = String::from_utf8(tool.id) else { continue };
            if wanted.contains(&id.as_str()) {
                by_block.entry(tool.block).or_default().push(id);
            }
        }
        for (block, ids) in by_block {
            let parsed = String::from_utf8(block).ok().and_then(|text| Block::parse(&text, tools));
            if let Some(block) = parsed {
                self.insert_from(ids, block, true);
            }
        }
    }
}

impl Held {
    fn bytes(&self) -> usize {
        self.block.raw.text().len() + self.ids.iter().map(String::len).sum::<usize>()
    }
}

impl Block {
    /// Reads a block as it was written.
    fn parse(text: &str, tools: &Toolset) -> Option<Self> {
        let options =
            ReaderOptions { source: Source::Text, thinking: false, tools: Some(tools.clone()) };
        let mut reader = Reader::new(options);
        reader.bytes(text.as_bytes());
        let (_, reply) = reader.finish(End::Turn);
        let raw = reply.block.filter(|raw| raw.text() == text && reply.content.is_empty())?;
        Some(Self { raw, calls: reply.calls })
    }
}

/// Brings the arguments of calls that are rendered anew into the order of their schemas.
pub(super) fn order(calls: &mut [ToolCall], tools: &Toolset) {
    for call in calls {
        tools.order(&call.name, &mut call.arguments);
    }
}

/// Whether a call that a client sent means what the model wrote.
fn means(own: &ParsedCall, sent: &ToolCall) -> bool {
    let text_of = |name: &str| own.texts.iter().rev().find(|(n, _)| n == name).map(|(_, t)| t);
    let equal = |(name, value): (&str, &Json)| {
        let Some(typed) = own.arguments.get(name) else { return false };
        let written = text_of(name).is_some_and(|text| *text == canonical::argument(value));
        written || equal_values(&value_of(typed), &value_of(value))
    };
    let same = |arguments: &Arguments| {
        arguments.len() == own.arguments.len() && arguments.iter().all(equal)
    };
    own.name == sent.name && same(&sent.arguments)
}

fn value_of(json: &Json) -> Value {
    serde_json::from_str(json.text()).unwrap_or(Value::Null)
}

/// Equal for a program: the order of members does not count, nor whether a whole number has a fraction.
fn equal_values(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || a.as_f64().is_some_and(|a| Some(a) == b.as_f64())
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal_values(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let equal =
                |(name, a): (&String, &Value)| b.get(name).is_some_and(|b| equal_values(a, b));
            a.len() == b.len() && a.iter().all(equal)
        }
        _ => a == b,
    }
}

/// A new id for a call, in the form that the API's clients know. Unguessable: 128 bits of the system's generator.
pub(super) fn new_call_id(api: Api) -> String {
    let prefix = match api {
        Api::Messages => "toolu_",
        Api::Chat | Api::Completions | Api::Responses => "call_",
    };
    format!("{prefix}{}", hex::encode(&random::unguessable::<16>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{Message, Tool};

    const BLOCK: &str = "\n\n<tool_call>\n<function=f>\n<parameter=b>\n5.0\n</parameter>\n<parameter=a>\n02\n\
                         </parameter>\n</function>\n</tool_call>";

    fn tools() -> Toolset {
        let schema = r#"{"name": "f", "parameters": {"properties":
            {"a": {"type": "string"}, "b": {"type": "number"}, "c": {}}}}"#;
        Toolset::new(&[Tool::parse(schema).unwrap()])
    }

    fn call(id: &str, arguments: &str) -> ToolCall {
        let call = ToolCall::new("f", Arguments::parse(arguments).unwrap());
        ToolCall { id: Some(id.to_owned()), ..call }
    }

    fn remember(memory: &mut Memory, ids: &[&str], text: &str) {
        let block = Block::parse(text, &tools()).unwrap();
        memory.insert(ids.iter().map(|id| (*id).to_owned()).collect(), block.raw, block.calls);
    }

    /// What becomes of a message with these calls.
    fn restored(memory: &mut Memory, calls: Vec<ToolCall>) -> (Message, Replayed) {
        let message = Message::assistant("text").with_calls(calls);
        let mut conversation = Conversation::new(vec![Message::user("q"), message]);
        let found = memory.restore(&mut conversation, &tools(), None);
        (conversation.messages.remove(1), found)
    }

    #[test]
    fn a_known_call_is_replayed_as_it_was_written() {
        let mut memory = Memory::new(ReplayLimits::default());
        remember(&mut memory, &["x"], BLOCK);
        for same in [r#"{"b": 5.0, "a": "02"}"#, r#"{"a": "02", "b": 5}"#] {
            let (message, found) = restored(&mut memory, vec![call("x", same)]);
            assert_eq!(message.replay.unwrap().text(), BLOCK);
            assert_eq!(found, Replayed { memory: 1, ..Replayed::default() });
        }
    }

    #[test]
    fn edited_and_unknown_calls_are_rendered_by_their_schema() {
        let mut memory = Memory::new(ReplayLimits::default());
        remember(&mut memory, &["x"], BLOCK);
        let others = [
            r#"{"b": 5, "a": "03"}"#,
            r#"{"b": 5}"#,
            r#"{"b": 5, "a": "02", "c": 1}"#,
            r#"{"b": 5, "a": 2}"#,
        ];
        for other in others {
            let (message, found) = restored(&mut memory, vec![call("x", other)]);
            assert_eq!(
                (message.replay, found.canonical, found.missing_ids),
                (None, 1, 0),
                "{other}"
            );
        }
        let (message, found) =
            restored(&mut memory, vec![call("y", r#"{"c": 0, "b": 1, "a": ""}"#)]);
        assert_eq!((message.replay, found.canonical, found.missing_ids), (None, 1, 1));
        let names: Vec<_> = message.tool_calls[0].arguments.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[test]
    fn all_calls_of_a_message_must_come_from_one_block() {
        let one = "<tool_call>\n<function=f>\n</function>\n</tool_call>";
        let two = format!("{one}\n{one}");
        let mut memory = Memory::new(ReplayLimits::default());
        remember(&mut memory, &["a", "b"], &two);
        remember(&mut memory, &["c"], one);
        let mut replays = |ids: &[&str]| {
            let calls = ids.iter().map(|id| call(id, "{}")).collect();
            restored(&mut memory, calls).0.replay.is_some()
        };
        assert!(replays(&["a", "b"]));
        assert!(replays(&["c"]));
        assert!(!replays(&["a"]), "a part of it");
        assert!(!replays(&["a", "c"]));
        assert!(!replays(&["a", "b", "c"]));
    }

    #[test]
    fn what_was_used_longest_ago_is_forgotten() {
        let one = "<tool_call>\n<function=f>\n</function>\n</tool_call>";
        let mut memory = Memory::new(ReplayLimits { ids: 2, ..ReplayLimits::default() });
        remember(&mut memory, &["a"], one);
        remember(&mut memory, &["b"], one);
        assert!(restored(&mut memory, vec![call("a", "{}")]).0.replay.is_some());
        remember(&mut memory, &["c"], one);
        assert!(memory.knows("a") && !memory.knows("b") && memory.knows("c"));
        let bytes = 2 * (one.len() + 1);
        let mut memory = Memory::new(ReplayLimits { bytes, ..ReplayLimits::default() });
        for id in ["a", "b", "c"] {
            remember(&mut memory, &[id], one);
        }
        assert!(!memory.knows("a") && memory.knows("b") && memory.knows("c"));
        assert_eq!((memory.bytes, memory.blocks.len(), memory.order.len()), (bytes, 2, 2));
        let on_disk = memory.for_disk(&["a".to_owned(), "c".to_owned()]);
        assert_eq!(on_disk, [ToolBlock { id: b"c".to_vec(), block: one.as_bytes().to_vec() }]);
    }

    #[test]
    fn ids_are_of_the_api_and_never_the_same() {
        let (a, b) = (new_call_id(Api::Chat), new_call_id(Api::Messages));
        assert!(a.starts_with("call_") && a.len() == 37);
        assert!(b.starts_with("toolu_") && b.len() == 38);
        assert_ne!(a, new_call_id(Api::Chat));
    }
}
