//! What went wrong between clients and other servers, and must not here (server.md 18.3, 18.4): one test each, named after
//! the behaviour.

use serde_json::{Map, Value, json};

use super::super::{ResponseStore, answer, failure_body};
use super::support::{MINIMAL, Reply, conversation, events, frames, lines, read, read_with, stamp};
use crate::server::{Api, FailureKind, Finish, Update};

/// The APIs that know calls.
const CALLING: [Api; 3] = [Api::Chat, Api::Responses, Api::Messages];

fn minimal(api: Api) -> &'static str {
    MINIMAL.into_iter().find(|(known, _)| *known == api).unwrap().1
}

/// Why a reply ended, as its client is told.
fn reason(api: Api, answer: &Value) -> String {
    let field = match api {
        Api::Chat | Api::Completions => &answer["choices"][0]["finish_reason"],
        Api::Responses => &answer["status"],
        Api::Messages => &answer["stop_reason"],
    };
    field.as_str().unwrap().to_owned()
}

/// How many calls an answer has.
fn calls(api: Api, answer: &Value) -> usize {
    let of = |items: &Value, kind: &str| {
        items.as_array().unwrap().iter().filter(|item| item["type"] == kind).count()
    };
    match api {
        Api::Chat | Api::Completions => {
            answer["choices"][0]["message"]["tool_calls"].as_array().map_or(0, Vec::len)
        }
        Api::Responses => of(&answer["output"], "function_call"),
        Api::Messages => of(&answer["content"], "tool_use"),
    }
}

#[test]
fn calls_are_the_reason_exactly_when_there_are_some() {
    let ends = [Finish::Stop, Finish::Calls, Finish::Length, Finish::StopText("x".to_owned())];
    for api in CALLING {
        let shape = read(api, minimal(api)).unwrap().shape;
        for finish in &ends {
            for count in 0..3 {
                let reply = (0..count)
                    .fold(Reply::new(&[], &["a"]), |reply, _| reply.call("f", &["{}"]))
                    .finish(finish.clone());
                let answer = answer(&shape, &stamp(api), &reply.outcome());
                assert_eq!(calls(api, &answer), count, "{answer}");
                let expected = match api {
                    Api::Chat | Api::Completions => Some("tool_calls"),
                    Api::Messages => Some("tool_use"),
                    // Responses say it by the items alone; what has calls is complete.
                    Api::Responses => (count > 0).then_some("completed"),
                };
                let found = reason(api, &answer);
                if let Some(expected) = expected {
                    assert_eq!(found == expected, count > 0, "{finish:?} {found}");
                }
            }
        }
    }
}

