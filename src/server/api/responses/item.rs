//! Input items (server.md 9.1).

use std::sync::Arc;

use super::super::content::Contents;
use super::super::history;
use super::super::node::{Node, Object};
use super::super::{signature, system, tools};
use super::kinds::flat;
use super::store::ResponseStore;
use crate::chat::{Arguments, Json, Role, ToolCall};
use crate::server::Failure;

/// An item of a conversation, with the id that it may be referred to by.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) id: Option<String>,
    pub(crate) item: Item,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    /// Somebody said something.
    Message {
        /// Not [`Role::Tool`].
        role: Role,
        text: String,
    },
    /// The thought before the next reply or call.
    Reasoning(String),
    /// A call; its function has the name of the prompt.
    Call(ToolCall),
    /// The result of a call.
    Output {
        call_id: String,
        text: String,
        /// Tools that a search found: from then on they are on offer.
        tools: Option<Json>,
    },
}

impl Entry {
    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        let text = match &self.item {
            Item::Message { text, .. } | Item::Reasoning(text) => text.len(),
            Item::Call(call) => call
                .arguments
                .iter()
                .map(|(name, value)| name.len() + value.text().len())
                .sum::<usize>(),
            Item::Output { call_id, text, tools } => {
                call_id.len() + text.len() + tools.as_ref().map_or(0, |tools| tools.text().len())
            }
        };
        size_of::<Self>() + text
    }
}

/// What reading items takes and gives.
pub(crate) struct Reader<'a> {
    pub(crate) contents: &'a mut Contents,
    pub(crate) store: &'a ResponseStore,
    pub(crate) entries: Vec<Arc<Entry>>,
}

impl Reader<'_> {
    /// Reads the input: one text, or an array of items.
    pub(crate) fn input(&mut self, node: &Node<'_>) -> Result<(), Failure> {
        if node.is_string() {
            self.push(None, Item::Message { role: Role::User, text: node.string()? });
            return Ok(());
        }
        if !node.is_array() {
            return Err(node.wrong("a string or an array of items"));
        }
        for item in node.items()? {
            self.item(&item)?;
        }
        Ok(())
    }

    fn push(&mut self, id: Option<String>, item: Item) {
        self.entries.push(Arc::new(Entry { id, item }));
    }

    fn item(&mut self, node: &Node<'_>) -> Result<(), Failure> {
        if node.is_string() {
            return self.input(node);
        }
        let object = node.object()?;
        let id = object.string("id")?;
        let kind = object.string("type")?.unwrap_or_else(|| "message".to_owned());
        match kind.as_str() {
            "message" => {
                let item = self.message(&object)?;
                self.push(id, item);
            }
            "reasoning" => self.push(id, Item::Reasoning(reasoning(&object)?)),
            "item_reference" => self.reference(node, id)?,
            "compaction" | "context_compaction" => {}
            _ => {
                let item = if kind.ends_with("_output") {
                    self.output(node, &kind, &object)?
                } else {
                    Item::Call(call(node, &kind, &object)?)
                };
                self.push(id, item);
            }
        }
        Ok(())
    }

    fn message(&mut self, object: &Object<'_>) -> Result<Item, Failure> {
        let role = object.string("role")?.unwrap_or_else(|| "user".to_owned());
        let text = self.contents.text(object.get("content").as_ref())?;
        let (role, text) = match role.as_str() {
            "user" => (Role::User, text),
            "assistant" => (Role::Assistant, text),
            "system" | "developer" => (Role::System, system::without_headers(&text).to_owned()),
            other => {
                let path = object.path_of("role");
                let expected = "must be `user`, `assistant`, `system` or `developer`";
                return Err(Failure::invalid(
                    &path,
                    format!("`{path}` {expected}, found `{other}`"),
                ));
            }
        };
        Ok(Item::Message { role, text })
    }

    fn reference(&mut self, node: &Node<'_>, id: Option<String>) -> Result<(), Failure> {
        let id = id.unwrap_or_default();
        let entry = self.store.item(&id).ok_or_else(|| {
            node.refused(format!(
                "refers to item `{id}`, which is not stored; send the item itself"
            ))
        })?;
        self.entries.push(entry);
        Ok(())
    }

    fn output(
        &mut self,
        node: &Node<'_>,
        kind: &str,
        object: &Object<'_>,
    ) -> Result<Item, Failure> {
        let known = matches!(
            kind.trim_end_matches("_output"),
            "function_call"
                | "custom_tool_call"
                | "local_shell_call"
                | "shell_call"
                | "apply_patch_call"
                | "tool_search"
                | "tool_search_call"
                | "web_search_call"
                | "image_generation_call"
        );
        if !known {
            return Err(unknown(node, kind));
        }
        let call_id = object.first(&["call_id", "id"]).ok_or_else(|| object.missing("call_id"))?;
        let call_id = call_id.string()?;
        let tools = object.get("tools").filter(Node::is_array);
        let tools = tools.map(|node| node.json()).transpose()?;
        let result = object.first(&["output", "tools"]);
        let text = self.contents.result(result.as_ref())?;
        Ok(Item::Output { call_id, text, tools })
    }
}

