//! The router, called without a socket.

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

use super::scripted::{Scripted, times};
use crate::server::State;
use crate::server::http::{Config, router};

const APIS: [&str; 4] =
    ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"];

/// What came back.
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", self.body))
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

fn config() -> Config {
    Config { times: times(), ..Config::default() }
}

async fn ask(server: &Scripted, request: Request<Body>) -> Answer {
    let response = router(server.app.clone()).oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

async fn call(server: &Scripted, method: &str, path: &str, body: impl Into<Body>) -> Answer {
    ask(server, Request::builder().method(method).uri(path).body(body.into()).unwrap()).await
}

/// A body that every API takes: each ignores what belongs to the others.
fn body(model: &str, stream: bool) -> String {
    format!(
        r#"{{"model":"{model}","stream":{stream},"max_tokens":50,"prompt":"hi","input":"hi","messages":[{{"role":"user","content":"hi"}}]}}"#
    )
}

#[tokio::test]
async fn every_answer_has_an_id_and_errors_have_the_shape_of_their_api() {
    let server = Scripted::new(config());
    for (method, path, status) in [
        ("GET", "/", 200),
        ("HEAD", "/", 200),
        ("GET", "/health", 200),
        ("GET", "/v1/health?verbose", 200),
        ("GET", "/slots", 200),
        ("GET", "/metrics", 404),
        ("GET", "/v1/models", 200),
        ("HEAD", "/v1/models", 200),
        ("GET", "/v1/models/qwen3.6-35b-a3b", 200),
        ("GET", "/v1/models/gpt-4", 404),
        ("GET", "/nowhere", 404),
        ("POST", "/v1/messages/nowhere", 404),
        ("GET", "/v1/chat/completions", 405),
        ("GET", "/v1/messages", 405),
        ("PUT", "/v1/responses", 405),
        ("POST", "/health", 405),
        ("GET", "/v1/responses/resp_none", 404),
        ("DELETE", "/v1/responses/resp_none", 404),
        ("POST", "/v1/responses/resp_none/cancel", 404),
        ("POST", "/v1/chat/completions", 400),
        ("POST", "/v1/messages?beta=true", 400),
        ("POST", "/tokenize", 400),
        ("POST", "/detokenize", 400),
        ("OPTIONS", "/anything", 204),
    ] {
        let answer = call(&server, method, path, Body::empty()).await;
        assert_eq!(answer.status, status, "{method} {path}");
        let id = answer.header("x-request-id").unwrap();
        assert!(id.starts_with("req_"), "{id}");
        assert_eq!(answer.header("request-id"), Some(id));
        assert_eq!(answer.header("access-control-allow-origin"), None);
        if method == "HEAD" {
            assert!(answer.body.is_empty());
        } else if status >= 400 {
            let json = answer.json();
            assert!(!json["error"]["message"].as_str().unwrap().is_empty(), "{json}");
            let is_anthropic = path.starts_with("/v1/messages");
            assert_eq!(json["type"] == "error", is_anthropic, "{path}: {json}");
            assert_eq!(json["request_id"] == id, is_anthropic, "{path}: {json}");
        }
        if status == 405 {
            assert!(answer.header("allow").is_some(), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn every_api_answers_and_streams() {
    let server = Scripted::new(config());
    for path in APIS {
        let answer = call(&server, "POST", path, body("says", false)).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert!(answer.json().to_string().contains("Hello world"), "{path}: {}", answer.text());
        let stream = call(&server, "POST", path, body("says", true)).await;
        assert_eq!(stream.status, 200);
        assert_eq!(stream.header("content-type"), Some("text/event-stream"));
        assert_eq!(stream.header("cache-control"), Some("no-cache"));
        assert_eq!(stream.header("x-accel-buffering"), Some("no"));
        let text = stream.text();
        assert!(
            text.ends_with("\n\n") && text.contains("Hello") && text.contains(" world"),
            "{path}: {text}"
        );
    }
}

#[tokio::test]
async fn a_failure_before_the_first_byte_is_a_status_and_later_an_event() {
    let server = Scripted::new(config());
    for path in APIS {
        for (model, status) in [("fails", 500), ("breaks", 500), ("leaves", 503)] {
            let answer = call(&server, "POST", path, body(model, false)).await;
            assert_eq!(answer.status, status, "{path} {model}");
            assert_eq!(answer.header("retry-after").is_some(), status == 503);
            let stream = call(&server, "POST", path, body(model, true)).await;
            assert_eq!(stream.status, 200, "{path} {model}");
            let said = if model == "leaves" { "shutting down" } else { "the device is lost" };
            assert!(stream.text().contains(said), "{path} {model}: {}", stream.text());
            assert_eq!(stream.text().contains("half"), model == "breaks", "{path}");
        }
    }
}

#[tokio::test]
async fn silent_streams_are_kept_alive() {
    let server = Scripted::new(config());
    for path in APIS {
        for (model, news) in [("waits", "prefill 2/7"), ("queued", "queued position=2")] {
            let request = Request::post(path).body(Body::from(body(model, true))).unwrap();
            let mut stream = router(server.app.clone()).oneshot(request).await.unwrap().into_body();
            let mut text = String::new();
            for _ in 0..4 {
                let frame = stream.frame().await.unwrap().unwrap().into_data().unwrap();
                text.push_str(std::str::from_utf8(&frame).unwrap());
            }
            if matches!(path, "/v1/chat/completions" | "/v1/completions") {
                assert!(text.contains(news), "{path}: {text}");
            } else {
                let event = if path == "/v1/messages" { "ping" } else { "response.in_progress" };
                assert!(text.matches(&format!("event: {event}\n")).count() >= 2, "{path}: {text}");
            }
        }
    }
}

#[tokio::test]
async fn a_dropped_answer_cancels_its_request() {
    let server = Scripted::new(config());
    for (index, stream) in [false, true].into_iter().enumerate() {
        let request = Request::post(APIS[0]).body(Body::from(body("waits", stream))).unwrap();
        let answer = router(server.app.clone()).oneshot(request);
        if stream {
            drop(answer.await.unwrap());
        } else {
            let patience = std::time::Duration::from_millis(100);
            assert!(tokio::time::timeout(patience, answer).await.is_err());
        }
        server.expect_abandoned(index + 1);
    }
}

#[tokio::test]
async fn a_running_response_can_be_cancelled() {
    let server = Scripted::new(config());
    let request = Request::post("/v1/responses").body(Body::from(body("waits", true))).unwrap();
    let mut stream = router(server.app.clone()).oneshot(request).await.unwrap().into_body();
    let first = stream.frame().await.unwrap().unwrap().into_data().unwrap();
    let text = String::from_utf8(first.to_vec()).unwrap();
    let id = text.split('"').find(|word| word.starts_with("resp_")).unwrap();
    let answer = call(&server, "POST", &format!("/v1/responses/{id}/cancel"), Body::empty()).await;
    assert_eq!((answer.status, &answer.json()["status"]), (200, &Value::from("cancelled")));
    let rest = stream.collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&rest).contains("cancelled"));
    server.expect_abandoned(1);
}

#[tokio::test]
async fn without_a_model_there_is_503_and_health_says_why() {
    let server = Scripted::loading(config());
    let answer = call(&server, "GET", "/health", Body::empty()).await;
    assert_eq!((answer.status, answer.text()), (503, r#"{"status":"loading"}"#));
    assert!(answer.header("retry-after").is_some());
    for path in APIS.into_iter().chain(["/v1/messages/count_tokens"]) {
        let answer = call(&server, "POST", path, body("says", true)).await;
        assert_eq!(answer.status, 503, "{path}");
        assert!(answer.header("retry-after").is_some(), "{path}");
    }
    assert_eq!(call(&server, "GET", "/slots", Body::empty()).await.status, 200);
    for (state, status, word) in [
        (State::Idle, 200, "idle"),
        (State::Ready, 200, "ok"),
        (State::Stopping, 503, "shutting_down"),
    ] {
        server.desk.announce(state, Vec::new());
        let answer = call(&server, "GET", "/v1/health", Body::empty()).await;
        assert_eq!((answer.status, &answer.json()["status"]), (status, &Value::from(word)));
    }
}

#[tokio::test]
async fn while_a_lost_device_is_opened_again_health_says_so_at_once_and_requests_are_taken() {
    let server = Scripted::new(config());
    server.desk.set_away(true);
    let answer = call(&server, "GET", "/health", Body::empty()).await;
    assert_eq!((answer.status, answer.text()), (503, r#"{"status":"loading"}"#));
    let answer = call(&server, "GET", "/slots", Body::empty()).await;
    assert_eq!((answer.status, &answer.json()["state"]), (200, &Value::from("loading")));
    assert_eq!(call(&server, "POST", "/v1/messages", body("says", false)).await.status, 200);
    server.desk.set_away(false);
    assert_eq!(call(&server, "GET", "/health", Body::empty()).await.status, 200);
}

#[tokio::test]
async fn keys_are_asked_for() {
    let server = Scripted::new(Config { keys: vec!["right".into()], metrics: true, ..config() });
    for (path, status) in [
        ("/", 200),
        ("/health", 200),
        ("/v1/models", 401),
        ("/slots", 401),
        ("/metrics", 401),
        ("/nowhere", 401),
    ] {
        assert_eq!(call(&server, "GET", path, Body::empty()).await.status, status, "{path}");
    }
    for path in APIS {
        let wrong = Request::post(path)
            .header("x-api-key", "wrong")
            .body(body("says", false).into())
            .unwrap();
        let answer = ask(&server, wrong).await;
        assert_eq!(answer.status, 401, "{path}");
        assert_eq!(answer.json()["error"]["type"], "authentication_error");
        let right = Request::post(path).header("authorization", "Bearer right");
        let right = right.body(body("says", false).into()).unwrap();
        assert_eq!(ask(&server, right).await.status, 200, "{path}");
    }
    let metrics =
        Request::get("/metrics").header("x-api-key", "right").body(Body::empty()).unwrap();
    let answer = ask(&server, metrics).await;
    assert_eq!(answer.status, 200);
    assert!(answer.text().ends_with("# EOF\n"), "{}", answer.text());
}

#[track_caller]
fn allows_every_origin(answer: &Answer) {
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    assert_eq!(answer.header("access-control-allow-methods"), Some("GET, POST, DELETE, OPTIONS"));
    assert!(answer.header("access-control-allow-headers").unwrap().starts_with('*'));
    assert_eq!(answer.header("access-control-max-age"), Some("86400"));
    assert_eq!(answer.header("access-control-allow-private-network"), None);
}

#[tokio::test]
async fn with_cors_every_answer_says_so() {
    let server = Scripted::new(Config { cors: true, keys: vec!["k".into()], ..config() });
    for (method, path, status) in [
        ("OPTIONS", "/v1/chat/completions", 204),
        ("GET", "/health", 200),
        ("GET", "/v1/models", 401),
        ("POST", "/v1/messages", 401),
    ] {
        let answer = call(&server, method, path, Body::empty()).await;
        assert_eq!(answer.status, status, "{method} {path}");
        allows_every_origin(&answer);
    }
    let known = |method: &str, path: &str, body: String| {
        let request = Request::builder().method(method).uri(path).header("x-api-key", "k");
        ask(&server, request.body(Body::from(body)).unwrap())
    };
    for (method, path, status) in
        [("GET", "/nowhere", 404), ("GET", "/v1/models/gpt-4", 404), ("PUT", "/v1/responses", 405)]
    {
        let answer = known(method, path, String::new()).await;
        assert_eq!(answer.status, status, "{method} {path}");
        allows_every_origin(&answer);
    }
    for path in APIS {
        for (model, said) in [
            ("says", " world"),
            ("fails", "the device is lost"),
            ("breaks", "half"),
            ("leaves", "shutting down"),
        ] {
            let answer = known("POST", path, body(model, true)).await;
            assert_eq!(answer.status, 200, "{path} {model}");
            assert_eq!(answer.header("content-type"), Some("text/event-stream"));
            assert!(answer.text().contains(said), "{path} {model}: {}", answer.text());
            allows_every_origin(&answer);
        }
    }
    let asks =
        Request::options("/v1/models").header("access-control-request-private-network", "true");
    let answer = ask(&server, asks.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.header("access-control-allow-private-network"), Some("true"));
    assert!(answer.body.is_empty());
}

#[tokio::test]
async fn bodies_have_a_limit() {
    let server = Scripted::new(Config { body_bytes: 100, ..config() });
    for path in APIS.into_iter().chain(["/tokenize", "/v1/messages/count_tokens"]) {
        let answer = call(&server, "POST", path, " ".repeat(101)).await;
        assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE.as_u16(), "{path}");
    }
    let answer = call(&server, "POST", "/v1/messages", " ".repeat(101)).await;
    assert_eq!(answer.json()["error"]["type"], "request_too_large");
}

#[tokio::test]
async fn the_log_has_no_queries_and_no_reading() {
    let server = Scripted::new(config());
    call(&server, "GET", "/v1/models?key=secret", Body::empty()).await;
    assert_eq!(*server.log.lock().unwrap(), "");
    call(&server, "GET", "/nowhere?key=secret", Body::empty()).await;
    call(&server, "POST", "/v1/messages?key=secret", body("says", false)).await;
    let log = server.log.lock().unwrap();
    assert_eq!(log.lines().count(), 2, "{log}");
    assert!(log.contains("status=404 line=GET /nowhere") && !log.contains("secret"), "{log}");
}

#[tokio::test]
async fn the_page_names_its_own_script_and_nothing_else() {
    let server = Scripted::new(config());
    let answer = call(&server, "GET", "/", Body::empty()).await;
    let policy = answer.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
}
