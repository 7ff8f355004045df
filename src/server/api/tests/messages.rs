//! What messages requests may look like.

use super::super::{answer, signature};
use super::support::{Reply, conversation, lines, read, refused, stamp};
use crate::server::{Api, Choice, Format};

fn messages(messages: &str) -> Vec<String> {
    lines(&read(Api::Messages, &format!("{{\"messages\":{messages}}}")).unwrap())
}

#[test]
fn a_request_as_agents_send_it() {
    let body = r#"{"max_tokens":32000,"stream":true,"metadata":{"user_id":"u"},"betas":["x"],"context_management":{},
        "thinking":{"type":"enabled","budget_tokens":31999},"tool_choice":{"type":"auto","disable_parallel_tool_use":true},
        "output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}},
        "system":[{"type":"text","text":"x-anthropic-billing-header: v=1"},
                  {"type":"text","text":"x-anthropic-a: 1\nYou are","cache_control":{"type":"ephemeral"}},{"text":"it.","type":"text"}],
        "tools":[{"name":"Read","description":"Reads.","input_schema":{"type":"object","properties":{}},"cache_control":{"type":"ephemeral"}},
                 {"type":"web_search_20250305","name":"web_search"},{"type":"bash_20250124","name":"bash","input_schema":{}}],
        "messages":[{"content":[{"text":"q","type":"text","cache_control":{"type":"ephemeral"}}],"role":"user"}],"model":"claude-x"}"#;
    let parsed = read(Api::Messages, body).unwrap();
    let request = &parsed.request;
    assert_eq!(
        (request.model.as_str(), request.limit, request.stream),
        ("claude-x", Some(32_000), true)
    );
    assert_eq!((request.thinking.on, request.thinking.budget), (Some(true), Some(31_999)));
    assert_eq!((&request.calls.choice, request.calls.parallel), (&Choice::Auto, false));
    assert!(matches!(request.format, Format::JsonSchema { .. }));
    assert_eq!(lines(&parsed), ["system|-|You are\nit.|", "user|-|q|"]);
    assert_eq!(parsed.warnings, ["a tool of type `web_search_20250305` is left out"]);
    let tools: Vec<&str> = conversation(&parsed).0.tools.iter().map(|t| t.json().text()).collect();
    assert_eq!(
        tools,
        [
            r#"{"type":"function","function":{"name":"Read","description":"Reads.","parameters":{"type":"object","properties":{}}}}"#,
            r#"{"type":"function","function":{"name":"bash","parameters":{}}}"#
        ]
    );
}

#[test]
fn a_format_is_found_by_its_name_of_before() {
    let body =
        |field: &str| format!("{{\"messages\":[{{\"role\":\"user\",\"content\":\"q\"}}],{field}}}");
    let format = r#"{"type":"json_schema","schema":{"type":"object"}}"#;
    let read = |field: String| read(Api::Messages, &body(&field)).unwrap().request;
    let now = read(format!("\"output_config\":{{\"format\":{format}}}"));
    assert!(matches!(now.format, Format::JsonSchema { .. }));
    assert_eq!(read(format!("\"output_format\":{format}")), now);
    let both = format!(
        "\"output_config\":{{\"format\":{format}}},\"output_format\":{{\"type\":\"text\"}}"
    );
    assert_eq!(read(both), now);
}

#[test]
fn a_moving_cache_breakpoint_changes_nothing() {
    let body = |first: &str, second: &str| {
        format!(
            r#"{{"tools":[{{"name":"a","input_schema":{{}}{first}}}],"messages":[{{"role":"user","content":[{{"type":"text","text":"q"{second}}}]}}]}}"#
        )
    };
    let mark = r#","cache_control":{"type":"ephemeral"}"#;
    let plain = read(Api::Messages, &body("", "")).unwrap().request;
    assert_eq!(read(Api::Messages, &body(mark, "")).unwrap().request, plain);
    assert_eq!(read(Api::Messages, &body("", mark)).unwrap().request, plain);
}