#[test]
fn a_billing_line_never_reaches_the_prompt() {
    let line = "x-anthropic-billing-header: cc_version=2.1; cch=00001;";
    let bodies = [
        (Api::Chat, r#"{"messages":[{"role":"system","content":"LINE\nS"},{"content":"q"}]}"#),
        (
            Api::Chat,
            r#"{"messages":[{"role":"system","content":[{"type":"text","text":"LINE\nS"}]},{"content":"q"}]}"#,
        ),
        (Api::Responses, r#"{"instructions":"LINE\nS","input":"q"}"#),
        (Api::Responses, r#"{"input":[{"role":"developer","content":"LINE\nS"},"q"]}"#),
        (Api::Messages, r#"{"system":"LINE\nS","messages":[{"content":"q"}]}"#),
        (
            Api::Messages,
            r#"{"system":[{"type":"text","text":"LINE"},{"type":"text","text":"S"}],"messages":[{"content":"q"}]}"#,
        ),
        (Api::Messages, r#"{"messages":[{"role":"system","content":"LINE\nS"},{"content":"q"}]}"#),
    ];
    for (api, body) in bodies {
        let parsed = read(api, &body.replace("LINE", line)).unwrap();
        assert_eq!(lines(&parsed), ["system|-|S|", "user|-|q|"], "{body}");
    }
}

#[test]
fn marks_for_a_cache_change_no_prompt() {
    let chat = r#"{"tools":[{"type":"function","function":{"name":"f","parameters":{}}MARK}],
        "messages":[{"role":"system","content":[{"type":"text","text":"S"MARK}]},{"role":"user","content":[{"type":"text","text":"q"MARK}]}]}"#;
    let messages = r#"{"tools":[{"name":"f","input_schema":{}MARK}],"system":[{"type":"text","text":"S"MARK}],
        "messages":[{"role":"user","content":[{"type":"text","text":"q"}]},
            {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}MARK}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"r"MARK}]MARK}]}]}"#;
    for (api, body) in [(Api::Chat, chat), (Api::Messages, messages)] {
        let with = |mark: &str| read(api, &body.replace("MARK", mark)).unwrap().request;
        let plain = with("");
        assert_eq!(with(r#","cache_control":{"type":"ephemeral"}"#), plain);
        assert_eq!(with(r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#), plain);
    }
}

#[test]
fn system_text_in_mid_conversation_is_folded_in_place() {
    for role in ["system", "developer"] {
        let turns = format!(
            r#"[{{"role":"user","content":"q"}},{{"role":"assistant","content":"a"}},{{"role":"{role}","content":"n"}},{{"role":"user","content":"p"}}]"#
        );
        for (api, field) in
            [(Api::Chat, "messages"), (Api::Responses, "input"), (Api::Messages, "messages")]
        {
            let parsed = read(api, &format!("{{\"{field}\":{turns}}}")).unwrap();
            let found = lines(&parsed);
            let expected = [
                "user|-|q|",
                "assistant||a|",
                "user|-|<system-reminder>\nn\n</system-reminder>\n\np|",
            ];
            assert_eq!(found, expected, "{api:?} {role}");
        }
    }
}

#[test]
fn a_message_starts_with_all_of_its_counts() {
    let shape = read(Api::Messages, minimal(Api::Messages)).unwrap().shape;
    let sent = events(&frames(&shape, &Reply::new(&[], &["a"]).updates()));
    let usage = &sent[0].1["message"]["usage"];
    let members =
        ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"];
    for member in members {
        assert!(usage[member].is_u64(), "{member}: {usage}");
    }
    // Also where the first thing that is heard is the end.
    let failed = Update::Failed(crate::server::Failure::stopping());
    let sent = events(&frames(&shape, &[Update::Begin(Reply::usage()), failed]));
    assert!(sent[0].1["message"]["usage"]["input_tokens"].is_u64());
}

#[test]
fn streams_tell_counts_wherever_there_is_a_place_for_them() {
    let option = r#""stream_options":{"include_usage":true}"#;
    for (api, body) in MINIMAL {
        let body = body.replacen('{', &format!("{{{option},"), 1);
        let shape = read(api, &body).unwrap().shape;
        let sent = events(&frames(&shape, &Reply::new(&["t"], &["a"]).updates()));
        let usage = match api {
            Api::Responses => &sent.last().unwrap().1["response"]["usage"],
            Api::Chat | Api::Completions | Api::Messages => &sent[sent.len() - 2].1["usage"],
        };
        let output = usage.get("completion_tokens").or_else(|| usage.get("output_tokens"));
        assert_eq!(output, Some(&json!(58)), "{api:?} {usage}");
    }
}

#[test]
fn tool_kinds_of_other_servers_are_left_out_and_refuse_nothing() {
    let kinds = [
        "web_search",
        "web_search_preview",
        "file_search",
        "image_generation",
        "code_interpreter",
        "mcp",
        "computer_use_preview",
        "computer",
    ]; // fmt: skip
    for kind in kinds {
        let body = format!(
            r#"{{"input":"q","tools":[{{"type":"{kind}"}},{{"type":"function","name":"f"}}]}}"#
        );
        let parsed = read(Api::Responses, &body).unwrap();
        assert_eq!(conversation(&parsed).0.tools.len(), 1, "{kind}");
        assert_eq!(parsed.warnings, [format!("a tool of type `{kind}` is left out")]);
    }
}

#[test]
fn results_come_as_text_as_parts_or_as_data() {
    let parts = r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#;
    for (output, expected) in [
        (r#""ab""#, "ab"),
        (parts, "ab"),
        ("[]", ""),
        ("null", ""),
        (r#"{"exit": 0, "out": "x"}"#, r#"{"exit":0,"out":"x"}"#),
        (r#"[{"file": "a.c"}, 5]"#, r#"[{"file":"a.c"},5]"#),
        ("true", "true"),
    ] {
        let chat = format!(
            r#"{{"messages":[{{"content":"q"}},{{"role":"assistant","tool_calls":[{{"id":"c","function":{{"name":"f"}}}}]}},
                {{"role":"tool","tool_call_id":"c","content":{output}}}]}}"#
        );
        let responses = format!(
            r#"{{"input":["q",{{"type":"function_call","call_id":"c","name":"f"}},
                {{"type":"function_call_output","call_id":"c","output":{output}}}]}}"#
        );
        let messages = format!(
            r#"{{"messages":[{{"content":"q"}},{{"role":"assistant","content":[{{"type":"tool_use","id":"c","name":"f","input":{{}}}}]}},
                {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"c","content":{output}}}]}}]}}"#
        );
        for (api, body) in
            [(Api::Chat, chat), (Api::Responses, responses), (Api::Messages, messages)]
        {
            let parsed = read(api, &body).unwrap();
            assert_eq!(lines(&parsed)[2], format!("tool|-|{expected}|"), "{api:?} {output}");
        }
    }
}

