//! Every reply here is read whole, byte by byte, and in ids and bytes where that makes a difference.

use super::*;
use crate::chat::{Tool, canonical};

mod property;

const SPECIAL: Special = Special {
    im_start: TokenId(1),
    im_end: TokenId(2),
    endoftext: TokenId(3),
    think: TokenId(4),
    think_end: TokenId(5),
    tool_call: TokenId(6),
    tool_call_end: TokenId(7),
    tool_response: TokenId(8),
    tool_response_end: TokenId(9),
};

/// Two functions: `f` with texts, numbers and lists, `write` as agents have it.
fn tools() -> Toolset {
    let f = r#"{"name": "f", "parameters": {"properties": {"s": {"type": "string"}, "t": {"type": "string"}, "i": {"type": "integer"}, "n": {"type": "number"}, "b": {"type": "boolean"}, "l": {"type": "array"}, "o": {"type": "object"}}}}"#;
    let write = r#"{"name": "write", "parameters": {"properties": {"path": {"type": "string"}, "content": {"type": "string"}}}}"#;
    Toolset::new(&[Tool::parse(f).unwrap(), Tool::parse(write).unwrap()])
}

fn options(source: Source, thinking: bool) -> ReaderOptions {
    ReaderOptions { source, thinking, tools: Some(tools()) }
}

/// Joins the texts of neighbouring events of one kind.
fn merged(events: Vec<Event>) -> Vec<Event> {
    let mut out: Vec<Event> = Vec::new();
    for event in events {
        match (out.last_mut(), &event) {
            (Some(Event::Reasoning(last)), Event::Reasoning(text))
            | (Some(Event::Text(last)), Event::Text(text))
            | (Some(Event::ParamBytes(last)), Event::ParamBytes(text)) => last.push_str(text),
            _ => out.push(event),
        }
    }
    out
}

/// One line for each event.
fn lines(events: &[Event]) -> Vec<String> {
    let line = |event: &Event| match event {
        Event::Reasoning(text) => format!("think {text:?}"),
        Event::Text(text) => format!("text {text:?}"),
        Event::CallStart(name) => format!("call {name}"),
        Event::ParamStart(name) => format!("param {name}"),
        Event::ParamBytes(text) => format!("{text:?}"),
        Event::ParamEnd { .. } => "end".to_owned(),
        Event::CallEnd => "done".to_owned(),
        Event::Error { kind, raw } => format!("{kind:?} {raw:?}"),
    };
    events.iter().map(line).collect()
}

/// The answer as a client sees it: what was streamed, and what was reported as no call.
fn shown(events: &[Event]) -> String {
    let text = |event: &Event| match event {
        Event::Text(text) | Event::Error { raw: text, .. } => text.clone(),
        Event::Reasoning(_)
        | Event::CallStart(_)
        | Event::ParamStart(_)
        | Event::ParamBytes(_)
        | Event::ParamEnd { .. }
        | Event::CallEnd => String::new(),
    };
    events.iter().map(text).collect()
}

/// Feeds `parts` as bytes.
fn read(options: ReaderOptions, parts: &[&[u8]], end: End) -> (Vec<Event>, Reply) {
    let mut reader = Reader::new(options);
    let mut events = Vec::new();
    for part in parts {
        events.extend(reader.bytes(part));
    }
    let (last, reply) = reader.finish(end);
    events.extend(last);
    (merged(events), reply)
}

/// Reads `text` by spelling, whole and byte by byte.
fn read_text(text: &str, thinking: bool, end: End) -> (Vec<Event>, Reply) {
    let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
    let whole = read(options(Source::Text, thinking), &[text.as_bytes()], end);
    assert_eq!(read(options(Source::Text, thinking), &bytes, end), whole);
    whole
}

