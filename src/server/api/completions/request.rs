//! Completion requests.
//!
//! Markers in the prompt count, so that templates and fill-in-the-middle prompts of a client's own work.

use super::super::node::{Node, Object};
use super::super::shape::{Form, Shape};
use super::super::{Context, Parsed, format, sampling, settings};
use super::response::CompletionsForm;
use crate::server::{Api, Failure, Input, Thinking};
use crate::tokenizer::TokenId;

/// Reads a request.
pub(crate) fn parse(request: &Object<'_>, context: &Context<'_>) -> Result<Parsed, Failure> {
    let prompt = request.require("prompt")?;
    let mut input = input(&prompt, context.vocab)?;
    let echo = echo(request, &input)?;
    if let Some(suffix) = request.get("suffix") {
        input = fill_in(&suffix, input)?;
    }
    let mut parsed = settings::request(Api::Completions, request, input, context.vocab)?;
    parsed.thinking = Thinking { on: Some(false), ..Thinking::default() };
    parsed.limit = sampling::limit(request, &["max_tokens", "max_completion_tokens"])?;
    parsed.format = format::read(request.get("response_format").as_ref())?;
    let logprobs = request.get("logprobs");
    parsed.logprobs = logprobs.map(|node| sampling::top_logprobs(&node)).transpose()?;
    let form = CompletionsForm {
        include_usage: settings::include_usage(request)?,
        logprobs: parsed.logprobs.is_some(),
        echo,
    };
    let shape = Shape::new(&parsed, Form::Completions(form));
    Ok(Parsed { request: parsed, shape, warnings: Vec::new() })
}

/// The prompt: a text, tokens, or an array with one of either.
fn input(prompt: &Node<'_>, vocab: usize) -> Result<Input, Failure> {
    if prompt.is_string() {
        return text(prompt);
    }
    if !prompt.is_array() {
        return Err(prompt.wrong("a string, an array of token ids, or an array with one prompt"));
    }
    let items = prompt.items()?;
    match items.as_slice() {
        [] => Err(prompt.refused("must not be empty")),
        [only] if only.is_string() => text(only),
        [only] if only.is_array() => tokens(only, &only.items()?, vocab),
        [first, ..] if first.is_string() || first.is_array() => {
            let count = items.len();
            Err(prompt.refused(format!("has {count} prompts, one is accepted")))
        }
        items => tokens(prompt, items, vocab),
    }
}

fn text(node: &Node<'_>) -> Result<Input, Failure> {
    let text = node.string()?;
    if text.is_empty() {
        return Err(node.refused("must not be empty"));
    }
    Ok(Input::Text(text))
}

fn tokens(node: &Node<'_>, items: &[Node<'_>], vocab: usize) -> Result<Input, Failure> {
    if items.is_empty() {
        return Err(node.refused("must not be empty"));
    }
    let token = |item: &Node<'_>| {
        let id = item.integer()?;
        let known = usize::try_from(id).is_ok_and(|id| id < vocab);
        let id = u32::try_from(id).ok().filter(|_| known);
        id.map(TokenId)
            .ok_or_else(|| item.refused(format!("is not a token: ids are from 0 to below {vocab}")))
    };
    Ok(Input::Tokens(items.iter().map(token).collect::<Result<_, _>>()?))
}

/// The text that the answer begins with, if the prompt is to be repeated.
fn echo(request: &Object<'_>, input: &Input) -> Result<String, Failure> {
    let Some(node) = request.get("echo") else { return Ok(String::new()) };
    match (node.boolean()?, input) {
        (false, _) => Ok(String::new()),
        (true, _) if request.get("logprobs").is_some() => {
            Err(node.refused("with `logprobs` is not supported: the prompt's are not computed"))
        }
        (true, Input::Text(text)) => Ok(text.clone()),
        (true, Input::Tokens(_) | Input::Chat { .. }) => {
            Err(node.refused("needs a prompt that is a text"))
        }
    }
}

/// The prompt that asks for what stands between a text and a suffix, with the markers that the model was trained on.
fn fill_in(suffix: &Node<'_>, input: Input) -> Result<Input, Failure> {
    match (suffix.string()?, input) {
        (after, Input::Text(before)) if !after.is_empty() => {
            Ok(Input::Text(format!("<|fim_prefix|>{before}<|fim_suffix|>{after}<|fim_middle|>")))
        }
        (after, input @ (Input::Text(_) | Input::Chat { .. } | Input::Tokens(_))) => {
            if after.is_empty() {
                Ok(input)
            } else {
                Err(suffix.refused("needs a prompt that is a text"))
            }
        }
    }
}
