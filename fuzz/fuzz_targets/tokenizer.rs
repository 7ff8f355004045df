//! Arbitrary text through the demo vocabulary, and arbitrary arrays as a vocabulary.
//!
//! Every byte string comes back, payload never becomes an added token, a stream gives the same text however it is
//! cut, and no vocabulary makes the loader panic.

#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use q36::gguf::File;
use q36::tokenizer::{Segment, StreamDecoder, Tokenizer, VocabSource};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/q36-tiny.gguf");

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let file = File::open(Path::new(MODEL)).expect("the demo model is in the repository");
    let meta = file.metadata();
    let source = VocabSource {
        tokens: Box::new(meta.strings("tokenizer.ggml.tokens").expect("present")),
        types: Box::new(meta.i32s("tokenizer.ggml.token_type").expect("present").into_iter()),
        merges: Box::new(meta.strings("tokenizer.ggml.merges").expect("present")),
        eos: None,
        bos: None,
    };
    Tokenizer::new(source).expect("the demo vocabulary is well formed")
});

fuzz_target!(|data: &[u8]| {
    let Some((&first, data)) = data.split_first() else { return };
    if first & 1 == 0 {
        text(data, usize::from(first >> 1));
    } else {
        vocabulary(data);
    }
});

/// Encodes and decodes, whole, as a prompt cut at `at`, and through a stream.
fn text(data: &[u8], at: usize) {
    let payload = TOKENIZER.encode_text(data);
    assert_eq!(TOKENIZER.decode(&payload), data);
    assert!(payload.iter().all(|&id| !TOKENIZER.kind(id).is_added()));
    let control = TOKENIZER.encode_control(data);
    assert_eq!(TOKENIZER.decode(&control), data);

    let mut decoder = StreamDecoder::new();
    let mut streamed: String =
        control.iter().map(|&id| decoder.push(TOKENIZER.bytes(id))).collect();
    streamed += &decoder.finish_lossy();
    assert_eq!(streamed, String::from_utf8_lossy(data));

    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some((left, right)) = text.split_at_checked(at) else { return };
    let prompt = [Segment::Payload(left), Segment::Control(right)];
    let marked = TOKENIZER.encode_prompt_marked(&prompt);
    assert_eq!(TOKENIZER.text(&marked.ids).bytes, data);
    assert_eq!(TOKENIZER.text(&marked.ids).markers, marked.markers);
    let rest = TOKENIZER.encode_prompt_from(&prompt, at).expect("payload has no markers");
    assert_eq!(TOKENIZER.decode(&rest.ids), right.as_bytes());
}

/// A vocabulary of the demo's rows, all but the bytes as added tokens, with rows and merges from the lines of the
/// input; the first byte of a line says which.
fn vocabulary(data: &[u8]) {
    let spelled: Vec<Vec<u8>> = (0..TOKENIZER.vocab_size() as u32)
        .map(|row| TOKENIZER.spelling(q36::tokenizer::TokenId(row)).into_bytes())
        .collect();
    let mut tokens: Vec<&[u8]> = spelled.iter().map(Vec::as_slice).collect();
    let mut types = vec![1; 256];
    types.resize(tokens.len(), 4);
    let mut merges = Vec::new();
    for line in data.split(|&b| b == b'\n') {
        match line {
            [b'm', merge @ ..] => merges.push(merge),
            [b't', ty, token @ ..] => {
                tokens.push(token);
                types.push(i32::from(ty & 7));
            }
            [b'x', ..] => types.push(1),
            _ => {}
        }
    }
    let source = VocabSource {
        tokens: Box::new(tokens.iter().copied()),
        types: Box::new(types.iter().copied()),
        merges: Box::new(merges.iter().copied()),
        eos: None,
        bos: None,
    };
    if let Ok(tokenizer) = Tokenizer::new(source) {
        assert_eq!(tokenizer.decode(&tokenizer.encode_control(data)), data);
    }
}