/// Reads tokens: a part that is a marker is its id, unless `~` stands before it.
fn read_ids(parts: &[&str], thinking: bool) -> (Vec<Event>, Reply) {
    let ids = [
        ("<|im_end|>", SPECIAL.im_end),
        ("<think>", SPECIAL.think),
        ("</think>", SPECIAL.think_end),
        ("<tool_call>", SPECIAL.tool_call),
        ("</tool_call>", SPECIAL.tool_call_end),
        ("<tool_response>", SPECIAL.tool_response),
    ];
    let mut results = Vec::new();
    for bytewise in [false, true] {
        let mut reader = Reader::new(options(Source::Ids(SPECIAL), thinking));
        let mut events = Vec::new();
        for part in parts {
            if let Some((text, id)) = ids.iter().find(|(text, _)| text == part) {
                events.extend(reader.token(*id, text.as_bytes()));
                continue;
            }
            let bytes = part.strip_prefix('~').unwrap_or(part).as_bytes();
            for piece in bytes.chunks(if bytewise { 1 } else { bytes.len() }) {
                events.extend(reader.token(TokenId(100), piece));
            }
        }
        let (last, reply) = reader.finish(End::Turn);
        events.extend(last);
        results.push((merged(events), reply));
    }
    assert_eq!(results[0], results[1]);
    results.remove(0)
}

/// Events of an answer without thought.
fn check(text: &str, expected: &[&str]) -> Reply {
    let (events, reply) = read_text(text, false, End::Turn);
    assert_eq!(lines(&events), expected, "{text}");
    reply
}

fn arguments(reply: &Reply) -> Vec<String> {
    let json = |call: &ParsedCall| {
        format!("{} {}", call.name, serde_json::to_string(&call.arguments).unwrap())
    };
    reply.calls.iter().map(json).collect()
}

const CALL: &str =
    "<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</function>\n</tool_call>";
const CALL_EVENTS: [&str; 5] = ["call f", "param s", "\"x\"", "end", "done"];

