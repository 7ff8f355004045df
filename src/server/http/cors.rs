//! Letting pages of other origins in, where that was asked for (server.md 2.1).

use axum::http::{HeaderMap, HeaderValue};

const ALWAYS: [(&str, &str); 4] = [
    ("access-control-allow-origin", "*"),
    ("access-control-allow-methods", "GET, POST, DELETE, OPTIONS"),
    ("access-control-allow-headers", "*, Authorization"),
    ("access-control-max-age", "86400"),
];

/// Adds the headers to an answer. `request` are the headers that came.
pub(super) fn open(request: &HeaderMap, answer: &mut HeaderMap) {
    for (name, value) in ALWAYS {
        answer.insert(name, HeaderValue::from_static(value));
    }
    // A page on the internet that wants this machine asks for it in so many words.
    if request.get("access-control-request-private-network").is_some_and(|value| value == "true") {
        answer.insert("access-control-allow-private-network", HeaderValue::from_static("true"));
    }
}
