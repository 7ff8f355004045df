//! Which path is what, and what holds for every request: an id, a key, the headers of `--cors`, a line in the log.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};

use super::app::{App, Summary};
use super::reply::{RequestId, family, refuse};
use super::{cors, generate, page, small, stored};
use crate::server::{Api, Failure, FailureKind};

/// All routes of the server.
pub fn router(app: Arc<App>) -> Router {
    let api = |api: Api| post(move |app, id, request| generate::answer(api, app, id, request));
    let mut router = Router::new()
        .route("/", get(page::page))
        .route("/health", get(small::health))
        .route("/v1/health", get(small::health))
        .route("/slots", get(small::slots))
        .route("/tokenize", post(small::tokenize))
        .route("/detokenize", post(small::detokenize))
        .route("/v1/models", get(small::models))
        .route("/v1/models/{id}", get(small::model))
        .route("/v1/chat/completions", api(Api::Chat))
        .route("/v1/completions", api(Api::Completions))
        .route("/v1/messages", api(Api::Messages))
        .route("/v1/messages/count_tokens", post(small::count_tokens))
        .route("/v1/responses", api(Api::Responses))
        .route("/v1/responses/{id}", get(stored::get).delete(stored::delete))
        .route("/v1/responses/{id}/cancel", post(stored::cancel));
    if app.config.metrics {
        router = router.route("/metrics", get(small::metrics));
    }
    router
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(&app), around))
        .with_state(app)
}

/// Around every request, whatever becomes of it.
async fn around(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let id = RequestId::new();
    let summary = Summary::of(&request);
    let asked = app.config.cors.then(|| request.headers().clone());
    let endpoint = endpoint(request.uri().path());
    let mut response = if request.method() == Method::OPTIONS {
        no_content()
    } else if app.keys.admit(request.method(), request.uri().path(), request.headers()) {
        request.extensions_mut().insert(id.clone());
        next.run(request).await
    } else {
        let text = "a key is needed: Authorization: Bearer KEY, or x-api-key: KEY";
        refuse(family(request.uri().path()), &Failure::new(FailureKind::Unauthorized, text), &id)
    };
    let value = HeaderValue::from_str(&id.0).expect("an id is plain text");
    response.headers_mut().insert("x-request-id", value.clone());
    response.headers_mut().insert("request-id", value);
    if let Some(asked) = asked {
        cors::open(&asked, response.headers_mut());
    }
    app.desk.count_response(endpoint, response.status().as_u16());
    app.log_answer(&summary, &id, &response);
    response
}

/// The endpoint of a path for metrics: a fixed set, whatever clients make up.
fn endpoint(path: &str) -> &'static str {
    const WHOLE: [&str; 11] = [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/messages/count_tokens",
        "/v1/messages",
        "/v1/responses",
        "/v1/models",
        "/tokenize",
        "/detokenize",
        "/slots",
        "/metrics",
        "/health",
    ];
    let below = |base: &str| {
        path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match path {
        "/" => "/",
        "/v1/health" => "/health",
        _ => WHOLE.into_iter().find(|base| below(base)).unwrap_or("other"),
    }
}

fn no_content() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let methods = HeaderValue::from_static("GET, HEAD, POST, DELETE, OPTIONS");
    response.headers_mut().insert(header::ALLOW, methods);
    response
}

async fn unknown_path(id: axum::Extension<RequestId>, request: Request) -> Response {
    let path = request.uri().path();
    let text = format!("unknown endpoint: {} {path}", request.method());
    refuse(family(path), &Failure::new(FailureKind::UnknownPath, text), &id)
}

async fn wrong_method(id: axum::Extension<RequestId>, request: Request) -> Response {
    let path = request.uri().path();
    let text = format!("{} does not work on {path}", request.method());
    refuse(family(path), &Failure::new(FailureKind::Method, text), &id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_know_a_fixed_set_of_endpoints() {
        assert_eq!(endpoint("/v1/messages/count_tokens"), "/v1/messages/count_tokens");
        assert_eq!(endpoint("/v1/messages"), "/v1/messages");
        assert_eq!(endpoint("/v1/responses/resp_1/cancel"), "/v1/responses");
        assert_eq!(endpoint("/v1/health"), "/health");
        for odd in ["/v1", "/v1/chat", "/etc/passwd", "*", "/healthx"] {
            assert_eq!(endpoint(odd), "other", "{odd}");
        }
    }
}