fn with_call(before: &[&'static str]) -> Vec<&'static str> {
    [before, &CALL_EVENTS].concat()
}

#[test]
fn thought_answer_and_call() {
    let text = format!("I must\ncall.\n</think>\n\nLook: \n\n{CALL}");
    let (events, reply) = read_text(&text, true, End::Turn);
    assert_eq!(lines(&events), with_call(&["think \"I must\\ncall.\"", "text \"Look:\""]));
    assert_eq!((reply.reasoning.as_str(), reply.content.as_str()), ("I must\ncall.", "Look:"));
    assert_eq!(arguments(&reply), [r#"f {"s":"x"}"#]);
    assert_eq!(reply.block.unwrap().text(), format!(" \n\n{CALL}"));
    assert!(reply.repairs.is_empty() && reply.failure.is_none() && !reply.thought_open);
}

#[test]
fn the_newlines_behind_a_thought_are_the_templates() {
    let block = |text: &str, thinking| read_text(text, thinking, End::Turn).1.block.unwrap();
    assert_eq!(block(&format!("t\n</think>\n\n{CALL}"), true).text(), CALL);
    assert_eq!(block(&format!("t\n</think>\n\n\n {CALL}"), true).text(), format!("\n {CALL}"));
    assert_eq!(block(&format!("\n\n{CALL}"), false).text(), format!("\n\n{CALL}"));
    let (events, reply) = read_text("</think>\n\n\n  Hello \n", true, End::Turn);
    assert_eq!(lines(&events), ["text \"  Hello \\n\""]);
    assert_eq!(reply.reasoning, "");
}

#[test]
fn the_white_space_before_a_block_is_kept_to_the_byte() {
    for space in ["", "\n", "\n\n", " \n\n\n", "\t ", "\r\n"] {
        let reply = read_text(&format!("Look:{space}{CALL}"), false, End::Turn).1;
        assert_eq!(reply.content, "Look:", "{space:?}");
        assert_eq!(reply.block.unwrap().text(), format!("{space}{CALL}"));
    }
}

#[test]
fn white_space_between_thought_and_call_is_no_content() {
    for space in ["", "\n", "\n\n", "\n\n\n", " \n\n \t\n"] {
        let text = format!("t\n</think>{space}{CALL}");
        let (events, reply) = read_text(&text, true, End::Turn);
        assert_eq!(lines(&events), with_call(&["think \"t\""]), "{space:?}");
        assert_eq!(reply.content, "");
        let (events, reply) = read_ids(
            &[
                "t\n",
                "</think>",
                &format!("{space} "),
                "<tool_call>",
                "\n<function=f>\n</function>\n",
                "</tool_call>",
            ],
            true,
        );
        assert_eq!(lines(&events), ["think \"t\"", "call f", "done"], "{space:?}");
        assert_eq!(reply.content, "");
    }
}

#[test]
fn a_thought_that_never_closes() {
    let (events, reply) = read_text(&format!(" so\n{CALL} </thi"), true, End::Cut);
    assert_eq!(lines(&events), [format!("think {:?}", format!("so\n{CALL} </thi"))]);
    assert!(reply.thought_open && reply.calls.is_empty() && reply.content.is_empty());
}

#[test]
fn markers_by_id_and_by_spelling() {
    let text =
        ["a ", "~</think>", " b", "</think>", "\n\n", "c ", "<think>", "~<think>", "</think>", "d"];
    let (events, reply) = read_ids(&text, true);
    assert_eq!(lines(&events), ["think \"a </think> b\"", "text \"c <think>d\""]);
    assert_eq!(reply.reasoning, "a </think> b");
    let (events, _) = read_ids(&["~say <tool_call> to call", "<|im_end|>"], false);
    assert_eq!(lines(&events), ["text \"say <tool_call> to call\""]);
}

#[test]
fn without_tools_markup_of_calls_is_text() {
    let options = ReaderOptions { source: Source::Text, thinking: false, tools: None };
    let (events, reply) = read(options, &[CALL.as_bytes()], End::Turn);
    assert_eq!(lines(&events), [format!("text {CALL:?}")]);
    assert_eq!(reply.content, CALL);
}

#[test]
fn parallel_calls_and_functions_sharing_a_block() {
    let reply = check(&format!("{CALL}\n{CALL}"), &[CALL_EVENTS, CALL_EVENTS].concat());
    assert_eq!(reply.block.unwrap().text(), format!("{CALL}\n{CALL}"));
    let shared = "<tool_call>\n<function=f>\n</function>\n<function=g>\n</function>\n</tool_call>";
    let reply = check(shared, &["call f", "done", "call g", "done"]);
    assert_eq!(reply.block.unwrap().text(), shared);
    assert!(reply.repairs.is_empty());
}

#[test]
fn a_marker_split_across_pieces_is_found_and_no_second_call_leaks_as_text() {
    let text = format!("Look:\n\n{CALL}\n{CALL}");
    let expected = [&["text \"Look:\""][..], &CALL_EVENTS, &CALL_EVENTS].concat();
    for at in 0..=text.len() {
        let (a, b) = text.as_bytes().split_at(at);
        let (events, reply) = read(options(Source::Text, false), &[a, b], End::Turn);
        assert_eq!(lines(&events), expected, "cut at byte {at}");
        assert_eq!((reply.calls.len(), reply.content.as_str()), (2, "Look:"));
    }
    // In tokens the markers of blocks are whole; the tags inside are not.
    let inside = CALL.strip_prefix("<tool_call>").unwrap().strip_suffix("</tool_call>").unwrap();
    for at in 1..inside.len() {
        let (a, b) = inside.split_at(at);
        let call = ["<tool_call>", a, b, "</tool_call>"];
        let (events, reply) = read_ids(&[&call[..], &["\n"], &call].concat(), false);
        assert_eq!(lines(&events), [CALL_EVENTS, CALL_EVENTS].concat(), "cut at byte {at}");
        assert_eq!((reply.calls.len(), reply.content.as_str()), (2, ""));
    }
}

#[test]
fn text_behind_the_calls_ends_the_reply() {
    let reply = check(&format!("{CALL}\n\nNow I wait.\n{CALL}"), &CALL_EVENTS);
    assert_eq!((reply.calls.len(), reply.content.as_str()), (1, ""));
    assert_eq!(reply.block.unwrap().text(), CALL);
    let mut reader = Reader::new(options(Source::Text, false));
    reader.bytes(CALL.as_bytes());
    reader.bytes(b"\n\n<");
    assert!(!reader.is_done());
    reader.bytes(b"b");
    assert!(reader.is_done());
}

#[test]
fn values_are_literal() {
    let value = |value: &str| {
        let text = format!(
            "<tool_call>\n<function=f>\n<parameter=s>\n{value}\n</parameter>\n</function>\n</tool_call>"
        );
        let reply = read_text(&text, false, End::Turn).1;
        assert_eq!(reply.calls.len(), 1, "{value:?}: {:?}", reply.failure);
        assert!(reply.calls[0].repairs.is_empty(), "{value:?}");
        assert_eq!(reply.calls[0].texts[0].1, value);
    };
    for text in [
        "",
        "\n",
        "\n\nx\n\n",
        "  x  ",
        "a & b &lt; <c>",
        "</parameter>",
        "x</parameter> y",
        "</parameter>\n\n<b>",
        "<parameter=s>",
        "<parameter=zzz>\n1",
        "x <parameter=i>",
        "</tool_call>",
        "<tool_call>",
        "</function>",
        "</function>\nx",
        "x</function>\n</tool_call>",
        "</param",
        "<",
        "</",
        "\n<",
        "<think></think>",
        "<|im_end|>",
        "é😀",
    ] {
        value(text);
    }
    value(&format!("</parameter>{}</function>", " ".repeat(65)));
}

#[test]
fn a_value_may_quote_markers_by_id() {
    let parts = [
        "<tool_call>",
        "\n<function=write>\n<parameter=content>\n",
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "<tool_response>",
        "\n</parameter>\n</function>\n",
        "</tool_call>",
    ];
    let (_, reply) = read_ids(&parts, false);
    assert_eq!(reply.calls[0].texts[0].1, "<tool_call></tool_call><think><tool_response>");
    let block = reply.block.unwrap();
    let mut prompt = crate::chat::Prompt::new();
    prompt.replay(&block);
    let markers: Vec<_> = prompt.markers().iter().map(|m| m.text).collect();
    assert_eq!((prompt.text(), markers), (parts.concat(), vec!["<tool_call>", "</tool_call>"]));
}

#[test]
fn missing_closers() {
    let repaired = |text: &str, repairs: &[Repair], ambiguous: bool| {
        let reply = read_text(text, false, End::Turn).1;
        assert_eq!(reply.repairs, repairs, "{text}");
        assert_eq!(reply.calls[0].ambiguous, ambiguous, "{text}");
        arguments(&reply).join(" ")
    };
    let parameter = Repair::MissingParameterClose;
    let open = "<tool_call>\n<function=f>\n<parameter=s>\nx";
    let next = format!("{open}\n<parameter=i>\n5\n</parameter>\n</function>\n</tool_call>");
    assert_eq!(repaired(&next, &[parameter], false), r#"f {"s":"x","i":5}"#);
    let function = format!("{open}\n</function>\n</tool_call>");
    assert_eq!(repaired(&function, &[parameter], false), r#"f {"s":"x"}"#);
    let one_line = "<tool_call><function=f><parameter=s>x</function></tool_call>";
    assert_eq!(repaired(one_line, &[parameter], false), r#"f {"s":"x"}"#);
    let both = format!("{open}\n</tool_call>");
    let function_close = Repair::MissingFunctionClose;
    assert_eq!(repaired(&both, &[parameter, function_close], false), r#"f {"s":"x"}"#);
    let unsure = format!("{open}\n</parameter>\ny\n</tool_call>");
    assert_eq!(
        repaired(&unsure, &[parameter, function_close], true),
        "f {\"s\":\"x\\n</parameter>\\ny\"}"
    );
    let closed = format!("{open}\n</parameter>\n</tool_call>");
    assert_eq!(repaired(&closed, &[function_close], false), r#"f {"s":"x"}"#);
    let ended = format!("{open}\n</parameter>\n</function>\n");
    assert_eq!(repaired(&ended, &[Repair::MissingBlockClose], false), r#"f {"s":"x"}"#);
    let text = format!("{open}\n</parameter>\n</function>\nThen text");
    assert_eq!(repaired(&text, &[Repair::MissingBlockClose], false), r#"f {"s":"x"}"#);
    let again = "<tool_call>\n<function=f>\n<function=f>\n</function>\n</tool_call>";
    assert_eq!(repaired(again, &[function_close], false), "f {} f {}");
}

#[test]
fn odd_tags_json_bodies_and_repeated_parameters() {
    let repaired = |text: &str, repairs: &[Repair], expected: &str| {
        let reply = read_text(text, false, End::Turn).1;
        assert_eq!(
            (reply.repairs.as_slice(), arguments(&reply).join(" ").as_str()),
            (repairs, expected)
        );
    };
    repaired(
        "<tool_call><function name=\"f\"><parameter name=\"s\">x</parameter ></function ></tool_call>",
        &[Repair::OddTag],
        r#"f {"s":"x"}"#,
    );
    repaired(
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"}</tool_call>\", \"i\": 5.0,}}\n</tool_call>",
        &[Repair::JsonBody],
        r#"f {"s":"}</tool_call>","i":5.0}"#,
    );
    repaired(
        "<tool_call>{'name': 'f', 'arguments': '{\"i\": 1}'}</tool_call>",
        &[Repair::JsonBody],
        r#"f {"i":1}"#,
    );
    repaired(
        "<tool_call><function=f><parameter=i>1</parameter><parameter=s>x</parameter><parameter=i>2</parameter></function></tool_call>",
        &[Repair::RepeatedParameter],
        r#"f {"i":2,"s":"x"}"#,
    );
}

#[test]
fn lost_openers() {
    let bare = CALL.strip_prefix("<tool_call>\n").unwrap();
    let reply = check(&format!("I call:\n{bare}"), &with_call(&["text \"I call:\""]));
    assert_eq!(reply.repairs, [Repair::MissingOpener]);
    assert_eq!(reply.block.unwrap().text(), format!("\n{bare}"));
    let reply = check(bare.strip_suffix("\n</tool_call>").unwrap(), &CALL_EVENTS);
    assert_eq!(reply.repairs, [Repair::MissingOpener]);

    let (events, reply) = read_ids(&[&format!("~{CALL}")], false);
    assert_eq!(lines(&events), CALL_EVENTS);
    assert_eq!(reply.repairs, [Repair::SpelledOpener]);

    let quoted = [format!("Use `a\n{bare}`"), format!("```\n{bare}\n```"), format!("Like {bare}")];
    for text in quoted {
        let reply = read_text(&text, false, End::Turn).1;
        assert!(reply.calls.is_empty(), "{text}");
    }
}

#[test]
fn stray_tags_are_reported_and_stay_text() {
    let reply = check(
        "Oh\n<function=nobody>\n</parameter> x",
        &[
            "text \"Oh\\n\"",
            "StrayTag \"<function=nobody>\"",
            "text \"\\n\"",
            "StrayTag \"</parameter>\"",
            "text \" x\"",
        ],
    );
    assert_eq!(reply.content, "Oh\n<function=nobody>\n</parameter> x");
    let reply = check("a</tool_call>\n</tool_call>b", &["text \"a\\nb\""]);
    assert_eq!(reply.repairs, [Repair::OrphanClose]);
}

#[test]
fn blocks_that_are_no_calls_become_text() {
    let failed = |block: &str, kind: &str| {
        let (events, reply) = read_text(&format!("Hm.\n{block}"), false, End::Turn);
        assert!(reply.calls.is_empty() && reply.block.is_none() && reply.failure.is_some());
        assert_eq!(reply.content, format!("Hm.\n{block}"));
        let lines = lines(&events);
        assert!(lines.iter().any(|line| line.starts_with(kind)), "{lines:?}");
        // What was streamed and what was reported is the whole answer.
        assert_eq!(shown(&events), reply.content);
    };
    failed("<tool_call>\n</tool_call>", "EmptyBlock");
    failed("<tool_call>call f please</tool_call> and", "UnexpectedText");
    failed("<tool_call></function></tool_call>", "UnopenedFunction");
    failed("<tool_call><parameter=s>", "ParameterOutsideFunction");
    failed("<tool_call><function=>", "MissingName");
    failed("<tool_call><function=f><parameter=>", "MissingName");
    failed("<tool_call>\n<function=f>\nx</function>\n</tool_call>\nmore", "UnexpectedText");
    failed("<tool_call>{\"name\": 5}</tool_call>", "BadJson");
    failed("<tool_call>{\"name\": \"f\"</tool_call>", "BadJson");
    failed("<tool_call>\n<function=f>\n<parameter=s>\nx", "Unterminated");
    failed("<tool_call>", "Unterminated");
}

#[test]
fn a_reply_cut_inside_a_call_finishes_nothing() {
    let start = "<tool_call>\n<function=f>\n<parameter=s>\nx\n</par";
    let (events, reply) = read_text(&format!("Hm.\n{start}"), false, End::Cut);
    assert_eq!(lines(&events)[..4], ["text \"Hm.\"", "call f", "param s", "\"x\\n</par\""]);
    assert!(!events.contains(&Event::CallEnd));
    assert_eq!(reply.content, "Hm.");
    assert_eq!(reply.failure.unwrap().raw, format!("\n{start}"));

    let (events, reply) = read_text(&format!("{CALL}\n{start}"), false, End::Cut);
    assert_eq!(lines(&events)[..5], CALL_EVENTS);
    assert_eq!((reply.calls.len(), reply.content.as_str()), (1, ""));
    assert_eq!(reply.block.unwrap().text(), CALL);
}

#[test]
fn what_is_syntax_and_what_is_free() {
    let mut reader = Reader::new(options(Source::Text, true));
    let mut check = |text: &str, expected: Phase| {
        reader.bytes(text.as_bytes());
        assert_eq!(reader.state(), expected, "{text:?}");
    };
    check("hm <", Phase::Thinking);
    check("/think>\n\n", Phase::Outside);
    check("ok <tool_call", Phase::Outside);
    check(">", Phase::Structural);
    check("\n<function=f>\n<parameter=s", Phase::Structural);
    check(">", Phase::Payload);
    check("\nabc\n<", Phase::Payload);
    check("/", Phase::Structural);
    check("parameter", Phase::Structural);
    check(">", Phase::Structural);
    check(" not the end", Phase::Payload);
    check("\n</p", Phase::Structural);
    check("q", Phase::Payload);
    check("\n</parameter>\n</function>\n", Phase::Structural);
    check("</tool_call>", Phase::Outside);
}

#[test]
fn text_is_held_back_only_while_it_may_be_markup() {
    let mut reader = Reader::new(options(Source::Text, false));
    let mut check = |text: &str, expected: &[&str]| {
        assert_eq!(lines(&reader.bytes(text.as_bytes())), expected, "{text:?}");
    };
    check("a < b", &["text \"a < b\""]);
    check("  \n", &[]);
    check("<tool", &[]);
    check("box>", &["text \"  \\n<toolbox>\""]);
    check(" <tool_call><function=f><parameter=s>\nab\n", &["call f", "param s", "\"ab\""]);
    check("cd</para", &["\"\\ncd\""]);
    check("graph>", &["\"</paragraph>\""]);
    check("</parameter>\n", &[]);
    check("</function>", &["end", "done"]);
}

#[test]
fn invalid_text_is_replaced_in_every_channel() {
    let bytes = [
        b"\xFF</think>\n\n\xE4<tool_call><function=f><parameter=s>a\xC3",
        &b"</parameter></function></tool_call>"[..],
    ]
    .concat();
    let (events, reply) = read(options(Source::Text, true), &[&bytes], End::Turn);
    assert_eq!(lines(&events)[..2], ["think \"\u{fffd}\"", "text \"\u{fffd}\""]);
    assert_eq!(reply.calls[0].texts[0].1, "a\u{fffd}");
    assert_eq!(reply.block, None);
}
