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
        .prop_filter("closes in the middle", |text| !closes(text))
}

/// Whether a closing tag in `text` is followed by another tag, which makes it a real one.
fn closes(text: &str) -> bool {
    let tags = ["<parameter=", "<parameter ", "</function", "</tool_call>"];
    text.split("</parameter").skip(1).any(|behind| {
        let tag = behind.trim_start().strip_prefix('>').map(str::trim_start);
        tag.is_some_and(|tag| tags.iter().any(|name| tag.starts_with(name)))
    })
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
        calls in prop::collection::vec(typed_arguments(), 1..4),
        text in prop::sample::select(vec!["", "Look.", "Look:\n- `x`"]),
        cuts in cuts(),
    ) {
        let calls: Vec<Arguments> = calls
            .into_iter()
            .map(|entries| {
                let mut arguments = Arguments::default();
                for (name, value) in entries {
                    arguments.set(name, value);
                }
                arguments
            })
            .collect();
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
