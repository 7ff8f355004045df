//! Conversations: messages, tool calls, tools.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use unicode_normalization::{UnicodeNormalization as _, is_nfc};

use super::{Error, Json, RawBlock};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Instructions; only as the first message.
    System,
    /// The person, or a program asking in a person's place.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
}

impl std::str::FromStr for Role {
    type Err = Error;

    /// `developer` is the newer name of `system` in one of the APIs.
    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "system" | "developer" => Ok(Self::System),
            "user" => Ok(Self::User),
            "assistant" => Ok(Self::Assistant),
            "tool" => Ok(Self::Tool),
            _ => Err(Error::UnknownRole(name.to_owned())),
        }
    }
}

/// One message. Content made of several text parts is joined without a separator before it comes here.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// The text; empty where the client sent none.
    pub content: String,
    /// The thought before an assistant text. `Some("")` means "none"; `None` lets the renderer look for a thought
    /// inside `content` (model.md 7.1, rule 5).
    pub reasoning: Option<String>,
    /// Calls of an assistant message, in order.
    pub tool_calls: Vec<ToolCall>,
    /// The block of calls exactly as the model wrote it. Rendered in place of `tool_calls`, so that a continued
    /// conversation equals the state the model is in (server.md 11.6). Whoever sets it has checked that it means the
    /// same as `tool_calls`.
    pub replay: Option<RawBlock>,
}

impl Message {
    /// A message of plain text.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        let content = content.into();
        Self { role, content, reasoning: None, tool_calls: Vec::new(), replay: None }
    }

    /// Instructions.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new(Role::System, content)
    }

    /// A question.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new(Role::User, content)
    }

    /// A reply of the model.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new(Role::Assistant, content)
    }

    /// The result of a tool call.
    pub fn tool(content: impl Into<String>) -> Self {
        Self::new(Role::Tool, content)
    }

    /// Adds the thought.
    #[must_use]
    pub fn with_reasoning(mut self, reasoning: impl Into<String>) -> Self {
        self.reasoning = Some(reasoning.into());
        self
    }

    /// Adds calls.
    #[must_use]
    pub fn with_calls(mut self, calls: Vec<ToolCall>) -> Self {
        self.tool_calls = calls;
        self
    }

    /// Brings what people wrote (system and user text) into Unicode normal form C, as the official tokenizer does.
    ///
    /// Texts of the model stay as they are, since they must match the state that produced them, and so do tool results
    /// and arguments: they carry the contents of files, which the model must be able to quote byte for byte.
    #[must_use]
    pub fn normalised(mut self) -> Self {
        let written = matches!(self.role, Role::System | Role::User);
        if written && !is_nfc(&self.content) {
            self.content = self.content.nfc().collect();
        }
        self
    }
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The name clients know the call by; never part of the prompt.
    pub id: Option<String>,
    /// The function.
    pub name: String,
    /// What it is called with.
    pub arguments: Arguments,
}

impl ToolCall {
    /// A call without an id.
    pub fn new(name: impl Into<String>, arguments: Arguments) -> Self {
        Self { id: None, name: name.into(), arguments }
    }
}

/// The arguments of a call: names and values in order, every name once, values as they were spelled.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Arguments(Vec<(String, Json)>);

impl Arguments {
    /// Reads an object, or a JSON string that contains one (as the chat API sends it).
    ///
    /// # Errors
    /// [`Error::ArgumentsNotObject`], and those of [`Json::parse`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let value = Json::parse(text)?;
        match value.as_str() {
            Some(inner) => Self::from_json(&Json::parse(&inner)?),
            None => Self::from_json(&value),
        }
    }

    /// Reads an object.
    ///
    /// # Errors
    /// [`Error::ArgumentsNotObject`] for any other value.
    pub fn from_json(value: &Json) -> Result<Self, Error> {
        if !value.is_object() {
            return Err(Error::ArgumentsNotObject(value.kind()));
        }
        serde_json::from_str(value.text()).map_err(|e| Error::InvalidJson(e.to_string()))
    }

    /// Sets an argument; a repeated name keeps its place and takes the new value.
    pub fn set(&mut self, name: impl Into<String>, value: Json) {
        let name = name.into();
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some(entry) => entry.1 = value,
            None => self.0.push((name, value)),
        }
    }

    /// The value of an argument.
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Brings the arguments named in `first` to the front, in that order; the rest keep theirs.
    pub fn order_by(&mut self, first: &[&str]) {
        let place = |name: &str| first.iter().position(|f| *f == name).unwrap_or(first.len());
        self.0.sort_by_key(|(name, _)| place(name));
    }
}

impl Serialize for Arguments {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> serde::de::Visitor<'de> for Entries {
            type Value = Arguments;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Arguments, A::Error> {
                let mut places = HashMap::new();
                let mut arguments = Arguments::default();
                while let Some((name, value)) = map.next_entry::<String, Json>()? {
                    let place = *places.entry(name.clone()).or_insert(arguments.0.len());
                    match arguments.0.get_mut(place) {
                        Some(entry) => entry.1 = value,
                        None => arguments.0.push((name, value)),
                    }
                }
                Ok(arguments)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// A tool as it was received, with or without the `{"type": "function", "function": …}` wrapper.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool(Json);

impl Tool {
    /// Takes the JSON object that describes a tool.
    ///
    /// # Errors
    /// [`Error::ToolNotObject`], and those of [`Json::parse`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::from_json(Json::parse(text)?)
    }

    /// Takes the JSON object that describes a tool.
    ///
    /// # Errors
    /// [`Error::ToolNotObject`].
    pub fn from_json(json: Json) -> Result<Self, Error> {
        if json.is_object() { Ok(Self(json)) } else { Err(Error::ToolNotObject(json.kind())) }
    }

    /// The description.
    pub fn json(&self) -> &Json {
        &self.0
    }
}

/// What a prompt is rendered from.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Conversation {
    /// The messages, oldest first.
    pub messages: Vec<Message>,
    /// The tools on offer, in the order they are shown.
    pub tools: Vec<Tool>,
}

impl Conversation {
    /// A conversation without tools.
    pub fn new(messages: Vec<Message>) -> Self {
        Self { messages, tools: Vec::new() }
    }

    /// Adds tools.
    #[must_use]
    pub fn with_tools(mut self, tools: Vec<Tool>) -> Self {
        self.tools = tools;
        self
    }

    /// Every message [`normalised`](Message::normalised). Front ends do this once, when text enters.
    #[must_use]
    pub fn normalised(mut self) -> Self {
        self.messages = self.messages.into_iter().map(Message::normalised).collect();
        self
    }
}