#[test]
fn an_unknown_response_id_is_refused_in_one_way() {
    let store = ResponseStore::new(2);
    let kept = |body: &str| {
        let shape = read_with(Api::Responses, body, &store).unwrap().shape;
        store.remember(&shape, &stamp(Api::Responses), &Reply::new(&[], &["a"]).outcome());
        stamp(Api::Responses).id
    };
    let unstored = kept(r#"{"input":"q","store":false}"#);
    let check = |id: &str| {
        let body = format!(r#"{{"input":"p","previous_response_id":"{id}"}}"#);
        let failure = read_with(Api::Responses, &body, &store).unwrap_err();
        assert_eq!((failure.kind, failure.kind.status()), (FailureKind::UnknownResponse, 400));
        let error = &failure_body(Some(Api::Responses), &failure, "")["error"];
        assert_eq!(error["code"], "previous_response_not_found");
        assert_eq!(error["type"], "invalid_request_error");
        assert_eq!(error["param"], "previous_response_id");
    };
    check(&unstored);
    check("resp_0");
    check("");
    let deleted = kept(r#"{"input":"q"}"#);
    assert!(store.delete(&deleted));
    check(&deleted);
}

#[test]
fn null_is_absent_in_every_api() {
    let shared = r#""model":null,"stream":null,"temperature":null,"top_p":null,"top_k":null,"min_p":null,"seed":null,
        "stop":null,"stop_sequences":null,"thinking":null,"think":null,"enable_thinking":null,"reasoning_effort":null,
        "reasoning":null,"chat_template_kwargs":null,"output_config":null,"max_tokens":null,"tools":null,"tool_choice":null,
        "parallel_tool_calls":null,"logit_bias":null,"metadata":null,"user":null,"stream_options":null,"n":null"#;
    let own = [
        (
            Api::Chat,
            r#""messages":[{"role":"user","content":"q"}],"functions":null,"function_call":null"#,
        ),
        (Api::Completions, r#""prompt":"q","suffix":null,"echo":null,"logprobs":null"#),
        (
            Api::Responses,
            r#""input":"q","instructions":null,"include":null,"previous_response_id":null,"conversation":null,
                "store":null,"text":null,"background":null,"max_output_tokens":null,"prompt_cache_key":null"#,
        ),
        (
            Api::Messages,
            r#""messages":[{"role":"user","content":"q"}],"system":null,"cache_control":null"#,
        ),
    ];
    for (api, fields) in own {
        let found = read(api, &format!("{{{fields},{shared}}}")).unwrap();
        let mut expected = read(api, minimal(api)).unwrap().request;
        expected.limit = None;
        assert_eq!(found.request, expected, "{api:?}");
        assert!(found.warnings.is_empty());
    }
}

/// A body with everything that may be there or not; what has an order that counts has one member.
fn full(api: Api) -> Value {
    let shared = json!({"model": "m", "stream": true, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 7,
        "stop": ["x"], "max_tokens": 9, "reasoning_effort": "low"});
    let parts = |kind: &str| json!([{"type": kind, "text": "q"}, {"type": kind, "text": "r"}]);
    let f = json!({"name": "f", "description": "d", "parameters": {"type": "object"}});
    let own = match api {
        Api::Chat => {
            json!({"stream_options": {"include_usage": true}, "tool_choice": {"type": "function", "function": {"name": "f"}},
            "tools": [{"type": "function", "function": f}],
            "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": parts("text")},
                {"role": "assistant", "content": "a", "reasoning_content": "t",
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"n\":1}"}}]},
                {"role": "tool", "tool_call_id": "c", "content": "r"}]})
        }
        Api::Completions => json!({"prompt": "q", "suffix": "s", "logprobs": 2}),
        Api::Responses => {
            json!({"instructions": "S", "reasoning": {"effort": "low", "summary": "auto"},
            "tools": [{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}}],
            "tool_choice": {"type": "function", "name": "f"},
            "input": [{"type": "message", "role": "user", "content": parts("input_text")},
                {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "t"}]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"n\":1}"},
                {"type": "function_call_output", "call_id": "c", "output": "r"}]})
        }
        Api::Messages => {
            json!({"system": parts("text"), "thinking": {"type": "enabled", "budget_tokens": 2000},
            "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "tool", "name": "f"},
            "messages": [{"role": "user", "content": parts("text")},
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"},
                    {"type": "tool_use", "id": "c", "name": "f", "input": {"n": 1}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "r"}]}]})
        }
    };
    let members = [shared, own].map(|members| members.as_object().unwrap().clone());
    Value::Object(members.into_iter().flatten().collect())
}

