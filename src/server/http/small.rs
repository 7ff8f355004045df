//! Everything that is answered at once: models, health, sessions, counts, metrics.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::app::{App, aside};
use super::body;
use super::generate::{context, serving};
use super::reply::{self, RequestId, ok, refuse};
use crate::server::{Api, Failure, FailureKind, State as Serving, api};
use crate::tokenizer::TokenId;

/// `GET /health`.
pub(super) async fn health(State(app): State<Arc<App>>) -> Response {
    let state = app.desk.status().state;
    let (status, word) = match state {
        Serving::Ready => (StatusCode::OK, "ok"),
        Serving::Idle => (StatusCode::OK, state.name()),
        Serving::Loading | Serving::Stopping => (StatusCode::SERVICE_UNAVAILABLE, state.name()),
    };
    let mut response = reply::json(status, &json!({ "status": word }));
    if !status.is_success() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// `GET /slots`.
pub(super) async fn slots(State(app): State<Arc<App>>) -> Response {
    let status = app.desk.status();
    let ctx = app.desk.facts().map(|facts| facts.ctx_tokens);
    let slots: Vec<Value> = status
        .slots
        .iter()
        .map(|slot| {
            json!({
                "id": slot.id,
                "state": slot.state,
                "tokens": slot.tokens,
                "ctx": ctx,
                "last_used": slot.last_used,
                "binding": slot.binding,
                "request_id": slot.request,
                "tokens_per_second": slot.tokens_per_second,
                "anchors": slot.anchors,
            })
        })
        .collect();
    ok(&json!({ "state": status.state.name(), "queued": status.queued, "slots": slots }))
}

/// `GET /metrics`.
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let mut response = Response::new(Body::from(app.desk.metrics()));
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// `GET /v1/models`.
pub(super) async fn models(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
) -> Response {
    match app.desk.facts() {
        Some(facts) => ok(&api::models(facts.ctx_tokens, facts.default_limit)),
        None => refuse(None, &Failure::loading(), &id),
    }
}

/// `GET /v1/models/{name}`.
pub(super) async fn model(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    Path(name): Path<String>,
) -> Response {
    let Some(facts) = app.desk.facts() else { return refuse(None, &Failure::loading(), &id) };
    let unknown = || {
        let text = format!("there is no model {name:?}; see /v1/models");
        Failure::new(FailureKind::UnknownModel, text).about("model")
    };
    match api::model(&name, facts.ctx_tokens, facts.default_limit) {
        Some(model) => ok(&model),
        None => refuse(None, &unknown(), &id),
    }
}

/// `POST /v1/messages/count_tokens`.
pub(super) async fn count_tokens(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Response {
    let counted = worked_on(&app, request, |app, bytes| {
        let vocab = serving(app)?;
        let parsed = api::parse(Api::Messages, bytes, &context(app, vocab))?;
        Ok(json!({ "input_tokens": app.desk.count(&parsed.request)? }))
    })
    .await;
    counted.unwrap_or_else(|failure| refuse(Some(Api::Messages), &failure, &id))
}

/// Text to be made tokens.
#[derive(Deserialize)]
struct Text {
    text: String,
}

/// Tokens to be made text.
#[derive(Deserialize)]
struct Tokens {
    tokens: Vec<u32>,
}

/// `POST /tokenize`.
pub(super) async fn tokenize(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Response {
    let done = worked_on(&app, request, |app, bytes| {
        let Text { text } = parse(bytes, "one object with a string `text`")?;
        let tokens = app.desk.tokenize(&text)?;
        Ok(json!({ "tokens": tokens.iter().map(|token| token.0).collect::<Vec<u32>>() }))
    })
    .await;
    done.unwrap_or_else(|failure| refuse(None, &failure, &id))
}

/// `POST /detokenize`.
pub(super) async fn detokenize(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Response {
    let done = worked_on(&app, request, |app, bytes| {
        let Tokens { tokens } = parse(bytes, "one object with a list `tokens` of ids")?;
        let tokens: Vec<TokenId> = tokens.into_iter().map(TokenId).collect();
        Ok(json!({ "text": app.desk.detokenize(&tokens)? }))
    })
    .await;
    done.unwrap_or_else(|failure| refuse(None, &failure, &id))
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8], expected: &str) -> Result<T, Failure> {
    let wrong = |e| Failure::new(FailureKind::Invalid, format!("the body must be {expected}: {e}"));
    serde_json::from_slice(bytes).map_err(wrong)
}

/// Reads the body and makes an answer of it on a thread that may wait.
async fn worked_on(
    app: &Arc<App>,
    request: Request,
    work: impl FnOnce(&App, &[u8]) -> Result<Value, Failure> + Send + 'static,
) -> Result<Response, Failure> {
    let (parts, content) = request.into_parts();
    let held = body::read(content, &app.bodies).await?;
    let app = Arc::clone(app);
    let value = aside(move || {
        let held = body::decode(&parts.headers, held, &app.bodies)?;
        work(&app, &held.bytes)
    })
    .await?;
    Ok(ok(&value))
}
