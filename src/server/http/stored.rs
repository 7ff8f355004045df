//! Responses that were kept, by id (server.md 9.6).

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::json;

use super::app::App;
use super::reply::{RequestId, ok, refuse};
use crate::server::{Api, Failure, FailureKind};

/// `GET /v1/responses/{id}`.
pub(super) async fn get(
    State(app): State<Arc<App>>,
    Extension(request): Extension<RequestId>,
    Path(id): Path<String>,
) -> Response {
    match app.responses.get(&id) {
        Some(response) => ok(&response),
        None => refuse(Some(Api::Responses), &unknown(&id), &request),
    }
}

/// `DELETE /v1/responses/{id}`.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Extension(request): Extension<RequestId>,
    Path(id): Path<String>,
) -> Response {
    if app.responses.delete(&id) {
        ok(&json!({ "id": id, "object": "response", "deleted": true }))
    } else {
        refuse(Some(Api::Responses), &unknown(&id), &request)
    }
}

/// `POST /v1/responses/{id}/cancel`. A finished response stays as it is.
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    Extension(request): Extension<RequestId>,
    Path(id): Path<String>,
) -> Response {
    if app.running.cancel(&id) {
        return ok(&json!({ "id": id, "object": "response", "status": "cancelled" }));
    }
    match app.responses.get(&id) {
        Some(response) => ok(&response),
        None => refuse(Some(Api::Responses), &unknown(&id), &request),
    }
}

fn unknown(id: &str) -> Failure {
    let text = format!("there is no response {id:?}: it was never stored, or is gone");
    Failure::new(FailureKind::NoResponse, text)
}
