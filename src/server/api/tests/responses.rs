//! What responses requests may look like, and what the store keeps for them.

use serde_json::json;

use super::super::{ResponseStore, Shape, Stamp, answer, signature};
use super::support::{Reply, conversation, lines, read, read_with, refused, stamp};
use crate::chat::Tool;
use crate::server::{Api, Choice, FailureKind};

fn input(items: &str) -> Vec<String> {
    lines(&read(Api::Responses, &format!("{{\"input\":{items}}}")).unwrap())
}

#[test]
fn a_request_as_agents_send_it() {
    let body = r#"{"model":"gpt-x","instructions":"Be brief.","stream":true,"store":false,"max_output_tokens":9,
        "include":["reasoning.encrypted_content","other"],"reasoning":{"effort":"medium","summary":"auto"},
        "parallel_tool_calls":false,"tool_choice":{"type":"function","name":"find"},"prompt_cache_key":"k","text":{"format":{"type":"text"}},
        "tools":[{"type":"namespace","name":"mcp__a__","tools":[{"name":"find"}]}],
        "input":[{"role":"developer","content":[{"type":"input_text","text":"Env."}]},{"type":"message","role":"user","content":"q"}]}"#;
    let parsed = read(Api::Responses, body).unwrap();
    let request = &parsed.request;
    assert_eq!(lines(&parsed), ["system|-|Be brief.\n\nEnv.|", "user|-|q|"]);
    assert_eq!((request.limit, request.stream, request.calls.parallel), (Some(9), true, false));
    assert_eq!(request.calls.choice, Choice::Function("mcp__a__find".to_owned()));
    assert_eq!(request.affinity.as_deref(), Some("k"));
    let value =
        answer(&parsed.shape, &stamp(Api::Responses), &Reply::new(&["t"], &["a"]).outcome());
    assert_eq!((&value["store"], &value["prompt_cache_key"]), (&json!(false), &json!("k")));
    assert_eq!(value["output"][0]["encrypted_content"], json!(signature::sign("t")));
}

#[test]
fn inputs_are_texts_or_items() {
    assert_eq!(input("\"q\""), ["user|-|q|"]);
    assert_eq!(input(r#"["q",{"content":"r"}]"#), ["user|-|q|", "user|-|r|"]);
}

#[test]
fn every_item_of_a_history_keeps_what_happened() {
    let sealed = signature::sign("sealed");
    let found = input(&format!(
        r#"[{{"role":"user","content":"q"}},
        {{"type":"reasoning","id":"rs_1","summary":[{{"type":"summary_text","text":"short"}}],"encrypted_content":"{sealed}"}},
        {{"type":"message","role":"assistant","status":"incomplete","content":[{{"type":"output_text","text":"a"}}]}},
        {{"type":"function_call","call_id":"c1","name":"find","namespace":"mcp__","arguments":"{{\"n\":1.0}}","status":"completed"}},
        {{"type":"custom_tool_call","call_id":"c2","name":"patch","input":"*** Begin"}},
        {{"type":"local_shell_call","call_id":"c3","status":"completed","action":{{"type":"exec","command":["ls"],"working_directory":"/","env":null}}}},
        {{"type":"tool_search_call","call_id":"c4","execution":"client","arguments":{{"query":"x"}}}},
        {{"type":"web_search_call","id":"ws_1","status":"failed","action":{{"type":"search","query":"w"}}}},
        {{"type":"image_generation_call","id":"ig_1","result":"AAAA","revised_prompt":"cat"}},
        {{"type":"function_call_output","call_id":"c1","output":[{{"type":"input_text","text":"r1"}}]}},
        {{"type":"custom_tool_call_output","call_id":"c2","output":"r2"}},
        {{"type":"local_shell_call_output","id":"c3","output":{{"exit": 0, "n": 1.50}}}},
        {{"type":"tool_search_output","call_id":"c4","tools":[{{"type":"function","name":"found"}}]}},
        {{"type":"compaction","encrypted_content":"x"}},{{"type":"context_compaction"}},
        {{"type":"reasoning","summary":[{{"type":"summary_text","text":"one"}},{{"type":"summary_text","text":"two"}}],"encrypted_content":"gAAA"}},
        {{"role":"user","content":"p"}}]"#
    ));
    assert_eq!(
        found,
        [
            "user|-|q|",
            concat!(
                r#"assistant|sealed|a|c1:mcp__find{"n":1.0},c2:patch{"input":"*** Begin"},"#,
                r#"c3:local_shell{"command":["ls"],"workdir":"/"},c4:tool_search{"query":"x"},"#,
                r#"ws_1:web_search{"query":"w"},ig_1:image_generation{"prompt":"cat"}"#
            ),
            "tool|-|r1|",
            "tool|-|r2|",
            r#"tool|-|{"exit":0,"n":1.5}|"#,
            r#"tool|-|[{"type":"function","name":"found"}]|"#,
            "assistant|one\n\ntwo||",
            "user|-|p|",
        ]
    );
}

#[test]
fn found_tools_are_on_offer() {
    let body = r#"{"tools":[{"type":"tool_search"}],"input":["q",{"type":"tool_search_call","call_id":"c","arguments":{}},
        {"type":"tool_search_output","call_id":"c","tools":[{"type":"namespace","name":"n_","tools":[{"name":"found"}]}]}]}"#;
    let parsed = read(Api::Responses, body).unwrap();
    let found = |tools: &[Tool]| tools.last().unwrap().json().text().contains("\"n_found\"");
    let tools = &conversation(&parsed).0.tools;
    assert!(tools.len() == 2 && found(tools));

    // Later ones, too, which name the response only.
    let store = ResponseStore::new(2);
    let (_, stamp) = respond(&store, body, &Reply::new(&[], &["a"]), 1);
    let body = format!(r#"{{"previous_response_id":"{}","input":"p"}}"#, stamp.id);
    let parsed = read_with(Api::Responses, &body, &store).unwrap();
    assert!(found(&conversation(&parsed).0.tools));
}

