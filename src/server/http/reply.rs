//! Answers: JSON, refusals in the shape of the API they belong to, and the id that every one carries.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::Value;

use crate::server::{Api, Failure, FailureKind, api};
use crate::util::{hex, random};

/// Seconds after which a client may try again: a queue moves, a model loads.
const RETRY_AFTER: &str = "5";

/// The id of a request: unguessable, so that it can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestId(pub(super) String);

impl RequestId {
    /// A new one.
    pub(super) fn new() -> Self {
        Self(format!("req_{}", hex::encode(&random::unguessable::<12>())))
    }
}

/// The API that a path belongs to, for the shape of its errors.
pub(super) fn family(path: &str) -> Option<Api> {
    let below = |base: &str| {
        path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    [
        ("/v1/messages", Api::Messages),
        ("/v1/chat/completions", Api::Chat),
        ("/v1/completions", Api::Completions),
        ("/v1/responses", Api::Responses),
    ]
    .into_iter()
    .find_map(|(base, api)| below(base).then_some(api))
}

/// A JSON body.
pub(super) fn json(status: StatusCode, value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A good answer.
pub(super) fn ok(value: &Value) -> Response {
    json(StatusCode::OK, value)
}

/// A failure, in the shape of the API.
pub(super) fn refuse(api: Option<Api>, failure: &Failure, id: &RequestId) -> Response {
    let status =
        StatusCode::from_u16(failure.kind.status()).expect("every kind has a valid status");
    let mut response = json(status, &api::failure_body(api, failure, &id.0));
    if matches!(failure.kind, FailureKind::QueueFull | FailureKind::Loading | FailureKind::Stopping)
    {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
    }
    if failure.kind == FailureKind::Timeout {
        // The rest of the request may still come, and would be taken for the next one.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_belong_to_apis() {
        assert_eq!(family("/v1/messages"), Some(Api::Messages));
        assert_eq!(family("/v1/messages/count_tokens"), Some(Api::Messages));
        assert_eq!(family("/v1/messages/nonsense"), Some(Api::Messages));
        assert_eq!(family("/v1/messagesx"), None);
        assert_eq!(family("/v1/responses/resp_1/cancel"), Some(Api::Responses));
        assert_eq!(family("/v1/completions"), Some(Api::Completions));
        assert_eq!(family("/v1/models"), None);
    }

    #[test]
    fn ids_differ() {
        let (a, b) = (RequestId::new(), RequestId::new());
        assert_ne!(a, b);
        assert!(a.0.starts_with("req_") && a.0.len() == 28, "{a:?}");
    }
}
