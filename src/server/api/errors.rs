//! Failures in the shape of each family (server.md 2.2).
//!
//! Clients match the wording of an overflow to decide on compaction. It is used for nothing else.

use serde_json::{Value, json};

use super::frame::Frame;
use crate::server::{Api, Failure, FailureKind};

/// The body of a refusal. Paths outside of the four APIs have none and get the shape of `OpenAI`.
pub fn failure_body(api: Option<Api>, failure: &Failure, request_id: &str) -> Value {
    if api == Some(Api::Messages) {
        return json!({
            "type": "error",
            "error": messages_error(failure),
            "request_id": request_id,
        });
    }
    json!({"error": openai_error(api, failure)})
}

/// The error object of the `OpenAI` family.
pub(super) fn openai_error(api: Option<Api>, failure: &Failure) -> Value {
    let (kind, code) = openai_kind(failure.kind);
    let mut error = json!({
        "message": failure.message,
        "type": kind,
        "param": failure.param,
        "code": code,
    });
    if let FailureKind::ContextLength { prompt, ctx } = failure.kind {
        error["message"] = json!(format!(
            "This model's maximum context length is {ctx} tokens, but your prompt contains {prompt} tokens."
        ));
        let field = api.unwrap_or(Api::Chat).prompt_field();
        error["param"] = json!(failure.param.as_deref().unwrap_or(field));
        error["n_prompt_tokens"] = json!(prompt);
        error["n_ctx"] = json!(ctx);
    }
    error
}

/// The end of a stream of chat or completions that failed.
pub(super) fn openai_frames(api: Api, failure: &Failure) -> [Frame; 2] {
    let error = json!({"error": openai_error(Some(api), failure)});
    [Frame::named("error", &error), Frame::done()]
}

/// The error object of the messages API.
pub(super) fn messages_error(failure: &Failure) -> Value {
    let mut error = json!({"type": messages_kind(failure.kind), "message": failure.message});
    if let FailureKind::ContextLength { prompt, ctx } = failure.kind {
        error["message"] = json!(format!("prompt is too long: {prompt} tokens > {ctx} maximum"));
        error["n_prompt_tokens"] = json!(prompt);
        error["n_ctx"] = json!(ctx);
    }
    error
}

/// Type and code in the `OpenAI` family.
fn openai_kind(kind: FailureKind) -> (&'static str, Option<&'static str>) {
    const INVALID: &str = "invalid_request_error";
    match kind {
        FailureKind::Invalid
        | FailureKind::NoResponse
        | FailureKind::Timeout
        | FailureKind::TooLarge => (INVALID, None),
        FailureKind::ContextLength { .. } => (INVALID, Some("context_length_exceeded")),
        FailureKind::UnknownResponse => (INVALID, Some("previous_response_not_found")),
        FailureKind::Unauthorized => ("authentication_error", None),
        FailureKind::UnknownModel => (INVALID, Some("model_not_found")),
        FailureKind::UnknownPath => (INVALID, Some("unknown_endpoint")),
        FailureKind::Method => ("method_not_allowed", None),
        FailureKind::QueueFull => ("rate_limit_error", Some("queue_full")),
        FailureKind::Engine => ("server_error", None),
        FailureKind::Loading => ("server_error", Some("loading")),
        FailureKind::Stopping => ("server_error", Some("shutting_down")),
    }
}

/// Type in the messages API.
fn messages_kind(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Invalid
        | FailureKind::ContextLength { .. }
        | FailureKind::UnknownResponse
        | FailureKind::Method
        | FailureKind::Timeout => "invalid_request_error",
        FailureKind::Unauthorized => "authentication_error",
        FailureKind::UnknownModel | FailureKind::UnknownPath | FailureKind::NoResponse => {
            "not_found_error"
        }
        FailureKind::TooLarge => "request_too_large",
        FailureKind::QueueFull => "rate_limit_error",
        FailureKind::Engine => "api_error",
        FailureKind::Loading | FailureKind::Stopping => "overloaded_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_that_is_not_kept_is_no_unknown_endpoint() {
        let code = |kind| {
            let body = failure_body(Some(Api::Responses), &Failure::new(kind, "gone"), "req_1");
            (kind.status(), body["error"]["code"].clone())
        };
        assert_eq!(code(FailureKind::NoResponse), (404, Value::Null));
        assert_eq!(code(FailureKind::UnknownPath), (404, json!("unknown_endpoint")));
    }

    #[test]
    fn both_shapes() {
        let failure = Failure::invalid("messages", "missing messages");
        assert_eq!(
            failure_body(Some(Api::Chat), &failure, "req_1").to_string(),
            r#"{"error":{"message":"missing messages","type":"invalid_request_error","param":"messages","code":null}}"#
        );
        assert_eq!(
            failure_body(Some(Api::Messages), &failure, "req_1").to_string(),
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"missing messages"},"request_id":"req_1"}"#
        );
    }

    #[test]
    fn an_overflow_is_worded_as_clients_know_it() {
        let kind = FailureKind::ContextLength { prompt: 40_000, ctx: 32_768 };
        let failure = Failure::new(kind, "too long");
        for (api, param) in
            [(Api::Chat, "messages"), (Api::Completions, "prompt"), (Api::Responses, "input")]
        {
            let error = &failure_body(Some(api), &failure, "")["error"];
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("maximum context length is 32768 tokens"), "{message}");
            assert!(message.contains("your prompt contains 40000 tokens"), "{message}");
            assert_eq!(
                (&error["param"], &error["code"]),
                (&json!(param), &json!("context_length_exceeded"))
            );
            assert_eq!(
                (&error["n_prompt_tokens"], &error["n_ctx"]),
                (&json!(40_000), &json!(32_768))
            );
        }
        let error = &failure_body(Some(Api::Messages), &failure, "")["error"];
        assert_eq!(error["message"], "prompt is too long: 40000 tokens > 32768 maximum");
        assert_eq!((&error["n_prompt_tokens"], &error["n_ctx"]), (&json!(40_000), &json!(32_768)));
    }

    #[test]
    fn no_other_failure_looks_like_an_overflow() {
        let kinds = [
            FailureKind::Invalid,
            FailureKind::UnknownResponse,
            FailureKind::Unauthorized,
            FailureKind::UnknownModel,
            FailureKind::UnknownPath,
            FailureKind::Method,
            FailureKind::Timeout,
            FailureKind::TooLarge,
            FailureKind::QueueFull,
            FailureKind::Engine,
            FailureKind::Loading,
            FailureKind::Stopping,
        ];
        for kind in kinds {
            for api in [None, Some(Api::Responses), Some(Api::Messages)] {
                let text = failure_body(api, &Failure::new(kind, "x"), "").to_string();
                assert!(!text.contains("context") && !text.contains("too long"), "{text}");
            }
        }
    }
}
