//! What chat requests may look like.

use super::super::answer;
use super::support::{Reply, conversation, golden_reply, lines, read, refused, stamp};
use crate::chat::Json;
use crate::server::{Api, Choice, Effort, Format};

fn chat(messages: &str) -> Vec<String> {
    lines(&read(Api::Chat, &format!("{{\"messages\":{messages}}}")).unwrap())
}

#[test]
fn everything_is_optional_but_the_messages() {
    let parsed = read(Api::Chat, r#"{"messages":[{"content":"q"}]}"#).unwrap();
    let request = &parsed.request;
    assert_eq!(request.model, "qwen3.6-35b-a3b");
    assert_eq!((request.limit, request.logprobs, request.stream), (None, None, false));
    assert_eq!((&request.format, &request.calls.choice), (&Format::Text, &Choice::Auto));
    assert_eq!(lines(&parsed), ["user|-|q|"]);
    let nulls = r#"{"model":null,"messages":[{"role":null,"content":"q","tool_calls":null,"reasoning_content":null}],
        "tools":null,"tool_choice":null,"max_tokens":null,"max_completion_tokens":null,"stream":null,
        "stream_options":null,"stop":null,"response_format":null,"logprobs":null,"top_logprobs":null,
        "thinking":null,"reasoning_effort":null,"chat_template_kwargs":null,"parallel_tool_calls":null,
        "functions":null,"prompt_cache_key":null,"unknown":{"deep":[1]}}"#;
    assert_eq!(read(Api::Chat, nulls).unwrap().request, parsed.request);
}

#[test]
fn all_fields_reach_the_request() {
    let body = r#"{"top_logprobs":3,"logprobs":true,"stream":true,"model":"gpt-x","max_tokens":5,"max_completion_tokens":7,
        "stop":["a"],"seed":9,"temperature":0,"reasoning_effort":"low","parallel_tool_calls":false,
        "tool_choice":"required","prompt_cache_key":"k","response_format":{"type":"json_object"},
        "tools":[{"type":"function","function":{"name":"read","strict":true,"parameters":{"b":1.0,"a":2}}},{"type":"web_search"}],
        "messages":[{"content":"q","role":"user"}]}"#;
    let parsed = read(Api::Chat, body).unwrap();
    let request = &parsed.request;
    assert_eq!(request.model, "gpt-x");
    assert_eq!((request.limit, request.logprobs, request.stream), (Some(7), Some(3), true));
    assert_eq!((request.sampling.seed, request.sampling.temperature), (Some(9), Some(0.0)));
    assert_eq!((request.thinking.on, request.thinking.effort), (Some(true), Some(Effort::Low)));
    assert_eq!((&request.calls.choice, request.calls.parallel), (&Choice::Required, false));
    assert!(request.calls.strict.contains("read"));
    assert_eq!((&request.format, request.affinity.as_deref()), (&Format::JsonObject, Some("k")));
    assert_eq!(parsed.warnings, ["a tool of type `web_search` is left out"]);
    let (conversation, _) = conversation(&parsed);
    assert_eq!(
        conversation.tools[0].json().text(),
        r#"{"type":"function","function":{"name":"read","parameters":{"b":1.0,"a":2}}}"#
    );
}

