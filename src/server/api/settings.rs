//! What every API reads alike.

use super::models::MODEL;
use super::node::Object;
use super::{sampling, thinking};
use crate::server::{Api, Calls, Failure, Format, Input, Request};

/// A request of `api` for a model of `vocab` tokens, with everything that has the same name in all of them.
pub(super) fn request(
    api: Api,
    object: &Object<'_>,
    input: Input,
    vocab: usize,
) -> Result<Request, Failure> {
    let model = object.string("model")?.filter(|name| !name.is_empty());
    let model = model.unwrap_or_else(|| MODEL.to_owned());
    Ok(Request {
        api,
        thinking: thinking::read(object, &model)?,
        model,
        input,
        sampling: sampling::read(object, vocab)?,
        limit: None,
        stop: sampling::stops(object)?,
        calls: Calls::default(),
        format: Format::Text,
        logprobs: None,
        stream: object.boolean("stream")?.unwrap_or(false),
        affinity: object.get("prompt_cache_key").and_then(|node| node.as_str()),
    })
}

/// Whether a stream ends with the numbers of tokens.
pub(super) fn include_usage(object: &Object<'_>) -> Result<bool, Failure> {
    let Some(options) = object.object("stream_options")? else { return Ok(false) };
    Ok(options.boolean("include_usage")?.unwrap_or(false))
}
