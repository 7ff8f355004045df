//! Generated replies: any cut gives the same events, every rendered call comes back, nothing panics.

use proptest::prelude::*;

use super::*;
use crate::chat::{Arguments, Json};

/// What markup is made of.
fn fragment() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "<tool_call>",
        "</tool_call>",
        "<function=f>",
        "<function=",
        "<function name=\"f\">",
        "</function>",
        "<parameter=s>",
        "<parameter=i>",
        "<parameter=zz>",
        "<parameter",
        "</parameter>",
        "</parameter",
        "<think>",
        "</think>",
        "\n",
        "\n\n",
        " ",
        ">",
        "<",
        "</",
        "`",
        "```",
        "{",
        "}",
        "{\"name\": \"f\"",
        "\"",
        ", \"arguments\": {}}",
        "a",
        "x y",
        "5",
        "é",
        "<|im_end|>",
        "\\",
    ])
}

/// Text made of it, and of noise.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        12 => fragment().prop_map(|text| text.as_bytes().to_vec()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// `bytes` cut at `cuts`.
fn cut<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    places.sort_unstable();
    let mut parts = Vec::new();
    let mut start = 0;
    for place in places {
        parts.push(&bytes[start..place]);
        start = place;
    }
    parts.push(&bytes[start..]);
    parts
}

fn cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 0..6)
}

/// A text parameter that has one reading.
fn literal() -> impl Strategy<Value = String> {
    let fragment = prop::sample::select(vec![
        "</parameter>.",
        "</function>.",
        "</tool_call>.",
        "<tool_call>",
        "<parameter=q>",
        " <parameter=i>",
        " <parameter=",
        "</parameter",
        "<think>",
        "</think>",
        "\n",
        "\n\n",
        "  ",
        "\t",
        "<",
        ">",
        "</",
        "é",
        "日本",
        "\u{301}",
        "😀",
        "\"",
        "\\",
        "{\"a\": 1}",
        "true",
        "null",
        "007",
        "x",
        "'",
    ]);
    prop::collection::vec(fragment, 0..12)
        .prop_map(|parts| parts.concat())
        .prop_filter("closes in the middle", |text| closing(text).is_none())
}

const CLOSE: &str = "</parameter";

/// What makes a closing tag before it a real one.
const FOLLOWS: [&str; 4] = ["<parameter=", "<parameter ", "</function", "</tool_call>"];

/// Where the first closing tag stands that is followed by another tag, which makes it a real one.
fn closing(text: &str) -> Option<usize> {
    let mut tags = text.match_indices(CLOSE);
    let real = |at: usize| {
        let tag = text[at + CLOSE.len()..].trim_start().strip_prefix('>')?.trim_start();
        FOLLOWS.iter().any(|name| tag.starts_with(name)).then_some(at)
    };
    tags.find_map(|(at, _)| real(at))
}

/// Arguments that fit the schema of `f`, each parameter at most once, in any order.
fn typed_arguments() -> impl Strategy<Value = Vec<(&'static str, Json)>> {
    let json = |text: String| Json::parse(&text).unwrap();
    let string = || literal().prop_map(|text| Json::string(&text));
    let integer = any::<i64>().prop_map(move |n| json(n.to_string()));
    let number = prop_oneof![
        (-1e300..1e300).prop_map(|x: f64| x),
        (-10.0..10.0).prop_map(|x: f64| x),
        any::<i32>().prop_map(f64::from),
    ]
    .prop_map(move |x| json(format!("{x:?}")));
    let boolean = any::<bool>().prop_map(move |b| json(b.to_string()));
    let list = prop::collection::vec(literal(), 0..3)
        .prop_map(move |items| json(serde_json::to_string(&items).unwrap()));
    let object = prop::collection::hash_map("[a-z]{0,3}", any::<f32>(), 0..3)
        .prop_map(move |map| json(serde_json::to_string(&map).unwrap()));
    let all = (string(), string(), integer, number, boolean, (list, object)).prop_map(
        |(s, t, i, n, b, (l, o))| {
            vec![("s", s), ("t", t), ("i", i), ("n", n), ("b", b), ("l", l), ("o", o)]
        },
    );
    all.prop_flat_map(|all| prop::sample::subsequence(all, 0..=7)).prop_shuffle()
}

/// Calls of `f`.
fn calls() -> impl Strategy<Value = Vec<Arguments>> {
    let call = typed_arguments().prop_map(|entries| {
        let mut arguments = Arguments::default();
        for (name, value) in entries {
            arguments.set(name, value);
        }
        arguments
    });
    prop::collection::vec(call, 1..4)
}

