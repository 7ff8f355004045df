//! A vocabulary of a few hundred rows for unit tests.

use super::{Tokenizer, VocabSource, alphabet};

/// The arrays of a model file. Rows 0 to 255 are bytes, merged ones and markers follow, the last two are unused.
#[derive(Debug)]
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

/// Merged pairs of the usual sample, in rank order.
const MERGED: [(&[u8], &[u8]); 13] = [
    (b"\xC3", b"\xA9"),
    (b"a", b"a"),
    (b"aa", b"aa"),
    (b" ", b"t"),
    (b"h", b"e"),
    (b" t", b"he"),
    (b"i", b"n"),
    (b"in", b"g"),
    (b"=", b"f"),
    (b"\n", b"\n"),
    (b">", b"\n"),
    (b"<", b"a"),
    (b"g", b">"),
];

impl Sample {
    /// The usual one.
    pub(super) fn new() -> Self {
        let mut sample = Self::with_merges(&MERGED.map(|(l, r)| (l.to_vec(), r.to_vec())));
        // In the vocabulary, but no merge makes it.
        sample.tokens.insert(256, alphabet::write(b"zzz").into_bytes());
        sample.types.insert(256, 1);
        sample
    }

    /// One with these merges of existing tokens; results that are new get a row.
    pub(super) fn with_merges(merges: &[(Vec<u8>, Vec<u8>)]) -> Self {
        let spell = |bytes: &[u8]| alphabet::write(bytes).into_bytes();
        let mut tokens: Vec<Vec<u8>> = (0..=u8::MAX).map(|b| spell(&[b])).collect();
        for (left, right) in merges {
            let result = spell(&[left.as_slice(), right].concat());
            if !tokens.contains(&result) {
                tokens.push(result);
            }
        }
        let mut types = vec![1; tokens.len()];
        for (text, ty) in ADDED {
            tokens.push(text.into());
            types.push(ty);
        }
        for pad in ["[PAD0]", "[PAD1]"] {
            tokens.push(pad.into());
            types.push(5);
        }
        let join = |(l, r): &(Vec<u8>, Vec<u8>)| [spell(l), b" ".to_vec(), spell(r)].concat();
        Self { tokens, types, merges: merges.iter().map(join).collect() }
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

    pub(super) fn tokenizer(&self) -> Tokenizer {
        Tokenizer::new(self.source()).expect("the sample is well formed")
    }
}