/// The thought that a signature has, else the one that stands there.
fn reasoning(object: &Object<'_>) -> Result<String, Failure> {
    let sealed = object.get("encrypted_content").and_then(|node| node.as_str());
    if let Some(thought) = sealed.and_then(|sealed| signature::thought(&sealed)) {
        return Ok(thought);
    }
    let mut parts = Vec::new();
    for name in ["content", "summary"] {
        let Some(node) = object.get(name).filter(|_| parts.is_empty()) else { continue };
        for part in node.items()? {
            parts.extend(part.object()?.string("text")?);
        }
    }
    Ok(parts.join("\n\n"))
}

fn unknown(node: &Node<'_>, kind: &str) -> Failure {
    node.refused(format!("has the type `{kind}`, which is not known"))
}

/// A call of any kind as a call of a function.
fn call(node: &Node<'_>, kind: &str, object: &Object<'_>) -> Result<ToolCall, Failure> {
    let named = || tools::name(object);
    let (name, arguments) = match kind {
        "function_call" => {
            let name = match object.string("namespace")? {
                Some(namespace) => flat(&namespace, &named()?),
                None => named()?,
            };
            (name, history::arguments(object.get("arguments").as_ref()))
        }
        "custom_tool_call" => {
            let input = object.string("input")?.unwrap_or_default();
            (named()?, history::input_argument(&input))
        }
        "local_shell_call" => ("local_shell".to_owned(), action(object)?),
        "tool_search_call" => {
            ("tool_search".to_owned(), history::arguments(object.get("arguments").as_ref()))
        }
        "web_search_call" => ("web_search".to_owned(), action(object)?),
        "image_generation_call" => ("image_generation".to_owned(), picture(object)?),
        _ => return Err(unknown(node, kind)),
    };
    let status = object.string("status")?;
    // What the servers of others ran themselves needs no id, and is over.
    let own = !matches!(kind, "web_search_call" | "image_generation_call");
    if own && let Some(status) = status.filter(|status| status != "completed") {
        return Err(node.refused(format!(
            "is a call with the status `{status}`: only completed ones can be replayed"
        )));
    }
    let id = object.first(&["call_id", "id"]).map(|node| node.string()).transpose()?;
    if own && id.is_none() {
        return Err(object.missing("call_id"));
    }
    Ok(history::call(id, name, arguments))
}

/// What is known of actions, and the names that it has as arguments.
const ACTION: [(&str, &str); 8] = [
    ("command", "command"),
    ("working_directory", "workdir"),
    ("timeout_ms", "timeout_ms"),
    ("user", "user"),
    ("query", "query"),
    ("queries", "queries"),
    ("url", "url"),
    ("pattern", "pattern"),
];

/// An action as arguments.
fn action(object: &Object<'_>) -> Result<Arguments, Failure> {
    let mut arguments = Arguments::default();
    let Some(action) = object.object("action")? else { return Ok(arguments) };
    for (field, name) in ACTION {
        if let Some(node) = action.get(field) {
            arguments.set(name, node.json()?);
        }
    }
    Ok(arguments)
}

/// What a picture was to show; the picture itself is no text.
fn picture(object: &Object<'_>) -> Result<Arguments, Failure> {
    let mut arguments = Arguments::default();
    if let Some(prompt) = object.string("revised_prompt")? {
        arguments.set("prompt", Json::string(&prompt));
    }
    Ok(arguments)
}