#[test]
fn no_summary_means_no_thought_in_the_answer() {
    let parsed = read(Api::Responses, r#"{"input":"q","reasoning":{"summary":"none"}}"#).unwrap();
    let value =
        answer(&parsed.shape, &stamp(Api::Responses), &Reply::new(&["t"], &["a"]).outcome());
    assert_eq!(value["output"].as_array().unwrap().len(), 1);
    assert_eq!(value["output"][0]["type"], "message");
}

#[test]
fn refusals_name_the_field_and_what_was_found() {
    let check = |body: &str, message: &str| refused(Api::Responses, body, message);
    check("{}", "missing input");
    check(r#"{"input":5}"#, "`input` must be a string or an array of items, found a number");
    check(r#"{"input":[]}"#, "`input` must not be empty");
    check(r#"{"input":[{"type":"poem"}]}"#, "`input[0]` has the type `poem`, which is not known");
    check(
        r#"{"input":[{"type":"poem_output","call_id":"c"}]}"#,
        "`input[0]` has the type `poem_output`, which is not known",
    );
    check(
        r#"{"input":[{"type":"function_call","call_id":"c","name":"f","status":"in_progress"}]}"#,
        "`input[0]` is a call with the status `in_progress`: only completed ones can be replayed",
    );
    check(r#"{"input":[{"type":"function_call","name":"f"}]}"#, "missing call_id in `input[0]`");
    check(
        r#"{"input":[{"role":"tool","content":"x"}]}"#,
        "`input[0].role` must be `user`, `assistant`, `system` or `developer`, found `tool`",
    );
    check(
        r#"{"input":["q",{"type":"function_call_output","call_id":"c9","output":"r"}]}"#,
        "continuation state not available for call_id c9; replay the full input",
    );
    check(
        r#"{"input":[{"type":"item_reference","id":"msg_9"}]}"#,
        "`input[0]` refers to item `msg_9`, which is not stored; send the item itself",
    );
    check(
        r#"{"input":"q","conversation":"c"}"#,
        "`conversation` is not supported: send the history, or previous_response_id",
    );
    check(
        r#"{"input":"q","background":true}"#,
        "`background` is not supported: stream the response instead",
    );
    assert!(
        read(Api::Responses, r#"{"input":"q","background":false,"conversation":null}"#).is_ok()
    );
}

/// Answers a request and keeps the response under a name of its own.
fn respond(store: &ResponseStore, body: &str, reply: &Reply, mark: u8) -> (Shape, Stamp) {
    let shape = read_with(Api::Responses, body, store).unwrap().shape;
    let stamp = Stamp::new(Api::Responses, [mark; 16], || 1_790_000_000);
    store.remember(&shape, &stamp, &reply.outcome());
    (shape, stamp)
}

#[test]
fn a_response_is_continued_by_its_id() {
    let store = ResponseStore::new(8);
    let tools = r#""tools":[{"type":"function","name":"read"}]"#;
    let reply = Reply::new(&["t"], &["a"]).call("read", &["{\"n\":1}"]);
    let (shape, stamp) =
        respond(&store, &format!(r#"{{"instructions":"I","input":"q",{tools}}}"#), &reply, 1);
    let output = r#"{"type":"function_call_output","call_id":"call_0000","output":"r"}"#;
    let expected = ["user|-|q|", r#"assistant|t|a|call_0000:read{"n":1}"#, "tool|-|r|"];

    let by_id = format!(r#"{{"previous_response_id":"{}","input":[{output}]}}"#, stamp.id);
    assert_eq!(lines(&read_with(Api::Responses, &by_id, &store).unwrap()), expected);
    // Only the result: the response that made the call is meant.
    let by_call = format!(r#"{{"input":[{output}]}}"#);
    let parsed = read_with(Api::Responses, &by_call, &store).unwrap();
    assert_eq!(lines(&parsed), expected);
    let continued = answer(&parsed.shape, &stamp, &Reply::default().outcome());
    assert_eq!(continued["previous_response_id"], json!(stamp.id));

    let whole = answer(&shape, &stamp, &reply.outcome());
    assert_eq!(store.get(&stamp.id), Some(whole.clone()));
    let item = |index: usize| {
        format!(r#"{{"type":"item_reference","id":{}}}"#, whole["output"][index]["id"])
    };
    let by_items = format!(r#"{{"input":["q",{},{},{},{output}]}}"#, item(0), item(1), item(2));
    assert_eq!(lines(&read_with(Api::Responses, &by_items, &store).unwrap()), expected);

    // A chain of responses needs only its last one.
    let (_, second) = respond(&store, &by_id, &Reply::new(&[], &["b"]), 2);
    assert!(store.delete(&stamp.id) && !store.delete(&stamp.id));
    let body = format!(r#"{{"previous_response_id":"{}","input":"p"}}"#, second.id);
    let found = lines(&read_with(Api::Responses, &body, &store).unwrap());
    assert_eq!(found[..3], expected);
    assert_eq!(found[3..], ["assistant||b|", "user|-|p|"]);

    let failure = read_with(Api::Responses, &by_id, &store).unwrap_err();
    assert_eq!(failure.kind, FailureKind::UnknownResponse);
    assert_eq!(failure.param.as_deref(), Some("previous_response_id"));
}

#[test]
fn the_store_forgets_what_was_not_used_for_longest() {
    let store = ResponseStore::new(2);
    let reply = Reply::new(&[], &["a"]);
    let stamps: Vec<Stamp> =
        (0..2).map(|mark| respond(&store, r#"{"input":"q"}"#, &reply, mark).1).collect();
    let continues = |stamp: &Stamp| {
        let body = format!(r#"{{"previous_response_id":"{}","input":"p"}}"#, stamp.id);
        read_with(Api::Responses, &body, &store).is_ok()
    };
    assert!(continues(&stamps[0]));
    respond(&store, r#"{"input":"q"}"#, &reply, 9);
    assert!(continues(&stamps[0]) && !continues(&stamps[1]));
}

#[test]
fn what_must_not_be_stored_is_not() {
    let store = ResponseStore::new(2);
    let (_, stamp) = respond(&store, r#"{"input":"q","store":false}"#, &Reply::new(&[], &["a"]), 1);
    assert_eq!(store.get(&stamp.id), None);
    let none = ResponseStore::new(0);
    let (_, stamp) = respond(&none, r#"{"input":"q"}"#, &Reply::new(&[], &["a"]), 1);
    assert_eq!(none.get(&stamp.id), None);
}