#[test]
fn thoughts_calls_and_results_in_any_member_order() {
    let sealed = signature::sign("hidden");
    let found = messages(&format!(
        r#"[{{"content":"q","role":"user"}},
            {{"content":[{{"signature":"s","thinking":"t","type":"thinking"}},{{"type":"redacted_thinking","data":"x"}},
                {{"text":"Reading.","type":"text"}},{{"input":{{"b":1.0,"a":"x"}},"name":"Read","id":"toolu_1","type":"tool_use"}},
                {{"type":"tool_use","id":"toolu_2","name":"Now","input":{{}}}}],"role":"assistant"}},
            {{"role":"user","content":[{{"tool_use_id":"toolu_1","type":"tool_result","content":[{{"type":"text","text":"r1"}}]}},
                {{"type":"tool_result","tool_use_id":"toolu_2","content":"r2","is_error":true}},
                {{"type":"text","text":"<system-reminder>n</system-reminder>"}}]}},
            {{"role":"assistant","content":[{{"type":"thinking","thinking":"","signature":"{sealed}"}},{{"type":"text","text":"a"}}]}},
            {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"toolu_1"}},{{"type":"text","text":"And?"}}]}},
            {{"role":"system","content":"note"}}]"#
    ));
    assert_eq!(
        found,
        [
            "user|-|q|",
            r#"assistant|t|Reading.|toolu_1:Read{"b":1.0,"a":"x"},toolu_2:Now{}"#,
            "tool|-|r1|",
            "tool|-|[error] r2\n\n<system-reminder>n</system-reminder>|",
            "assistant|hidden|a|",
            "tool|-||",
            "user|-|And?\n\n<system-reminder>\nnote\n</system-reminder>|",
        ]
    );
}

#[test]
fn own_answers_come_back_whole() {
    let shape = read(Api::Messages, r#"{"messages":[{"content":"q"}]}"#).unwrap().shape;
    let reply = Reply::new(&["t"], &["a"]).call("read", &["{\"n\":1}"]);
    let content = &answer(&shape, &stamp(Api::Messages), &reply.outcome())["content"];
    let found = messages(&format!(
        r#"[{{"content":"q"}},{{"role":"assistant","content":{content}}},
            {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"call_0000","content":"r"}}]}}]"#
    ));
    assert_eq!(found[1..], [r#"assistant|t|a|call_0000:read{"n":1}"#, "tool|-|r|"]);
}

#[test]
fn a_last_message_of_the_assistant_goes_on() {
    let body = r#"{"messages":[{"content":"q"},{"role":"assistant","content":[{"type":"text","text":"{"}]}]}"#;
    assert!(conversation(&read(Api::Messages, body).unwrap()).1);
}

#[test]
fn refusals_name_the_field_and_what_was_found() {
    let check = |body: &str, message: &str| refused(Api::Messages, body, message);
    check("{}", "missing messages");
    check(r#"{"messages":[]}"#, "`messages` must not be empty");
    check(
        r#"{"messages":[{"role":"tool","content":"q"}]}"#,
        "`messages[0].role` must be `user`, `assistant` or `system`, found `tool`",
    );
    check(
        r#"{"messages":[{"role":"user","content":[{"type":"tool_result","content":"r"}]}]}"#,
        "missing tool_use_id in `messages[0].content[0]`",
    );
    check(
        r#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t9"}]}]}"#,
        "continuation state not available for call_id t9; replay the full messages history",
    );
    check(
        r#"{"messages":[{"role":"assistant","content":[{"type":"tool_use","name":"a"}]}]}"#,
        "missing id in `messages[0].content[0]`",
    );
    check(
        r#"{"messages":[{"content":"q"}],"tool_choice":{"type":"tool","name":"x"}}"#,
        "`tool_choice.name` names `x`, which is not among the tools",
    );
    check(
        r#"{"messages":[{"content":"q"}],"system":5}"#,
        "`system` must be a string or an array of parts, found a number",
    );
}
