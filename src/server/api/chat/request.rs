//! Chat requests.

use super::super::content::Contents;
use super::super::history::{self, Known};
use super::super::node::{Node, Object};
use super::super::shape::{Form, Shape};
use super::super::tools::{self, Function};
use super::super::{Context, Parsed, format, sampling, settings, system};
use super::legacy;
use super::response::ChatForm;
use crate::chat::{Message, ToolCall};
use crate::server::{Api, Failure};

/// Reads a request.
pub(crate) fn parse(request: &Object<'_>, context: &Context<'_>) -> Result<Parsed, Failure> {
    let mut contents = Contents::new(context.strict_media);
    let messages = messages(&request.require("messages")?, &mut contents)?;
    let legacy = legacy::is_spoken(request);
    let functions =
        if legacy { legacy::functions(request)? } else { functions(request, &mut contents)? };
    tools::check_count(if legacy { "functions" } else { "tools" }, functions.len())?;
    let input = history::input(messages, tools::tools(&functions), true);
    let mut parsed = settings::request(Api::Chat, request, input, context.vocab)?;
    parsed.limit = sampling::limit(request, &["max_completion_tokens", "max_tokens"])?;
    parsed.calls = tools::calls(request, &functions, tools::itself(&functions))?;
    if legacy {
        parsed.calls.choice = legacy::choice(request, &functions)?;
        // Answers have a place for one.
        parsed.calls.parallel = false;
    }
    parsed.format = format::read(request.get("response_format").as_ref())?;
    parsed.logprobs = logprobs(request)?;
    let form = ChatForm {
        include_usage: settings::include_usage(request)?,
        logprobs: parsed.logprobs.is_some(),
        legacy,
    };
    let shape = Shape::new(&parsed, Form::Chat(form));
    Ok(Parsed { request: parsed, shape, warnings: contents.warnings() })
}

/// `logprobs` switches them on, `top_logprobs` says how many.
fn logprobs(request: &Object<'_>) -> Result<Option<u8>, Failure> {
    let top = request.get("top_logprobs").map(|node| sampling::top_logprobs(&node)).transpose()?;
    let wanted = request.boolean("logprobs")?.unwrap_or(false);
    Ok(wanted.then(|| top.unwrap_or(0)))
}

fn functions(request: &Object<'_>, contents: &mut Contents) -> Result<Vec<Function>, Failure> {
    let mut functions = Vec::new();
    for node in request.items("tools")? {
        let tool = node.object()?;
        match tool.string("type")?.as_deref() {
            None | Some("function") => functions.push(Function::read(&tool)?),
            Some(_) if tool.get("function").is_some() => functions.push(Function::read(&tool)?),
            Some(kind) => contents.warn(format!("a tool of type `{kind}` is left out")),
        }
    }
    Ok(functions)
}

fn messages(node: &Node<'_>, contents: &mut Contents) -> Result<Vec<Message>, Failure> {
    let nodes = node.items()?;
    if nodes.is_empty() {
        return Err(node.refused("must not be empty"));
    }
    let mut known = Known::default();
    let mut messages = Vec::with_capacity(nodes.len());
    for node in &nodes {
        let message = message(&node.object()?, contents, &known)?;
        known.note(&message.tool_calls);
        messages.push(message);
    }
    Ok(messages)
}

fn message(
    object: &Object<'_>,
    contents: &mut Contents,
    known: &Known,
) -> Result<Message, Failure> {
    let role = object.get("role");
    let name = role.as_ref().map_or_else(|| Ok("user".to_owned()), Node::string)?;
    let mut text = || contents.text(object.get("content").as_ref());
    match name.as_str() {
        "system" | "developer" => Ok(Message::system(system::without_headers(&text()?))),
        "user" => Ok(Message::user(text()?)),
        "assistant" => {
            let thought = object.first(&["reasoning_content", "reasoning"]);
            let thought = thought.map(|node| node.string()).transpose()?;
            Ok(history::reply(text()?, thought).with_calls(calls(object)?))
        }
        "tool" | "function" => {
            let id = object.string("tool_call_id")?;
            if !known.explains(id.as_deref()) {
                return Err(history::unexplained("messages", id.as_deref()));
            }
            Ok(Message::tool(contents.result(object.get("content").as_ref())?))
        }
        other => {
            let expected =
                "must be `system`, `developer`, `user`, `assistant`, `tool` or `function`";
            let path = object.path_of("role");
            Err(Failure::invalid(&path, format!("`{path}` {expected}, found `{other}`")))
        }
    }
}

fn calls(message: &Object<'_>) -> Result<Vec<ToolCall>, Failure> {
    let mut calls = Vec::new();
    for node in message.items("tool_calls")? {
        let object = node.object()?;
        let id = object.string("id")?;
        if let Some(custom) = object.object("custom")? {
            let input = custom.string("input")?.unwrap_or_default();
            let arguments = history::input_argument(&input);
            calls.push(history::call(id, tools::name(&custom)?, arguments));
        } else {
            let function = object.require("function")?.object()?;
            let arguments = history::arguments(function.get("arguments").as_ref());
            calls.push(history::call(id, tools::name(&function)?, arguments));
        }
    }
    calls.extend(legacy::call(message)?);
    Ok(calls)
}