/// The phase behind a whole reply as the template writes it, cut anywhere: worked out anew from all of its text, with
/// nothing remembered from one cut to the next.
fn slow_phase(cut: &str) -> Phase {
    let Some((_, mut rest)) = cut.split_once("</think>") else { return Phase::Thinking };
    while let Some((_, block)) = rest.split_once("<tool_call>") {
        let Some((_, mut function)) = block.split_once("<function=f>") else {
            return Phase::Structural;
        };
        loop {
            let function_end = function.find("</function>").unwrap_or(function.len());
            let Some(tag) = function[..function_end].find("<parameter=") else { break };
            let Some(tag_end) = function[tag..].find('>') else { return Phase::Structural };
            let value = &function[tag + tag_end + 1..];
            let Some(end) = closing(value) else {
                let closes = value.match_indices('<').any(|(at, _)| may_close(&value[at..]));
                return if closes { Phase::Structural } else { Phase::Payload };
            };
            function = &value[end..];
        }
        let Some((_, behind)) = function.split_once("</tool_call>") else {
            return Phase::Structural;
        };
        rest = behind;
    }
    Phase::Outside
}

/// Whether all of `text` may be the beginning of a closing tag and the tag behind it, and is two bytes of it at least.
fn may_close(text: &str) -> bool {
    if text.len() < CLOSE.len() {
        return text.len() >= 2 && CLOSE.starts_with(text);
    }
    let Some(behind) = text.strip_prefix(CLOSE) else { return false };
    let behind = behind.trim_start();
    let Some(behind) = behind.strip_prefix('>') else { return behind.is_empty() };
    FOLLOWS.iter().any(|tag| tag.starts_with(behind.trim_start()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_gives_the_same_events(
        bytes in hostile(),
        cuts in cuts(),
        thinking: bool,
        by_id: bool,
        with_tools: bool,
        turn: bool,
    ) {
        let source = if by_id { Source::Ids(SPECIAL) } else { Source::Text };
        let end = if turn { End::Turn } else { End::Cut };
        let options = || ReaderOptions { source, thinking, tools: with_tools.then(tools) };
        let whole = read(options(), &[&bytes], end);
        prop_assert_eq!(&read(options(), &cut(&bytes, &cuts), end), &whole);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&read(options(), &single, end), &whole);
        let (events, reply) = whole;
        let cut_off = reply.failure.as_ref().is_some_and(|f| f.kind == ErrorKind::Unterminated);
        if reply.calls.is_empty() && (turn || !cut_off) {
            prop_assert_eq!(shown(&events), reply.content);
        }
        let complete = events.iter().filter(|event| **event == Event::CallEnd).count();
        prop_assert_eq!(complete, reply.calls.len());
    }

    #[test]
    fn any_cut_between_markers_gives_the_same_events(
        parts in prop::collection::vec(fragment(), 0..40),
        thinking: bool,
    ) {
        read_ids(&parts, thinking);
    }

    #[test]
    fn rendered_calls_come_back(
        calls in calls(),
        text in prop::sample::select(vec!["", "Look.", "Look:\n- `x`"]),
        cuts in cuts(),
    ) {
        let blocks: Vec<String> = calls.iter().map(|a| canonical::call("f", a)).collect();
        let block = format!("{}{}", if text.is_empty() { "" } else { "\n\n" }, blocks.join("\n"));
        let whole = format!("Hm.\n</think>\n\n{text}{block}");
        let (_, reply) = read(options(Source::Text, true), &cut(whole.as_bytes(), &cuts), End::Turn);
        prop_assert_eq!(&reply.content, text);
        prop_assert!(reply.repairs.is_empty() && reply.failure.is_none());
        let found: Vec<&Arguments> = reply.calls.iter().map(|call| &call.arguments).collect();
        prop_assert_eq!(found, calls.iter().collect::<Vec<_>>());
        let replayed = reply.block.unwrap();
        prop_assert_eq!(replayed.text(), block);
    }
}

// What is slow gets fewer cases.
proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn phases_are_those_of_a_slow_recogniser(
        calls in calls(),
        text in prop::sample::select(vec!["", "Look.", "a < b, a </ b, <b>"]),
        cuts in cuts(),
    ) {
        let blocks: Vec<String> = calls.iter().map(|a| canonical::call("f", a)).collect();
        let whole = format!("Hm < x.\n</think>\n\n{text}\n\n{}\n", blocks.join("\n"));
        let single: Vec<&[u8]> = whole.as_bytes().chunks(1).collect();
        for parts in [single, cut(whole.as_bytes(), &cuts)] {
            let mut reader = Reader::new(options(Source::Text, true));
            let mut seen = 0;
            for part in parts {
                reader.bytes(part);
                seen += part.len();
                let text = String::from_utf8_lossy(&whole.as_bytes()[..seen]);
                prop_assert_eq!(reader.state(), slow_phase(&text), "behind {:?}", text);
            }
        }
    }
}