#[test]
fn of_repeated_keys_the_last_one_counts() {
    let parsed =
        read(Api::Chat, r#"{"messages":7,"model":"a","messages":[{"content":"q"}],"model":"b"}"#);
    assert_eq!(parsed.unwrap().request.model, "b");
}

#[test]
fn a_conversation_with_tools() {
    let found = chat(
        r#"[{"role":"developer","content":[{"type":"text","text":"S"}]},{"role":"system","content":"T"},
            {"role":"user","content":"q"},
            {"content":null,"tool_calls":[
                {"id":"c1","type":"function","function":{"name":"read","arguments":"{\"n\":1.50,\"n2\":12345678901234567890123}"}},
                {"id":"c2","type":"function","function":{"arguments":{"b":1,"a":2},"name":"list"}},
                {"id":"c3","function":{"name":"now","arguments":""}},
                {"id":"c4","function":{"name":"raw","arguments":"{broken"}}],
             "reasoning_content":"t","role":"assistant"},
            {"role":"tool","tool_call_id":"c1","content":"r1"},{"role":"function","name":"list","content":["r","2"]},
            {"role":"tool","tool_call_id":"c3","content":null},
            {"role":"assistant","content":"<think>u</think>a"},{"role":"assistant","content":"mentions </think>","reasoning":"v"},
            {"role":"user","content":"p"}]"#,
    );
    assert_eq!(
        found,
        [
            "system|-|S\n\nT|",
            "user|-|q|",
            r#"assistant|t||c1:read{"n":1.50,"n2":12345678901234567890123},c2:list{"b":1,"a":2},c3:now{},c4:raw{"input":"{broken"}"#,
            "tool|-|r1|",
            "tool|-|r2|",
            "tool|-||",
            "assistant|-|<think>u</think>a|",
            "assistant|v|mentions </think>|",
            "user|-|p|",
        ]
    );
}

