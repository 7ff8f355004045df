//! A vocabulary of a few hundred rows for unit tests.

use super::{Tokenizer, VocabSource, alphabet};

/// Rows 0 to 255 are bytes, merged ones and markers follow, two rows at the end are unused.
pub(super) struct Sample {
    pub(super) tokens: Vec<Vec<u8>>,
    pub(super) types: Vec<i32>,
    pub(super) merges: Vec<Vec<u8>>,
}

/// Added tokens of the sample and their types.
pub(super) const ADDED: [(&str, i32); 11] = [
    ("<|endoftext|>", 3),
    ("<|im_start|>", 3),
    ("<|im_end|>", 3),
    ("<think>", 4),
    ("</think>", 4),
    ("<tool_call>", 4),
    ("</tool_call>", 4),
    ("<tool_response>", 4),
    ("</tool_response>", 4),
    // A pair of which one begins the other.
    ("<tts>", 3),
    ("<tts>!", 3),
];

/// Merged pairs, in rank order.
const MERGED: [(&str, &str); 12] = [
    ("a", "a"),
    ("aa", "aa"),
    (" ", "t"),
    ("h", "e"),
    (" t", "he"),
    ("i", "n"),
    ("in", "g"),
    ("=", "f"),
    ("\n", "\n"),
    (">", "\n"),
    ("<", "a"),
    ("é", "é"),
];

impl Sample {
    pub(super) fn new() -> Self {
        let spell = |bytes: &[u8]| alphabet::write(bytes).into_bytes();
        let mut sample = Self { tokens: Vec::new(), types: Vec::new(), merges: Vec::new() };
        let merge = |sample: &mut Self, left: &[u8], right: &[u8]| {
            sample.merges.push([spell(left), b" ".to_vec(), spell(right)].concat());
            sample.tokens.push(spell(&[left, right].concat()));
        };
        sample.tokens.extend((0..=u8::MAX).map(|b| spell(&[b])));
        merge(&mut sample, b"\xC3", b"\xA9");
        for (left, right) in MERGED {
            merge(&mut sample, left.as_bytes(), right.as_bytes());
        }
        // In the vocabulary, but no merge makes it.
        sample.tokens.push(spell(b"zzz"));
        sample.types = vec![1; sample.tokens.len()];
        for (text, ty) in ADDED {
            sample.tokens.push(text.into());
            sample.types.push(ty);
        }
        for pad in ["[PAD0]", "[PAD1]"] {
            sample.tokens.push(pad.into());
            sample.types.push(5);
        }
        sample
    }

    pub(super) fn source(&self) -> VocabSource<'_> {
        VocabSource {
            tokens: Box::new(self.tokens.iter().map(Vec::as_slice)),
            types: Box::new(self.types.iter().copied()),
            merges: Box::new(self.merges.iter().map(Vec::as_slice)),
            eos: None,
            bos: None,
        }
    }

    pub(super) fn tokenizer() -> Tokenizer {
        Tokenizer::new(Self::new().source()).expect("the sample is well formed")
    }
}
