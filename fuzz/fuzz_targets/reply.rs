//! The reader of replies: any bytes, cut anywhere, read the same as whole, and rendering what was read never panics.
//!
//! The first byte chooses how the reply begins and ends, the second where it is cut.

#![no_main]

use libfuzzer_sys::fuzz_target;
use q36::{
    chat::{End, Event, Prompt, Reader, ReaderOptions, Reply, Source, Tool, Toolset},
    tokenizer::{Special, TokenId},
};

const TOOL: &str = r#"{"name": "f", "parameters": {"properties": {"s": {"type": "string"},
    "i": {"type": "integer"}, "l": {"type": ["array", "null"]}}}}"#;

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

fuzz_target!(|data: &[u8]| {
    let [choice, step, reply @ ..] = data else { return };
    let whole = read(*choice, reply, usize::MAX);
    assert_eq!(read(*choice, reply, usize::from(*step).max(1)), whole);
    if let Some(block) = &whole.1.block {
        Prompt::new().replay(block);
    }
});

/// Feeds at most `step` bytes at a time. The bits of `choice`: by id, thinking, with tools, end of turn. In a reply by id
/// a byte from 1 to 9 stands for a marker.
fn read(choice: u8, data: &[u8], step: usize) -> (String, Reply) {
    let bit = |n: u8| choice >> n & 1 == 1;
    let by_id = bit(0);
    let is_marker = |byte: &u8| by_id && (1..=9).contains(byte);
    let tools = || Toolset::new(&[Tool::parse(TOOL).expect("a constant")]);
    let mut reader = Reader::new(ReaderOptions {
        source: if by_id { Source::Ids(SPECIAL) } else { Source::Text },
        thinking: bit(1),
        tools: bit(2).then(tools),
    });
    let mut events = Vec::new();
    for run in data.chunk_by(|a, b| !is_marker(a) && !is_marker(b)) {
        if is_marker(&run[0]) {
            events.extend(reader.token(TokenId(u32::from(run[0])), b"<marker>"));
            continue;
        }
        for part in run.chunks(step) {
            events.extend(reader.bytes(part));
            let _ = (reader.state(), reader.is_done());
        }
    }
    let (last, reply) = reader.finish(if bit(3) { End::Turn } else { End::Cut });
    events.extend(last);
    (shown(&events), reply)
}

/// Everything that was passed on, without the borders between pieces.
fn shown(events: &[Event]) -> String {
    let text = |event: &Event| match event {
        Event::Reasoning(text) | Event::Text(text) | Event::ParamBytes(text) => text.clone(),
        other => format!("{other:?}"),
    };
    events.iter().map(text).collect()
}
