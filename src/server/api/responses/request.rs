//! Responses requests.

use std::sync::Arc;

use serde_json::Map;

use super::super::content::Contents;
use super::super::history::{self, Known};
use super::super::node::{Node, Object};
use super::super::shape::{Form, Shape};
use super::super::{Context, Parsed, format, sampling, settings, system, tools};
use super::item::{Entry, Item, Reader};
use super::kinds::Offer;
use super::merge;
use super::response::{ResponsesForm, Thoughts};
use crate::chat::Message;
use crate::server::{Api, Failure, FailureKind};

/// Fields that come back as they were.
const ECHOED: [&str; 6] =
    ["metadata", "user", "truncation", "prompt_cache_key", "service_tier", "client_metadata"];

/// Reads a request.
pub(crate) fn parse(request: &Object<'_>, context: &Context<'_>) -> Result<Parsed, Failure> {
    refuse_unsupported(request)?;
    let mut contents = Contents::new(context.strict_media);
    let input = request.require("input")?;
    let mut previous = request.string("previous_response_id")?;
    let mut stored = match &previous {
        Some(id) => conversation(id, context)?,
        None => Vec::new(),
    };
    let mut reader =
        Reader { contents: &mut contents, store: context.responses, entries: Vec::new() };
    reader.input(&input)?;
    let new = reader.entries;
    if let Some(call_id) = unexplained(&stored, &new) {
        // A client that sends only results means the response whose calls they answer.
        let origin = context.responses.of_call(&call_id).filter(|_| previous.is_none());
        let (id, entries) = origin.ok_or_else(|| history::unexplained("input", Some(&call_id)))?;
        (previous, stored) = (Some(id), entries);
        if let Some(call_id) = unexplained(&stored, &new) {
            return Err(history::unexplained("input", Some(&call_id)));
        }
    }
    stored.extend(new);

    let mut offer = Offer::default();
    offer.add(&request.items("tools")?, &mut contents)?;
    for entry in &stored {
        if let Item::Output { tools: Some(tools), .. } = &entry.item {
            offer.add(&Node::new("tool_search_output.tools", tools).items()?, &mut contents)?;
        }
    }
    let mut messages = Vec::new();
    if let Some(node) = request.get("instructions") {
        let text = contents.text(Some(&node))?;
        messages.push(Message::system(system::without_headers(&text)));
    }
    messages.extend(merge::messages(&stored));
    if messages.is_empty() {
        return Err(input.refused("must not be empty"));
    }
    let prompt = history::input(messages, tools::tools(&offer.functions), false);
    let mut parsed = settings::request(Api::Responses, request, prompt, context.vocab)?;
    parsed.limit = sampling::limit(request, &["max_output_tokens", "max_tokens"])?;
    parsed.calls = tools::calls(request, &offer.functions, |name| offer.known(name))?;
    let text = request.object("text")?;
    parsed.format = format::read(text.and_then(|text| text.get("format")).as_ref())?;
    let form = ResponsesForm {
        history: stored,
        previous,
        store: request.boolean("store")?.unwrap_or(true),
        parallel: parsed.calls.parallel,
        thoughts: thoughts(request)?,
        kinds: offer.kinds,
        echo: echo(request),
    };
    let shape = Shape::new(&parsed, Form::Responses(Box::new(form)));
    Ok(Parsed { request: parsed, shape, warnings: contents.warnings() })
}

fn refuse_unsupported(request: &Object<'_>) -> Result<(), Failure> {
    if let Some(node) = request.get("conversation") {
        return Err(node.refused("is not supported: send the history, or previous_response_id"));
    }
    if let Some(node) = request.get("background").filter(|node| node.text() == "true") {
        return Err(node.refused("is not supported: stream the response instead"));
    }
    Ok(())
}

fn conversation(id: &str, context: &Context<'_>) -> Result<Vec<Arc<Entry>>, Failure> {
    context.responses.conversation(id).ok_or_else(|| {
        let message =
            format!("no response with the id `{id}` is kept; send the whole input instead");
        Failure::new(FailureKind::UnknownResponse, message).about("previous_response_id")
    })
}

/// The first result whose call is nowhere before it.
fn unexplained(stored: &[Arc<Entry>], new: &[Arc<Entry>]) -> Option<String> {
    let mut known = Known::default();
    for entry in stored.iter().chain(new) {
        match &entry.item {
            Item::Call(call) => known.note(std::slice::from_ref(call)),
            Item::Output { call_id, .. } if !known.explains(Some(call_id)) => {
                return Some(call_id.clone());
            }
            Item::Output { .. } | Item::Message { .. } | Item::Reasoning(_) => {}
        }
    }
    None
}

/// Thoughts are shown unless the client wants none.
fn thoughts(request: &Object<'_>) -> Result<Thoughts, Failure> {
    let reasoning = request.object("reasoning")?;
    let summary = reasoning.map(|reasoning| reasoning.string("summary")).transpose()?.flatten();
    let wanted = |node: &Node<'_>| node.as_str().as_deref() == Some("reasoning.encrypted_content");
    let sealed = request.items("include")?.iter().any(wanted);
    Ok(match summary.as_deref() {
        Some("none") => Thoughts::Hidden,
        _ if sealed => Thoughts::Sealed,
        _ => Thoughts::Plain,
    })
}

fn echo(request: &Object<'_>) -> Map<String, serde_json::Value> {
    let value = |name: &&str| Some(((*name).to_owned(), request.get(name)?.value()?));
    ECHOED.iter().filter_map(value).collect()
}
