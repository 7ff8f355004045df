//! From bodies to requests and from outcomes to answers, whatever the API.

use serde_json::Value;

use super::body::Body;
use super::shape::{Form, Shape};
use super::stamp::Stamp;
use super::{ResponseStore, chat, completions, messages, responses};
use crate::server::{Api, Failure, Outcome, Request};

/// A request that was read.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// What is wanted.
    pub request: Request,
    /// How the answer is to look.
    pub shape: Shape,
    /// What was left out of the request, for the log.
    pub warnings: Vec<String>,
}

/// What reading depends on besides the body.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Refuse pictures and the like instead of leaving them out.
    pub strict_media: bool,
    /// Responses that can be continued by id.
    pub responses: &'a ResponseStore,
    /// Tokens of the vocabulary.
    pub vocab: usize,
}

/// Reads the body of a request to `api`.
///
/// # Errors
/// What is missing, of the wrong kind or out of range, by name.
pub fn parse(api: Api, body: &[u8], context: &Context<'_>) -> Result<Parsed, Failure> {
    let body = Body::read(body)?;
    let object = body.object();
    match api {
        Api::Chat => chat::request::parse(&object, context),
        Api::Completions => completions::request::parse(&object, context),
        Api::Responses => responses::request::parse(&object, context),
        Api::Messages => messages::request::parse(&object, context),
    }
}

/// The answer that is not streamed.
pub fn answer(shape: &Shape, stamp: &Stamp, outcome: &Outcome) -> Value {
    match &shape.form {
        Form::Chat(form) => chat::response::answer(shape, *form, stamp, outcome),
        Form::Completions(form) => completions::response::answer(shape, form, stamp, outcome),
        Form::Responses(form) => responses::response::answer(shape, form, stamp, outcome),
        Form::Messages => messages::response::answer(shape, stamp, outcome),
    }
}