/// Changes the members of every object but those whose members are a function's own.
fn every_object(value: &mut Value, change: &impl Fn(&mut Map<String, Value>)) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| every_object(item, change)),
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                let is_own = ["parameters", "input_schema", "input"].contains(&name.as_str());
                if !(is_own && member.is_object()) {
                    every_object(member, change);
                }
            }
            change(members);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Checks that a change of every object of every body changes no request.
#[track_caller]
fn changes_nothing(change: impl Fn(&mut Map<String, Value>)) {
    for (api, _) in MINIMAL {
        let mut body = full(api);
        let before = body.to_string();
        every_object(&mut body, &change);
        let after = body.to_string();
        assert_ne!(after, before);
        let [plain, found] = [before, after].map(|body| read(api, &body).unwrap());
        assert_eq!(found.request, plain.request, "{body}");
        assert_eq!(found.warnings, plain.warnings, "{body}");
    }
}

#[test]
fn unknown_members_are_the_same_as_absent_ones_in_every_api() {
    changes_nothing(|members| {
        members.insert("x_unknown".to_owned(), json!({"role": "user", "content": [1, null]}));
        members.insert("unknown_too".to_owned(), json!("text"));
    });
}

#[test]
fn the_order_of_members_changes_nothing_in_any_api() {
    changes_nothing(|members| {
        *members = std::mem::take(members).into_iter().rev().collect();
    });
}