#[test]
fn clients_of_the_older_form_are_understood_and_answered_in_it() {
    let body = |choice: &str| {
        format!(
            r#"{{"functions":[{{"name":"f","description":"D","parameters":{{"type":"object"}}}}],{choice}
                "messages":[{{"content":"q"}},{{"role":"assistant","content":null,"function_call":{{"name":"f","arguments":"{{\"n\":1}}"}}}},
                {{"role":"function","name":"f","content":"r"}}]}}"#
        )
    };
    let parsed = read(Api::Chat, &body("")).unwrap();
    assert_eq!(lines(&parsed), ["user|-|q|", r#"assistant|||-:f{"n":1}"#, "tool|-|r|"]);
    let modern = r#"{"tools":[{"type":"function","function":{"name":"f","description":"D","parameters":{"type":"object"}}}],"messages":[{"content":"q"}]}"#;
    let modern = read(Api::Chat, modern).unwrap();
    assert_eq!(conversation(&parsed).0.tools, conversation(&modern).0.tools);
    assert_eq!(
        (&parsed.request.calls.choice, parsed.request.calls.parallel),
        (&Choice::Auto, false)
    );
    let choice = |text: &str| read(Api::Chat, &body(text)).unwrap().request.calls.choice;
    assert_eq!(choice(r#""function_call":"none","#), Choice::None);
    assert_eq!(choice(r#""function_call":{"name":"f"},"#), Choice::Function("f".to_owned()));

    let reply = Reply::new(&[], &[]).call("f", &["{\"n\"", ":1}"]);
    golden_reply("chat-legacy", &parsed.shape, &reply);
    let answer = answer(&parsed.shape, &stamp(Api::Chat), &reply.outcome());
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "function_call");
    assert_eq!(choice["message"]["function_call"]["arguments"], r#"{"n":1}"#);
    assert!(choice["message"].get("tool_calls").is_none());
}

#[test]
fn a_text_that_mentions_the_markers_keeps_them() {
    let found =
        chat(r#"[{"content":"q"},{"role":"assistant","content":"a </think> b"},{"content":"p"}]"#);
    assert_eq!(found[1], "assistant||a </think> b|");
}

#[test]
fn a_last_message_of_the_assistant_goes_on() {
    let check = |last: &str, continues: bool, count: usize| {
        let body = format!("{{\"messages\":[{{\"content\":\"q\"}},{last}]}}");
        let parsed = read(Api::Chat, &body).unwrap();
        let (conversation, found) = conversation(&parsed);
        assert_eq!((found, conversation.messages.len()), (continues, count), "{last}");
    };
    check(r#"{"role":"assistant","content":"Once"}"#, true, 2);
    check(r#"{"role":"assistant","content":" "}"#, false, 1);
    check(r#"{"role":"assistant","content":"","reasoning_content":"Hm"}"#, true, 2);
    check(r#"{"role":"user","content":"x"}"#, false, 2);
    let call = r#"{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f"}}]}"#;
    check(call, false, 2);
}

#[test]
fn later_system_text_is_folded() {
    let found = chat(
        r#"[{"role":"system","content":"x-anthropic-billing-header: 1\nS"},{"content":"q"},{"role":"system","content":"n"}]"#,
    );
    assert_eq!(found, ["system|-|S|", "user|-|q\n\n<system-reminder>\nn\n</system-reminder>|"]);
}

#[test]
fn what_people_wrote_is_normalised_and_lone_surrogates_are_replaced() {
    let found = chat(r#"[{"content":"e\u0301 \ud83d!"}]"#);
    assert_eq!(found, ["user|-|\u{e9} \u{fffd}!|"]);
}

#[test]
fn schemas_of_answers_keep_their_spelling() {
    let body = r#"{"messages":[{"content":"q"}],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"z":1.0,"a":1e2}}}}"#;
    let expected = Json::parse(r#"{"z":1.0,"a":1e2}"#).unwrap();
    let Format::JsonSchema { schema, .. } = read(Api::Chat, body).unwrap().request.format else {
        panic!("a schema")
    };
    assert_eq!(schema.text(), expected.text());
}

#[test]
fn refusals_name_the_field_and_what_was_found() {
    let check = |body: &str, message: &str| refused(Api::Chat, body, message);
    check("{}", "missing messages");
    check(r#"{"messages":null}"#, "missing messages");
    check(r#"{"messages":[]}"#, "`messages` must not be empty");
    check(r#"{"messages":{}}"#, "`messages` must be an array, found an object");
    check(r#"{"messages":["q"]}"#, "`messages[0]` must be an object, found a string");
    check(
        r#"{"messages":[{"role":"robot","content":"q"}]}"#,
        "`messages[0].role` must be `system`, `developer`, `user`, `assistant`, `tool` or `function`, found `robot`",
    );
    check(
        r#"{"messages":[{"content":true}]}"#,
        "`messages[0].content` must be a string or an array of parts, found a boolean",
    );
    check(
        r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"c"}]}]}"#,
        "missing function in `messages[0].tool_calls[0]`",
    );
    let replay = "; replay the full messages history";
    check(
        r#"{"messages":[{"role":"tool","tool_call_id":"c9","content":"r"}]}"#,
        &format!("continuation state not available for call_id c9{replay}"),
    );
    check(
        r#"{"messages":[{"role":"tool","content":"r"}]}"#,
        &format!("continuation state not available for call_id (none){replay}"),
    );
    let with = |fields: &str| format!("{{\"messages\":[{{\"content\":\"q\"}}],{fields}}}");
    check(&with(r#""stream":"yes""#), "`stream` must be a boolean, found a string");
    check(&with(r#""max_tokens":"5""#), "`max_tokens` must be an integer, found a string");
    check(&with(r#""tools":[5]"#), "`tools[0]` must be an object, found a number");
    check(&with(r#""tools":[{"function":{}}]"#), "missing name in `tools[0].function`");
    check(&with(r#""top_logprobs":21"#), "`top_logprobs` must be from 0 to 20, found 21");
    check(&with(r#""n":3"#), "`n` must be 1, found 3: one answer to a request");
    check(&with(r#""functions":[{}]"#), "missing name in `functions[0]`");
    check(
        &with(r#""functions":[{"name":"f"}],"function_call":{"name":"g"}"#),
        "`function_call.name` names `g`, which is not among the functions",
    );
    check(
        &with(r#""functions":[{"name":"f"}],"function_call":"any""#),
        "`function_call` must be `auto`, `none` or a name, found `any`",
    );
    check(&with(r#""model":5"#), "`model` must be a string, found a number");
}
