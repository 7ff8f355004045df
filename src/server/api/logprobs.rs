//! Probabilities of tokens in the forms of chat and of completions.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::server::{Logprob, Ranked};

/// What stands for "never", which JSON has no number for.
const NEVER: f32 = -9999.0;

/// Probabilities for chat: `{"content":[…]}`.
pub(super) fn chat(logprobs: &[Logprob]) -> Value {
    let entry = |logprob: &Logprob| {
        let mut entry = ranked(&logprob.token);
        let top: Vec<Value> = logprob.top.iter().map(ranked).collect();
        entry["top_logprobs"] = Value::Array(top);
        entry
    };
    json!({"content": logprobs.iter().map(entry).collect::<Vec<Value>>(), "refusal": null})
}

fn ranked(token: &Ranked) -> Value {
    json!({
        "token": String::from_utf8_lossy(&token.bytes),
        "logprob": finite(token.logprob),
        "bytes": token.bytes,
    })
}

/// Probabilities for completions: parallel lists. `offset` counts the characters before the first token, and is brought
/// behind the last one.
pub(super) fn completions(logprobs: &[Logprob], offset: &mut usize) -> Value {
    let mut offsets = Vec::new();
    for logprob in logprobs {
        offsets.push(*offset);
        // A character counts where it begins.
        *offset += logprob.token.bytes.iter().filter(|&&byte| byte & 0xC0 != 0x80).count();
    }
    let top = |logprob: &Logprob| {
        let entry = |token: &Ranked| (spelled(&token.bytes), json!(finite(token.logprob)));
        logprob.top.iter().map(entry).collect::<Map<String, Value>>()
    };
    let tokens: Vec<String> = logprobs.iter().map(|l| spelled(&l.token.bytes)).collect();
    let values: Vec<f32> = logprobs.iter().map(|l| finite(l.token.logprob)).collect();
    json!({
        "tokens": tokens,
        "token_logprobs": values,
        "top_logprobs": logprobs.iter().map(top).collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}

/// A token as a text of its own: bytes that are no text are spelled out.
fn spelled(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    bytes.iter().fold("bytes:".to_owned(), |mut out, byte| {
        write!(out, "\\x{byte:02x}").expect("writing to a string cannot fail");
        out
    })
}

fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { NEVER }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::TokenId;

    fn token(bytes: &[u8], logprob: f32) -> Ranked {
        Ranked { id: TokenId(1), bytes: bytes.to_vec(), logprob }
    }

    #[test]
    fn both_forms() {
        let logprobs = [
            Logprob {
                token: token("é".as_bytes(), -0.5),
                top: vec![token("é".as_bytes(), -0.5), token(b"e", f32::NEG_INFINITY)],
            },
            Logprob { token: token(&[0xE2, 0x82], -1.0), top: vec![] },
            Logprob { token: token(&[0xAC], -0.25), top: vec![] },
        ];
        assert_eq!(
            chat(&logprobs[..1]).to_string(),
            r#"{"content":[{"token":"é","logprob":-0.5,"bytes":[195,169],"top_logprobs":[{"token":"é","logprob":-0.5,"bytes":[195,169]},{"token":"e","logprob":-9999.0,"bytes":[101]}]}],"refusal":null}"#
        );
        let mut offset = 3;
        assert_eq!(
            completions(&logprobs, &mut offset).to_string(),
            r#"{"tokens":["é","bytes:\\xe2\\x82","bytes:\\xac"],"token_logprobs":[-0.5,-1.0,-0.25],"top_logprobs":[{"é":-0.5,"e":-9999.0},{},{}],"text_offset":[3,4,5]}"#
        );
        assert_eq!(offset, 5);
    }
}
