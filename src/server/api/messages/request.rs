//! Messages requests.

use super::super::content::Contents;
use super::super::history::{self, Known};
use super::super::node::{Node, Object};
use super::super::shape::{Form, Shape};
use super::super::tools::{self, Function};
use super::super::{Context, Parsed, format, sampling, settings, signature, system};
use crate::chat::{Message, Role, ToolCall};
use crate::server::{Api, Failure};

/// What a result that is an error begins with.
const ERROR_MARK: &str = "[error] ";

/// Reads a request.
pub(crate) fn parse(request: &Object<'_>, context: &Context<'_>) -> Result<Parsed, Failure> {
    let mut contents = Contents::new(context.strict_media);
    let mut messages = Vec::new();
    if let Some(node) = request.get("system") {
        messages.push(Message::system(system_text(&node, &mut contents)?));
    }
    let nodes = request.require("messages")?;
    let turns = nodes.items()?;
    if turns.is_empty() {
        return Err(nodes.refused("must not be empty"));
    }
    let mut known = Known::default();
    for node in &turns {
        turn(&node.object()?, &mut contents, &mut known, &mut messages)?;
    }
    let functions = functions(request, &mut contents)?;
    tools::check_count("tools", functions.len())?;
    let input = history::input(messages, tools::tools(&functions), true);
    let mut parsed = settings::request(Api::Messages, request, input, context.vocab)?;
    parsed.limit = sampling::limit(request, &["max_tokens"])?;
    parsed.calls = tools::calls(request, &functions, tools::itself(&functions))?;
    let output = request.object("output_config")?.and_then(|output| output.get("format"));
    // The same by its name of before.
    let output = output.or_else(|| request.get("output_format"));
    parsed.format = format::read(output.as_ref())?;
    let shape = Shape::new(&parsed, Form::Messages);
    Ok(Parsed { request: parsed, shape, warnings: contents.warnings() })
}

/// A string or blocks, joined by newlines, each without its header lines.
fn system_text(node: &Node<'_>, contents: &mut Contents) -> Result<String, Failure> {
    if !node.is_array() {
        return Ok(system::without_headers(&contents.text(Some(node))?).to_owned());
    }
    let mut blocks = Vec::new();
    for block in node.items()? {
        let mut text = String::new();
        contents.part(&block, &mut text)?;
        let text = system::without_headers(&text);
        if !text.is_empty() {
            blocks.push(text.to_owned());
        }
    }
    Ok(blocks.join("\n"))
}

/// Tools with a schema. Those that only a server of Anthropic's could run are left out.
fn functions(request: &Object<'_>, contents: &mut Contents) -> Result<Vec<Function>, Failure> {
    let mut functions = Vec::new();
    for node in request.items("tools")? {
        let tool = node.object()?;
        let kind = tool.string("type")?;
        let own = matches!(kind.as_deref(), None | Some("custom" | "function"));
        if own || tool.get("input_schema").is_some() {
            functions.push(Function::read(&tool)?);
        } else {
            let kind = kind.unwrap_or_default();
            contents.warn(format!("a tool of type `{kind}` is left out"));
        }
    }
    Ok(functions)
}

/// Adds the messages that one message of the client's amounts to.
fn turn(
    object: &Object<'_>,
    contents: &mut Contents,
    known: &mut Known,
    messages: &mut Vec<Message>,
) -> Result<(), Failure> {
    let content = object.get("content");
    let role = object.get("role");
    let name = role.as_ref().map_or_else(|| Ok("user".to_owned()), Node::string)?;
    match name.as_str() {
        "user" => user(content.as_ref(), contents, known, messages),
        "assistant" => {
            let message = assistant(content.as_ref(), contents)?;
            known.note(&message.tool_calls);
            messages.push(message);
            Ok(())
        }
        "system" | "developer" => {
            let text = content.map(|node| system_text(&node, contents)).transpose()?;
            messages.push(Message::system(text.unwrap_or_default()));
            Ok(())
        }
        other => {
            let path = object.path_of("role");
            let expected = "must be `user`, `assistant` or `system`";
            Err(Failure::invalid(&path, format!("`{path}` {expected}, found `{other}`")))
        }
    }
}

/// Text and results in their order. Reminders behind a result go into it: they ask nothing, and a question would hide
/// the thoughts before it from the model.
fn user(
    content: Option<&Node<'_>>,
    contents: &mut Contents,
    known: &Known,
    messages: &mut Vec<Message>,
) -> Result<(), Failure> {
    let blocks = match content {
        Some(node) if node.is_array() => node.items()?,
        other => {
            add_text(contents.text(other)?, messages);
            return Ok(());
        }
    };
    let mut text = String::new();
    let mut results = 0;
    for block in &blocks {
        let object = if block.is_object() { Some(block.object()?) } else { None };
        match object {
            Some(object) if object.string("type")?.as_deref() == Some("tool_result") => {
                if !text.is_empty() {
                    add_text(std::mem::take(&mut text), messages);
                }
                messages.push(result(&object, contents, known)?);
                results += 1;
            }
            _ => contents.part(block, &mut text)?,
        }
    }
    if results == 0 || !text.is_empty() {
        add_text(text, messages);
    }
    Ok(())
}

/// Adds what a user wrote.
fn add_text(text: String, messages: &mut Vec<Message>) {
    match messages.last_mut().filter(|last| last.role == Role::Tool) {
        Some(last) if system::is_reminder(&text) => system::append(last, text.trim()),
        _ => messages.push(Message::user(text)),
    }
}

fn result(object: &Object<'_>, contents: &mut Contents, known: &Known) -> Result<Message, Failure> {
    let id = object.require("tool_use_id")?.string()?;
    if !known.explains(Some(&id)) {
        return Err(history::unexplained("messages", Some(&id)));
    }
    let text = contents.result(object.get("content").as_ref())?;
    let mark = if object.boolean("is_error")?.unwrap_or(false) { ERROR_MARK } else { "" };
    Ok(Message::tool(format!("{mark}{text}")))
}

/// Text, thought and calls of a reply.
fn assistant(content: Option<&Node<'_>>, contents: &mut Contents) -> Result<Message, Failure> {
    let blocks = match content {
        Some(node) if node.is_array() => node.items()?,
        other => return Ok(history::reply(contents.text(other)?, None)),
    };
    let (mut text, mut thought, mut calls) = (String::new(), None, Vec::new());
    for block in &blocks {
        let object = if block.is_object() { Some(block.object()?) } else { None };
        let kind = object.as_ref().map(|object| object.string("type")).transpose()?.flatten();
        match (kind.as_deref(), object) {
            (Some("thinking"), Some(object)) => {
                thought.get_or_insert_with(String::new).push_str(&thinking(&object)?);
            }
            (Some("redacted_thinking"), _) => {}
            (Some("tool_use"), Some(object)) => calls.push(tool_use(&object)?),
            _ => contents.part(block, &mut text)?,
        }
    }
    Ok(history::reply(text, thought).with_calls(calls))
}

/// The thought as it stands there, else the one in the signature.
fn thinking(object: &Object<'_>) -> Result<String, Failure> {
    let text = object.string("thinking")?.unwrap_or_default();
    if !text.is_empty() {
        return Ok(text);
    }
    let signature = object.string("signature")?;
    Ok(signature.and_then(|signature| signature::thought(&signature)).unwrap_or_default())
}

fn tool_use(object: &Object<'_>) -> Result<ToolCall, Failure> {
    let id = object.require("id")?.string()?;
    let arguments = history::arguments(object.get("input").as_ref());
    Ok(history::call(Some(id), tools::name(object)?, arguments))
}
